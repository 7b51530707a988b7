"""One run, from its configuration to its record."""

from __future__ import annotations

from pathlib import Path

import torch

from clipper.benchmarks.parts import (
    candidates_of,
    clip_of,
    embeddings_of,
    engine_of,
    network_of,
    normalised,
    once_of,
    optimiser_of,
    problem_of,
    scene_networks,
)
from clipper.benchmarks.vqar.task import SceneTask
from clipper.training import Record, Samples, TrainConfig, Watch, train


def run(
    config: TrainConfig,
    *,
    data_root: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_steps: int | None = None,
    watch: Watch | None = None,
) -> Record:
    """Draw the samples, train, and say how it went; the same configuration gives the same result.

    Args:
        config: everything that decides how the run ends.
        data_root: the folder with the data sets, if not in the usual places.
        checkpoint: where the run's state is kept, and taken up again if it is there.
        checkpoint_steps: steps between two checkpoints, besides those at the end of every epoch.
        watch: called after each step and each epoch.

    Examples:
        >>> record = run(TrainConfig(samples=20, slots=2, epochs=2, objective="exact"))
        >>> len(record.epochs), record.last.accuracy is not None
        (2, True)
    """
    task, held_out, classes = problem_of(config, data_root)
    network = scene_networks(config, task) if isinstance(task, SceneTask) else network_of(config, classes)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter faster on a CPU
    clip = clip_of(config)
    history = train(
        network,
        Samples(normalised(task.inputs, config.data), candidates_of(config, task), task.gold, task.targets),
        engine_of(config, classes),
        clip=clip,
        embeddings=embeddings_of(config, task),
        once=once_of(config),
        bank=config.bank if clip else 0,
        optimiser=optimiser_of(config, network),
        epochs=config.epochs,
        batch=config.batch,
        seed=config.seed,
        held_out=held_out,
        evaluate_every=config.evaluate_every,
        checkpoint=checkpoint,
        checkpoint_steps=checkpoint_steps,
        watch=watch,
    )
    return Record(config, history)
