"""A run under way: one step, one epoch, and all that a checkpoint must hold to go on identically."""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clipper.errors import ClipperError, FileError, InputError
from clipper.training.adapters import classify, in_words, losses_of, stop_if_broken
from clipper.training.checkpoint import load_checkpoint, save_checkpoint
from clipper.training.metrics import EpochMetrics, HeldOut, RunningMetrics, measured
from clipper.training.randomness import random_states, set_random_states
from clipper.training.samples import Samples, mixed
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


@dataclass
class Trainer:
    """A run under way: its parts, and how far it is."""

    classifier: nn.Module
    samples: Samples
    engine: nn.Module
    survivors: PruningSchedule
    optimiser: torch.optim.Optimizer
    batch: int
    seed: int
    history: list[EpochMetrics] = field(default_factory=list)
    step: int = 0
    """Batches done in the epoch under way."""
    tally: RunningMetrics = field(default_factory=RunningMetrics)

    def __post_init__(self) -> None:
        spent = self.survivors.spent()  # the pool was pruned before the first epoch, which answers for it
        self.tally = RunningMetrics(seconds=spent, pruning_seconds=spent)

    def steps(self) -> Iterator[Progress]:
        """Do what is left of the epoch, a batch at a time."""
        self.classifier.train()
        epoch = len(self.history) + 1
        batches = self.samples.batches(self.batch, self.seed, epoch)
        self.survivors.begin(batches, mixed(self.seed, epoch))
        while self.step < len(batches):
            start = time.perf_counter()
            self.learn(batches[self.step], epoch)
            self.step += 1
            self.tally.pruning_seconds += self.survivors.spent()
            self.tally.seconds += time.perf_counter() - start
            yield Progress(epoch, self.step, len(batches), self.tally.metrics(epoch), ended=False)

    def learn(self, ids: Tensor, epoch: int) -> None:
        """One step of Algorithm 1 on the samples `ids (n,)`."""
        used = self.samples.used
        log_probs, embedding = classify(
            self.classifier, self.samples.load(ids), None if used is None else used[ids]
        )  # (n, m, c), (n, m, d)
        _check_classes(log_probs, self.samples.candidates.classes)
        stop_if_broken(log_probs, ids, epoch, "log-probability")
        before, kept = self.survivors.of_batch(self.step, embedding)
        targets = None if self.samples.targets is None else self.samples.targets[ids]
        if embedding is None and self.survivors.embeddings is not None:
            embedding = self.survivors.embeddings[ids]  # a frozen encoder's serve the engine, too
        losses = losses_of(self.engine, log_probs, kept, unpruned=before, embedding=embedding, targets=targets)
        stop_if_broken(losses, ids, epoch, "loss")
        self.optimiser.zero_grad()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        with in_words(f"the optimiser {type(self.optimiser).__name__}"):
            self.optimiser.step()
        self.tally.count(losses, before, kept, None if self.samples.gold is None else self.samples.gold[ids])

    def end_epoch(self, held_out: HeldOut | None) -> Progress:
        """Close the epoch's books."""
        epoch, steps = len(self.history) + 1, self.step
        kinds = self.samples.candidates.kinds
        figures = self.tally.metrics(epoch, measured(self.classifier, held_out, kinds) if held_out else None)
        self.history.append(figures)
        self.step, self.tally = 0, RunningMetrics()
        return Progress(epoch, steps, steps, figures, ended=True)

    def save(self, path: str | Path) -> None:
        """Write all that the rest of the run depends on."""
        state: dict[str, Any] = {
            "classifier": self.classifier.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "engine": self.engine.state_dict(),
            "bank": self.survivors.bank.state_dict() if self.survivors.bank else None,
            "random": random_states(self.classifier),
            "history": [asdict(figures) for figures in self.history],
            "step": self.step,
            "tally": asdict(self.tally),
        }
        save_checkpoint(path, state, self.identity())

    def resume(self, path: str | Path, epochs: int) -> None:
        """Go on from a checkpoint, if there is one, to this many epochs; one that does not fit changes nothing."""
        state = load_checkpoint(path, self.identity())
        if state is None:
            return
        before = deepcopy(self.classifier.state_dict())
        try:
            self._take_up(state)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
            self.classifier.load_state_dict(before)
            why = str(error) if isinstance(error, ClipperError) else repr(error)
            raise FileError(f"{path} does not fit this run ({why}); remove it to start anew") from error
        if len(self.history) > epochs or (len(self.history) == epochs and self.step):
            self.classifier.load_state_dict(before)
            raise FileError(
                f"{path} is past epoch {epochs}: it holds {len(self.history)} whole epochs; ask for more epochs, "
                "or remove it to start anew"
            )

    def _take_up(self, state: dict[str, Any]) -> None:
        self.classifier.load_state_dict(state["classifier"])
        self.optimiser.load_state_dict(state["optimiser"])
        _check_moments(self.optimiser)
        self.engine.load_state_dict(state["engine"])
        if self.survivors.bank:
            self.survivors.bank.load_state_dict(state["bank"], self.samples.candidates.device)
        elif state["bank"] is not None:
            raise InputError("expected no memory bank")
        self.history = [EpochMetrics.from_dict(figures) for figures in state["history"]]
        self.step, self.tally = state["step"], RunningMetrics(**state["tally"])
        steps = -(-len(self.samples) // self.batch)
        if not isinstance(self.step, int) or not 0 <= self.step <= steps:
            raise InputError(f"expected a step of 0 to {steps}, got {self.step!r}")
        self.tally.metrics(1).check()
        if [figures.epoch for figures in self.history] != list(range(1, len(self.history) + 1)):
            raise InputError("expected the figures of every epoch in their order")
        set_random_states(self.classifier, state["random"])

    def identity(self) -> dict[str, Any]:
        """What the rest of the run must agree on with its beginning."""
        return {
            "classifier": type(self.classifier).__name__,
            "engine": type(self.engine).__name__,
            "engine options": str(plain_options(vars(self.engine))),
            "optimiser": type(self.optimiser).__name__,
            "optimiser options": str(plain_options(self.optimiser.defaults)),
            "batch": self.batch,
            "seed": self.seed,
            "data": self.samples.fingerprint(),
            **self.survivors.identity(),
        }


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


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are numbers or text, and no business of a module's own."""
    ours = {name: value for name, value in options.items() if not name.startswith("_") and name != "training"}
    return {name: value for name, value in ours.items() if value is None or isinstance(value, int | float | str)}
