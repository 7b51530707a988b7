"""Algorithm 1: prune each batch by what lies near, learn from what survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from clipper.arguments import MOST, as_tensor, seed_number, whole_number
from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.pruning import Clipper
from clipper.training.checkpoint import check_place
from clipper.training.checks import check_optimiser, check_parts, check_pruning
from clipper.training.metrics import EpochMetrics, HeldOut, checked_held_out
from clipper.training.randomness import own_randomness
from clipper.training.samples import SampleSource, samples_of
from clipper.training.schedule import PruningSchedule, check_neighbours
from clipper.training.trainer import Progress, Trainer

Watch = Callable[[Progress], None]


def train(
    classifier: nn.Module,
    data: SampleSource | tuple[Tensor, Candidates],
    engine: nn.Module,
    *,
    clip: Clipper | None = None,
    embeddings: Tensor | None = None,
    once: bool = False,
    bank: int = 0,
    optimiser: torch.optim.Optimizer | None = None,
    epochs: int = 50,
    batch: int = 64,
    seed: int = 0,
    held_out: HeldOut | None = None,
    evaluate_every: int = 1,
    checkpoint: str | Path | None = None,
    checkpoint_steps: int | None = None,
    watch: Watch | None = None,
) -> list[EpochMetrics]:
    """Train a classifier, in place, on samples whose labels are only known to satisfy a formula.

    The classifier maps `(instances, *shape)` to `log_probs (instances, c)`, or to these and the embedding
    `(instances, d)` they were computed from. With a checkpoint, a run that was killed goes on where it was and ends
    with the weights it would have had; every random number comes from `seed`, and the caller's own generator is
    left alone.

    Args:
        classifier: any network; it should be on the device of the data.
        data: a task, or inputs `(n, m, *shape)` and candidates.
        engine: turns `log_probs` and candidates into a loss per sample, see `clipper.engines`.
        clip: how to prune; None for the baseline. Without an encoder of its own, and without `embeddings`, the
            classifier's own embedding is used: a trainable encoder.
        embeddings: a frozen encoder's output for all samples, `(n, m, d)`.
        once: prune the pool as a whole before training; needs a frozen encoder.
        bank: let a batch also find neighbours among the earlier embeddings of this many samples.
        optimiser: AdamW with a learning rate of 1e-3 by default.
        epochs: passes over the samples.
        batch: samples per step.
        seed: of the order of the samples, of dropout and of the random control.
        held_out: inputs and labels to measure the accuracy on.
        evaluate_every: epochs between two such measurements; the last epoch is always measured.
        checkpoint: the file to go on from, if it exists, and to write at the end of every epoch.
        checkpoint_steps: write it every so many steps, too.
        watch: called after each step and each epoch.

    Returns:
        The figures of every epoch.

    Examples:
        >>> from clipper.engines import SemanticLoss
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 0, 2], slots=2, classes=3)
        >>> network = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(-1))
        >>> inputs = torch.rand(4, 2, 5, generator=torch.Generator().manual_seed(0))
        >>> history = train(network, (inputs, candidates), SemanticLoss(), epochs=2, batch=2)
        >>> [figures.epoch for figures in history]
        [1, 2]
    """
    epochs, batch, evaluate_every = (
        whole_number(epochs, "epochs", most=MOST),
        whole_number(batch, "batch", most=MOST),
        whole_number(evaluate_every, "evaluate_every", most=MOST),
    )
    bank, seed = whole_number(bank, "bank", least=0, most=MOST), seed_number(seed)
    checkpoint_steps = (
        None if checkpoint_steps is None else whole_number(checkpoint_steps, "checkpoint_steps", most=MOST)
    )
    if watch is not None and not callable(watch):
        raise InputError(f"expected watch to be a function of a Progress, got a {type(watch).__name__}")
    check_parts(classifier, engine)
    check_pruning(clip, once)
    if checkpoint is not None:
        check_place(checkpoint)
    samples, held_out = samples_of(data), checked_held_out(held_out)
    embeddings = None if embeddings is None else as_tensor(embeddings, "embeddings")
    if clip is not None:
        check_neighbours(clip, samples, len(samples) if once else min(len(samples), batch + bank))
    optimiser = optimiser if optimiser is not None else torch.optim.AdamW(classifier.parameters(), lr=1e-3)
    check_optimiser(optimiser, classifier)
    # a caller who is in inference mode, or without gradients, wants the classifier trained all the same
    with torch.inference_mode(False), torch.enable_grad():
        survivors = PruningSchedule(samples, clip, embeddings, once, bank, seed)
        trainer = Trainer(classifier, samples, engine, survivors, optimiser, batch, seed)
        with own_randomness(classifier, seed):
            return _learn(trainer, epochs, held_out, evaluate_every, checkpoint, checkpoint_steps, watch)


def _learn(
    trainer: Trainer,
    epochs: int,
    held_out: HeldOut | None,
    evaluate_every: int,
    checkpoint: str | Path | None,
    checkpoint_steps: int | None,
    watch: Watch | None,
) -> list[EpochMetrics]:
    """What is left of a run."""
    if checkpoint is not None:
        trainer.resume(checkpoint, epochs)
    while len(trainer.history) < epochs:
        for moment in trainer.steps():
            if watch:
                watch(moment)
            if checkpoint is not None and checkpoint_steps and moment.step % checkpoint_steps == 0:
                trainer.save(checkpoint)
        epoch = len(trainer.history) + 1
        due = held_out is not None and (epoch % evaluate_every == 0 or epoch == epochs)
        moment = trainer.end_epoch(held_out if due else None)
        if checkpoint is not None:
            trainer.save(checkpoint)
        if watch:
            watch(moment)
    return trainer.history
