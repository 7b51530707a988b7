"""What a sample says, in the words of a logic program: its sentence, its facts, and the label atoms of its slots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clipper.errors import InputError

_CONSTANT = re.compile(r"_*[a-z][A-Za-z0-9_']*")
_SLOT = re.compile(r"\s*(_*[a-z]\w*)\s*\((.*)\)\s*")


@dataclass(frozen=True)
class Sentence:
    """What is known of one sample: a sentence that its labels satisfy, given facts of its own.

    Examples:
        >>> Sentence("name(o1, animal), rel(on, o1, O2), not name(O2, dog)", slots=["name(o1, _)", "rel(_, o1, o2)"])
        Sentence(text='name(o1, animal), rel(on, o1, O2), not name(O2, dog)', facts='', slots=('name(o1, _)', 'rel(_, o1, o2)'))
    """  # noqa: E501

    text: str
    """The body of a rule in clingo's language; free variables are existential, "not" negates."""
    facts: str = ""
    """Facts, or rules, that hold for this sample only."""
    slots: Sequence[str] = ()
    """The label atom of each slot, its label left open: "name(o1, _)"; empty for those that all samples share."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", tuple(self.slots))


@dataclass(frozen=True)
class Slot:
    """A label atom whose label is open."""

    kind: str
    """The predicate, which is also the kind of label."""
    before: str
    """The arguments before the label, with their commas."""
    after: str
    """Those after it."""

    def atom(self, label: str) -> str:
        """The atom with a label.

        Examples:
            >>> slot_of("rel(_, o1, o2)").atom("on")
            'rel(on,o1,o2)'
        """
        return f"{self.kind}({self.before}{label}{self.after})"


def slot_of(text: str) -> Slot:
    """Read a slot such as "name(o1, _)": an atom with exactly one open argument."""
    match = _SLOT.fullmatch(text)
    arguments = [part.strip() for part in match[2].split(",")] if match else []
    if not match or arguments.count("_") != 1:
        raise InputError(
            f'expected a slot as a label atom with one open argument, such as "name(o1, _)" or "rel(_, o1, o2)", '
            f"got {text!r}"
        )
    place = arguments.index("_")
    before, after = arguments[:place], arguments[place + 1 :]
    return Slot(match[1], "".join(f"{part}," for part in before), "".join(f",{part}" for part in after))


def term(value: str | int) -> str:
    """A label as clingo writes it: numbers and constants as they are, other text in quotes.

    Examples:
        >>> [term(7), term("dog"), term("in front of")]
        ['7', 'dog', '"in front of"']
    """
    if isinstance(value, int):
        return str(int(value))
    if _CONSTANT.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
