"""Propositional formulas over "this slot has that label": built in Python, or read from DIMACS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clipper.arguments import as_list, shown, whole_number
from clipper.errors import InputError
from clipper.files import read_text

_DIGITS = 18
_NUMBER = re.compile(rf"-?[0-9]{{1,{_DIGITS}}}")
_HEAD = re.compile(rf"p\s+cnf\s+[0-9]{{1,{_DIGITS}}}\s+[0-9]{{1,{_DIGITS}}}")
Clauses = Sequence[Sequence[int]]
"""A formula in conjunctive normal form. A literal is the number of a variable, from 1; a minus sign negates it."""


@dataclass(frozen=True, eq=False, repr=False)
class Proposition:
    """A formula over the labels of a sample; combine it with `&`, `|`, `~` and `>>` (implies).

    Propositions may be nested to any depth, because no function here is recursive, and may share parts.

    Attributes:
        kind: "label", or how the parts are combined: "not", "and", "or".
        parts: the propositions that are combined.
        slot: if the kind is "label": the slot.
        value: if the kind is "label": the label of the slot.

    Raises:
        InputError: the kind is unknown, or a part is not a proposition.

    Examples:
        >>> dog, on = has_label(0, 3), has_label(1, 7)  # slot 0 has label 3, slot 1 has label 7
        >>> (dog >> ~on).evaluate([3, 7]), (dog >> ~on).evaluate([3, 6])
        (False, True)
    """

    kind: Literal["label", "not", "and", "or"]
    parts: tuple[Proposition, ...] = ()
    slot: int = -1
    value: int = -1
    _hash: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.kind not in ("label", "not", "and", "or"):
            raise InputError(f'expected a proposition of kind "label", "not", "and" or "or", got {shown(self.kind)}')
        parts = tuple(as_list(self.parts, "the parts of a proposition", ordered=False))
        for wrong in (part for part in parts if not isinstance(part, Proposition)):
            raise _mixed(wrong)
        if self.kind == "label":
            object.__setattr__(self, "slot", whole_number(self.slot, "the slot of a proposition", least=0))
            object.__setattr__(self, "value", whole_number(self.value, "the label of a proposition", least=0))
        if (self.kind == "label" and parts) or (self.kind == "not" and len(parts) != 1):
            raise InputError(f"expected no parts of a label and one of a negation, got {len(parts)} of {self.kind!r}")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_hash", hash((self.kind, self.slot, self.value, *(part._hash for part in parts))))

    def __and__(self, other: Proposition) -> Proposition:
        return Proposition("and", (self, other))

    def __or__(self, other: Proposition) -> Proposition:
        return Proposition("or", (self, other))

    def __invert__(self) -> Proposition:
        return Proposition("not", (self,))

    def __rshift__(self, other: Proposition) -> Proposition:
        return ~self | other

    def __rand__(self, other: object) -> Proposition:
        raise _mixed(other)

    __ror__ = __rrshift__ = __rand__

    def __bool__(self) -> bool:
        raise InputError(
            "a proposition is neither true nor false by itself; combine propositions with & | ~ and >> instead of "
            "and, or, not and if, and ask evaluate(labels) whether one holds"
        )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Proposition):
            return NotImplemented
        left, seen = [(self, other)], set[tuple[int, int]]()
        while left:
            ours, theirs = left.pop()
            if ours is theirs or (id(ours), id(theirs)) in seen:
                continue
            seen.add((id(ours), id(theirs)))
            if (ours._hash, ours.kind, ours.slot, ours.value, len(ours.parts)) != (
                theirs._hash, theirs.kind, theirs.slot, theirs.value, len(theirs.parts)
            ):  # fmt: skip
                return False
            left += zip(ours.parts, theirs.parts, strict=True)
        return True

    def __repr__(self) -> str:
        if self.kind == "label":
            return f"has_label({self.slot}, {self.value})"
        return f"Proposition({self.kind!r} of {len(self.parts)}, about {len(self.labels())} labels)"

    def __reduce__(self) -> tuple[Any, ...]:
        order = self.steps()
        place = {id(part): i for i, part in enumerate(order)}
        rows = [(p.kind, tuple(place[id(part)] for part in p.parts), p.slot, p.value) for p in order]
        return _rebuilt, (rows,)

    def __deepcopy__(self, _: object) -> Proposition:
        return self

    def steps(self) -> list[Proposition]:
        """All parts in topological order: each part once, after its own parts; the proposition itself comes last."""
        order, known, left = [], set[int](), [(self, False)]
        while left:
            part, opened = left.pop()
            if opened:
                order.append(part)
            elif id(part) not in known:
                known.add(id(part))
                left.append((part, True))
                left += ((inner, False) for inner in reversed(part.parts))
        return order

    def evaluate(self, labels: Sequence[int]) -> bool:
        """Whether the proposition holds for the labels of one sample.

        Args:
            labels: a label for each slot.

        Raises:
            InputError: a slot of the proposition has no label.
        """
        row, found = as_list(labels, "the labels of a sample"), dict[int, bool]()
        for part in self.steps():
            inner = [found[id(p)] for p in part.parts]
            if part.kind == "label":
                if part.slot >= len(row):
                    raise InputError(f"expected a label for slot {part.slot}, got {len(row)} labels")
                found[id(part)] = bool(row[part.slot] == part.value)
            elif part.kind == "not":
                found[id(part)] = not inner[0]
            else:
                found[id(part)] = all(inner) if part.kind == "and" else any(inner)
        return found[id(self)]

    def conjuncts(self) -> list[Proposition]:
        """The propositions whose conjunction this is: nested "and"s are flattened, repetitions removed."""
        order, left = [], [self]
        while left:
            part = left.pop()
            if part.kind == "and":
                left += reversed(part.parts)
            else:
                order.append(part)
        return list(dict.fromkeys(order))

    def labels(self) -> set[tuple[int, int]]:
        """The slots and labels that it names."""
        return {(part.slot, part.value) for part in self.steps() if part.kind == "label"}


def _rebuilt(rows: Sequence[tuple[Any, tuple[int, ...], int, int]]) -> Proposition:
    """The reverse of `Proposition.__reduce__`."""
    made: list[Proposition] = []
    for kind, parts, slot, value in rows:
        made.append(Proposition(kind, tuple(made[part] for part in parts), slot, value))
    return made[-1]


def _mixed(value: object) -> InputError:
    return InputError(f"expected propositions only, such as has_label(0, 3), got {shown(value)} among them")


def has_label(slot: int, value: int) -> Proposition:
    """The proposition that a slot has a label.

    Args:
        slot: which slot, counted from 0.
        value: the label.

    Returns:
        The proposition; combine it with others by `&`, `|`, `~` and `>>`.

    Raises:
        InputError: slot or label is not a whole number of at least 0.
    """
    return Proposition("label", slot=slot, value=value)


def all_of(parts: Iterable[Proposition]) -> Proposition:
    """The conjunction of propositions; true if there are none.

    Args:
        parts: the propositions.

    Raises:
        InputError: a part is not a proposition.

    Examples:
        >>> all_of([has_label(0, 3), has_label(1, 7)]).evaluate([3, 7])
        True
    """
    return Proposition("and", tuple(as_list(parts, "propositions", ordered=False)))


def any_of(parts: Iterable[Proposition]) -> Proposition:
    """The disjunction of propositions; false if there are none.

    Args:
        parts: the propositions.

    Raises:
        InputError: a part is not a proposition.

    Examples:
        >>> any_of(has_label(0, label) for label in (3, 4, 5)).evaluate([4])
        True
    """
    return Proposition("or", tuple(as_list(parts, "propositions", ordered=False)))


def from_clauses(clauses: Clauses, variables: Sequence[tuple[int, int]]) -> Proposition:
    """Clauses as a proposition.

    Args:
        clauses: lists of literals; a literal is the number of a variable, from 1, and a minus sign negates it.
        variables: the slot and the label that each variable stands for.

    Examples:
        >>> from_clauses([[1, -2]], [(0, 1), (1, 1)]).evaluate([0, 1])
        False
    """

    def literal(number: int) -> Proposition:
        atom = has_label(*variables[abs(number) - 1])
        return atom if number > 0 else ~atom

    return all_of(any_of(literal(number) for number in clause) for clause in clauses)


def read_dimacs(source: str | Path) -> tuple[list[list[int]], int]:
    """The clauses of a CNF in DIMACS format, and the number of its variables.

    Args:
        source: the text, or the path of a file.

    Raises:
        FileError: if the file cannot be read.
        InputError: if it is not DIMACS.

    Examples:
        >>> read_dimacs("c at least one\\np cnf 2 1\\n1 -2 0\\n")
        ([[1, -2]], 2)
    """
    text = read_text(source, "the formula") if isinstance(source, Path) else source
    lines = [line.strip() for line in re.split(r"\r\n|\n|\r", text)]
    end = next((i for i, line in enumerate(lines) if line.startswith("%")), len(lines))  # as in SATLIB's files
    content = [line for line in lines[:end] if line and not line.startswith("c")]
    if not content or _HEAD.fullmatch(content[0]) is None:
        got = shown(content[0]) if content else "nothing"
        raise InputError(
            f"expected DIMACS with one line `p cnf VARIABLES CLAUSES` before the clauses, got {got}; pass a file "
            "as a Path"
        )
    variables, count = (_number(word) for word in content[0].split()[2:])
    numbers = [_number(word) for line in content[1:] for word in line.split()]
    clauses = _clauses(numbers)
    wrong = next((n for clause in clauses for n in clause if abs(n) > variables), None)
    if wrong is not None or len(clauses) != count:
        what = f"the variable {abs(wrong)}" if wrong is not None else f"{len(clauses)} clauses"
        raise InputError(f"expected {count} clauses over {variables} variables, as the first line says, got {what}")
    return clauses, variables


def _number(word: str) -> int:
    if _NUMBER.fullmatch(word) is None:
        raise InputError(f"expected whole numbers of at most {_DIGITS} digits in DIMACS, got {shown(word)}")
    return int(word)


def _clauses(numbers: Iterable[int]) -> list[list[int]]:
    """The clauses in a list of literals, each ended by a zero."""
    clauses: list[list[int]] = []
    open_: list[int] = []
    for number in numbers:
        if number:
            open_.append(number)
        else:
            clauses.append(open_)
            open_ = []
    if open_:
        raise InputError(f"expected a 0 at the end of each clause, but the last one ends with {open_[-1]}")
    return clauses
