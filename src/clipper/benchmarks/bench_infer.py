"""Measures joint inference: seconds, memory and labels right; and times messages by candidate list and by lattice."""

from __future__ import annotations

import time
from typing import Any

import torch

from clipper.arguments import StageProgress
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.timing import Setting, compare_times, peak_gigabytes
from clipper.candidates import Candidates, Lattice
from clipper.errors import InputError
from clipper.proximity import Outlines, ProximityGraph, embed
from clipper.pruning import infer
from clipper.pruning.factors import CandidateFactor, Factor, LatticeFactor
from clipper.pruning.joint import NEIGHBOURS

_STARTS = 4
"""Starting points in a round of messages that is timed."""


def measure_inference(config: RunConfig, rounds: int, progress: StageProgress) -> dict[str, Any]:
    """Infer once, with default settings, and measure time, memory and the share of labels right.

    Args:
        config: the run whose samples are drawn.
        rounds: how many rounds of messages to time.
        progress: called with what is done.

    Raises:
        BudgetError: the samples have too many candidates to list.
        InputError: the benchmark has no gold labels.
    """
    task = f"{config.rule.upper()}-{config.slots}"
    stage = f"{task}, n={config.samples:,}"
    progress(stage, 0, 3)
    samples = benchmark_named(config.rule)(config).samples
    candidates, gold = samples.candidates.to_candidates(), samples.gold
    if gold is None:
        raise InputError(f"expected samples whose gold labels are known, got those of {config.data}")
    start = time.perf_counter()
    graph = ProximityGraph.from_embeddings(embed(Outlines(), samples.inputs), k=NEIGHBOURS)
    found = time.perf_counter()
    progress(stage, 1, 3)
    posterior = infer(candidates, graph)
    pruning = posterior.prune()
    done = time.perf_counter()
    progress(stage, 2, 3)
    row = {
        "task": task,
        "samples": config.samples,
        "candidates": len(candidates),
        "neighbours_seconds": found - start,
        "inference_seconds": done - found,
        "peak_gigabytes": peak_gigabytes(),
        "verdict": posterior.verdict,
        "right": float((posterior.labels == gold).float().mean()),
        "gold_kept": pruning.gold_retained(gold),
        "round": race_factors(candidates, rounds, config.seed),
    }
    progress(stage, 3, 3)
    return row


def race_factors(candidates: Candidates, rounds: int, seed: int = 0) -> dict[str, float]:
    """Median milliseconds of a round of messages through the formulas, by candidate list and by lattice.

    Args:
        candidates: of the samples.
        rounds: how many rounds to time.
        seed: of the incoming messages.

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
        log_odds = 3 * torch.randn(shape, generator=generator)
        return lambda: log_odds, {name: factor.marginals for name, factor in factors.items()}

    times = compare_times(setting_of, rounds)
    medians = {f"{name}_milliseconds": median for name, median in times.milliseconds.items()}
    return medians | {"times": times.ratio("list", "lattice")}
