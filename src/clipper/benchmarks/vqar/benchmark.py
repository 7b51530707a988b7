"""The VQAR benchmark: names and relations of objects, learned from an ontology and sentences about the objects."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.networks import NameMlp, RelationMlp
from clipper.benchmarks.registry import Benchmark, register
from clipper.benchmarks.vqar.files import read_scenes
from clipper.benchmarks.vqar.knowledge import Knowledge, Sentences, draw_sentences, read_knowledge
from clipper.benchmarks.vqar.scenes import Scenes, generate, geometry
from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.training import Classifiers, Encoders, Packing, Samples

RELATIONS = 50
"""How many relations to use, the most frequent ones, as in the paper."""
OVERLAP = 0.8
"""The spread of generated objects of one name. In nine of ten cases, the nearest of 1,000 objects has the same name."""
_TIME_LIMIT = 600.0
"""Seconds that computing the candidates may take; those of a thousand samples take well below a minute."""
SIDE = 28
"""Pixels of a picture's side."""
_HELD_OUT = 2**31 - 1
"""Seed of the generated test scenes; no run uses it."""


@register(
    "vqar",
    data=("scenes", "vqar"),
    encoders=("trainable", "auto", "features", "shuffled"),  # scenes have features instead of pixels
    engines=("semantic", "sampled", "dolphin", "scallop"),  # ised runs a rule; abl-sim compares all instances
)
def build(config: RunConfig) -> Benchmark:
    """Objects with a known class and relation; the candidates are what CRIC's ontology allows."""
    drawn = _drawn(config.data, config.names, config.samples, config.seed, config.data_root)
    return scene_benchmark(*drawn)


@lru_cache(maxsize=2)
def _drawn(
    data: str, names: int, samples: int, seed: int, root: str | Path | None
) -> tuple[Scenes, Scenes, Knowledge, Sentences, Candidates]:
    """Everything except the networks; cached, because the rows of a table train on the same scenes."""
    knowledge = read_knowledge(root)
    if names > len(knowledge.names):
        raise InputError(f"expected names of at most {len(knowledge.names):,}, as many as VQAR has, got {names:,}")
    if data == "vqar":
        train, test = read_scenes(root)
    else:
        train = generate(samples, names, RELATIONS, seed, overlap=OVERLAP)
        test = generate(1000, names, RELATIONS, _HELD_OUT, overlap=OVERLAP)
    known = draw_sentences(train, knowledge, names, RELATIONS, samples, seed)
    return train, test, knowledge, known, scene_candidates(knowledge, known, names)


def scene_candidates(knowledge: Knowledge, known: Sentences, names: int) -> Candidates:
    """The candidates: the first slot is the subject's name, the others are its relations to the objects around it."""
    labels = {"name": knowledge.names[:names], "rel": knowledge.relations[:RELATIONS]}
    return Candidates.from_program(knowledge.theory, known.sentences, labels, time_limit=_TIME_LIMIT)


def scene_benchmark(
    train: Scenes, test: Scenes, knowledge: Knowledge, known: Sentences, candidates: Candidates
) -> Benchmark:
    """A benchmark from training scenes and test scenes.

    Args:
        train: the scenes that samples were drawn from.
        test: the scenes to measure on.
        knowledge: vocabularies and ontology.
        known: the sentences about the samples.
        candidates: the candidates that the sentences allow.
    """
    names, features = candidates.kinds[0].stop, train.features.shape[1]
    tables = _inputs(train, known.subject, known.objects)
    packing = Packing.of(tables, candidates)
    name, rel = (_scale(tables[kind.name][candidates.kind == i]) for i, kind in enumerate(candidates.kinds))
    networks = {"name": NameMlp(names, features, *name), "rel": RelationMlp(RELATIONS, features, *rel)}
    relation = torch.where(known.relation < 0, -1, known.relation + names)
    gold = torch.cat([train.name[known.subject][:, None], relation], 1)

    def between(pairs: Tensor) -> Tensor:
        """The relative position of two objects. In a pair, the box of each object comes after its features."""
        return geometry(pairs[:, features : features + 4], pairs[:, -4:])

    return Benchmark(
        Samples(packing.pack(tables, candidates.kind), candidates, gold=gold),
        Classifiers(networks, packing),
        _held_out(test, names, packing),
        encoder=Encoders({"name": torch.nn.Identity(), "rel": between}, packing),
        label_names=[*knowledge.names[:names], *knowledge.relations[:RELATIONS]],
        target_names=[sentence.text for sentence in known.sentences],
        slot="object or pair",
        pictures=lambda ids: drawings(train, known.subject[ids], known.objects[ids]),
        note="These scenes are generated." if train.generated else "These are VQAR's own scenes.",
    )


