"""The state machines of the rules: what they do with each label, and what they say at the end.

They are functions of this module instead of closures, so that rules can be pickled. If possible, they use arithmetic
only, so that the value of a rule can be computed for many combinations at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any


def digits(slots: int) -> list[range]:
    """The labels of each slot if all are digits."""
    return [range(10)] * slots


def digits_and_x(slots: int) -> list[range]:
    """The labels of each slot if the last may also be X, which is label 10."""
    return [*[range(10)] * (slots - 1), range(11)]


def first(state: tuple[Any, ...]) -> Any:
    """At the end: the first part of the state."""
    return state[0]


def second(state: tuple[Any, ...]) -> Any:
    """At the end: the second part of the state."""
    return state[1]


def is_one(state: int) -> Any:
    """At the end: whether the state is 1."""
    return state == 1


def is_zero(state: int) -> Any:
    """At the end: whether the state is 0."""
    return state == 0


def no_remainder(state: tuple[int, int]) -> Any:
    """At the end of `weigh`: whether the sum is 0."""
    return state[1] == 0


def weigh(weights: tuple[int, ...], modulus: int | None, state: tuple[int, int], label: int) -> tuple[int, int]:
    """The place of the next weight, and the weighted sum so far, modulo `modulus` if there is one."""
    place, value = state
    value = value + weights[place] * label
    return (place + 1) % len(weights), value if modulus is None else value % modulus


def luhn_step(state: tuple[int, int], label: int) -> tuple[int, int]:
    """The sum if the last digit read is counted once (the case at the end), and the sum if it is doubled."""
    once, doubled = state
    return (doubled + label) % 10, (once + 2 * label - 9 * (label > 4)) % 10


def luhn_passed(state: tuple[int, int]) -> Any:
    """At the end of `luhn_step`: whether the sum is a multiple of ten."""
    return state[0] == 0


def modulo_97(state: int, label: int) -> int:
    """The number so far modulo 97, where a letter counts as two digits."""
    return (state * (10 + 90 * (label > 9)) + label) % 97


def lesser(state: int, label: int) -> int:
    """The smallest label so far; -1 before the first."""
    return label if state < 0 else min(state, label)


def counted(wanted: int, state: int, label: int) -> int:
    """How often the label occurred so far."""
    return state + (label == wanted)


def counted_to_two(wanted: int, state: int, label: int) -> int:
    """How often the label occurred so far, at most 2."""
    return state + (state < 2) * (label == wanted)


def found(wanted: int, state: int, label: int) -> int:
    """1 if the label occurred, else 0."""
    return state + (1 - state) * (label == wanted)


def add_to_set(state: int, label: int) -> int:
    """The labels so far as bits; -1 after a repetition."""
    return -1 if state < 0 or state >> label & 1 else state | 1 << label


def is_set(state: int) -> bool:
    """At the end of `add_to_set`: whether no label was repeated."""
    return state >= 0


def ascend(strict: bool, state: int, label: int) -> int:
    """The previous label; -2 after a violation of the order."""
    return label if state >= -1 and label >= state + strict else -2


def still_ascends(state: int) -> bool:
    """At the end of `ascend`: whether the order was kept."""
    return state >= 0


class Sorted(tuple[int, ...]):
    """The labels of a bag in ascending order. Its type tells them from counts, where there are as many of both."""

    __slots__ = ()

    @classmethod
    def of(cls, labels: Sequence[int]) -> Sorted:
        """The labels in ascending order."""
        return cls(sorted(labels))


def insert(state: tuple[int, ...], label: int) -> Sorted:
    """The labels so far, in ascending order."""
    return Sorted.of((*state, label))


def insert_if_wanted(
    enough: dict[tuple[int, int], int], state: tuple[tuple[int, ...], int], label: int
) -> tuple[tuple[int, ...], int] | None:
    """The labels so far, and the targets that contain them, as bits."""
    labels, targets = state
    left = targets & enough.get((label, labels.count(label) + 1), 0)
    return (insert(labels, label), left) if left else None


def anything(state: int, label: int) -> int:
    """The state, whatever the label is."""
    del label
    return state


def add_column(state: tuple[int, int], label: int) -> tuple[int, int] | None:
    """Read, from the right, a digit of each number, then the digit of their sum. The value is the total of the column,
    then the carry."""
    read, value = state
    if read < 2:
        return read + 1, value + label
    return (0, value // 10) if label == value % 10 else None


def carry(state: tuple[int, int]) -> int:
    """At the end of `add_column`: the carry of the last column."""
    return state[1]


def sum_of_numbers(digits: int, labels: Sequence[int]) -> int:
    """The sum of the two numbers whose digits are the labels."""
    first = second = 0
    for a, b in zip(labels[:digits], labels[digits:], strict=True):
        first, second = 10 * first + a, 10 * second + b
    return first + second


def without_repetitions(labels: Sequence[int]) -> tuple[int, ...]:
    """The labels in order, each run of equal labels once."""
    return tuple(label for label, _ in groupby(labels))
