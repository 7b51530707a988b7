"""Propositional formulas over "this slot has that label": built in Python, or read from DIMACS."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clipper.errors import FileError, InputError

Clauses = Sequence[Sequence[int]]
"""A formula in conjunctive normal form: literals are variables from 1, negated if negative."""


@dataclass(frozen=True)
class Proposition:
    """A formula over the labels of a sample; combine it with `&`, `|`, `~` and `>>` (implies).

    Examples:
        >>> dog, on = label(0, 3), label(1, 7)  # slot 0 has label 3, slot 1 has label 7
        >>> (dog >> ~on).evaluate([3, 7]), (dog >> ~on).evaluate([3, 6])
        (False, True)
    """

    kind: Literal["label", "not", "and", "or"]
    parts: tuple[Proposition, ...] = ()
    slot: int = -1
    value: int = -1

    def __and__(self, other: Proposition) -> Proposition:
        return Proposition("and", (self, other))

    def __or__(self, other: Proposition) -> Proposition:
        return Proposition("or", (self, other))

    def __invert__(self) -> Proposition:
        return Proposition("not", (self,))

    def __rshift__(self, other: Proposition) -> Proposition:
        return ~self | other

    def evaluate(self, labels: Sequence[int]) -> bool:
        """Whether it holds for the labels of one sample."""
        if self.kind == "label":
            return labels[self.slot] == self.value
        found = [part.evaluate(labels) for part in self.parts]
        return not found[0] if self.kind == "not" else all(found) if self.kind == "and" else any(found)

    def labels(self) -> set[tuple[int, int]]:
        """The slots and labels that it speaks of."""
        own = {(self.slot, self.value)} if self.kind == "label" else set()
        return own.union(*(part.labels() for part in self.parts))


def label(slot: int, value: int) -> Proposition:
    """The proposition that a slot has a label."""
    return Proposition("label", slot=slot, value=value)


def all_of(parts: Iterable[Proposition]) -> Proposition:
    """All of these hold; true if there are none."""
    return Proposition("and", tuple(parts))


def any_of(parts: Iterable[Proposition]) -> Proposition:
    """One of these holds, at least; false if there are none."""
    return Proposition("or", tuple(parts))


def from_clauses(clauses: Clauses, variables: Sequence[tuple[int, int]]) -> Proposition:
    """Clauses as a proposition; variable `i` says that `variables[i - 1]`, a slot, has a label.

    Examples:
        >>> from_clauses([[1, -2]], [(0, 1), (1, 1)]).evaluate([0, 1])
        False
    """

    def literal(number: int) -> Proposition:
        atom = label(*variables[abs(number) - 1])
        return atom if number > 0 else ~atom

    return all_of(any_of(literal(number) for number in clause) for clause in clauses)


def read_dimacs(source: str | Path) -> tuple[list[list[int]], int]:
    """The clauses of a CNF in DIMACS form, text or file, and how many variables it has.

    Examples:
        >>> read_dimacs("c at least one\\np cnf 2 1\\n1 -2 0\\n")
        ([[1, -2]], 2)
    """
    lines = _text(source).splitlines()
    heads = [line.split() for line in lines if line.startswith("p")]
    if len(heads) != 1 or len(heads[0]) != 4 or heads[0][1] != "cnf":
        raise InputError(f"expected one line `p cnf VARIABLES CLAUSES`, got {[' '.join(head) for head in heads]}")
    try:
        variables, count = int(heads[0][2]), int(heads[0][3])
        numbers = [int(word) for line in lines if line and line[0] not in "cp%" for word in line.split()]
    except ValueError as error:
        raise InputError(f"expected whole numbers in DIMACS clauses: {error}") from error
    clauses = _clauses(numbers)
    wrong = next((n for clause in clauses for n in clause if abs(n) > variables), None)
    if wrong is not None or len(clauses) != count:
        what = f"the variable {abs(wrong)}" if wrong is not None else f"{len(clauses)} clauses"
        raise InputError(f"expected {count} clauses over {variables} variables, as the first line says, got {what}")
    return clauses, variables


def _clauses(numbers: Iterable[int]) -> list[list[int]]:
    """A zero ends a clause."""
    clauses: list[list[int]] = []
    open_: list[int] = []
    for number in numbers:
        if number:
            open_.append(number)
        else:
            clauses.append(open_)
            open_ = []
    return clauses


def _text(source: str | Path) -> str:
    if not isinstance(source, Path):
        return source
    try:
        return source.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot read the formula in {source} ({error.strerror})") from error
