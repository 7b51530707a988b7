"""What a sample says, in the words of a logic program: its sentence, its facts, and the label atoms of its slots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clipper.arguments import as_list, shown, whole_number
from clipper.errors import InputError

PREDICATE = re.compile(r"_*[a-z][A-Za-z0-9_']*")
"""A predicate or a constant."""
_SLOT = re.compile(rf"\s*({PREDICATE.pattern})\s*\((.*)\)\s*", re.DOTALL)
_PART = re.compile(r'"(?:\\.|[^"\\])*"|.', re.DOTALL)
_APART = re.compile(r'"(?:\\.|[^"\\])*"|%\*.*?\*%|%[^\n]*', re.DOTALL)
"""Strings and comments, in which words mean nothing."""
_LARGE = re.compile(r"(?<![\w'])\d{10,}")
_LARGEST = 2**31 - 1
"""clingo's numbers have 32 bits; it cuts larger ones without a word."""


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
        readable(self.text, "a sentence")
        readable(self.facts, "the facts of a sentence")
        object.__setattr__(self, "slots", readable_slots(self.slots))


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


def readable(text: Any, what: str, *, includes: bool = False) -> str:
    """A text that clingo reads as it stands; it may include files if `includes`."""
    if not isinstance(text, str):
        raise InputError(f"expected {what} as text in clingo's language, got {shown(text)}")
    _check_letters(text, what)
    bare = _APART.sub(" ", text)
    if "#include" in bare and not includes:
        raise InputError(f"{what} includes a file; only a theory that lies in a file itself can, pass it as a Path")
    large = next((number for number in _LARGE.findall(bare) if int(number[:20]) > _LARGEST), None)
    if large is not None:
        raise InputError(
            f"expected numbers up to {_LARGEST:,} in {what}, clingo knows no larger ones, got {large[:40]}"
        )
    return text


def _check_letters(text: str, what: str) -> None:
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise InputError(f"expected {what} in plain Unicode, got a NUL or half of a surrogate pair in {shown(text)}")


def readable_slots(slots: Any) -> tuple[str, ...]:
    """Texts, one for each slot."""
    return tuple(readable(slot, "a slot") for slot in as_list(slots, 'slots such as ["name(o1, _)"]'))


def slot_of(text: str) -> Slot:
    """Read a slot such as "name(o1, _)": an atom with exactly one open argument.

    Examples:
        >>> slot_of('said("a, b", f(x, y), _)')
        Slot(kind='said', before='"a, b",f(x, y),', after='')
    """
    match = _SLOT.fullmatch(text)
    arguments = _arguments(match[2]) if match else []
    if not match or arguments.count("_") != 1:
        raise InputError(
            f'expected a slot as a label atom with one open argument, such as "name(o1, _)" or "rel(_, o1, o2)", '
            f"got {shown(text)}"
        )
    place = arguments.index("_")
    before, after = arguments[:place], arguments[place + 1 :]
    return Slot(match[1], "".join(f"{part}," for part in before), "".join(f",{part}" for part in after))


def _arguments(text: str) -> list[str]:
    """What stands between commas that are neither in a string nor in brackets."""
    found, depth = [""], 0
    for part in _PART.findall(text):
        depth += (part == "(") - (part == ")")
        if part == "," and depth == 0:
            found.append("")
        else:
            found[-1] += part
    return [argument.strip() for argument in found]


def term(value: str | int) -> str:
    """A label as clingo writes it: numbers and constants as they are, other text in quotes.

    Examples:
        >>> [term(7), term("dog"), term("in front of")]
        ['7', 'dog', '"in front of"']
    """
    if not isinstance(value, str):
        return str(whole_number(value, "a label that is no text", -_LARGEST, _LARGEST))
    _check_letters(value, "a label")
    if PREDICATE.fullmatch(value) and value != "not":
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
