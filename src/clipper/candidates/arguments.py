"""What callers pass in, read once at the door: numbers, rows of numbers, targets, slots and domains."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.errors import BudgetError, InputError

_SIGNED = {torch.uint8: torch.int16, torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
"""The signed type that holds every value of an unsigned one; of 64 bits, those that matter."""
_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, *_SIGNED)
_TEXT = str | bytes | bytearray


def whole_number(value: object, name: str, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least `least`, at most `most`: Python's, NumPy's or a tensor of one; True is none.

    Examples:
        >>> whole_number(np.int64(3), "k")
        3
    """
    number = as_index(value)
    if number is None or number < least or (most is not None and number > most):
        bounds = f"at least {least}" + ("" if most is None else f" and at most {most}")
        raise InputError(f"expected {name} of {bounds}, a whole number, got {shown(value)}")
    return number


def listed(values: Any, name: str) -> list[Any]:
    """What was passed as a list; a single text is no list of its letters."""
    try:
        if not isinstance(values, _TEXT):
            return list(values)
    except TypeError:
        pass
    raise InputError(f"expected {name} as a list, got {shown(values)}")


def as_index(value: Any) -> int | None:
    """Python's own whole number, or None where it is none."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, Tensor) and value.dtype == torch.bool):
        return None
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):
        return None


def whole_numbers(values: object, name: str) -> Tensor:
    """Whole numbers of any shape as a tensor of a signed type, from a tensor, an array or lists.

    Examples:
        >>> whole_numbers(np.array([[200]], dtype=np.uint8), "labels")
        tensor([[200]], dtype=torch.int16)
    """
    tensor = plain_tensor(values, name)
    if tensor.numel() == 0 and not isinstance(values, Tensor | np.ndarray):
        return tensor.long()  # an empty list has no type of its own
    if tensor.dtype not in _WHOLE:
        raise InputError(f"expected whole {name}, integers of any type, got {tensor.dtype}: {shown(values)}")
    if tensor.dtype == torch.uint64 and bool((tensor.long() < 0).any()):
        raise InputError(f"expected {name} below 2^63, got {int(tensor.cpu().numpy().max())}")
    return tensor.to(_SIGNED.get(tensor.dtype, tensor.dtype))


def plain_tensor(values: object, name: str) -> Tensor:
    """A dense tensor with values in it, from a tensor, an array or lists."""
    if isinstance(values, Tensor):
        if values.is_meta or values.is_nested or values.is_quantized or values.layout != torch.strided:
            raise InputError(
                f"expected {name} as a dense tensor with values in it, got {values.layout} of {values.dtype} on "
                f"{values.device}; turn it into one, with to_dense() say"
            )
        return values
    try:
        array = np.asarray(values)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
    except Exception as error:  # whatever an object does when it is asked to be an array
        raise InputError(f"expected {name} as a tensor, an array or lists of numbers, got {shown(values)}") from error


def targets_and_lengths(targets: object, slots: object) -> tuple[list[Hashable], list[int]]:
    """One target and one number of slots for each sample, of which there must be one."""
    wanted = _targets(targets)
    one = not hasattr(slots, "__len__") or getattr(slots, "ndim", 1) == 0
    lengths = [whole_number(slots, "slots")] * len(wanted) if one else _lengths(slots)
    if len(lengths) != len(wanted) or not wanted or min(lengths) < 1:
        raise InputError(
            f"expected one positive number of slots per target and at least one target, "
            f"got {len(lengths)} slot numbers {shown(lengths[:5])} for {len(wanted)} targets"
        )
    return wanted, lengths


def _lengths(slots: object) -> list[int]:
    lengths = whole_numbers(slots, "slots")
    if lengths.ndim != 1:
        raise InputError(f"expected slots as one number or as a list with one for each sample, got {shown(slots)}")
    numbers: list[int] = lengths.tolist()
    return numbers


def _targets(targets: object) -> list[Hashable]:
    if getattr(targets, "ndim", 1) != 1:
        raise InputError(f"expected targets as a list with one for each sample, got {shown(targets)}")
    values: list[Hashable] = as_list(targets, "targets as a list with one for each sample")
    if set(map(type, values)) <= {int, bool, str}:
        return values
    return [_target(value, i) for i, value in enumerate(values)]


def as_list(values: Any, expected: str) -> list[Any]:
    """Whatever can be gone through, apart from text and mappings, as a list of Python's own values."""
    if isinstance(values, Tensor):
        values = plain_tensor(values, "values")
    if getattr(values, "ndim", 1) and hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, _TEXT | Mapping) or getattr(values, "ndim", 1) == 0:
        raise InputError(f"expected {expected}, got {shown(values)}")
    return list(values)


