"""VQAR's vocabularies, CRIC's facts about them as a logic program, and true sentences about objects."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from clipper.benchmarks.data.sources import Form, Source, find_or_fetch, published
from clipper.benchmarks.vqar.scenes import Scenes
from clipper.candidates import Sentence
from clipper.candidates.program import term
from clipper.errors import InputError

CRIC = Source(
    "vqar",
    (Form("vocabularies and facts", published("vqar", ["name.json", "rel.json", "cric_facts.tsv"])),),
    "take VQAR's name.json and rel.json, and CRIC's facts as cric_facts.tsv, where each line holds, separated by "
    "tabs, is_a, child, parent; or oa_rel, relation, object, attribute",
)


RULES = ("name(O, P) :- name(O, C), is_a(C, P).", "name(O, has(R, V)) :- name(O, C), oa_rel(R, C, V).")
"""An object belongs to all classes of its name, and has all properties of its name."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """The vocabularies, the most frequent words first, and CRIC's facts about them.

    Attributes:
        names: names of objects, the most frequent first.
        relations: relations between objects, the most frequent first.
        is_a: pairs of a word and a class directly above it.
        oa_rel: triples of a relation, an object and a related word.

    Examples:
        >>> facts = (("dog", "mammal"), ("mammal", "animal"), ("cup", "thing"))
        >>> little = Knowledge(("dog", "cup", "sky"), ("on",), facts, ())
        >>> little.classes("dog"), little.classes("dog", generic=True), little.classes("sky")
        (['animal', 'mammal'], ['animal'], ['sky'])
    """

    names: tuple[str, ...]
    relations: tuple[str, ...]
    is_a: tuple[tuple[str, str], ...]
    oa_rel: tuple[tuple[str, str, str], ...]

    @cached_property
    def parents(self) -> dict[str, set[str]]:
        """The classes directly above a word."""
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
        """The classes that a name belongs to, as terms, sorted; the name itself if there is none.

        Properties come from the facts of `oa_rel` about the name itself. In the theory, a name also has the properties
        of its classes.

        Args:
            name: a word of the vocabulary.
            generic: only the most generic classes by `is_a`, instead of all classes and properties.
        """
        above: set[str] = set()
        unvisited = [name]
        while unvisited:
            new = self.parents.get(unvisited.pop(), set()) - above
            above |= new
            unvisited += new
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
    """The vocabularies and facts from `<data root>/vqar`, each file compared with its published checksum."""
    place = find_or_fetch(CRIC, root)
    lines = place.verified("cric_facts.tsv").read_text(encoding="utf-8").splitlines()[1:]
    facts = [line.split("\t") for line in lines]
    return Knowledge(
        _words(place.verified("name.json")),
        _words(place.verified("rel.json")),
        tuple((a, b) for kind, a, b, *_ in facts if kind == "is_a"),
        tuple((rest[0], rest[1], rest[2]) for kind, *rest in facts if kind == "oa_rel"),
    )


def _words(path: Path) -> tuple[str, ...]:
    numbered = json.loads(path.read_bytes())
    return tuple(numbered[str(i)] for i in range(len(numbered)))


@dataclass(frozen=True, eq=False)
class Sentences:
    """Objects, and what is known about each.

    Attributes:
        subject: `(n,)` object ids.
        objects: `(n, others)`: the ids of the objects around each, -1 where there are fewer.
        relation: `(n, others)`: gold, -1 where there is none.
        sentences: what is known about each subject.
    """

    subject: Tensor
    objects: Tensor
    relation: Tensor
    sentences: list[Sentence]


def draw_sentences(
    scenes: Scenes,
    knowledge: Knowledge,
    names: int,
    relations: int,
    samples: int,
    seed: int = 0,
    *,
    others: int = 2,
    generic: bool = False,
) -> Sentences:
    """Draw subjects o1, each with a sentence name(superclass, o1) ∧ rel(r, o1, O2), where O2 is any object around it.

    Args:
        scenes: what to draw from.
        knowledge: the vocabularies and the ontology.
        names: only draw subjects with one of this many most frequent names.
        relations: only use this many most frequent relations.
        samples: how many; no object is the subject of two.
        seed: of the draws.
        others: use at most this many of the objects around a subject as O2.
        generic: use the most generic superclass, as the paper does, instead of any. Then all names in a generic class
            have the same sentences, so nothing distinguishes these names.
    """
    generator = torch.Generator().manual_seed(seed)
    fits = (scenes.name[scenes.subject] < names) & (scenes.relation < relations)
    pairs = fits.nonzero()[:, 0]
    subjects = torch.unique(scenes.subject[pairs])
    if len(subjects) < samples:
        raise InputError(
            f"{samples:,} samples need as many objects with one of {names} names and {relations} relations, but there "
            f"are {len(subjects):,}; ask for fewer, or for more names"
        )
    subject = subjects[torch.randperm(len(subjects), generator=generator)[:samples]]
    chosen = _around(scenes, pairs, subject, others, generator)  # (n, others): pairs, -1 for none
    objects = torch.where(chosen < 0, -1, scenes.object[chosen])
    relation = torch.where(chosen < 0, -1, scenes.relation[chosen])
    sentences = [
        _sentence(knowledge, int(scenes.name[one]), [r for r in row if r >= 0], generic, generator)
        for one, row in zip(subject.tolist(), relation.tolist(), strict=True)
    ]
    return Sentences(subject, objects, relation, sentences)


def _around(scenes: Scenes, pairs: Tensor, subject: Tensor, others: int, generator: torch.Generator) -> Tensor:
    """For each subject at most `others` of its pairs, at random, padded with -1."""
    pairs = pairs[torch.randperm(len(pairs), generator=generator)]
    pairs = pairs[scenes.subject[pairs].argsort(stable=True)]
    owner = scenes.subject[pairs]
    first, last = torch.searchsorted(owner, subject), torch.searchsorted(owner, subject, right=True)
    place = first[:, None] + torch.arange(others)
    return torch.where(place < last[:, None], pairs[place.clamp(max=len(pairs) - 1)], -1)


def _sentence(
    knowledge: Knowledge, name: int, relations: list[int], generic: bool, generator: torch.Generator
) -> Sentence:
    classes = knowledge.classes(knowledge.names[name], generic=generic)
    superclass = classes[int(torch.randint(len(classes), (), generator=generator))]
    relation = knowledge.relations[relations[int(torch.randint(len(relations), (), generator=generator))]]
    slots = ["name(o1, _)", *(f"rel(_, o1, o{i + 2})" for i in range(len(relations)))]
    return Sentence(f"name(o1, {superclass}), rel({term(relation)}, o1, O2)", slots=slots)
