"""Checks of arguments: numbers, names and arrays are converted to one form, or refused in words."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable, Mapping, MappingView, Sequence, Set
from dataclasses import field, fields
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clipper.errors import InputError

CountProgress = Callable[[int, int], None]
"""Called during the work with the number done and the total."""
StageProgress = Callable[[str, int, int], None]
"""Called during the work with the stage, the number done and the total; 0 if the total is unknown."""
Thing = TypeVar("Thing")
MOST_SEED = 2**63 - 1
MOST = 2**31 - 1
"""The largest count that an argument may have."""
_SIGNED = {torch.uint8: torch.int16, torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
"""For each unsigned type, a signed type that holds its values; of 64 bits, only those below 2^63."""
_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, *_SIGNED)


def whole_number(value: object, name: str, least: int = 1, most: int | None = None) -> int:
    """A whole number within bounds: Python's, NumPy's or a tensor of one. True and False are refused.

    Args:
        value: the caller's value.
        name: the name of the argument in messages.
        least: the smallest value.
        most: the largest value; None for no limit.

    Raises:
        InputError: it is not a whole number, or out of bounds.

    Examples:
        >>> whole_number(np.int64(3), "k")
        3
    """
    number = as_index(value)
    if number is None or number < least or (most is not None and number > most):
        bounds = f"at least {least}" + ("" if most is None else f" and at most {most}")
        raise InputError(f"expected {name} of {bounds}, a whole number, got {shown(value)}")
    return number


def as_index(value: Any) -> int | None:
    """The value as Python's own whole number; None if it is not a whole number."""
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_) or (isinstance(value, Tensor) and value.dtype == torch.bool):
        return None
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):
        return None


def real_number(
    value: Any,
    name: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    finite: bool = True,
) -> float:
    """A number within bounds, never NaN: Python's, NumPy's or a tensor of one.

    Args:
        value: the caller's value.
        name: the name of the argument in messages.
        above: the number must be larger than this.
        least: the smallest value.
        below: the number must be smaller than this.
        most: the largest value.
        finite: whether infinity is refused.

    Raises:
        InputError: it is not a number, or out of bounds.

    Examples:
        >>> real_number(0.5, "a share", above=0, most=1)
        0.5
    """
    number = value if type(value) is float else _as_float(value)
    inside = above < number or above == -math.inf
    inside = inside and least <= number <= most and (number < below or below == math.inf)
    if math.isnan(number) or not inside or (finite and math.isinf(number)):
        words = {"above": above, "of at least": least, "below": below, "of at most": most}
        bounds = " and ".join(f"{word} {bound:g}" for word, bound in words.items() if math.isfinite(bound))
        kind = "a finite number" if finite else "a number"
        raise InputError(f"expected {name} to be {kind}{' ' * bool(bounds)}{bounds}, got {shown(value)}")
    return number


def _as_float(value: Any) -> float:
    """The value as a float; NaN if it is not a number."""
    single = isinstance(value, np.generic | Tensor | np.ndarray) and math.prod(np.shape(value)) == 1
    if isinstance(value, bool | np.bool_) or not (isinstance(value, int | float) or single):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


def seed_number(value: object) -> int:
    """A seed of a random generator."""
    return whole_number(value, "seed", 0, MOST_SEED)


def seeded(seed: object) -> torch.Generator:
    """A random generator on the CPU, so that a seed gives the same draws on every device."""
    return torch.Generator().manual_seed(seed_number(seed))


def yes_or_no(value: object, name: str) -> bool:
    """The value, if it is True or False; other values, such as text, are refused."""
    if value is True or value is False:
        return value
    if not isinstance(value, bool | int | np.bool_) or value not in (0, 1):
        raise InputError(f"expected {name} to be True or False, got {shown(value)}")
    return bool(value)


def one_of(value: object, name: str, options: Sequence[str]) -> None:
    """Raise unless `value` is one of the names."""
    if not isinstance(value, str) or value not in options:
        names = ", ".join(f'"{option}"' for option in options[:-1])
        raise InputError(f'expected {name} to be {names} or "{options[-1]}", got {shown(value)}')


def named_like(patterns: Sequence[str], things: Mapping[str, Thing], name: str, known: str = "") -> list[Thing]:
    """The things whose names match one of the patterns, in the order of `things`; all if there is no pattern.

    Raises:
        InputError: if nothing matches a pattern; `known` says what there is, by default all names.

    Examples:
        >>> named_like(["a/*"], {"a/1": 1, "b/1": 2, "a/2": 3}, "a number")
        [1, 3]
    """
    for pattern in patterns:
        if not any(fnmatchcase(each, pattern) for each in things):
            known = known or f"there are {', '.join(things)}"
            raise InputError(f"expected the name of {name}, got {pattern!r}; {known}")
    return [
        thing for each, thing in things.items() if not patterns or any(fnmatchcase(each, like) for like in patterns)
    ]


def as_list(values: Any, name: str, *, ordered: bool = True) -> list[Any]:
    """Any iterable as a list of Python's own values; text is refused, and sets are, unless the order means nothing.

    Args:
        values: the caller's values.
        name: the name of the argument in messages.
        ordered: whether the order of the values means something.

    Raises:
        InputError: if they are not a list.
    """
    if ordered and isinstance(values, Set) and not isinstance(values, MappingView):  # views of a mapping have an order
        raise InputError(f"expected {name} as a list, got a set, which has no order: {shown(values)}")
    if isinstance(values, Tensor):
        values = as_tensor(values, name)
    if getattr(values, "ndim", 0) and hasattr(values, "tolist"):
        values = values.tolist()
    try:
        if not isinstance(values, str | bytes | bytearray | Mapping):
            return list(values)
    except TypeError:  # it cannot be iterated, such as a tensor without dimensions
        pass
    raise InputError(f"expected {name} as a list, got {shown(values)}")