def _target(value: object, sample: int) -> Hashable:
    value = as_python(value)
    try:
        right = hash(value) is not None and value is not None and bool(value == value)  # NaN is not
    except Exception:
        right = False
    if not right:
        raise InputError(
            f"expected a hashable target that equals itself for each sample, such as a number or a tuple, "
            f"got {shown(value)} for sample {sample}"
        )
    return value


def as_python(value: Any) -> Any:
    """Python's own number for a tensor or an array of one, so that equal values are equal; else the same."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def domains_of_slots(domains: object, longest: int, classes: int) -> list[Sequence[int]]:
    """The labels that each slot may take, ascending."""
    if domains is None:
        return [range(classes)] * longest
    listed = as_list(domains, "domains as a list of labels for each slot")
    rows = [_domain(domain, slot) for slot, domain in enumerate(listed)]
    if len(rows) < longest or not all(rows):
        raise InputError(f"expected a non-empty domain for each of {longest} slots, got {len(rows)}")
    for slot, domain in enumerate(rows):
        if domain[0] < 0 or domain[-1] >= classes:
            raise InputError(
                f"expected labels 0 … {classes - 1} in the domain of slot {slot}, got {shown(list(domain))}"
            )
    return list(rows[:longest])


def _domain(domain: object, slot: int) -> list[int]:
    labels = whole_numbers(list(domain) if isinstance(domain, set | frozenset) else domain, f"labels of slot {slot}")
    if labels.ndim != 1:
        raise InputError(f"expected the domain of slot {slot} as a list of labels, got {shown(domain)}")
    return sorted(set(labels.tolist()))


def check_longest(longest: int, budget: int) -> None:
    """A sample with more slots than the budget is not worth a start."""
    if longest > budget:
        raise BudgetError(
            f"a sample of {number_in_words(longest)} slots is over the budget of {budget:,}; "
            "raise budget= if memory and time allow"
        )


def seeded(seed: object) -> torch.Generator:
    """A generator on the CPU, so that a seed gives the same draws everywhere."""
    number = whole_number(seed, "seed", least=-(2**63))
    if number >= 2**64:
        raise InputError(f"expected a seed below 2^64, got {number_in_words(number)}")
    return torch.Generator().manual_seed(number)


def usable_device(device: object) -> torch.device:
    """The device, if tensors can be put there."""
    try:
        found: torch.device = torch.device(device)  # type: ignore[call-overload]
        torch.empty(0, device=found)
    except Exception as error:  # which one depends on how PyTorch was built
        raise InputError(f"expected a device of this computer, 'cpu' say, got {shown(device)}: {error}") from error
    if found.type == "meta":
        raise InputError("expected a device that holds values, 'cpu' say, got 'meta', which holds shapes alone")
    return found


def called(function: Callable[..., Any], *arguments: object) -> Any:
    """What a caller's function gives; it must be hashable, and no tensor, which equals another one by no value."""
    value = as_python(function(*arguments))
    if isinstance(value, Tensor):
        raise TypeError("it returned a tensor; use tolist() or tuples")
    hash(value)
    return value


def number_in_words(number: int) -> str:
    """A whole number, however large, in few characters.

    Examples:
        >>> number_in_words(12_345), number_in_words(10**5000)
        ('12,345', 'about 10^5000')
    """
    return f"{number:,}" if abs(number) < 10**15 else f"about 10^{int(number.bit_length() * 0.30103)}"


def shown(value: object) -> str:
    """A value in a message: what it is, cut short."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and {value.dtype}"
    try:
        return reprlib.repr(value)
    except ValueError:  # Python does not write out numbers of more than some thousand digits
        return f"a {type(value).__name__}"
