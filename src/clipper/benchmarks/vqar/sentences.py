"""What is known of an object: a class that its name belongs to, and a relation that it has to something."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.benchmarks.vqar.knowledge import Knowledge
from clipper.benchmarks.vqar.scenes import Scenes
from clipper.candidates import Sentence
from clipper.candidates.program import term
from clipper.errors import InputError


@dataclass(frozen=True, eq=False)
class Told:
    """Objects that something is known of."""

    subject: Tensor
    """`(n,)` object ids."""
    objects: Tensor
    """`(n, others)`: the ids of the objects around each, -1 where there are fewer."""
    relation: Tensor
    """`(n, others)`: gold, -1 where there is none."""
    sentences: list[Sentence]


def tell(
    scenes: Scenes,
    knowledge: Knowledge,
    names: int,
    relations: int,
    samples: int,
    seed: int = 0,
    *,
    others: int = 2,
    generic: bool = False,
) -> Told:
    """Draw subjects, and say of each name(superclass, o1) ∧ rel(r, o1, O2), where O2 may be any object around it.

    Args:
        scenes: what to draw from.
        knowledge: the vocabularies and the ontology.
        names: only subjects with one of the so many most frequent names.
        relations: likewise.
        samples: how many; no object is the subject of two.
        seed: of the draws.
        others: objects around a subject that O2 may be, at most.
        generic: take the most generic superclass, as the paper does, instead of any. All names of one generic class
            are then told alike, and nothing can tell them apart.
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
    return Told(subject, objects, relation, sentences)


def _around(scenes: Scenes, pairs: Tensor, subject: Tensor, others: int, generator: torch.Generator) -> Tensor:
    """For each subject at most `others` of its pairs, at random; -1 fills up."""
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
