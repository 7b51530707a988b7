"""How fast is pruning? Closed forms against solvers, interleaved in one run; and how the time grows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from clipper.benchmarks.datasets import Images
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.sum import SUM
from clipper.candidates import Candidates
from clipper.proximity import ProximityGraph
from clipper.pruning import Clipper, prune
from clipper.pruning.objectives import Objective, Solver
from clipper.training import Samples

Progress = Callable[[str, int, int], None]
SOLVERS: tuple[Solver, ...] = ("closed-form", "highs", "cp-sat")
OBJECTIVES: tuple[Objective, ...] = ("exact", "paper")
SIZES = (100, 1_000, 10_000, 100_000)


@dataclass(frozen=True)
class Case:
    """One setting of the race."""

    slots: int
    k: int
    objective: Objective

    @property
    def name(self) -> str:
        """The paper's name of the task."""
        return f"SUM-{self.slots}"


CASES = tuple(Case(slots, k, objective) for slots in (3, 4) for k in (1, 3) for objective in OBJECTIVES)


def race(images: Images, rounds: int, progress: Progress, batch: int = 64) -> list[dict[str, Any]]:
    """Median milliseconds per method on a batch of SUM-3 and SUM-4.

    Every round draws a batch and gives it to every method in turn, three times each; the fastest counts.
    """
    rows = []
    for i, case in enumerate(CASES):
        times: dict[str, list[float]] = {}
        for turn in range(rounds + 2):
            task = draw(images, SUM, batch, case.slots, seed=turn)
            for name, seconds in _one_round(task, case).items():
                if turn >= 2:  # the first two rounds warm up
                    times.setdefault(name, []).append(seconds)
            progress("racing", i * (rounds + 2) + turn + 1, len(CASES) * (rounds + 2))
        rows.append(_row(case, times))
    return rows


def _one_round(task: Samples, case: Case) -> dict[str, float]:
    embeddings = task.inputs.flatten(2)  # raw pixels
    graph = ProximityGraph.from_embeddings(embeddings, k=case.k)
    clip = Clipper(k=case.k, objective=case.objective)
    together = _timed(lambda drawn: clip(drawn, embeddings), task.candidates)
    return {"search and closed-form": together} | {
        solver: _timed_pruning(task.candidates, graph, case.objective, solver) for solver in SOLVERS
    }


def _row(case: Case, times: dict[str, list[float]]) -> dict[str, Any]:
    fast = times["closed-form"]
    return {
        "task": case.name,
        "k": case.k,
        "objective": case.objective,
        "rounds": len(fast),
        "milliseconds": {name: 1e3 * statistics.median(values) for name, values in times.items()},
        "times_slower_than_closed_form": {
            solver: statistics.median(slow / quick for slow, quick in zip(times[solver], fast, strict=True))
            for solver in SOLVERS[1:]
        },
    }


def growth(progress: Progress, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """Microseconds per sample of SUM-3 with three random edges each, the neighbour search left out."""
    rows = []
    for i, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(size)
        targets = torch.randint(0, 10, (size, 3), generator=generator).sum(1)
        candidates = Candidates.from_rule(sum, targets, 3, 10)
        source = torch.arange(3 * size)
        graph = ProximityGraph.from_edges(source, torch.randint(0, 3 * size, source.shape, generator=generator))
        for objective in OBJECTIVES:
            seconds = _timed_pruning(candidates, graph, objective)
            rows.append({"samples": size, "objective": objective, "microseconds_per_sample": 1e6 * seconds / size})
        progress("growing", i + 1, len(sizes))
    return rows


def _timed_pruning(
    candidates: Candidates, graph: ProximityGraph, objective: Objective, solver: Solver = "closed-form"
) -> float:
    return _timed(lambda drawn: prune(drawn, graph, objective, solver), candidates)


def _timed(call: Callable[[Candidates], object], candidates: Candidates) -> float:
    """The fastest of three calls, each on candidates as a training loop draws them: nothing is worked out yet."""
    seconds = []
    for _ in range(3):
        drawn = candidates.batch(range(candidates.samples))
        start = time.perf_counter()
        call(drawn)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
