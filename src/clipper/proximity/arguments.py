"""What callers pass, brought into form or refused in words. Knows numbers and tensors only."""

from __future__ import annotations

import math
import operator

import numpy as np
import torch
from torch import Tensor

from clipper.errors import InputError


def as_tensor(values: object, what: str) -> Tensor:
    """A tensor, an array or nested lists of numbers as a tensor without gradients."""
    if not isinstance(values, Tensor | np.ndarray | np.generic | list | tuple | range | int | float):
        raise InputError(f"expected {what} as a tensor, an array or lists of numbers, got {type(values).__name__}")
    if isinstance(values, np.ndarray):
        values = _native(values, what)
    try:
        tensor = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"expected {what} as a tensor, an array or lists of numbers ({error})") from error
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        raise InputError(
            f"expected {what} as a plain tensor with values, got one on {tensor.device} of layout {tensor.layout}; "
            "a sparse tensor becomes plain by .to_dense()"
        )
    if tensor.is_complex():
        raise InputError(f"expected {what} of real numbers, got {tensor.dtype}; take .abs() or torch.view_as_real")
    return tensor


def _native(values: np.ndarray, what: str) -> np.ndarray:
    """In the byte order of this machine and with ascending strides, which torch needs."""
    if values.dtype.kind not in "fiub":
        raise InputError(f"expected {what} of numbers, got an array of {values.dtype}")
    if values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    ordered = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False)).reshape(values.shape)
    return ordered if ordered.flags.writeable else ordered.copy()


def whole_numbers(values: object, what: str) -> Tensor:
    """Whole numbers as a tensor of 64-bit integers."""
    tensor = as_tensor(values, what)
    if tensor.numel() and (tensor.is_floating_point() or tensor.dtype == torch.bool):
        raise InputError(f"expected whole {what}, got {tensor.dtype}")
    return tensor.long()


def whole_number(value: object, what: str, least: int) -> int:
    """A whole number of at least `least`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"expected {what} as a whole number of at least {least}, got {value!r}") from None
    if number < least:
        raise InputError(f"expected {what} of at least {least}, got {value!r}")
    return number


def real_number(value: object, what: str) -> float:
    """A number that is not NaN."""
    single = isinstance(value, np.generic | Tensor | np.ndarray) and math.prod(np.shape(value)) == 1
    if isinstance(value, bool) or not (isinstance(value, int | float) or single):
        raise InputError(f"expected {what}, got {value!r}")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"expected {what}, got {value!r}") from None
    if math.isnan(number):
        raise InputError(f"expected {what}, got {value!r}")
    return number


def yes_or_no(value: object, what: str) -> bool:
    """True or false; text would always be true."""
    if not isinstance(value, bool | int | np.bool_) or value not in (0, 1):
        raise InputError(f"expected {what} to be True or False, got {value!r}")
    return bool(value)
