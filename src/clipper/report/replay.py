"""A run's pruning done again, so that it can be looked at: the neighbours and survivors of its first epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.benchmarks.parts import clip_of, once_of
from clipper.benchmarks.tasks import Task
from clipper.proximity import ProximityGraph
from clipper.pruning import Clipper, Pruning, prune
from clipper.training import TrainConfig
from clipper.training.samples import samples_of


@dataclass(frozen=True, eq=False)
class Replay:
    """What the run saw, or the nearest to it that a record allows."""

    graph: ProximityGraph
    pruning: Pruning
    notes: list[str]
    """Where neighbours were sought, and in what this is not what the run saw."""


def replay(config: TrainConfig, task: Task, embeddings: Tensor) -> Replay:
    """Prune a run's samples as its first epoch did, given their embeddings `(n, m, d)`.

    Examples:
        >>> from clipper.benchmarks.datasets import digits
        >>> from clipper.benchmarks.tasks import draw
        >>> task = draw(digits(), "sum", samples=20, slots=2)
        >>> seen = replay(TrainConfig(encoder="pixels", when="once"), task, task.inputs.flatten(2))
        >>> len(seen.graph), seen.notes
        (40, ['Neighbours were sought among all samples, once, as in the run.'])
    """
    clip = clip_of(config) or Clipper(k=config.k)
    every = torch.arange(len(task.gold))
    batches = [every] if _whole(config) else samples_of(task).batches(config.batch, config.seed, epoch=1)
    graph = _within(clip, task, embeddings, batches)
    objective = "exact" if clip.objective == "random" else clip.objective
    pruning = prune(task.candidates, graph, objective, clip.solver, seed=config.seed)
    if clip.objective == "random":
        pruning = prune(task.candidates, graph, "random", imitate=pruning, seed=config.seed)
    return Replay(graph, pruning, _notes(config))


def _within(clip: Clipper, task: Task, vectors: Tensor, batches: Sequence[Tensor]) -> ProximityGraph:
    """The edges within each batch, over the instances of all samples."""
    slots = task.candidates.slots
    parts = []
    for ids in batches:
        found = clip.graph(task.candidates.batch(ids), vectors[ids])
        source, target = (ids[end // slots] * slots + end % slots for end in (found.source, found.target))
        parts.append(ProximityGraph(source, target, found.distance))
    return ProximityGraph.joined(parts)


def _whole(config: TrainConfig) -> bool:
    """Whether the pool was pruned as a whole, or would have been."""
    return config.when == "once" or once_of(config)


def _notes(config: TrainConfig) -> list[str]:
    notes = [
        "Neighbours were sought among all samples, once, as in the run."
        if _whole(config)
        else f"Neighbours were sought within the first epoch's batches of {config.batch}, as in the run."
    ]
    if config.objective in ("none", "gold"):
        notes.append("The run pruned nothing: this is what the objective exact would have struck out.")
    if config.objective == "random":
        notes.append("The random control is drawn anew here: as many candidates of each sample, but others.")
    if config.bank:
        notes.append("The memory bank of earlier embeddings is left out.")
    return notes
