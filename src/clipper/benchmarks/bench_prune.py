"""Speed of pruning: closed forms against solvers, pruning against neighbour search alone, and growth with samples."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import StageProgress
from clipper.benchmarks.data.images import Images, digits, mnist
from clipper.benchmarks.data.sources import data_folders
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.sum import SUM_RULE
from clipper.benchmarks.timing import WARM_UP, Setting, compare_times, ticks, time_of
from clipper.candidates import Candidates, CandidateSet
from clipper.proximity import ProximityGraph
from clipper.pruning import Clipper, prune
from clipper.pruning.objectives import Objective, Solver

SOLVERS: tuple[Solver, ...] = ("closed-form", "highs", "cp-sat")
BATCH = 64
"""Samples that are pruned at a time."""
OBJECTIVES: tuple[Objective, ...] = ("exact", "paper")
CASES = tuple((slots, k, objective) for slots in (3, 4) for k in (1, 3) for objective in OBJECTIVES)
"""Slots, neighbours and objective of each comparison."""


def race_solvers(images: Images, rounds: int, progress: StageProgress) -> list[dict[str, Any]]:
    """Median milliseconds per method on a batch of SUM-3 and SUM-4.

    Every round draws a batch and gives it to every method in turn, three times each; the fastest counts.

    Args:
        images: what to draw batches from.
        rounds: how many rounds count.
        progress: called with what is done.
    """
    rows = []
    tick = ticks(progress, "racing", len(CASES) * (WARM_UP + rounds))
    for slots, k, objective in CASES:
        times = compare_times(partial(_solvers, images, slots, k, objective), rounds, best_of=3, tick=tick)
        rows.append(
            {
                "task": f"SUM-{slots}",
                "k": k,
                "objective": objective,
                "rounds": times.rounds,
                "milliseconds": times.milliseconds,
                "times_slower_than_closed_form": {solver: times.ratio(solver, "closed-form") for solver in SOLVERS[1:]},
            }
        )
    return rows


def _solvers(images: Images, slots: int, k: int, objective: Objective, turn: int) -> Setting:
    task = draw(images, SUM_RULE, BATCH, slots, seed=turn)
    embeddings = task.inputs.flatten(2)  # raw pixels
    graph = ProximityGraph.from_embeddings(embeddings, k=k)
    clip = Clipper(k=k, objective=objective)
    return partial(_fresh, task.candidates), {
        "search and closed-form": lambda drawn: clip(drawn, embeddings),
        **{solver: partial(prune, graph=graph, objective=objective, solver=solver) for solver in SOLVERS},
    }


def race_search(progress: StageProgress, rounds: int = 200) -> dict[str, Any]:
    """The time of `Clipper(k=1)` on a batch of SUM-3, divided by that of the neighbour search alone.

    The images are MNIST's if it is on this machine, else scikit-learn's digits, enlarged to the same size.
    """
    images, note = _large_images()
    clip = Clipper(k=1)

    def setting_of(turn: int) -> Setting:
        task = draw(images, SUM_RULE, BATCH, 3, seed=turn % 10)
        pixels = task.inputs.flatten(2)
        return partial(_fresh, task.candidates), {
            "Clipper(k=1)": lambda drawn: clip(drawn, pixels),
            "product and top-k": lambda _: _nearest(pixels.flatten(0, 1)),
        }

    times = compare_times(setting_of, rounds, tick=ticks(progress, "against the search", WARM_UP + rounds))
    return {
        "data": note,
        "rounds": rounds,
        "milliseconds": times.milliseconds,
        "times_slower_than_product_and_top_k": times.ratio("Clipper(k=1)", "product and top-k"),
    }


def _large_images() -> tuple[Images, str]:
    if any(folder.is_dir() for folder in data_folders("mnist")):  # benchmarks of speed download nothing
        return mnist(), "mnist"
    small = digits()
    large = torch.nn.functional.interpolate(small.pixels, (28, 28))
    return replace(small, pixels=large), "digits, enlarged to 28 × 28 pixels"


def _nearest(points: Tensor) -> Tensor:
    """The two nearest of each point, itself included, by squared distance: one matrix product and one top-k."""
    square = points.square().sum(1)
    distances = torch.addmm(square, points, points.T, alpha=-2).add_(square[:, None])
    return distances.topk(2, largest=False).indices


def growth(progress: StageProgress) -> list[dict[str, Any]]:
    """Microseconds per sample of SUM-3 with three random edges each, without neighbour search."""
    rows, sizes = [], (100, 1_000, 10_000, 100_000)
    for i, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(size)
        targets = torch.randint(0, 10, (size, 3), generator=generator).sum(1)
        candidates = Candidates.from_rule(sum, targets, 3, 10)
        source = torch.arange(3 * size)
        graph = ProximityGraph.from_edges(source, torch.randint(0, 3 * size, source.shape, generator=generator))
        for objective in OBJECTIVES:
            call = partial(prune, graph=graph, objective=objective)
            seconds = time_of(call, partial(_fresh, candidates), best_of=3)
            rows.append({"samples": size, "objective": objective, "microseconds_per_sample": 1e6 * seconds / size})
        progress("growing", i + 1, len(sizes))
    return rows


def _fresh(candidates: CandidateSet) -> CandidateSet:
    """A copy of the candidates without cached values, as a training loop gets them."""
    return candidates.batch(range(candidates.samples))
