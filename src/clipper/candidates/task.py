"""Checks of the caller's targets, lengths and domains, and calls of the caller's functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import as_list, number_in_words, shown, whole_number, whole_numbers
from clipper.errors import BudgetError, InputError


def targets_and_lengths(targets: object, slots: object) -> tuple[list[Hashable], list[int]]:
    """The target and the number of slots of each sample; there must be at least one sample."""
    wanted = _targets(targets)
    one = not hasattr(slots, "__len__") or getattr(slots, "ndim", 1) == 0
    numbers = whole_numbers([whole_number(slots, "slots")] * len(wanted) if one else slots, "slots")
    if numbers.ndim != 1:
        raise InputError(f"expected slots as one number or as a list with one for each sample, got {shown(slots)}")
    lengths: list[int] = numbers.tolist()
    if len(lengths) != len(wanted) or not wanted or min(lengths) < 1:
        raise InputError(
            f"expected one positive number of slots per target and at least one target, "
            f"got {len(lengths)} slot numbers {shown(lengths[:5])} for {len(wanted)} targets"
        )
    return wanted, lengths


def _targets(targets: object) -> list[Hashable]:
    if getattr(targets, "ndim", 1) != 1:
        raise InputError(f"expected targets as a list with one for each sample, got {shown(targets)}")
    values: list[Hashable] = as_list(targets, "targets, one for each sample,")
    if set(map(type, values)) <= {int, bool, str}:
        return values
    return [_target(value, i) for i, value in enumerate(values)]


def _target(value: object, sample: int) -> Hashable:
    try:
        value = as_python(value)
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
    """Python's own number for a tensor or an array without dimensions, so that equal values compare equal; any other
    value unchanged."""
    single = isinstance(value, Tensor | np.ndarray | np.generic) and getattr(value, "ndim", 1) == 0
    if single and not getattr(value, "is_meta", False):
        return value.item()
    return value


def domains_of_slots(domains: object, longest: int, classes: int) -> list[Sequence[int]]:
    """The labels that each slot may take, ascending."""
    if domains is None:
        return [range(classes)] * longest
    listed = as_list(domains, "domains, the labels of each slot,")
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


def read_task(
    targets: object, slots: object, domains: object, classes: int, budget: int
) -> tuple[list[Hashable], list[int], list[Sequence[int]]]:
    """Each sample's target and number of slots, and each slot's labels; refuses more slots than the budget."""
    wanted, lengths = targets_and_lengths(targets, slots)
    check_longest(lengths, budget)
    return wanted, lengths, domains_of_slots(domains, max(lengths), classes)


def check_longest(lengths: Sequence[int], budget: int) -> None:
    """Refuse a sample with more slots than the budget."""
    if max(lengths) > whole_number(budget, "budget", least=0):
        raise BudgetError(
            f"a sample of {number_in_words(max(lengths))} slots is over the budget of {budget:,}; "
            "raise budget= if memory and time allow"
        )


def called(function: Callable[..., Any], *arguments: object, what: str, returns: str) -> Hashable:
    """The result of a caller's function, which must be hashable and not a tensor: tensors are hashed by identity.

    Args:
        function: the caller's function.
        arguments: its arguments.
        what: the name of the function in messages.
        returns: what the function must return, for messages.

    Raises:
        InputError: if it fails or returns anything else; the message names `what` and the arguments.
    """
    try:
        value: Hashable = function(*arguments)
        if type(value) is int:  # the most common case; a large machine takes many steps
            return value
        value = as_python(value)
        if isinstance(value, Tensor):
            raise TypeError("it returned a tensor; use tolist() or tuples")
        hash(value)
    except Exception as error:
        given = " and ".join(shown(argument) for argument in arguments)
        raise InputError(
            f"{what} failed on {given}: {type(error).__name__}: {error}. It must return {returns}"
        ) from error
    return value


def check_takes_one_tuple(rule: Callable[..., Any]) -> None:
    """Refuse a rule with a parameter for each slot: it is called with one tuple of labels.

    Raises:
        InputError: the function cannot be called with one argument.
    """
    try:
        parameters = inspect.signature(rule).parameters.values()
    except (TypeError, ValueError):  # built-in functions such as max do not have one
        return
    needed = [each.name for each in parameters if each.default is each.empty and each.kind in _BY_PLACE]
    if len(needed) > 1:
        raise InputError(
            f"a rule is called with one tuple of labels; write def rule(labels), and for example "
            f"{', '.join(needed[:3])}{', …' * (len(needed) > 3)} = labels in it; got a function of {len(needed)} "
            "parameters"
        )


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def numbered(values: Iterable[Hashable]) -> tuple[list[Any], Tensor]:
    """The distinct values by first appearance, and the index of each value among them, `(n,)`.

    Examples:
        >>> numbered("abca")
        (['a', 'b', 'c'], tensor([0, 1, 2, 0]))
    """
    place: dict[Hashable, int] = {}
    numbers = [place.setdefault(value, len(place)) for value in values]
    return list(place), torch.tensor(numbers)
