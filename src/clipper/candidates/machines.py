"""Rules as state machines: what a sample's labels have come to so far, and how one more label changes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from clipper.errors import InputError


class Machine(NamedTuple):
    """A rule that reads labels one after the other; unpack it into `Lattice.from_rule(*machine, targets, …)`."""

    start: Hashable
    """The state before the first label."""
    step: Callable[[Any, int], Any]
    """From a state and a label to the next state; None where the label cannot follow."""
    accept: Callable[[Any], Hashable]
    """From a state to the target of a sample that ends there; None where none can."""


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


def _add(total: int, label: int) -> int:
    return total + label


SUM = Machine(0, _add, _same)
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
