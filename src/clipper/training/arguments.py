"""What a training is given, checked before the first step."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clipper.errors import ClipperError, InputError
from clipper.pruning import Clipper

MOST = 2**31 - 1
"""The largest whole number that an option may have; seeds may be larger."""
MOST_SEED = 2**63 - 1


def whole(name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """A whole number within bounds, as Python's own.

    Examples:
        >>> whole("batch", np.int64(8))
        8
    """
    number = None
    if not isinstance(value, bool | np.bool_ | Tensor):
        try:
            number = operator.index(value)
        except TypeError:
            number = None
    if number is None:
        raise InputError(f"expected {name} to be a whole number, got {value!r}")
    if not least <= number <= most:
        bound = f"of at least {least}" if number < least else f"of at most {most}"
        raise InputError(f"expected {name} {bound}, got {number}")
    return number


def finite(name: str, value: Any, *, positive: bool = False) -> float:
    """A finite number that is positive or, if `positive` is not set, not negative.

    Examples:
        >>> finite("lr", 1e-3, positive=True)
        0.001
    """
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise InputError(
            f"expected {name} to be a finite number {'above' if positive else 'of at least'} 0, got {value!r}"
        )
    return number


def number(name: str, value: Any, least: float = 0, most: float = math.inf) -> None:
    """Refuse a figure that is no finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"expected {name} to be a finite number, got {value!r}")
    if not least <= value <= most:
        raise InputError(f"expected {name} of {least:g} to {most:g}, got {value!r}")


def tensor(name: str, value: Any) -> Tensor:
    """A tensor from whatever is an array of numbers."""
    if isinstance(value, Tensor):
        return value
    try:
        return torch.as_tensor(np.asarray(value) if not isinstance(value, np.ndarray) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"expected {name} to be a tensor or an array of numbers, got {_kind(value)}") from error


def check_parts(classifier: Any, engine: Any) -> None:
    """Refuse a classifier or an engine that nothing can be learned with."""
    if not isinstance(classifier, nn.Module):
        raise InputError(f"expected the classifier to be a torch.nn.Module, got {_kind(classifier)}")
    if not isinstance(engine, nn.Module):
        raise InputError(f"expected the engine to be one of clipper.engines or a torch.nn.Module, got {_kind(engine)}")
    weights = list(classifier.parameters())
    if any(isinstance(weight, nn.UninitializedParameter) for weight in weights):
        return  # the first batch shapes them
    if not any(weight.requires_grad for weight in weights):
        raise InputError("expected a classifier with weights to learn, got one without, or with frozen ones alone")
    if any(weight.is_inference() for weight in weights):
        raise InputError(
            "expected a classifier that can learn, got one made in torch.inference_mode(); make it outside"
        )


def check_pruning(clip: Any, once: Any) -> None:
    """Refuse what is no way to prune."""
    if clip is not None and not isinstance(clip, Clipper):
        raise InputError(f"expected clip=Clipper(...) or None, got {_kind(clip)}")
    if not isinstance(once, bool):
        raise InputError(f"expected once to be True or False, got {once!r}")


def check_optimiser(optimiser: Any, classifier: nn.Module) -> None:
    """Refuse an optimiser that does not update the classifier, or that cannot do so step by step."""
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise InputError(f"expected a torch.optim.Optimizer, got {_kind(optimiser)}")
    if isinstance(optimiser, torch.optim.LBFGS):
        raise InputError("expected an optimiser that takes one step per batch, got LBFGS; take AdamW, Adam or SGD")
    own = set(map(id, classifier.parameters()))
    if not any(id(weight) in own for group in optimiser.param_groups for weight in group["params"]):
        raise InputError("expected an optimiser of the classifier's weights, got one of other weights")


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Say whose fault it is when a part that the user brought fails; memory that is too small stays torch's error."""
    try:
        yield
    except (ClipperError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError) as error:
        raise InputError(f"{what} failed: {type(error).__name__}: {error}") from error


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
