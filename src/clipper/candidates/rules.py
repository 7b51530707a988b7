"""Rules: ready-made state machines, and how a caller's rule, its targets, lengths and domains are read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import as_list, number_in_words, shown, whole_number, whole_numbers
from clipper.errors import BudgetError, InputError

Step = Callable[[Any, int], Any]
Accept = Callable[[Any], Hashable]


class Machine(NamedTuple):
    """A rule that reads labels one after the other; unpack it into `Lattice.from_rule(*machine, targets, …)`.

    Attributes:
        start: the state before the first label.
        step: from a state and a label to the next state; None where the label cannot follow.
        accept: from a state to the target of a sample that ends there; None where none can.
    """

    start: Hashable
    step: Step
    accept: Accept


def run(machine: Machine, labels: Sequence[int]) -> Hashable:
    """What the machine gives for one tuple of labels; None where it gives nothing.

    Examples:
        >>> run(SUM, (3, 5)), run(MAX, (3, 5)), run(HWF, (1, 9, 2, 11, 3))  # the last is 2 + 3 × 4
        (8, 5, 14)
    """
    state = machine.start
    for label in labels:
        state = machine.step(state, label)
        if state is None:
            return None
    return machine.accept(state)


def _same(state: Hashable) -> Hashable:
    return state


SUM = Machine(0, operator.add, _same)
"""The sum of the labels."""
MAX = Machine(0, max, _same)
"""The largest label."""


def _stay_or_go_on(place: int, label: int) -> int | None:
    return label if label - place in (0, 1) else None


def _passed(place: int) -> int:
    return place + 1


PLACES = Machine(-1, _stay_or_go_on, _passed)
"""How many places were passed: labels are places 0, 1, 2 … in order, none left out."""

_PLUS, _MINUS, _TIMES = 9, 10, 11


def _formula(state: tuple[int, int, int], label: int) -> tuple[int, int, int] | None:
    """States are the finished terms' total, the last term, and the operator that waits for a digit (-1 for none)."""
    total, term, operator = state
    if operator < 0:
        if label not in (_PLUS, _MINUS, _TIMES):
            return None
        return (total, term, label) if label == _TIMES else (total + term, 0, label)
    if label > 8:
        return None
    digit = label + 1
    return (total, term * digit, -1) if operator == _TIMES else (total, digit if operator == _PLUS else -digit, -1)


def _value(state: tuple[int, int, int]) -> int | None:
    total, term, operator = state
    return total + term if operator < 0 else None


HWF = Machine((0, 0, _PLUS), _formula, _value)
"""The value of a formula of digits and + − × in turn, × first: labels 0–8 are the digits 1–9, 9–11 are + − ×."""


def alignment(sequences: Sequence[Sequence[int]]) -> Machine:
    """Frames to actions: a sample's frames show its actions in order, each for at least one frame.

    Labels are the actions, targets the sequences as tuples.

    Args:
        sequences: the action sequences of all samples; neighbouring actions differ.

    Examples:
        >>> machine = alignment([(2, 0), (2, 1, 2)])
        >>> run(machine, (2, 2, 0, 0)), run(machine, (0, 2))
        ((2, 0), None)
    """
    prefixes: set[tuple[int, ...]] = {()}
    for i, sequence in enumerate(map(tuple, sequences)):
        if not sequence or any(a == b for a, b in pairwise(sequence)):
            raise InputError(
                f"expected at least one action, and neighbouring actions that differ, in sequence {i}, got {sequence}; "
                "a frame does not say where an action ends and the same one begins: merge repetitions"
            )
        prefixes.update(sequence[:length] for length in range(1, len(sequence) + 1))

    def step(seen: tuple[int, ...], action: int) -> tuple[int, ...] | None:
        after = seen if seen and seen[-1] == action else (*seen, action)
        return after if after in prefixes else None

    return Machine((), step, _same)


def targets_and_lengths(targets: object, slots: object) -> tuple[list[Hashable], list[int]]:
    """One target and one number of slots for each sample, of which there must be one."""
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
    if max(lengths) > whole_number(budget, "budget", least=0):
        raise BudgetError(
            f"a sample of {number_in_words(max(lengths))} slots is over the budget of {budget:,}; "
            "raise budget= if memory and time allow"
        )
    return wanted, lengths, domains_of_slots(domains, max(lengths), classes)


def called(function: Callable[..., Any], *arguments: object, what: str, returns: str) -> Hashable:
    """What a caller's function gives: a hashable value, and no tensor, which equals another one by no value.

    Raises:
        InputError: if it fails or gives anything else; the error says that `what` failed, and on which arguments.
    """
    try:
        value: Hashable = function(*arguments)
        if type(value) is int:  # as most are, and a large machine takes many steps
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


def checked_machine(machine: Any) -> Machine:
    """A caller's machine, whose steps and targets are checked as they are taken."""
    try:
        start, step, accept = machine
        hash(start)
        if isinstance(start, Tensor):
            raise TypeError("a tensor equals another one by no value")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected a machine of start, step and accept, the start hashable and no tensor, got {shown(machine)}"
        ) from error
    return Machine(
        start,
        partial(called, step, what="step", returns="a hashable state, or None where the label cannot follow"),
        partial(called, accept, what="accept", returns="a hashable target, or None where a sample cannot end"),
    )


def numbered(values: Iterable[Hashable]) -> tuple[list[Any], Tensor]:
    """The distinct values by first appearance, and the place of each value among them, `(n,)`.

    Examples:
        >>> numbered("abca")
        (['a', 'b', 'c'], tensor([0, 1, 2, 0]))
    """
    place: dict[Hashable, int] = {}
    numbers = [place.setdefault(value, len(place)) for value in values]
    return list(place), torch.tensor(numbers)
