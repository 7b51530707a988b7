"""Kinds of rules by their targets: how a target is read, from what users pass or from text.

Three of them also make their candidates in another way than by a state machine over the labels.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import torch

from clipper.arguments import as_index, as_list, shown, whole_number
from clipper.candidates.alignment import Alignments, read_text
from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.lattice import Lattice
from clipper.candidates.rules import Machine, Rule
from clipper.candidates.task import as_python, domains_of_slots
from clipper.errors import InputError
from clipper.rules import steps

_SET = re.compile(r"\s*[\[({]?\s*(?:\d+(?:(?:\s*[,;]\s*|\s+)\d+)*)?\s*[\])}]?\s*", re.ASCII)
"""Labels of a set as text, in brackets or without."""
_NUMBERS = re.compile(
    r"\s*[\[(]?\s*N(?:(?:\s*(?:->|[,;|/>])\s*|\s+-\s+|-|\s+)N)*\s*[\])]?\s*".replace("N", r"(?:\d*\.\d+|\d+)"), re.ASCII
)
"""Numbers as text. A dash between two numbers separates them; one before a single number would be its sign."""
_ROUNDED = 0.25
"""How far a share times the number of slots may be from a whole number, because users often round shares."""

_LARGEST = 1e100
"""Numbers of this size are no counts; with larger ones, sums and products could exceed what a float can hold."""


class YesNo(Rule):
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
class OfLabel(Rule):
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
class YesNoOfLabel(OfLabel, YesNo):
    """A rule about the slots that have a certain label, whose targets are True and False."""


class Remainder(Rule):
    """A rule whose targets are remainders."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """A whole number; True and False are refused."""
        del slots, classes
        if isinstance(given, bool):
            raise InputError(f"expected a remainder, 0 for most check digits, got {given}")
        remainder: Hashable = given
        return remainder


class Numbers(Rule):
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
        return [float(word) if "." in word else integer(word) for word in re.findall(r"\d*\.\d+|\d+", text)]


class Proportions(Numbers):
    """Bags with a known number of occurrences of each label."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """The labels in ascending order."""
        if isinstance(given, steps.Sorted):
            return given
        if isinstance(given, Mapping):
            return _bag(
                [(label_number(y), whole_number(count, "a count", least=0)) for y, count in given.items()], slots
            )
        values = [as_python(value) for value in as_list(given, "the counts of all labels, or labels,", ordered=False)]
        are_labels = len(values) == slots and (len(values) != classes or isinstance(given, Set))
        if are_labels and all(isinstance(value, int) for value in values):
            return tuple(sorted(values))
        counts = None if isinstance(given, Set) else _as_counts(values, slots)  # a set has no order
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
        return Machine((steps.Sorted(), (1 << len(targets)) - 1), partial(steps.insert_if_wanted, enough), steps.first)


class PartialLabels(Rule):
    """A set of labels for each slot."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """A frozen set for each slot."""
        rows = [as_python(row) for row in as_list(given, "a set of labels for each slot", ordered=False)]
        if slots == 1 and all(isinstance(value, int) for value in rows):  # labels or truth values
            rows = [given]
        if len(rows) != slots or (slots > 1 and isinstance(given, Set)):  # a set has no order
            raise InputError(f"expected a set of labels for each of {slots} slots, in a list, got {shown(given)}")
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
            rows.append(_without_repeated([integer(word) for word in re.findall(r"\d+", part)]))
        return [set(row) for row in rows]

    def _lattice(self, targets: list[Any], lengths: list[int], classes: Classes, domains: Any, budget: int) -> Lattice:
        everything = super()._lattice([0] * len(targets), lengths, classes, domains, budget)
        allowed = torch.zeros(len(targets), max(lengths), kinds_of(classes)[-1].stop, dtype=torch.bool)
        cells = [(i, j, y) for i, sets in enumerate(targets) for j, labels in enumerate(sets) for y in labels]
        if cells:
            allowed[tuple(torch.tensor(cells).T)] = True
        own = replace(everything, allowed=allowed)
        return own.without_candidates(~own.possible(), "keep")


class Addition(Rule):
    """Two numbers, digit by digit, and their sum."""

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """The sum as a number."""
        if classes < 10:
            raise InputError(f"expected a class for each of ten digits, got {classes} classes")
        number = as_index(given)
        if number is None:
            written = list(given) if isinstance(given, str) else as_list(given, "the sum, or its digits,")
            if not written:
                raise InputError(f"expected the sum, or its digits, of which there is at least one, got {shown(given)}")
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


class Transcript(Numbers):
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


def label_number(value: Any) -> int:
    """A label in a rule or in a target."""
    return whole_number(value, "a label", least=0)


def integer(word: str) -> int:
    """A whole number from text. Python refuses numbers of more than some thousand digits."""
    try:
        return int(word)
    except ValueError as error:
        raise InputError(f"expected a number, got {shown(word)}: {error}") from error


def _digit(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _set_of_labels(given: Any, classes: int) -> frozenset[int]:
    labels = [as_python(label) for label in as_list(given, "labels", ordered=False)]
    if labels and all(isinstance(value, bool) for value in labels):
        if len(labels) != classes or isinstance(given, Set):  # a set has no order
            raise InputError(f"expected a list with a truth value for each of {classes} labels, got {shown(given)}")
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
    if not values or not all(isinstance(value, int | float) and abs(value) < _LARGEST for value in values):
        return None
    whole = all(value == int(value) for value in values)
    if not whole or (slots > 1 and sum(values) == 1 and any(isinstance(value, float) for value in values)):
        values = [value * slots for value in values]
    counts = [round(value) for value in values]
    if any(abs(value - number) > _ROUNDED for value, number in zip(values, counts, strict=True)):
        return None
    return counts
