"""A run's pruning done again, so that it can be looked at: the neighbours and survivors of its first epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from clipper.benchmarks.mugen.task import ClipTask
from clipper.benchmarks.parts import clip_of, once_of
from clipper.benchmarks.tasks import Task
from clipper.benchmarks.vqar.task import SceneTask
from clipper.candidates import Candidates, CandidateSet, Lattice
from clipper.proximity import ProximityGraph
from clipper.pruning import Calibration, Clipper, Pruning, infer
from clipper.training import TrainConfig
from clipper.training.samples import samples_of

Result = TypeVar("Result", Pruning[Candidates], Pruning[Lattice])
Some = TypeVar("Some", Task, ClipTask)


@dataclass(frozen=True, eq=False)
class Replay(Generic[Result]):
    """What the run saw, or the nearest to it that a record allows."""

    graph: ProximityGraph
    pruning: Result
    notes: list[str]
    """Where neighbours were sought, and in what this is not what the run saw."""
    calibration: Calibration | None = None
    """How sure joint inference was, and how right; None for other objectives."""


@overload
def replay(config: TrainConfig, task: Task | SceneTask, embeddings: Tensor) -> Replay[Pruning[Candidates]]: ...
@overload
def replay(config: TrainConfig, task: ClipTask, embeddings: Tensor) -> Replay[Pruning[Lattice]]: ...
def replay(config: TrainConfig, task: Task | SceneTask | ClipTask, embeddings: Tensor) -> Replay[Any]:
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
    graph = _within(clip, task, embeddings, _batches(config, task))
    if clip.objective != "joint":
        return Replay(graph, clip.along(task.candidates, graph, seed=config.seed), _notes(config))
    candidates: CandidateSet = task.candidates
    posterior = infer(candidates, graph, seed=config.seed)
    known = None if task.gold is None else posterior.calibration(task.gold)
    return Replay(graph, posterior.prune(clip.mass), _notes(config), known)


def glimpse(config: TrainConfig, task: Some, samples: int) -> tuple[Some, list[str]]:
    """Of a task with many samples as many whole batches as hold `samples`, so that looking does not take hours.

    A pool that was pruned once stays whole: all its samples are one another's neighbours.

    Examples:
        >>> from clipper.benchmarks.datasets import digits
        >>> from clipper.benchmarks.tasks import draw
        >>> task = draw(digits(), "sum", samples=300, slots=2)
        >>> few, notes = glimpse(TrainConfig(), task, samples=100)
        >>> len(few.gold), notes
        (128, ['Of 300 samples the first 2 batches are here, in the order of the first epoch.'])
    """
    taken = -(-samples // config.batch)
    batches = samples_of(task).batches(config.batch, config.seed, epoch=1)
    if len(batches) <= taken or _whole(config):
        return task, []
    ids = torch.cat(batches[:taken])
    rows: dict[str, Any] = {name: getattr(task, name) for name in ("inputs", "gold", "targets")}
    few: dict[str, Any] = {name: None if values is None else values[ids] for name, values in rows.items()}
    found = replace(task, **few, candidates=task.candidates.batch(ids))
    return found, [
        f"Of {task.candidates.samples:,} samples the first {taken} batches are here, in the order of the first epoch."
    ]


def _batches(config: TrainConfig, task: Task | SceneTask | ClipTask) -> Sequence[Tensor]:
    """The first epoch's, if these are all of the run's samples; in the order of a glimpse otherwise."""
    every = torch.arange(task.candidates.samples)
    if _whole(config):
        return [every]
    whole = len(every) == config.samples
    return (
        samples_of(task).batches(config.batch, config.seed, epoch=1)
        if whole
        else list(torch.split(every, config.batch))
    )


def _within(
    clip: Clipper, task: Task | SceneTask | ClipTask, vectors: Tensor, batches: Sequence[Tensor]
) -> ProximityGraph:
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
