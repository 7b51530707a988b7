"""What pruning costs in a training run: its share of the epoch, on SUM-3 in batches of 64."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from clipper.benchmarks.datasets import Images
from clipper.benchmarks.parts import clip_of, embeddings_of, engine_of, network_of, normalised, optimiser_of
from clipper.benchmarks.speed import Progress
from clipper.benchmarks.tasks import Task, draw
from clipper.training import EpochMetrics, Samples, TrainConfig, train
from clipper.training.config import TrainObjective

ENCODERS = ("trainable", "pixels")
OBJECTIVES: tuple[TrainObjective, ...] = ("paper", "exact")
RUN = 50
"""Epochs of the run whose share is reported: what is done once, before the first batch, counts once."""


def measure_overhead(
    images: Images, rounds: int, progress: Progress, *, samples: int = 320, engine: str = "semantic", k: int = 1
) -> list[dict[str, Any]]:
    """Medians over the rounds; every round trains two epochs of every setting, one after the other.

    Args:
        images: where the samples are drawn from; MNIST is trained with the paper's network.
        rounds: how often; one more warms up.
        progress: called with what is done.
        samples: how many an epoch has; five batches by default.
        engine: what turns candidates into a loss.
        k: neighbours per instance.
    """
    base = TrainConfig.from_dict(
        {"data": images.name, "samples": samples, "engine": engine, "k": k, "objective": "none"}
    )
    settings = [base] + [
        replace(base, objective=objective, encoder=encoder) for encoder in ENCODERS for objective in OBJECTIVES
    ]
    task = draw(images, base.rule, samples, base.slots)
    epochs: list[list[list[EpochMetrics]]] = [[] for _ in settings]
    for turn in range(rounds + 1):
        for i, config in enumerate(settings):
            figures = _two_epochs(replace(config, seed=turn), task, images.classes)
            if turn:  # the first round warms up
                epochs[i].append(figures)
            progress("training", turn * len(settings) + i + 1, (rounds + 1) * len(settings))
    batches = -(-samples // base.batch)
    return [_row(config, figures, batches) for config, figures in zip(settings, epochs, strict=True)]


def _two_epochs(config: TrainConfig, task: Task, classes: int) -> list[EpochMetrics]:
    network = network_of(config, classes)
    return train(
        network,
        Samples(normalised(task.inputs, config.data), task.candidates, targets=task.targets),  # gold costs time, too
        engine_of(config, classes),
        clip=clip_of(config),
        embeddings=embeddings_of(config, task),
        optimiser=optimiser_of(config, network),
        epochs=2,
        batch=config.batch,
        seed=config.seed,
    )


def _row(config: TrainConfig, runs: list[list[EpochMetrics]], batches: int) -> dict[str, Any]:
    second = [run[1] for run in runs]
    before = statistics.median(first.pruning_seconds - later.pruning_seconds for first, later in runs)
    shares = [_share(*run) for run in runs]
    return {
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
