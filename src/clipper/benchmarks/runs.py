"""One run, from its configuration to its record."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

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
from clipper.training import Callback, Record, Samples, TrainConfig, train, train_iterated
from clipper.training.checkpoint import check_whole


def run(
    config: TrainConfig,
    *,
    data_root: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_steps: int | None = None,
    watch: Callback | None = None,
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
    if checkpoint is not None:
        check_whole(checkpoint)
    task, held_out, classes = problem_of(config, data_root)
    network = scene_networks(config, task) if isinstance(task, SceneTask) else network_of(config, classes)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter faster on a CPU
    samples = Samples(normalised(task.inputs, config.data), candidates_of(config, task), task.gold, task.targets)
    engine, clip, embeddings = engine_of(config, classes), clip_of(config), embeddings_of(config, task)
    options = _options(config) | {"held_out": held_out, "watch": watch}
    options |= {"checkpoint": checkpoint, "checkpoint_steps": checkpoint_steps}
    if config.passes > 1 and embeddings is not None:
        make = partial(optimiser_of, config)
        passes = train_iterated(
            network, samples, engine, embeddings, passes=config.passes, clip=clip, make_optimiser=make, **options
        )
        return Record(config.as_dict(), passes[-1].history)
    history = train(
        network,
        samples,
        engine,
        clip=clip,
        embeddings=embeddings,
        once=once_of(config),
        bank=config.bank if clip else 0,
        optimiser=optimiser_of(config, network),
        **options,
    )
    return Record(config.as_dict(), history)


def _options(config: TrainConfig) -> dict[str, Any]:
    """What every training of the run is told."""
    return {name: getattr(config, name) for name in ("epochs", "batch", "seed", "evaluate_every")}