def as_tensor(values: object, name: str, device: torch.device | None = None) -> Tensor:
    """A dense tensor of real numbers: a tensor is returned unchanged, an array or lists become one on `device`."""
    tensor = values if isinstance(values, Tensor) else _from_array(values, name).to(device)
    if tensor.is_meta or tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
        raise InputError(
            f"expected {name} as a dense tensor with values in it, got {tensor.layout} of {tensor.dtype} on "
            f"{tensor.device}; turn it into one, for example with to_dense()"
        )
    if tensor.is_complex():
        raise InputError(f"expected {name} of real numbers, got {tensor.dtype}; take .abs() or torch.view_as_real")
    return tensor


def _from_array(values: object, name: str) -> Tensor:
    """An array or nested lists as a tensor, in the byte order of this machine, which torch needs."""
    try:
        array = np.asarray(values)
    except Exception as error:  # an object may raise anything here
        raise InputError(
            f"expected {name} as a tensor, an array or lists of numbers, got {shown(values)}: {error}"
        ) from error
    if array.dtype.kind not in "fiubc":
        raise InputError(f"expected {name} as a tensor, an array or lists of numbers, got {shown(values)}")
    kind = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 or array.dtype.kind == "c" else np.dtype(float)
    if isinstance(values, list | tuple) and kind == np.float64:
        kind = np.dtype(np.float32)  # as torch reads lists
    kind = np.dtype(kind.str)  # NumPy has two types of 64 bits, and torch knows one of them
    own = np.ascontiguousarray(array, dtype=kind).reshape(array.shape)
    return torch.from_numpy(own if own.flags.writeable else own.copy())


def whole_numbers(values: object, name: str) -> Tensor:
    """Whole numbers of any shape as a tensor of a signed type, from a tensor, an array or lists.

    Examples:
        >>> whole_numbers(np.array([[200]], dtype=np.uint8), "labels")
        tensor([[200]], dtype=torch.int16)
    """
    tensor = as_tensor(values, name)
    if tensor.numel() == 0 and not isinstance(values, Tensor | np.ndarray):
        return tensor.long()  # an empty list has no type of its own
    if tensor.dtype not in _WHOLE:
        raise InputError(f"expected whole {name}, integers of any type, got {tensor.dtype}: {shown(values)}")
    if tensor.dtype == torch.uint64 and bool((tensor.long() < 0).any()):
        raise InputError(f"expected {name} below 2^63, got {int(tensor.cpu().numpy().max())}")
    return tensor.to(_SIGNED.get(tensor.dtype, tensor.dtype))


def all_within(numbers: Tensor, low: int, high: int) -> bool:
    """Whether all whole numbers of a tensor are in `low … high`. Only the answer is read from its device.

    Examples:
        >>> all_within(torch.tensor([0, 3]), 0, 3), all_within(torch.tensor([0]), 0, -1)
        (True, False)
    """
    return not numbers.numel() or (low <= high and torch.equal(numbers, numbers.clamp(low, high)))


def usable_device(device: object) -> torch.device:
    """The device, if tensors can be put there."""
    try:
        found: torch.device = torch.device(device)  # type: ignore[call-overload]
        torch.empty(0, device=found)
    except Exception as error:  # which one depends on how PyTorch was built
        raise InputError(f"expected a device of this computer, such as 'cpu', got {shown(device)}: {error}") from error
    if found.type == "meta":
        raise InputError("expected a device that holds values, such as 'cpu', got 'meta', which holds only shapes")
    return found


@lru_cache(maxsize=64)
def widest_float(device: torch.device) -> torch.dtype:
    """The most precise floating point that a device has: double precision, but single precision on Apple's GPUs."""
    try:
        return torch.empty(0, dtype=torch.float64, device=device).dtype
    except (TypeError, RuntimeError):
        return torch.float32


def widened(values: Tensor) -> Tensor:
    """The values in the most precise floating point that their device has.

    Examples:
        >>> widened(torch.ones(1)).dtype
        torch.float64
    """
    return values.to(widest_float(values.device))


def number_in_words(number: int) -> str:
    """A whole number of any size as a short text.

    Examples:
        >>> number_in_words(12_345), number_in_words(10**5000)
        ('12,345', 'about 10^5000')
    """
    return f"{number:,}" if abs(number) < 10**15 else f"about 10^{int(number.bit_length() * 0.30103)}"


def shown(value: object) -> str:
    """A short description of a value, for messages."""
    if isinstance(value, Tensor):
        where = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}{where}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    try:
        return reprlib.repr(value)
    except Exception:  # Python does not write out numbers of thousands of digits; other objects may raise anything
        return f"a {type(value).__name__}"


def option(default: Any, text: str, **limits: Any) -> Any:
    """A field of a configuration with its help text. Commands create their options from these fields.

    Args:
        default: the default value.
        text: the help text.
        limits: `least`, `most` and `above` of numbers; `flags`, more names of the option besides the field's.
    """
    return field(default=default, metadata={"help": text, **limits})


def documented(config: type) -> type:
    """Add an `Attributes` block to the docstring of a configuration, from the help texts of its fields."""
    lines = [f"        {entry.name}: {entry.metadata['help']}" for entry in fields(config) if "help" in entry.metadata]
    config.__doc__ = "\n".join([str(config.__doc__).rstrip(), "", "    Attributes:", *lines, "    "])
    return config
