"""Algorithm 1: prune each batch by what lies near, learn from what survives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from clipper.arguments import MOST, as_tensor, shown, whole_number
from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.proximity import embed
from clipper.pruning import Clipper
from clipper.training.adapters import in_words
from clipper.training.inspection import Inspection, Inspector
from clipper.training.metrics import EpochMetrics, HeldOut
from clipper.training.record import Record
from clipper.training.samples import BatchLoader, Samples, samples_of
from clipper.training.schedule import PruningSchedule, check_neighbours
from clipper.training.trainer import Callback, Options, Trainer, own_randomness

MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]
_ENCODED = 64
"""Samples loaded and encoded together."""


class History(list[EpochMetrics]):
    """What `train` returns: the metrics of every epoch, and what a record and a report need.

    Attributes:
        config: what decided how the run ended, by name.
        inspection: what the inspector shows, if `train` was told to `inspect`.

    Examples:
        >>> history = History([EpochMetrics(1, 2.5, 0.75, 0.8, None, 1.0, 0.02)], {"seed": 0})
        >>> history.record().last.accuracy
        0.75
    """

    def __init__(
        self, epochs: Iterable[EpochMetrics], config: dict[str, Any], inspection: Inspection | None = None
    ) -> None:
        super().__init__(epochs)
        self.config, self.inspection = config, inspection

    def record(self, config: Any = None) -> Record:
        """The run as a `Record`, which can be written to a file.

        Args:
            config: what decided how the run ended, by name; what `train` knows of it if not given.
        """
        return Record(self.config if config is None else config, list(self))


def train(
    classifier: nn.Module,
    data: Samples | tuple[Any, CandidateSet] | DataLoader[Any],
    engine: nn.Module,
    *,
    clip: Clipper | None = None,
    embeddings: Tensor | None = None,
    once: bool = False,
    bank: int = 0,
    optimiser: torch.optim.Optimizer | None = None,
    scheduler: LRScheduler | MakeScheduler | None = None,
    autocast: torch.dtype | None = None,
    clip_gradients: float | None = None,
    workers: int = 0,
    epochs: int = 50,
    batch: int = 64,
    seed: int = 0,
    evaluate: HeldOut | None = None,
    evaluate_every: int = 1,
    checkpoint: str | Path | None = None,
    checkpoint_steps: int | None = None,
    callbacks: Sequence[Callback] = (),
    inspect: int | Inspector = 0,
    watch: Callback | None = None,
) -> History:
    """Train a classifier, in place, on samples whose labels are only known to satisfy a formula.

    The classifier maps `(instances, *shape)` to `log_probs (instances, c)`, or to these and the embedding
    `(instances, d)` they were computed from. With a checkpoint, a run that was killed goes on where it was and ends
    with the weights it would have had; every random number comes from `seed`, and the caller's own generator is
    left alone.

    Args:
        classifier: any network; it should be on the device of the data.
        data: `Samples`; or inputs and candidates, as `Samples` takes them: the inputs may be a `Dataset` that loads
            one sample at a time. A `DataLoader` over `Samples` stands for these with its batch size and its workers;
            the order of the samples is the run's own.
        engine: turns `log_probs` and candidates into a loss per sample, see `clipper.engines`.
        clip: how to prune; None for the baseline. Without an encoder of its own, and without `embeddings`, the
            classifier's own embedding is used: a trainable encoder.
        embeddings: a frozen encoder's output for all samples, `(n, m, d)`.
        once: prune the pool as a whole before training; needs a frozen encoder.
        bank: let a batch also find neighbours among the earlier embeddings of this many samples.
        optimiser: AdamW with a learning rate of 1e-3 by default.
        scheduler: of the learning rate, one of `torch.optim.lr_scheduler`, or a function from the optimiser to one. It
            is stepped after every epoch; `ReduceLROnPlateau` is told the epoch's mean loss.
        autocast: run the classifier in mixed precision, `torch.bfloat16` or `torch.float16` (with gradients scaled);
            pruning and losses stay in single precision.
        clip_gradients: scale the gradients of all weights together down to this norm where it is larger.
        workers: processes that load the items of a `Dataset` ahead of need; their number changes no result.
        epochs: passes over the samples.
        batch: samples per step.
        seed: of the order of the samples, of dropout and of the random control.
        evaluate: what to measure: held-out inputs and labels, or a function from the classifier to scores by name.
        evaluate_every: epochs between two such measurements; the last epoch is always measured.
        checkpoint: the file to go on from, if it exists, and to write at the end of every epoch.
        checkpoint_steps: write it every so many steps, too.
        callbacks: called after each epoch with its `Progress`, such as `tensorboard(folder)` gives.
        inspect: collect for the pruning inspector what the first epoch's pruning did to so many samples; an
            `Inspector` says more. The result is the history's `inspection`.
        watch: called after each step, too.

    Returns:
        The metrics of every epoch, a list that can also give a `record()`.

    Raises:
        InputError: if the arguments do not fit together.
        TrainingError: if a loss is no finite number any more.
        FileError: if the checkpoint cannot be read or written, or belongs to another run.

    Examples:
        >>> from clipper import Candidates
        >>> from clipper.engines import SemanticLoss
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 0, 2], slots=2, classes=3)
        >>> network = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(-1))
        >>> inputs = torch.rand(4, 2, 5, generator=torch.Generator().manual_seed(0))
        >>> history = train(network, (inputs, candidates), SemanticLoss(), epochs=2, batch=2)
        >>> [metrics.epoch for metrics in history]
        [1, 2]
    """
    source: Any = data
    if isinstance(data, DataLoader):
        source, workers, batch = data.dataset, data.num_workers, data.batch_size or batch
    options = Options(
        epochs=epochs, batch=batch, seed=seed, workers=workers, autocast=autocast, clip_gradients=clip_gradients,
        evaluate=evaluate, evaluate_every=evaluate_every, checkpoint=checkpoint,
        checkpoint_steps=checkpoint_steps, callbacks=callbacks, watch=watch,
    )  # fmt: skip
    bank = whole_number(bank, "bank", least=0, most=MOST)
    check_parts(classifier, engine)
    check_pruning(clip, once)
    samples, inspector = samples_of(source), inspector_of(inspect)
    embeddings = None if embeddings is None else as_tensor(embeddings, "embeddings")
    if clip is not None:
        check_neighbours(clip, samples, len(samples) if once else min(len(samples), options.batch + bank))
    elif embeddings is not None and "embeddings" not in getattr(engine, "needs", ()):
        raise InputError("got embeddings but nothing to prune with; pass clip=Clipper(...) too")
    optimiser = optimiser if optimiser is not None else torch.optim.AdamW(classifier.parameters(), lr=1e-3)
    check_optimiser(optimiser, classifier)
    rate = _scheduler(scheduler, optimiser)
    # a caller who is in inference mode, or without gradients, wants the classifier trained all the same
    with torch.inference_mode(False), torch.enable_grad():
        loader = BatchLoader(samples, options.workers)
        if clip is not None and clip.encoder is not None and embeddings is None:
            embeddings = _embedded(clip.encoder, loader)
        schedule = PruningSchedule(samples, clip, embeddings, once, bank, options.seed, inspector)
        trainer = Trainer(classifier, samples, engine, schedule, optimiser, rate, loader, options)
        with own_randomness(classifier, options.seed):
            trainer.run()
        seen = None
        if inspector is not None and inspector.entries:
            seen = inspector.inspection(schedule.notes(options.batch), samples.load)
        config = {"epochs": options.epochs, "evaluate_every": options.evaluate_every, **trainer.identity()}
        return History(trainer.history, config, seen)


def check_parts(classifier: Any, engine: Any) -> None:
    """Refuse a classifier or an engine that nothing can be learned with."""
    if not isinstance(classifier, nn.Module):
        raise InputError(f"expected the classifier to be a torch.nn.Module, got a {type(classifier).__name__}")
    if not isinstance(engine, nn.Module):
        raise InputError(
            f"expected the engine to be one of clipper.engines or a torch.nn.Module, got a {type(engine).__name__}"
        )
    weights = list(classifier.parameters())
    if any(isinstance(weight, nn.UninitializedParameter) for weight in weights):
        return  # the first batch shapes them
    if not any(weight.requires_grad for weight in weights):
        raise InputError("expected a classifier with weights to learn, got one without, or with frozen ones alone")
    if any(weight.is_inference() for weight in weights):
        raise InputError(
            "expected a classifier that can learn, got one made in torch.inference_mode(); make it outside"
        )


def check_pruning(clip: Any, once: Any) -> None:
    """Refuse what is no way to prune."""
    if clip is not None and not isinstance(clip, Clipper):
        raise InputError(f"expected clip=Clipper(...) or None, got a {type(clip).__name__}")
    if not isinstance(once, bool):
        raise InputError(f"expected once to be True or False, got {once!r}")


def check_optimiser(optimiser: Any, classifier: nn.Module) -> None:
    """Refuse an optimiser that does not update the classifier, or that cannot do so step by step."""
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise InputError(f"expected a torch.optim.Optimizer, got a {type(optimiser).__name__}")
    if isinstance(optimiser, torch.optim.LBFGS):
        raise InputError("expected an optimiser that takes one step per batch, got LBFGS; take AdamW, Adam or SGD")
    own = set(map(id, classifier.parameters()))
    if not any(id(weight) in own for group in optimiser.param_groups for weight in group["params"]):
        raise InputError("expected an optimiser of the classifier's weights, got one of other weights")


def _scheduler(scheduler: Any, optimiser: torch.optim.Optimizer) -> LRScheduler | None:
    """The scheduler of the run's own optimiser, if there is one."""
    if scheduler is None:
        return None
    if callable(scheduler) and not isinstance(scheduler, type | LRScheduler):
        with in_words("the function that makes the scheduler"):
            scheduler = scheduler(optimiser)
    if not isinstance(scheduler, LRScheduler):
        raise InputError(
            "expected a scheduler of torch.optim.lr_scheduler, or a function from the optimiser to one, "
            f"got {shown(scheduler)}"
        )
    if scheduler.optimizer is not optimiser:
        raise InputError("expected a scheduler of the optimiser that is passed as optimiser=, got another's")
    return scheduler


def inspector_of(inspect: Any) -> Inspector | None:
    """Whoever collects what the inspector shows, for a number of samples or as the caller made it."""
    if isinstance(inspect, Inspector):
        return replace(inspect)  # which may serve several runs
    wanted = whole_number(inspect, "inspect", least=0, most=MOST)
    return Inspector(wanted) if wanted else None


def _embedded(encoder: Any, loader: BatchLoader) -> Tensor:
    """What a frozen encoder makes of all samples, `(n, m, d)`; they need not be in memory at once."""
    samples: Samples = loader.samples
    if samples.in_memory:
        return embed(encoder, samples.inputs)
    parts = list(torch.split(torch.arange(len(samples)), _ENCODED))
    return torch.cat([embed(encoder, inputs) for inputs in loader.epoch(parts, range(len(parts)))])
