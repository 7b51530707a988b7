"""Measures pruning's share of the training time, on SUM-3."""

from __future__ import annotations

import statistics
from copy import deepcopy
from dataclasses import replace
from typing import Any

from clipper.arguments import StageProgress
from clipper.benchmarks.config import RunConfig, TrainObjective
from clipper.benchmarks.registry import Benchmark, benchmark_named
from clipper.benchmarks.runs import embeddings_of, engine_of, optimiser_of
from clipper.benchmarks.settings import clip_of
from clipper.benchmarks.timing import ticks
from clipper.training import EpochMetrics, Samples, train

ENCODERS = ("trainable", "pixels")
OBJECTIVES: tuple[TrainObjective, ...] = ("paper", "exact")
RUN = 50
"""Epochs of the run whose share is reported; two are measured, and the work before the first batch counts once."""


def measure_overhead(base: RunConfig, rounds: int, progress: StageProgress) -> list[dict[str, Any]]:
    """The times of pruning and training in every setting: medians over rounds of two epochs each.

    Args:
        base: the run without pruning; objective and encoder are varied.
        rounds: how many rounds count; one more before them does not.
        progress: called with what is done.
    """
    settings = [base] + [
        replace(base, objective=objective, encoder=encoder) for encoder in ENCODERS for objective in OBJECTIVES
    ]
    benchmark = benchmark_named(base.rule)(base)
    epochs: list[list[list[EpochMetrics]]] = [[] for _ in settings]
    tick = ticks(progress, "training", (rounds + 1) * len(settings))
    for turn in range(rounds + 1):
        for config, runs in zip(settings, epochs, strict=True):
            measured = _two_epochs(replace(config, seed=turn), benchmark)
            runs += [measured] if turn else []  # the first round warms up
            tick()
    batches = -(-base.samples // base.batch)
    return [_row(config, runs, batches) for config, runs in zip(settings, epochs, strict=True)]


def _two_epochs(config: RunConfig, benchmark: Benchmark) -> list[EpochMetrics]:
    network, samples = deepcopy(benchmark.network), benchmark.samples
    return train(
        network,
        Samples(samples.inputs, samples.candidates, targets=samples.targets),  # gold labels take time to evaluate
        engine_of(config, benchmark),
        clip=clip_of(config),
        embeddings=embeddings_of(config, benchmark),
        optimiser=optimiser_of(config, network),
        epochs=2,
        batch=config.batch,
        seed=config.seed,
    )


def _row(config: RunConfig, runs: list[list[EpochMetrics]], batches: int) -> dict[str, Any]:
    second = [run[1] for run in runs]
    before = statistics.median(first.pruning_seconds - later.pruning_seconds for first, later in runs)
    shares = [_share(*run) for run in runs]
    return {
        "batch": config.batch,
        "objective": config.objective,
        "encoder": "trainable" if config.encoder == "trainable" else "frozen",
        "rounds": len(runs),
        "milliseconds_per_batch": 1e3 * statistics.median(figures.seconds for figures in second) / batches,
        "pruning_milliseconds_per_batch": 1e3 * statistics.median(f.pruning_seconds for f in second) / batches,
        "pruning_milliseconds_before_training": max(0.0, 1e3 * before),
        "pruning_share": statistics.median(shares),
        "pruning_share_highest": max(shares),
    }


def _share(first: EpochMetrics, later: EpochMetrics) -> float:
    """Pruning's share of a run of `RUN` epochs, of which all but the first are like the second."""
    pruning = first.pruning_seconds + (RUN - 1) * later.pruning_seconds
    return pruning / (first.seconds + (RUN - 1) * later.seconds)
