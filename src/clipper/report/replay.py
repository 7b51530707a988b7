"""A run's pruning done again, so that it can be looked at: the neighbours and survivors of its first epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.benchmarks.parts import clip_of, once_of
from clipper.benchmarks.tasks import Task
from clipper.benchmarks.vqar.task import SceneTask
from clipper.proximity import ProximityGraph
from clipper.pruning import Calibration, Clipper, Pruning, infer, prune
from clipper.training import TrainConfig
from clipper.training.samples import samples_of


@dataclass(frozen=True, eq=False)
class Replay:
    """What the run saw, or the nearest to it that a record allows."""

    graph: ProximityGraph
    pruning: Pruning
    notes: list[str]
    """Where neighbours were sought, and in what this is not what the run saw."""
    calibration: Calibration | None = None
    """How sure joint inference was, and how right; None for other objectives."""


def replay(config: TrainConfig, task: Task | SceneTask, embeddings: Tensor) -> Replay:
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
    if clip.objective == "joint":
        posterior = infer(task.candidates, graph, seed=config.seed)
        return Replay(graph, posterior.prune(clip.mass), _notes(config), posterior.calibration(task.gold))
    objective = "exact" if clip.objective == "random" else clip.objective
    pruning = prune(task.candidates, graph, objective, clip.solver, seed=config.seed)
    if clip.objective == "random":
        pruning = prune(task.candidates, graph, "random", imitate=pruning, seed=config.seed)
    return Replay(graph, pruning, _notes(config))


def glimpse(config: TrainConfig, task: Task, samples: int) -> tuple[Task, list[str]]:
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
    few = Task(task.inputs[ids], task.gold[ids], task.targets[ids], task.candidates.batch(ids))
    return few, [f"Of {len(task.gold):,} samples the first {taken} batches are here, in the order of the first epoch."]


def _batches(config: TrainConfig, task: Task | SceneTask) -> Sequence[Tensor]:
    """The first epoch's, if these are all of the run's samples; in the order of a glimpse otherwise."""
    every = torch.arange(len(task.gold))
    if _whole(config):
        return [every]
    whole = len(task.gold) == config.samples
    return (
        samples_of(task).batches(config.batch, config.seed, epoch=1)
        if whole
        else list(torch.split(every, config.batch))
    )


def _within(clip: Clipper, task: Task | SceneTask, vectors: Tensor, batches: Sequence[Tensor]) -> ProximityGraph:
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
