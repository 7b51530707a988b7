"""What a pruning keeps, per objective, beside the control that discards as many at random."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clipper.benchmarks.datasets import Images
from clipper.benchmarks.tasks import Task, draw
from clipper.candidates import Candidates
from clipper.proximity import ProximityGraph
from clipper.pruning import Pruning, prune

METHODS = ("paper", "exact", "random")


@dataclass(frozen=True)
class Retention:
    """Shares over all batches of all seeds, in per cent, one entry per seed."""

    method: str
    retained: list[float]
    """Candidates kept."""
    gold: list[float]
    """Samples whose gold labels are still a candidate."""


def measure_retention(
    images: Images, samples: int = 100, slots: int = 3, batch: int = 64, k: int = 1, seeds: int = 10
) -> list[Retention]:
    """Prune one epoch's batches of SUM-`slots` with raw pixels as the encoder; "random" imitates "exact"."""
    rows = {method: Retention(method, [], []) for method in METHODS}
    for seed in range(seeds):
        task = draw(images, "sum", samples, slots, seed)
        kept = dict.fromkeys(METHODS, 0)
        gold = dict.fromkeys(METHODS, 0)
        for ids in task.batches(batch, seed):
            for method, pruning in _prunings(task, ids, k, seed).items():
                kept[method] += len(pruning.candidates)
                gold[method] += int(pruning.candidates.contains(task.gold[ids]).sum())
        for method, row in rows.items():
            row.retained.append(100 * kept[method] / len(task.candidates))
            row.gold.append(100 * gold[method] / samples)
    return list(rows.values())


def _prunings(task: Task, ids: torch.Tensor, k: int, seed: int) -> dict[str, Pruning[Candidates]]:
    candidates = task.candidates.batch(ids)
    graph = ProximityGraph.from_embeddings(task.inputs[ids].flatten(2), k=k)
    exact = prune(candidates, graph, "exact")
    return {
        "paper": prune(candidates, graph, "paper"),
        "exact": exact,
        "random": prune(candidates, graph, "random", imitate=exact, seed=seed),
    }