def _inputs(scenes: Scenes, subject: Tensor, objects: Tensor) -> dict[str, Tensor]:
    """Inputs by kind of label, `(n, m, …)`; the values in slots of another kind are not used."""
    slots = 1 + objects.shape[1]
    pairs = scenes.pair_inputs(subject.repeat_interleave(slots - 1), objects.clamp(min=0).flatten())
    pairs = torch.nn.functional.pad(pairs.view(len(subject), slots - 1, -1), (0, 0, 1, 0))
    return {"name": scenes.features[subject][:, None].expand(-1, slots, -1), "rel": pairs}


def _scale(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each column of `values (instances, d)`."""
    return values.mean(0), values.std(0).clamp(min=1e-6)


def _held_out(test: Scenes, names: int, packing: Packing) -> tuple[Tensor, Tensor]:
    """The subjects' names and the relations of other scenes, as packed instances with their labels."""
    pairs = ((test.name[test.subject] < names) & (test.relation < RELATIONS)).nonzero()[:, 0]
    if not len(pairs):
        raise InputError(
            f"no held-out scene has a relation of an object with one of {names} names; ask for more names, or scenes"
        )
    subject = torch.unique(test.subject[pairs])
    features, both = test.features[subject], test.pair_inputs(test.subject[pairs], test.object[pairs])
    tables = {  # first the rows of names, then those of relations; each table is zero in the other's rows
        "name": torch.nn.functional.pad(features, (0, 0, 0, len(pairs)))[:, None],
        "rel": torch.nn.functional.pad(both, (0, 0, len(subject), 0))[:, None],
    }
    kind = (torch.arange(len(subject) + len(pairs)) >= len(subject)).long()[:, None]
    return packing.pack(tables, kind)[:, 0], torch.cat([test.name[subject], test.relation[pairs] + names])


def drawings(scenes: Scenes, subject: Tensor, objects: Tensor) -> Tensor:
    """A drawing of the boxes for each slot, `(n, m, 1, side, side)` in 0 … 1.

    Dark: the object whose name is asked for, or the second object of a relation; grey: the others.
    """
    there = torch.cat([torch.ones_like(objects[:, :1]), objects], 1) >= 0  # (n, m)
    boxes = scenes.boxes[torch.cat([subject[:, None], objects.clamp(min=0)], 1)]  # (n, m, 4)
    inside = _inside(boxes, there)  # (n, m boxes, side, side)
    m = there.shape[1]
    shade = torch.full((m, m), 0.35).fill_diagonal_(1.0)  # (slot, box)
    return (inside[:, None] * shade[None, :, :, None, None]).amax(2)[:, :, None]


def _inside(boxes: Tensor, there: Tensor) -> Tensor:
    """Which pixels lie in each box, in a frame that holds all boxes of a sample, `(n, boxes, side, side)` float."""
    low = torch.where(there[..., None], boxes[..., :2], torch.inf).amin(1, keepdim=True)
    high = torch.where(there[..., None], boxes[..., :2] + boxes[..., 2:], -torch.inf).amax(1, keepdim=True)
    size = 1.1 * (high - low).amax(2, keepdim=True)
    corner = (low + high - size) / 2
    centre = (torch.arange(SIDE) + 0.5) / SIDE
    first, last = (boxes[..., :2] - corner) / size, (boxes[..., :2] + boxes[..., 2:] - corner) / size
    across, down = ((centre >= first[..., [i]]) & (centre <= last[..., [i]]) for i in (0, 1))  # (n, boxes, side)
    return ((down[..., None] & across[..., None, :]) & there[..., None, None]).float()
