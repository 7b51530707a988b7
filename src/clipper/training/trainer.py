"""A run under way: one step, one epoch, and all that a checkpoint must hold to go on identically."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from clipper.arguments import MOST, real_number, seed_number, shown, whole_number
from clipper.engines.base import Context
from clipper.errors import ClipperError, FileError, InputError
from clipper.training.adapters import classify, in_words, losses_of, stop_if_broken
from clipper.training.checkpoint import check_place, load_checkpoint, save_checkpoint
from clipper.training.metrics import EpochMetrics, HeldOut, RunningMetrics, checked_held_out, measured
from clipper.training.samples import BatchLoader, Samples, mixed
from clipper.training.schedule import PruningSchedule


@dataclass(frozen=True)
class Progress:
    """How far a run is, for its callbacks.

    Attributes:
        epoch: counted from 1.
        step: batches done in this epoch.
        steps: batches in an epoch.
        metrics: of this epoch, so far.
        ended: whether the epoch is over; only then is there an accuracy.
    """

    epoch: int
    step: int
    steps: int
    metrics: EpochMetrics
    ended: bool


Callback = Callable[[Progress], object]


@dataclass
class Options:
    """What a training is told besides its parts, read once; `train` says what each of them means."""

    epochs: int = 50
    batch: int = 64
    seed: int = 0
    workers: int = 0
    autocast: torch.dtype | None = None
    clip_gradients: float | None = None
    evaluate: HeldOut | None = None
    evaluate_every: int = 1
    checkpoint: str | Path | None = None
    checkpoint_steps: int | None = None
    callbacks: Sequence[Callback] = ()
    watch: Callback | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "evaluate_every"):
            setattr(self, name, whole_number(getattr(self, name), name, most=MOST))
        self.seed, self.workers = seed_number(self.seed), whole_number(self.workers, "workers", least=0, most=MOST)
        if self.checkpoint_steps is not None:
            self.checkpoint_steps = whole_number(self.checkpoint_steps, "checkpoint_steps", most=MOST)
        if self.autocast not in (None, torch.bfloat16, torch.float16):
            raise InputError(f"expected autocast to be torch.bfloat16 or torch.float16, got {shown(self.autocast)}")
        if self.clip_gradients is not None:
            self.clip_gradients = real_number(self.clip_gradients, "clip_gradients", above=0)
        self.evaluate = checked_held_out(self.evaluate)
        if not isinstance(self.callbacks, list | tuple):
            raise InputError(f"expected a list of callbacks, got {shown(self.callbacks)}")
        for each in (*self.callbacks, *([] if self.watch is None else [self.watch])):
            if not callable(each):
                raise InputError(f"expected callbacks and watch to be functions of a Progress, got {shown(each)}")
        if self.checkpoint is not None:
            check_place(self.checkpoint)


@dataclass
class Trainer:
    """A run under way: its parts, and how far it is."""

    classifier: nn.Module
    samples: Samples
    engine: nn.Module
    schedule: PruningSchedule
    optimiser: torch.optim.Optimizer
    scheduler: LRScheduler | None
    loader: BatchLoader
    options: Options
    history: list[EpochMetrics] = field(default_factory=list)
    step: int = 0
    """Batches done in the epoch under way."""
    tally: RunningMetrics = field(default_factory=RunningMetrics)

    def __post_init__(self) -> None:
        spent = self.schedule.spent()  # the pool was pruned before the first epoch, which answers for it
        self.tally = RunningMetrics(seconds=spent, pruning_seconds=spent)
        device = self.samples.candidates.device.type
        half = self.options.autocast == torch.float16  # its range is too small for most gradients
        self.scaler = torch.amp.GradScaler(device, enabled=half)
        self._autocast = (
            nullcontext() if self.options.autocast is None else torch.autocast(device, self.options.autocast)
        )

    def run(self) -> None:
        """Do what is left of the run."""
        options = self.options
        if options.checkpoint is not None:
            self.resume(options.checkpoint)
        while len(self.history) < options.epochs:
            for progress in self.steps():
                if options.watch:
                    options.watch(progress)
                if options.checkpoint and options.checkpoint_steps and not progress.step % options.checkpoint_steps:
                    self.save(options.checkpoint)
            progress = self.end_epoch()
            if options.checkpoint is not None:
                self.save(options.checkpoint)
            for callback in (*options.callbacks, *([options.watch] if options.watch else [])):
                callback(progress)

    def steps(self) -> Iterator[Progress]:
        """Do what is left of the epoch, a batch at a time."""
        self.classifier.train()
        epoch = len(self.history) + 1
        batches = self.samples.batches(self.options.batch, self.options.seed, epoch)
        self.schedule.begin(batches, mixed(self.options.seed, epoch))
        seeds = [mixed(self.options.seed, epoch, step) for step in range(self.step, len(batches))]
        start = time.perf_counter()
        for ids, inputs in zip(batches[self.step :], self.loader.epoch(batches[self.step :], seeds), strict=True):
            self.learn(ids, inputs, epoch)
            self.step += 1
            self.tally.pruning_seconds += self.schedule.spent()
            self.tally.seconds += time.perf_counter() - start
            yield Progress(epoch, self.step, len(batches), self.tally.metrics(epoch), ended=False)
            start = time.perf_counter()

    def learn(self, ids: Tensor, inputs: Tensor, epoch: int) -> None:
        """One step of Algorithm 1 on the samples `ids (n,)` with `inputs (n, m, *shape)`."""
        used = self.samples.used
        with self._autocast:
            log_probs, embedding = classify(self.classifier, inputs, None if used is None else used[ids])
        _check_classes(log_probs, self.samples.candidates.classes)
        stop_if_broken(log_probs, ids, epoch, "log-probability")
        if embedding is not None and self.options.autocast is not None:
            embedding = embedding.float()
        before, kept = self.schedule.of_batch(self.step, embedding)
        targets = None if self.samples.targets is None else self.samples.targets[ids]
        if embedding is None and self.schedule.embeddings is not None:
            embedding = self.schedule.embeddings[ids]  # a frozen encoder's serve the engine, too
        context = Context(targets, None if embedding is None else embedding.detach(), before)
        losses = losses_of(self.engine, log_probs, kept, context)
        stop_if_broken(losses, ids, epoch, "loss")
        self.optimiser.zero_grad()
        self.scaler.scale(losses.mean()).backward()  # type: ignore[no-untyped-call]
        if self.options.clip_gradients is not None:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.classifier.parameters(), self.options.clip_gradients)
        with in_words(f"the optimiser {type(self.optimiser).__name__}"):
            self.scaler.step(self.optimiser)
        self.scaler.update()
        self.tally.count(losses, before, kept, None if self.samples.gold is None else self.samples.gold[ids])

    def end_epoch(self) -> Progress:
        """Measure the classifier if that is due, step the scheduler, and close the epoch's books."""
        epoch, steps, options = len(self.history) + 1, self.step, self.options
        scores = None
        if options.evaluate is not None and (epoch % options.evaluate_every == 0 or epoch == options.epochs):
            scores = measured(self.classifier, options.evaluate, self.samples.candidates.kinds)
        metrics = self.tally.metrics(epoch, scores)
        if self.scheduler is not None:
            with in_words(f"the scheduler {type(self.scheduler).__name__}"):
                if isinstance(self.scheduler, ReduceLROnPlateau):
                    self.scheduler.step(metrics.loss)
                else:
                    self.scheduler.step()
        self.history.append(metrics)
        self.step, self.tally = 0, RunningMetrics()
        return Progress(epoch, steps, steps, metrics, ended=True)

    def save(self, path: str | Path) -> None:
        """Write all that the rest of the run depends on."""
        state: dict[str, Any] = {
            "classifier": self.classifier.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "engine": self.engine.state_dict(),
            "bank": self.schedule.bank.state_dict() if self.schedule.bank else None,
            "random": random_states(self.classifier),
            "history": [asdict(metrics) for metrics in self.history],
            "step": self.step,
            "tally": asdict(self.tally),
            **({} if self.scheduler is None else {"scheduler": self.scheduler.state_dict()}),
            **({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}),
            **({"inspector": self.schedule.inspector.state()} if self.schedule.inspector else {}),
        }
        save_checkpoint(path, state, self.identity())

    def resume(self, path: str | Path) -> None:
        """Go on from a checkpoint, if there is one; one that does not fit changes nothing."""
        state = load_checkpoint(path, self.identity())
        if state is None:
            return
        before = deepcopy(self.classifier.state_dict())
        with refused_unless_it_fits(path, self.classifier, before):
            self._take_up(state)
        whole, epochs = len(self.history), self.options.epochs
        if whole > epochs or (whole == epochs and self.step):
            self.classifier.load_state_dict(before)
            raise FileError(
                f"{path} is past epoch {epochs}: it holds {whole} whole epochs; ask for more epochs, or remove it to "
                "start anew"
            )

    def _take_up(self, state: dict[str, Any]) -> None:
        self.classifier.load_state_dict(state["classifier"])
        self.optimiser.load_state_dict(state["optimiser"])
        _check_moments(self.optimiser)
        self.engine.load_state_dict(state["engine"])
        if self.schedule.bank:
            self.schedule.bank.load_state_dict(state["bank"], self.samples.candidates.device)
        elif state["bank"] is not None:
            raise InputError("expected no memory bank")
        if self.scheduler is not None:
            if state["scheduler"].keys() != self.scheduler.state_dict().keys():
                raise InputError(f"expected the state of a {type(self.scheduler).__name__}")
            self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        if self.schedule.inspector and "inspector" in state:
            self.schedule.inspector.load_state(state["inspector"])
        self.history = [EpochMetrics.from_dict(metrics) for metrics in state["history"]]
        self.step, self.tally = state["step"], RunningMetrics(**state["tally"])
        steps = -(-len(self.samples) // self.options.batch)
        if not isinstance(self.step, int) or not 0 <= self.step <= steps:
            raise InputError(f"expected a step of 0 to {steps}, got {self.step!r}")
        self.tally.metrics(1).check()
        if [metrics.epoch for metrics in self.history] != list(range(1, len(self.history) + 1)):
            raise InputError("expected the metrics of every epoch in their order")
        set_random_states(self.classifier, state["random"])

    def identity(self) -> dict[str, Any]:
        """What the rest of the run must agree on with its beginning; None and what is missing are the same."""
        return {
            **parts_of(self.classifier, self.engine, self.optimiser),
            "batch": self.options.batch,
            "seed": self.options.seed,
            "data": self.samples.fingerprint(),
            "scheduler": None if self.scheduler is None else type(self.scheduler).__name__,
            "autocast": None if self.options.autocast is None else str(self.options.autocast),
            "clip_gradients": self.options.clip_gradients,
            **self.schedule.identity(),
        }


def parts_of(classifier: nn.Module, engine: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, str]:
    """The parts of a run in words that a checkpoint can compare."""
    return {
        "classifier": type(classifier).__name__,
        "engine": type(engine).__name__,
        "engine options": str(_plain_options(vars(engine))),
        "optimiser": type(optimiser).__name__,
        "optimiser options": str(_plain_options(optimiser.defaults)),
    }


@contextmanager
def refused_unless_it_fits(path: str | Path, classifier: nn.Module, weights: dict[str, Any]) -> Iterator[None]:
    """Turn what goes wrong with a checkpoint's state into a `FileError`; the classifier gets its `weights` back."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        classifier.load_state_dict(weights)
        why = str(error) if isinstance(error, ClipperError) else repr(error)
        raise FileError(f"{path} does not fit this run ({why}); remove it to start anew") from error


@contextmanager
def own_randomness(module: nn.Module, seed: int) -> Iterator[None]:
    """Seed the generators that the module's layers draw from; afterwards they are as they were.

    Examples:
        >>> with own_randomness(nn.Dropout(), seed=0):
        ...     first = torch.rand(3)
        >>> with own_randomness(nn.Dropout(), seed=0):
        ...     bool((torch.rand(3) == first).all())
        True
    """
    with torch.random.fork_rng(devices=_gpus(module)):
        torch.manual_seed(seed)
        yield


def random_states(module: nn.Module) -> list[Tensor]:
    """The state of the CPU's generator, then of each GPU's that the module uses."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in _gpus(module))]


def set_random_states(module: nn.Module, states: list[Tensor]) -> None:
    """The reverse of `random_states`."""
    torch.set_rng_state(states[0])
    for gpu, state in zip(_gpus(module), states[1:], strict=False):  # a run may go on without its GPU
        torch.cuda.set_rng_state(state, gpu)


def _gpus(module: nn.Module) -> list[int]:
    devices = {parameter.device for parameter in module.parameters()}
    return sorted({device.index or 0 for device in devices if device.type == "cuda"})


def _check_classes(log_probs: Tensor, classes: int) -> None:
    if log_probs.shape[-1] != classes:
        raise InputError(
            f"expected the classifier to return {classes} log-probabilities per instance, one for each label of the "
            f"candidates, got {log_probs.shape[-1]}"
        )


def _check_moments(optimiser: torch.optim.Optimizer) -> None:
    """Refuse running means of other weights, which torch would take and then fail with."""
    for weight, state in optimiser.state.items():
        for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"):
            mean = state.get(name)
            if isinstance(mean, Tensor) and mean.shape != weight.shape:
                raise InputError(f"expected {name} of shape {tuple(weight.shape)}, got {tuple(mean.shape)}")


def _plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are numbers or text, and no business of a module's own."""
    ours = {name: value for name, value in options.items() if not name.startswith("_") and name != "training"}
    return {name: value for name, value in ours.items() if value is None or isinstance(value, int | float | str)}
