"""What joint inference costs: neighbours, search and memory, and a round over a list against one over a lattice."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch

from clipper.benchmarks.speed import Progress
from clipper.candidates import Candidates, Lattice
from clipper.proximity import Outlines, ProximityGraph, embed
from clipper.pruning import infer
from clipper.pruning.joint import NEIGHBOURS
from clipper.pruning.joint.factors import CandidateFactor, Factor
from clipper.pruning.joint.lattice_factor import LatticeFactor
from clipper.training import Samples

_STARTS = 4
"""Starts of a round that is raced."""


def measure_inference(task: Samples, name: str, rounds: int, progress: Progress, seed: int = 0) -> dict[str, Any]:
    """Infer once, with automatic settings, and say what it took and how much of it is right.

    Args:
        task: the samples, with their gold labels.
        name: what the task is called.
        rounds: of messages through the formulas that are raced.
        progress: called with what is done.
        seed: of the draws.
    """
    stage = f"{name}, n={len(task):,}"
    progress(stage, 0, 3)
    start = time.perf_counter()
    graph = ProximityGraph.from_embeddings(embed(Outlines(), task.inputs), k=NEIGHBOURS)
    found = time.perf_counter()
    progress(stage, 1, 3)
    posterior = infer(task.candidates, graph)
    pruning = posterior.prune()
    done = time.perf_counter()
    progress(stage, 2, 3)
    row = {
        "task": name,
        "samples": len(task),
        "candidates": len(task.candidates),
        "neighbours_seconds": found - start,
        "inference_seconds": done - found,
        "peak_gigabytes": _peak(),
        "verdict": posterior.verdict,
        "right": float((posterior.labels == task.gold).float().mean()),
        "gold_kept": pruning.gold_retained(task.gold),
        "round": race_factors(task.candidates, rounds, seed),
    }
    progress(stage, 3, 3)
    return row


def race_factors(candidates: Candidates, rounds: int, seed: int = 0) -> dict[str, float]:
    """Median milliseconds of what formulas answer in a round of messages, by list and by lattice, in turns.

    Examples:
        >>> race = race_factors(Candidates.from_rule(max, [5] * 20, slots=4, classes=6), rounds=2)
        >>> sorted(race)
        ['lattice_milliseconds', 'list_milliseconds', 'times']
    """
    contestants: dict[str, Factor] = {
        "list": CandidateFactor(candidates),
        "lattice": LatticeFactor(Lattice.from_candidates(candidates)),
    }
    shape = candidates.samples * candidates.slots, candidates.classes, _STARTS
    generator = torch.Generator().manual_seed(seed)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        field = 3 * torch.randn(shape, generator=generator)
        for name, factor in list(contestants.items())[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            factor.marginals(field)
            if turn:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    pairs = zip(times["list"], times["lattice"], strict=True)
    return {f"{name}_milliseconds": 1e3 * statistics.median(values) for name, values in times.items()} | {
        "times": statistics.median(listed / walked for listed, walked in pairs)
    }


def _peak() -> float | None:
    """The most memory that the process has held so far, in gigabytes; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
