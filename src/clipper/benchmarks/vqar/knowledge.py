"""VQAR's vocabularies and CRIC's facts about them, as a logic program. Knows no scene."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from clipper.benchmarks.data.reading import read_bytes, read_json
from clipper.benchmarks.data.sources import Form, Source, find, not_found
from clipper.candidates.program import term
from clipper.errors import FileError

VQAR = Source(
    "vqar",
    (
        Form(
            "vocabularies and facts",
            {
                "name.json": "c496555c7ae95fc43370bfa0f2b2220f114f64379d175fae32e97cb2a3b31002",
                "rel.json": "15c86604757d33569a7317967804b262d681fad2d501b195316591378dd02b40",
                "cric_facts.tsv": "e1260847ec3ae5fe9697dad937cf54d03746a29d271a87b633ec61736c800a2d",
            },
        ),
    ),
    "take VQAR's name.json and rel.json, and CRIC's facts as cric_facts.tsv: a line each, is_a, child, parent or "
    "oa_rel, relation, object, attribute",
)


RULES = ("name(O, P) :- name(O, C), is_a(C, P).", "name(O, has(R, V)) :- name(O, C), oa_rel(R, C, V).")
"""An object is whatever its name is a kind of, and whatever things of that name have in common."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """The vocabularies, the most frequent words first, and what CRIC knows of them.

    Examples:
        >>> facts = (("dog", "mammal"), ("mammal", "animal"), ("cup", "thing"))
        >>> little = Knowledge(("dog", "cup", "sky"), ("on",), facts, ())
        >>> little.classes("dog"), little.classes("dog", generic=True), little.classes("sky")
        (['animal', 'mammal'], ['animal'], ['sky'])
    """

    names: tuple[str, ...]
    relations: tuple[str, ...]
    is_a: tuple[tuple[str, str], ...]
    """Child and parent."""
    oa_rel: tuple[tuple[str, str, str], ...]
    """Relation, object, and what it has to do with."""

    @cached_property
    def parents(self) -> dict[str, set[str]]:
        """The classes right above a word."""
        parents: dict[str, set[str]] = defaultdict(set)
        for child, parent in self.is_a:
            parents[child].add(parent)
        return dict(parents)

    @cached_property
    def properties(self) -> dict[str, set[str]]:
        """What `oa_rel` says of a word, as terms: `has("is used for",sitting)`."""
        properties: dict[str, set[str]] = defaultdict(set)
        for relation, word, other in self.oa_rel:
            properties[word].add(f"has({term(relation)},{term(other)})")
        return dict(properties)

    def classes(self, name: str, *, generic: bool = False) -> list[str]:
        """The classes that a name belongs to, as terms, ascending; the name itself where there is none.

        What `oa_rel` says is taken for the name itself; the theory also lets it inherit what is said of its classes.

        Args:
            name: a word of the vocabulary.
            generic: only the most generic classes by `is_a`, instead of all of them and what `oa_rel` says.
        """
        above: set[str] = set()
        open_ = [name]
        while open_:
            new = self.parents.get(open_.pop(), set()) - above
            above |= new
            open_ += new
        if generic:
            return sorted(term(word) for word in above if not self.parents.get(word)) or [term(name)]
        return sorted({*map(term, above - {name}), *self.properties.get(name, ())}) or [term(name)]

    @cached_property
    def theory(self) -> str:
        """CRIC as a logic program."""
        facts = [f"is_a({term(child)},{term(parent)})." for child, parent in self.is_a]
        facts += [f"oa_rel({','.join(map(term, fact))})." for fact in self.oa_rel]
        return "\n".join([*facts, *RULES])


def read_knowledge(root: str | Path | None = None) -> Knowledge:
    """The vocabularies and facts from `<data root>/vqar`."""
    place = find(VQAR, root)
    if place is None:
        raise not_found(VQAR, root)
    facts = _facts(place.verified("cric_facts.tsv"))
    return Knowledge(
        _words(place.verified("name.json")),
        _words(place.verified("rel.json")),
        tuple((a, b) for kind, a, b, *_ in facts if kind == "is_a"),
        tuple((rest[0], rest[1], rest[2]) for kind, *rest in facts if kind == "oa_rel"),
    )


def _words(path: Path) -> tuple[str, ...]:
    numbered = read_json(path, VQAR.remedy)
    words = [numbered.get(str(i)) for i in range(len(numbered))] if isinstance(numbered, dict) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise FileError(f"expected words by their numbers from 0 on in {path}; {VQAR.remedy}")
    return tuple(map(str, words))


def _facts(path: Path) -> list[list[str]]:
    rows = [line.split("\t") for line in _text(path).splitlines()[1:]]
    for number, row in enumerate(rows, start=2):
        if len(row) != {"is_a": 3, "oa_rel": 4}.get(row[0]):
            raise FileError(f"line {number} of {path} is no fact of CRIC: expected is_a or oa_rel, got {row}")
    return rows


def _text(path: Path) -> str:
    try:
        return read_bytes(path, VQAR.remedy).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is no text in UTF-8 ({error}); {VQAR.remedy}") from error
