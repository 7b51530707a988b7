"""What joint inference costs: neighbours, search and memory, and a round over a list against one over a lattice."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from clipper.benchmarks.datasets import Images
from clipper.benchmarks.tasks import RULES, draw
from clipper.benchmarks.timing import Progress, Setting, race
from clipper.candidates import Candidates, Lattice
from clipper.errors import InputError
from clipper.proximity import Outlines, ProximityGraph, embed
from clipper.pruning import infer
from clipper.pruning.joint import NEIGHBOURS
from clipper.pruning.joint.factors import CandidateFactor, Factor
from clipper.pruning.joint.lattice_factor import LatticeFactor

_STARTS = 4
"""Starts of a round that is raced."""


def measure_inference(
    images: Images, rule: str, samples: int, slots: int, rounds: int, progress: Progress, seed: int = 0
) -> dict[str, Any]:
    """Infer once, with automatic settings, and say what it took and how much of it is right.

    Args:
        images: where the samples are drawn from.
        rule: the task's name.
        samples: how many, `n`.
        slots: images per sample, `m`.
        rounds: of messages through the formulas that are raced.
        progress: called with what is done.
        seed: of the draws.
    """
    if rule not in RULES:
        raise InputError(f"expected one of the rules {', '.join(RULES)}, got {rule!r}")
    stage = f"{rule.upper()}-{slots}, n={samples:,}"
    progress(stage, 0, 3)
    task = draw(images, rule, samples, slots, seed)
    start = time.perf_counter()
    graph = ProximityGraph.from_embeddings(embed(Outlines(), task.inputs), k=NEIGHBOURS)
    found = time.perf_counter()
    progress(stage, 1, 3)
    posterior = infer(task.candidates, graph)
    pruning = posterior.prune()
    done = time.perf_counter()
    progress(stage, 2, 3)
    row = {
        "task": f"{rule.upper()}-{slots}",
        "samples": samples,
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
    factors: dict[str, Factor] = {
        "list": CandidateFactor(candidates),
        "lattice": LatticeFactor(Lattice.from_candidates(candidates)),
    }
    shape = candidates.samples * candidates.slots, candidates.classes, _STARTS
    generator = torch.Generator().manual_seed(seed)

    def setting_of(_: int) -> Setting:
        field = 3 * torch.randn(shape, generator=generator)
        return lambda: field, {name: factor.marginals for name, factor in factors.items()}

    times = race(setting_of, rounds)
    medians = {f"{name}_milliseconds": median for name, median in times.milliseconds.items()}
    return medians | {"times": times.ratio("list", "lattice")}


def _peak() -> float | None:
    """The most memory that the process has held so far, in gigabytes; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
