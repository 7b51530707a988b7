"""Derivatives of the library's own autograd functions, which are first derivatives only."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from clipper.errors import InputError

Result = TypeVar("Result")


def first_derivative(backward: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate the `backward` of an autograd function that treats its saved values as constants.

    PyTorch's `once_differentiable` refuses second derivatives only if the incoming gradient needs one. The gradient of
    a sum of losses does not need one, and then second derivatives would be wrong without an error.
    """

    @wraps(backward)
    def run(*arguments: Any) -> Result:
        if torch.is_grad_enabled():
            raise InputError(
                "expected a first derivative, got create_graph=True: second derivatives are not supported by this "
                "loss; take the gradient without create_graph=True, or use ScallopLoss with k of at most 10, which "
                "has second derivatives"
            )
        return backward(*arguments)

    return run


def once(values: Tensor) -> Tensor:
    """The same values, whose second derivatives are refused."""
    return _Once.apply(values)  # type: ignore[no-any-return, no-untyped-call]


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    @first_derivative
    def backward(_: Any, grad: Tensor) -> Tensor:
        return grad
