"""Plain arguments: numbers, names and arrays as callers write them, checked where they come in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.errors import InputError

LARGEST_SEED = 2**63 - 1


def whole(value: object, name: str, least: int = 1, most: int | None = None) -> int:
    """A whole number between `least` and `most`; numpy's will do, truth values will not.

    Examples:
        >>> whole(3, "k")
        3
    """
    right = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
    if not right or int(value) < least or (most is not None and int(value) > most):  # type: ignore[call-overload]
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"expected {name} to be a whole number {bounds}, got {shown(value)}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def number(value: object, name: str, expected: str, *, above: float = -math.inf, least: float = -math.inf,
           below: float = math.inf, most: float = math.inf) -> float:  # fmt: skip
    """A number within bounds, never NaN; `expected` says in words which.

    Examples:
        >>> number(0.5, "share", "above 0 and at most 1", above=0, most=1)
        0.5
    """
    right = isinstance(value, Real) and not isinstance(value, bool)
    if not right or not (above < float(value) < below and least <= float(value) <= most):  # type: ignore[arg-type]
        raise InputError(f"expected {name} {expected}, got {shown(value)}")
    return float(value)  # type: ignore[arg-type]


def seed_of(value: object) -> int:
    """A seed of a random generator."""
    return whole(value, "seed", 0, LARGEST_SEED)


def one_of(value: object, name: str, options: Sequence[str]) -> None:
    """Raise unless `value` is one of the names."""
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(f'"{option}"' for option in options[:-1])
        raise InputError(f'expected {name} to be {listed} or "{options[-1]}", got {shown(value)}')


def as_tensor(value: Any, name: str, device: torch.device | None = None) -> Tensor:
    """A tensor as it is; a numpy array or nested lists of numbers as a tensor on `device`."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_meta or value.is_nested:
            raise InputError(f"expected {name} as an ordinary dense tensor, got {shown(value)}")
        return value
    if not isinstance(value, Sequence) and not hasattr(value, "__array__"):
        raise InputError(f"expected {name} as a tensor, an array or nested lists of numbers, got {shown(value)}")
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"expected {name} as a tensor, an array or nested lists of numbers, got {shown(value)}: {error}"
        ) from error


def shown(value: object) -> str:
    """What came, for a message: short values as they are, others by type and shape."""
    if isinstance(value, Tensor):
        where = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}{where}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
