"""What a run learns from: subjects, the pairs around them, and the candidates that CRIC allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from clipper.benchmarks.vqar.files import read_scenes
from clipper.benchmarks.vqar.generated import generate
from clipper.benchmarks.vqar.knowledge import Knowledge, read_knowledge
from clipper.benchmarks.vqar.scenes import Scenes, geometry
from clipper.benchmarks.vqar.sentences import Told, tell
from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.training import Packing

RELATIONS = 50
"""The most frequent relations, as in the paper."""
OVERLAP = 0.8
"""Of the generated names: a nearest neighbour among a thousand objects has the same name nine times in ten."""
PATIENCE = 600.0
"""Seconds that the candidates may take; those of a thousand samples take well below a minute."""
_HELD_OUT = 2**31 - 1
"""Seed of the generated scenes that are held out: no run's own."""


@dataclass(frozen=True, eq=False)
class SceneTask:
    """Samples to learn from. The gold labels are for measuring only."""

    inputs: Tensor
    """`(n, m, width)`, packed: a name's features, or both features and boxes of a relation."""
    gold: Tensor
    """`(n, m)`; -1 in unused slots."""
    candidates: Candidates
    """The first slot is the subject's name, the others are its relations to the objects around it."""
    packing: Packing
    embeddings: Tensor
    """`(n, m, d)`, packed: the features of names, the geometry of relations."""
    held_out: tuple[Tensor, Tensor]
    """Inputs `(instances, width)` and labels `(instances,)` of other scenes."""
    scale: Mapping[str, tuple[Tensor, Tensor]]
    """By kind, mean and deviation of the inputs."""
    scenes: Scenes
    told: Told
    targets: None = None
    """Engines see the candidates alone."""


def draw_scenes(
    train: Scenes, test: Scenes, knowledge: Knowledge, names: int, samples: int, seed: int = 0, *, generic: bool = False
) -> SceneTask:
    """A task from scenes to learn from and others to be measured on.

    Args:
        train: where samples are drawn from.
        test: whose names and relations are held out.
        knowledge: vocabularies and ontology; all of it is the background theory.
        names: the most frequent ones.
        samples: how many, `n`.
        seed: of the draws.
        generic: see `tell`.
    """
    told = tell(train, knowledge, names, RELATIONS, samples, seed, generic=generic)
    labels = {"name": knowledge.names[:names], "rel": knowledge.relations[:RELATIONS]}
    candidates = Candidates.from_program(knowledge.theory, told.sentences, labels, time_limit=PATIENCE)
    tables = _inputs(train, told.subject, told.objects)
    scale = {name: _scale(tables[name][candidates.kind == kind]) for kind, name in enumerate(labels)}
    near = _embeddings(train, told)
    relation = torch.where(told.relation < 0, -1, told.relation + names)
    packing = Packing.of(tables, candidates)
    return SceneTask(
        packing.pack(tables, candidates.kind),
        torch.cat([train.name[told.subject][:, None], relation], 1),
        candidates,
        packing,
        Packing.of(near, candidates).pack(near, candidates.kind),
        _held_out(test, names, packing),
        scale,
        train,
        told,
    )


@lru_cache(maxsize=2)
def scene_task(data: str, names: int, samples: int, seed: int, root: str | Path | None = None) -> SceneTask:
    """The task of a run: on VQAR's own scenes, "vqar", or on generated "scenes". Kept, since rows share it."""
    if data == "vqar":
        train, test = read_scenes(root)
        return draw_scenes(train, test, read_knowledge(root), names, samples, seed)
    knowledge = read_knowledge(root)
    made = generate(samples, names, RELATIONS, seed, overlap=OVERLAP)
    return draw_scenes(
        made, generate(1000, names, RELATIONS, _HELD_OUT, overlap=OVERLAP), knowledge, names, samples, seed
    )


def _inputs(scenes: Scenes, subject: Tensor, objects: Tensor) -> dict[str, Tensor]:
    """By kind, `(n, m, …)`; what a slot of another kind holds does not matter."""
    slots = 1 + objects.shape[1]
    pairs = scenes.pair_inputs(subject.repeat_interleave(slots - 1), objects.clamp(min=0).flatten())
    pairs = torch.nn.functional.pad(pairs.view(len(subject), slots - 1, -1), (0, 0, 1, 0))
    return {"name": scenes.features[subject][:, None].expand(-1, slots, -1), "rel": pairs}


def _embeddings(scenes: Scenes, told: Told) -> dict[str, Tensor]:
    slots = 1 + told.objects.shape[1]
    around = scenes.boxes[told.objects.clamp(min=0).flatten()]
    lies = geometry(scenes.boxes[told.subject].repeat_interleave(slots - 1, 0), around).view(-1, slots - 1, 4)
    features = scenes.features[told.subject][:, None].expand(-1, slots, -1)
    return {"name": features, "rel": torch.nn.functional.pad(lies, (0, 0, 1, 0))}


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
    tables = {"name": test.features[subject], "rel": test.pair_inputs(test.subject[pairs], test.object[pairs])}
    labels = {"name": test.name[subject], "rel": test.relation[pairs] + names}
    rows = []
    for number, (name, values) in enumerate(tables.items()):
        kind = torch.full((len(values), 1), number)
        blank = {
            other: values.new_zeros(len(values), 1, *shape)
            for (other, shape) in zip(tables, packing.shapes, strict=True)
        }
        rows.append(packing.pack({**blank, name: values[:, None]}, kind)[:, 0])
    return torch.cat(rows), torch.cat(list(labels.values()))
