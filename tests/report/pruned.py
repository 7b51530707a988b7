"""Pruned samples to look at, and the same in the paper's own notation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clipper import Candidates, ProximityGraph, prune
from clipper.benchmarks.datasets import digits
from clipper.benchmarks.tasks import Task, draw
from clipper.pruning import Pruning
from tests.oracles import Problem


@dataclass(frozen=True)
class Pruned:
    task: Task
    graph: ProximityGraph
    pruning: Pruning[Candidates]


def pruned_digits(rule: str = "sum", k: int = 1, objective: Any = "exact", samples: int = 20) -> Pruned:
    task = draw(digits(), rule, samples=samples, slots=3)
    graph = ProximityGraph.from_embeddings(task.inputs.flatten(2), k=k)
    count = 100 if objective == "random" else None
    return Pruned(task, graph, prune(task.candidates, graph, objective, count=count))


def problem_of(pruned: Pruned) -> Problem:
    candidates = pruned.task.candidates
    rows = [tuple(row) for row in candidates.labels.tolist()]
    ends = candidates.offsets.tolist()
    samples = [rows[begin:end] for begin, end in pairwise(ends)]
    pairs = zip(pruned.graph.source.tolist(), pruned.graph.target.tolist(), strict=True)
    slots = candidates.slots
    return Problem(samples, [(divmod(source, slots), divmod(target, slots)) for source, target in pairs])
