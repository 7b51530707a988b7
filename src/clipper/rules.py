"""Ready-made rules: what you may know about a sample whose labels you do not know.

Each function returns a `Rule`. `Candidates.from_rule(rule, targets, slots, classes)` and `rule.candidates(…)` compute
the candidates from a rule and the target of each sample: a list if there are few, else a lattice. Samples may have
different numbers of slots.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import torch

from clipper.arguments import as_index, as_list, shown, whole_number, whole_numbers, yes_or_no
from clipper.candidates.alignment import Alignments, read_text
from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.lattice import Lattice
from clipper.candidates.rules import MAX, PLACES, SUM, Machine, Rule, itself, run
from clipper.candidates.task import as_python, domains_of_slots
from clipper.errors import InputError

__all__ = [
    "Machine", "Rule", "addition", "all_different", "at_least_one", "checksum", "count", "exactly_one", "iban", "isbn",
    "largest", "luhn", "named", "none", "ordered", "partial_labels", "proportions", "smallest", "total", "transcript",
    "weighted_sum",
]  # fmt: skip


def total() -> Rule:
    """You know the sum of the labels, such as the total of a receipt.

    Examples:
        >>> total().candidates([8, 2], slots=2, classes=10).counts
        [9, 3]
    """
    return Rule("sum", sum, machine=SUM)


def weighted_sum(weights: Sequence[int]) -> Rule:
    """You know the sum of the labels, each multiplied by the weight of its slot.

    Args:
        weights: a whole number for each slot.

    Raises:
        InputError: the weights are not a list of whole numbers.

    Examples:
        >>> weighted_sum([10, 1]).candidates([42], slots=2, classes=10).labels.tolist()  # a number of two digits
        [[4, 2]]
    """
    factors = _whole(weights, "weights, one for each slot,")
    machine = Machine((0, 0), partial(_weigh, factors, None), _second)
    return Rule("weighted-sum", partial(run, machine), machine=machine, slots=len(factors))


def checksum(weights: Sequence[int], modulus: int = 10) -> Rule:
    """You know the remainder of the weighted sum when divided by a modulus: 0 for most check digits.

    Args:
        weights: a whole number for each slot; they are repeated if there are more slots: `[3, 7, 1]` for a routing
            number.
        modulus: the divisor.

    Raises:
        InputError: the weights are not whole numbers, or the modulus is below 2.

    Examples:
        >>> rule = checksum([3, 1, 7, 9], modulus=10)
        >>> rule.candidates([0, 4], slots=4, classes=10)  # 4 digits each, with remainders 0 and 4
        Candidates(2 samples, 2,000 candidates, 4 slots, 10 classes)
    """
    factors, divisor = _whole(weights, "weights"), whole_number(modulus, "modulus", least=2)
    machine = Machine((0, 0), partial(_weigh, factors, divisor), _second)
    return _Remainder("checksum", partial(run, machine), machine=machine)


def luhn() -> Rule:
    """You know whether the digits pass the Luhn check of payment cards; the check digit is the last slot.

    Targets are True, or False for numbers that fail the check.

    Examples:
        >>> rule = luhn()
        >>> rule.value((7, 9, 9, 2, 7, 3, 9, 8, 7, 1, 3)), rule.value((7, 9, 9, 2, 7, 3, 9, 8, 7, 1, 4))
        (True, False)
        >>> rule.candidates([True], slots=16, classes=10)
        Lattice(1 samples, 16 slots, 10 classes, 1,379 states)
    """
    machine = Machine((0, 0), _luhn_step, _luhn_passed)
    return _YesNo("luhn", partial(run, machine), _digits, machine)


def isbn(digits: int = 13) -> Rule:
    """You know whether the digits are a valid ISBN, check digit included; targets are True or False.

    Args:
        digits: 13 or 10. In an ISBN-10 the last slot may be X, which is label 10, so there are 11 classes.

    Raises:
        InputError: there is no ISBN with so many digits.

    Examples:
        >>> isbn().value((9, 7, 8, 0, 3, 0, 6, 4, 0, 6, 1, 5, 7)), isbn(10).value((0, 3, 0, 6, 4, 0, 6, 1, 5, 2))
        (True, True)
    """
    if whole_number(digits, "digits") not in (10, 13):
        raise InputError(f"expected an ISBN of 10 or 13 digits, got {shown(digits)}")
    weights, modulus = ((1, 3), 10) if digits == 13 else (tuple(range(10, 0, -1)), 11)
    machine = Machine((0, 0), partial(_weigh, weights, modulus), _no_remainder)
    domains = _digits if digits == 13 else _digits_and_x
    return _YesNo("isbn", partial(run, machine), domains, machine, slots=int(digits))


def iban() -> Rule:
    """You know whether the characters are a valid IBAN, by its check modulo 97; targets are True or False.

    Slots are in the order of the check: the first four characters of the IBAN come last. Labels 0–9 are digits, 10–35
    are the letters A–Z. If all characters are digits, 10 classes are enough.

    Examples:
        >>> characters = "WEST12345698765432GB82"  # GB82 WEST 1234 5698 7654 32
        >>> iban().value(tuple(int(character, 36) for character in characters))
        True
    """
    machine = Machine(0, _modulo_97, _is_one)
    return _YesNo("iban", partial(run, machine), machine=machine)


def largest() -> Rule:
    """You know the largest label.

    Examples:
        >>> largest().candidates([1], slots=2, classes=10).labels.tolist()
        [[0, 1], [1, 0], [1, 1]]
    """
    return Rule("max", max, machine=MAX)


def smallest() -> Rule:
    """You know the smallest label.

    Examples:
        >>> smallest().candidates([8], slots=2, classes=10).labels.tolist()
        [[8, 8], [8, 9], [9, 8]]
    """
    return Rule("min", min, machine=Machine(-1, _lesser, itself))


def count(label: int) -> Rule:
    """You know how many slots have a certain label.

    Args:
        label: the label to count.

    Examples:
        >>> count(1).candidates([2], slots=3, classes=2).labels.tolist()
        [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    machine = Machine(0, partial(_counted, _label(label)), itself)
    return _OfLabel("count", partial(run, machine), machine=machine, label=_label(label))


def at_least_one(label: int) -> Rule:
    """You know whether at least one slot has a certain label (multiple-instance learning); True for positive bags.

    Args:
        label: the label of positive instances.

    Examples:
        >>> bags = at_least_one(1).candidates([True, False], slots=[2, 3], classes=2)
        >>> bags.labels.tolist()
        [[0, 1, -1], [1, 0, -1], [1, 1, -1], [0, 0, 0]]
    """
    machine = Machine(0, partial(_found, _label(label)), _is_one)
    return _YesNoOfLabel("at-least-one", partial(run, machine), machine=machine, label=_label(label))


def exactly_one(label: int) -> Rule:
    """You know whether exactly one slot has a certain label; targets are True or False.

    Args:
        label: the label.

    Examples:
        >>> exactly_one(1).candidates([True], slots=3, classes=2).labels.tolist()
        [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    """
    machine = Machine(0, partial(_counted_to_two, _label(label)), _is_one)
    return _YesNoOfLabel("exactly-one", partial(run, machine), machine=machine, label=_label(label))


def none(label: int) -> Rule:
    """You know whether no slot has a certain label; targets are True or False.

    Args:
        label: the label.

    Examples:
        >>> none(1).candidates([True, False], slots=2, classes=2).counts
        [1, 3]
    """
    machine = Machine(0, partial(_found, _label(label)), _is_zero)
    return _YesNoOfLabel("none", partial(run, machine), machine=machine, label=_label(label))


def all_different() -> Rule:
    """You know whether all slots have different labels; targets are True or False.

    Examples:
        >>> all_different().candidates([True, False], slots=3, classes=3).counts
        [6, 21]
    """
    machine = Machine(0, _add_to_set, _is_set)
    return _YesNo("all-different", partial(run, machine), machine=machine)


def ordered(*, strict: bool = False) -> Rule:
    """You know whether the labels are sorted in ascending order; targets are True or False.

    Args:
        strict: whether each label must be larger than the one before: for two slots, whether a < b.

    Examples:
        >>> ordered().candidates([True], slots=2, classes=2).labels.tolist()
        [[0, 0], [0, 1], [1, 1]]
        >>> ordered(strict=True).candidates([True, False], slots=2, classes=10).counts
        [45, 55]
    """
    strict = yes_or_no(strict, "strict")
    machine = Machine(-1, partial(_ascend, strict), _still_ascends)
    return _YesNo("strictly-ordered" if strict else "ordered", partial(run, machine), machine=machine)


def proportions() -> Rule:
    """You know how often each label occurs in a sample, but not where (learning from label proportions).

    A target is a count for each label, `[0, 2, 1]`; a share for each, `[0, 0.67, 0.33]`; a mapping from labels to
    counts; or the labels themselves, in any order. A list with as many numbers as there are labels is read as counts,
    but what `value` returns is always read as labels.

    Examples:
        >>> proportions().candidates([[0, 2, 1, 0]], slots=3, classes=4).labels.tolist()
        [[1, 1, 2], [1, 2, 1], [2, 1, 1]]
        >>> proportions().candidates([[2, 1, 1]], slots=3, classes=4).counts  # the labels themselves
        [3]
        >>> proportions().candidates([proportions().value((1, 1, 1))], slots=3, classes=3).counts
        [1]
    """
    return _Proportions("proportions", _Sorted.of, machine=Machine(_Sorted(), _insert, itself))


def partial_labels() -> Rule:
    """You know a set of labels for each slot, one of which is right.

    A target is a list with a set of labels for each slot, or with a row of `c` truth values (True and False, not 1 and
    0) for each slot. If samples have a single slot, a target may be the set or the row itself.

    Examples:
        >>> partial_labels().candidates([{1, 3}, {2}], slots=1, classes=10).labels.tolist()
        [[1], [3], [2]]
        >>> partial_labels().candidates([[{0, 1}, {2}]], slots=2, classes=10).labels.tolist()
        [[0, 2], [1, 2]]
    """
    return _PartialLabels("partial-labels", tuple, machine=Machine(0, _anything, itself))


def addition(digits: int) -> Rule:
    """You know the sum of two numbers, whose digits are the slots.

    Slots are in reading order: the digits of the first number from left to right, then those of the second. A target is
    the sum, or its digits from left to right. A state machine adds column by column and reads the known digits of the
    sum as `observed` labels (see `Lattice.from_rule`). So numbers of a hundred digits need only 3,299 states, whatever
    their sums are.

    Args:
        digits: the number of digits of each number; there are twice as many slots.

    Examples:
        >>> addition(2).candidates([3], slots=4, classes=10).labels.tolist()
        [[0, 0, 0, 3], [0, 1, 0, 2], [0, 2, 0, 1], [0, 3, 0, 0]]
        >>> addition(15).candidates([10**15 + 7, 12], slots=30, classes=10)
        Lattice(2 samples, 30 slots, 10 classes, 494 states)
    """
    length = whole_number(digits, "digits")
    column = Machine((0, 0), _add_column, _carry)
    return _Addition("addition", partial(_sum_of_numbers, length), _digits, column, 2 * length)


def transcript() -> Rule:
    """You know the labels of a sequence in order, but not where each begins: actions of a clip, letters of a line.

    A target is a list of labels, no label twice in a row. Each label holds for one slot or more; see `Alignments`.

    Examples:
        >>> transcript().candidates([(2, 0)], slots=4, classes=3).labels.tolist()
        [[2, 2, 2, 0], [2, 2, 0, 0], [2, 0, 0, 0]]
    """
    return _Transcript("transcript", _without_repetitions, machine=PLACES)


class _YesNo(Rule):
    """A rule whose targets are True and False."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """True or False, or 1 or 0."""
        del slots, classes
        if isinstance(given, bool | int | float) and given in (0, 1):
            return bool(given)
        raise InputError(
            f"expected True or False, or 1 or 0, as a target of the rule {self.name!r}, got {shown(given)}"
        )

    def parse(self, text: str) -> bool:
        """Yes or no, true or false, 1 or 0."""
        known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if (word := text.strip().lower()) in known:
            return known[word]
        raise InputError(f"expected true or false as a target of the rule {self.name!r}, got {shown(text)}")


@dataclass(frozen=True)
class _OfLabel(Rule):
    """A rule about the slots that have a certain label."""

    label: int = 0

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """The target, if samples can have the label."""
        if self.label >= classes:
            raise InputError(
                f"expected a label of 0 … {classes - 1} in the rule {self.name!r}, got {self.label}, which no slot has"
            )
        return super().target(given, slots, classes)


@dataclass(frozen=True)
class _YesNoOfLabel(_OfLabel, _YesNo):
    """A rule about the slots that have a certain label, whose targets are True and False."""


class _Remainder(Rule):
    """A rule whose targets are remainders."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """A whole number; True and False are refused."""
        del slots, classes
        if isinstance(given, bool):
            raise InputError(f"expected a remainder, 0 for most check digits, got {given}")
        remainder: Hashable = given
        return remainder


class _Numbers(Rule):
    """A rule whose targets are several numbers."""

    def parse(self, text: str) -> Any:
        """The numbers in the text, with commas, spaces, dashes, semicolons or bars between them: `2-0-1`."""
        if not _NUMBERS.fullmatch(text):
            raise InputError(
                f"expected numbers with commas or spaces between them, such as 0, 2, 1, got {shown(text)}; write "
                "decimals with a point"
            )
        if re.search(r"\d,\d", text) and re.search(r"\d\s*[^\s\d.,]\s*\.?\d|\d\s+\.?\d", text):
            raise InputError(
                f"expected commas between all numbers or none, got {shown(text)}, where they may be decimal commas; "
                "write decimals with a point"
            )
        return [float(word) if "." in word else _integer(word) for word in re.findall(r"\d*\.\d+|\d+", text)]


class _Proportions(_Numbers):
    """Bags with a known number of occurrences of each label."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """The labels in ascending order."""
        if isinstance(given, _Sorted):
            return given
        if isinstance(given, Mapping):
            return _bag([(_label(y), whole_number(count, "a count", least=0)) for y, count in given.items()], slots)
        values = [as_python(value) for value in as_list(given, "the counts of all labels, or labels,")]
        if all(isinstance(value, int) for value in values) and len(values) != classes and len(values) == slots:
            return tuple(sorted(values))
        counts = _as_counts(values, slots)
        if counts is None or len(values) != classes or min(counts) < 0:
            raise InputError(
                f"expected a count or a share for each of {classes} labels, or {slots} labels, got {shown(given)}"
            )
        if classes == slots and sum(counts) != slots:
            raise InputError(
                f"expected counts of {classes} labels that add up to {slots} slots, got {shown(given)}; labels cannot "
                "be distinguished from counts if there are as many of both: pass collections.Counter(labels)"
            )
        return _bag(list(enumerate(counts)), slots)

    def _machine(self, targets: list[Any]) -> Machine:
        """A machine that counts each label so far; states that cannot reach a target are left out."""
        enough: dict[tuple[int, int], int] = {}  # the targets with at least this number of a label, as bits
        for bit, target in enumerate(targets):
            for label, run_of in groupby(target):
                for number, _ in enumerate(run_of, start=1):
                    enough[label, number] = enough.get((label, number), 0) | 1 << bit
        return Machine((_Sorted(), (1 << len(targets)) - 1), partial(_insert_if_wanted, enough), _first)


class _PartialLabels(Rule):
    """A set of labels for each slot."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """A frozen set for each slot."""
        rows = [as_python(row) for row in as_list(given, "a set of labels for each slot")]
        if slots == 1 and all(isinstance(value, int) for value in rows):  # labels or truth values
            rows = [given]
        if len(rows) != slots:
            raise InputError(f"expected a set of labels for each of {slots} slots, got {shown(given)}")
        return tuple(_set_of_labels(row, classes) for row in rows)

    def parse(self, text: str) -> Any:
        """Sets of labels, with a bar between slots: `1,3|2`."""
        rows = []
        for part in text.split("|"):
            if not _SET.fullmatch(part):
                raise InputError(
                    "expected labels with commas between them and a bar between slots, such as 1,3|2, got "
                    f"{shown(text)}"
                )
            rows.append(_without_repeated([_integer(word) for word in re.findall(r"\d+", part)]))
        return [set(row) for row in rows]

    def _lattice(self, targets: list[Any], lengths: list[int], classes: Classes, domains: Any, budget: int) -> Lattice:
        everything = super()._lattice([0] * len(targets), lengths, classes, domains, budget)
        allowed = torch.zeros(len(targets), max(lengths), kinds_of(classes)[-1].stop, dtype=torch.bool)
        cells = [(i, j, y) for i, sets in enumerate(targets) for j, labels in enumerate(sets) for y in labels]
        if cells:
            allowed[tuple(torch.tensor(cells).T)] = True
        own = replace(everything, allowed=allowed)
        return own.without_candidates(~own.possible(), "keep")


class _Addition(Rule):
    """Two numbers, digit by digit, and their sum."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """The sum as a number."""
        if classes < 10:
            raise InputError(f"expected a class for each of ten digits, got {classes} classes")
        number = as_index(given)
        if number is None:
            written = list(given) if isinstance(given, str) else as_list(given, "the sum, or its digits,")
            number = 0
            for digit in written:
                number = 10 * number + whole_number(_digit(digit), "a digit", 0, 9)
        if number < 0:
            raise InputError(f"expected a sum of two numbers of {slots // 2} digits, got {shown(given)}")
        return number

    def _lattice(self, targets: list[Any], lengths: list[int], classes: Classes, domains: Any, budget: int) -> Lattice:
        assert self.machine is not None
        digits = lengths[0] // 2
        column = torch.arange(digits).flip(0)  # the column of each digit; the machine starts at the right
        read_at = torch.cat([3 * column, 3 * column + 1])
        observed = torch.full((len(targets), 3 * digits), -1)
        observed[:, 2::3] = torch.tensor([[target // 10**i % 10 for i in range(digits)] for target in targets])
        by_step: list[Sequence[int]] = [range(10)] * (3 * digits)
        for step, domain in zip(read_at.tolist(), domains_of_slots(domains, 2 * digits, 10), strict=True):
            by_step[step] = domain
        return Lattice.from_rule(
            *self.machine, [target // 10**digits for target in targets], 3 * digits, classes, domains=by_step,
            budget=budget, impossible="keep", observed=observed, read_at=read_at,
        )  # fmt: skip


class _Transcript(_Numbers):
    """Labels in order, each for one slot or more."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """The labels as a tuple."""
        del slots
        return tuple(read_text(given, "the transcript", classes))

    def _lattice(self, targets: list[Any], lengths: list[int], classes: Classes, domains: Any, budget: int) -> Lattice:
        del budget
        if domains is not None:
            raise InputError(
                "expected no domains for transcripts; narrow the candidates with restrict(allowed) instead"
            )
        return Alignments.from_texts(targets, lengths, classes, impossible="keep")


def _whole(values: Any, what: str) -> tuple[int, ...]:
    numbers = whole_numbers(values, what)
    if numbers.ndim != 1 or not len(numbers):
        raise InputError(f"expected {what} as a list of whole numbers, got {shown(values)}")
    return tuple(numbers.tolist())


def _label(value: Any) -> int:
    return whole_number(value, "a label", least=0)


def _integer(word: str) -> int:
    """A whole number from text. Python refuses numbers of more than some thousand digits."""
    try:
        return int(word)
    except ValueError as error:
        raise InputError(f"expected a number, got {shown(word)}: {error}") from error


def _digit(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _set_of_labels(given: Any, classes: int) -> frozenset[int]:
    labels = [as_python(label) for label in as_list(given, "labels")]
    if labels and all(isinstance(value, bool) for value in labels):
        if len(labels) != classes:
            raise InputError(f"expected a truth value for each of {classes} labels, got {len(labels)}")
        return frozenset(label for label, inside in enumerate(labels) if inside)
    return frozenset(_without_repeated([whole_number(label, "labels of a set", 0, classes - 1) for label in labels]))


def _without_repeated(labels: list[int]) -> list[int]:
    """The labels of a set, each listed once: with repetitions they are probably truth values, written 0 and 1."""
    if len(set(labels)) < len(labels):
        raise InputError(
            f"expected each label of a set once, got {shown(labels)}; if these are truth values, one for each label, "
            "pass True and False, such as tensor.bool()"
        )
    return labels


def _bag(counts: list[tuple[int, int]], slots: int) -> Hashable:
    """The labels of a bag in ascending order. If the counts have a wrong sum, the counts, which no labels satisfy."""
    if sum(number for _, number in counts) != slots:
        return tuple(counts)
    return tuple(label for label, number in sorted(counts) for _ in range(number))


def _as_counts(values: list[Any], slots: int) -> list[int] | None:
    """Counts, from counts or shares of the slots; None if the values are neither."""
    if not values or not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        return None
    whole = all(value == int(value) for value in values)
    if not whole or (slots > 1 and sum(values) == 1 and any(isinstance(value, float) for value in values)):
        values = [value * slots for value in values]
    counts = [round(value) for value in values]
    if any(abs(value - number) > _ROUNDED for value, number in zip(values, counts, strict=True)):
        return None
    return counts


_SET = re.compile(r"\s*[\[({]?\s*(?:\d+(?:(?:\s*[,;]\s*|\s+)\d+)*)?\s*[\])}]?\s*", re.ASCII)
"""Labels of a set as text, in brackets or without."""
_NUMBERS = re.compile(
    r"\s*[\[(]?\s*N(?:(?:\s*(?:->|[,;|/>])\s*|\s+-\s+|-|\s+)N)*\s*[\])]?\s*".replace("N", r"(?:\d*\.\d+|\d+)"), re.ASCII
)
"""Numbers as text. A dash between two numbers separates them; one before a single number would be its sign."""
_ROUNDED = 0.25
"""How far a share times the number of slots may be from a whole number, because users often round shares."""


def _digits(slots: int) -> list[range]:
    return [range(10)] * slots


def _digits_and_x(slots: int) -> list[range]:
    return [*[range(10)] * (slots - 1), range(11)]


# The steps of the machines. They are functions of the module instead of closures, so that rules can be pickled. If
# possible, they use arithmetic only, so that the value of a rule can be computed for many combinations at once.


def _first(state: tuple[Any, ...]) -> Any:
    return state[0]


def _second(state: tuple[Any, ...]) -> Any:
    return state[1]


def _is_one(state: int) -> Any:
    return state == 1


def _is_zero(state: int) -> Any:
    return state == 0


def _no_remainder(state: tuple[int, int]) -> Any:
    return state[1] == 0


def _weigh(weights: tuple[int, ...], modulus: int | None, state: tuple[int, int], label: int) -> tuple[int, int]:
    place, value = state
    value = value + weights[place] * label
    return (place + 1) % len(weights), value if modulus is None else value % modulus


def _luhn_step(state: tuple[int, int], label: int) -> tuple[int, int]:
    """The sum if the last digit read is counted once (the case at the end), and the sum if it is doubled."""
    once, doubled = state
    return (doubled + label) % 10, (once + 2 * label - 9 * (label > 4)) % 10


def _luhn_passed(state: tuple[int, int]) -> Any:
    return state[0] == 0


def _modulo_97(state: int, label: int) -> int:
    return (state * (10 + 90 * (label > 9)) + label) % 97


def _lesser(state: int, label: int) -> int:
    return label if state < 0 else min(state, label)


def _counted(wanted: int, state: int, label: int) -> int:
    return state + (label == wanted)


def _counted_to_two(wanted: int, state: int, label: int) -> int:
    return state + (state < 2) * (label == wanted)


def _found(wanted: int, state: int, label: int) -> int:
    return state + (1 - state) * (label == wanted)


def _add_to_set(state: int, label: int) -> int:
    """The labels so far as bits; -1 after a repetition."""
    return -1 if state < 0 or state >> label & 1 else state | 1 << label


def _is_set(state: int) -> bool:
    return state >= 0


def _ascend(strict: bool, state: int, label: int) -> int:
    """The previous label; -2 after a violation of the order."""
    return label if state >= -1 and label >= state + strict else -2


def _still_ascends(state: int) -> bool:
    return state >= 0


class _Sorted(tuple[int, ...]):
    """The labels of a bag in ascending order. Its type tells them from counts, where there are as many of both."""

    __slots__ = ()

    @classmethod
    def of(cls, labels: Sequence[int]) -> _Sorted:
        """The labels in ascending order."""
        return cls(sorted(labels))


def _insert(state: tuple[int, ...], label: int) -> _Sorted:
    return _Sorted.of((*state, label))


def _insert_if_wanted(
    enough: dict[tuple[int, int], int], state: tuple[tuple[int, ...], int], label: int
) -> tuple[tuple[int, ...], int] | None:
    """The labels so far, and the targets that contain them, as bits."""
    labels, targets = state
    left = targets & enough.get((label, labels.count(label) + 1), 0)
    return (_insert(labels, label), left) if left else None


def _anything(state: int, label: int) -> int:
    del label
    return state


def _add_column(state: tuple[int, int], label: int) -> tuple[int, int] | None:
    """Read, from the right, a digit of each number, then the digit of their sum. The value is the total of the column,
    then the carry."""
    read, value = state
    if read < 2:
        return read + 1, value + label
    return (0, value // 10) if label == value % 10 else None


def _carry(state: tuple[int, int]) -> int:
    return state[1]


def _sum_of_numbers(digits: int, labels: Sequence[int]) -> int:
    first = second = 0
    for a, b in zip(labels[:digits], labels[digits:], strict=True):
        first, second = 10 * first + a, 10 * second + b
    return first + second


def _without_repetitions(labels: Sequence[int]) -> tuple[int, ...]:
    return tuple(label for label, _ in groupby(labels))


def _weighted_sum(*weights: int) -> Rule:
    return weighted_sum(weights)


def _checksum(*weights: int, modulus: int = 10) -> Rule:
    return checksum(weights, modulus)


_BY_NAME: dict[str, tuple[str, Callable[..., Rule]]] = {
    "sum": ("", total),
    "weighted-sum": (":WEIGHT,…", _weighted_sum),
    "checksum": (":WEIGHT,…[%MODULUS]", _checksum),
    "luhn": ("", luhn),
    "isbn": ("[:10]", isbn),
    "iban": ("", iban),
    "max": ("", largest),
    "min": ("", smallest),
    "count": (":LABEL", count),
    "at-least-one": (":LABEL", at_least_one),
    "exactly-one": (":LABEL", exactly_one),
    "none": (":LABEL", none),
    "all-different": ("", all_different),
    "ordered": ("", ordered),
    "strictly-ordered": ("", partial(ordered, strict=True)),
    "proportions": ("", proportions),
    "partial-labels": ("", partial_labels),
    "addition": (":DIGITS", addition),
    "transcript": ("", transcript),
}
"""For each name: the syntax of its numbers, and the function that makes the rule from these numbers."""
_NEEDS = {
    "": "{rule} takes no numbers",
    ":LABEL": "{rule} needs a label",
    ":WEIGHT,…": "{rule} needs weights, whole numbers with commas between them",
    ":WEIGHT,…[%MODULUS]": "{rule} needs weights, whole numbers with commas between them",
    ":DIGITS": "{rule} needs a number of digits",
    "[:10]": "{rule} takes no number but 10",
}
"""For each syntax: the message for numbers that do not fit it."""
_SYNTAX = re.compile(r"([a-z-]+)(?::(-?\d+(?:,-?\d+)*)(?:%(\d+))?)?")


def named(text: str) -> Rule:
    """The rule with this name; its numbers follow a colon. These are the names that `--rule` takes on the command line.

    | text | rule |
    |---|---|
    | `sum`, `max`, `min` | `total()`, `largest()`, `smallest()` |
    | `weighted-sum:100,10,1` | `weighted_sum([100, 10, 1])` |
    | `checksum:3,1,7,9`, `checksum:1,4%5` | `checksum([3, 1, 7, 9], 10)`, `checksum([1, 4], 5)` |
    | `luhn`, `isbn`, `isbn:10`, `iban` | `luhn()`, `isbn()`, `isbn(10)`, `iban()` |
    | `count:3`, `at-least-one:1`, `exactly-one:1`, `none:1` | `count(3)` and so on |
    | `all-different`, `ordered`, `strictly-ordered` | `all_different()`, `ordered()`, `ordered(strict=True)` |
    | `proportions`, `partial-labels`, `addition:15`, `transcript` | `proportions()` and so on |

    Args:
        text: the name and its numbers.

    Returns:
        The rule.

    Raises:
        InputError: there is no such rule (the message lists all names), or the numbers do not fit it.

    Examples:
        >>> named("checksum:1,4%5").value((2, 3))
        4
        >>> named("count:7").name
        'count'
    """
    found = _SYNTAX.fullmatch(text.strip()) if isinstance(text, str) else None
    if found and found[1] in _BY_NAME:
        numbers = [_integer(number) for number in found[2].split(",")] if found[2] else []
        modulus = {"modulus": _integer(found[3])} if found[3] else {}
        try:
            return _BY_NAME[found[1]][1](*numbers, **modulus)
        except TypeError:  # more or fewer numbers than the rule has
            pass
    known = text.strip().partition(":")[0] if isinstance(text, str) else ""
    if known in _BY_NAME:
        following = _BY_NAME[known][0]
        needs = _NEEDS[following].format(rule=known)
        raise InputError(f"{needs}{': ' + known + following if following else ''}, got {shown(text)}")
    every = ", ".join(name + following for name, (following, _) in _BY_NAME.items())
    raise InputError(
        f"expected the name of a rule, with its numbers if it has any, got {shown(text)}; rules are {every}"
    )
