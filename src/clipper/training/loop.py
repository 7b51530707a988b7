"""Algorithm 1: prune each batch by its neighbours, train on the remaining candidates, and write checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau
from torch.utils.data import DataLoader

from clipper.arguments import MOST, as_tensor, real_number, seed_number, shown, whole_number, yes_or_no
from clipper.candidates import CandidateSet
from clipper.engines.base import Context
from clipper.errors import ClipperError, FileError, InputError
from clipper.proximity import embed
from clipper.pruning import Clipper
from clipper.pruning.ranks import Ranks
from clipper.training.adapters import classify, in_words, losses_of, stop_if_broken
from clipper.training.checkpoint import check_place, load_checkpoint, save_checkpoint
from clipper.training.inspection import Inspection, Inspector
from clipper.training.metrics import EpochMetrics, HeldOut, RunningMetrics, checked_held_out, measured
from clipper.training.record import Record
from clipper.training.samples import BatchLoader, Samples, mixed, samples_of
from clipper.training.schedule import Draws, PruningSchedule, check_neighbours

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]
_BY_STEP = (OneCycleLR, CyclicLR)
"""Schedulers that take a step after every batch instead of every epoch."""
_ENCODED = 64
"""Samples loaded and encoded together."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run, for its callbacks.

    Attributes:
        epoch: the current epoch, counted from 1.
        step: the number of batches done in this epoch.
        steps: the number of batches in an epoch.
        metrics: the metrics of this epoch so far.
        ended: whether the epoch has ended; only then the metrics have an accuracy.
    """

    epoch: int
    step: int
    steps: int
    metrics: EpochMetrics
    ended: bool


Callback = Callable[[Progress], object]


@dataclass
class Options:
    """The options of `train`; see there for their meaning."""

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


class History(list[EpochMetrics]):
    """The metrics of every epoch, a list, and what a record and a report need. `train` returns it.

    Attributes:
        config: the options that determine the result, by name.
        inspection: what the pruning inspector shows, if `train` was called with `inspect=`.

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
        """The run as a `Record`, which you can write to a file.

        Args:
            config: the options that determine the result, by name; those of `train` if not given.
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
    draws: Draws | None = None,
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
    group: ProcessGroup | None = None,
) -> History:
    """Train a classifier, in place, on samples with candidates instead of labels.

    The classifier maps `(instances, *shape)` to `log_probs (instances, c)`, or to `log_probs` and the embedding
    `(instances, d)` that they were computed from. With a checkpoint, a run that was killed continues where it was and
    ends with the same weights as without the interruption. Every random number comes from `seed`; the state of your own
    generator does not change.

    Under `torchrun`, every process calls this with the same arguments and a `group`. It trains on its share of each
    batch, but finds neighbours in the whole batch. `DistributedDataParallel` around the network averages the gradients,
    so all processes take the same step that one process would take.

    Args:
        classifier: any network; it should be on the device of the data.
        data: `Samples`; or a pair of inputs and candidates, as `Samples` takes them. The inputs may be a `Dataset` that
            loads one sample at a time. From a `DataLoader` over `Samples`, its batch size and number of workers are
            used, but not its order.
        engine: the loss function of `log_probs` and candidates, see `clipper.engines`.
        clip: how to prune; None for no pruning. If it has no encoder, and `embeddings` is not given, the classifier's
            own embedding is used: a trainable encoder.
        embeddings: a frozen encoder's output for all samples, `(n, m, d)`.
        once: prune the whole pool once before training; needs a frozen encoder.
        bank: look for neighbours also among the most recent embeddings of this many samples.
        draws: learn from some candidates of each sample, drawn anew for every batch before it is pruned.
        optimiser: AdamW with a learning rate of 1e-3 by default.
        scheduler: a learning rate scheduler of `torch.optim.lr_scheduler`, or a function from the optimiser to one. It
            is stepped after every epoch, `OneCycleLR` and `CyclicLR` after every batch. `ReduceLROnPlateau` gets the
            mean loss of the epoch.
        autocast: run the classifier in mixed precision, `torch.bfloat16` or `torch.float16` (with gradients scaled);
            pruning and losses stay in single precision.
        clip_gradients: the largest norm of the gradients of all weights together.
        workers: number of processes that load the items of a `Dataset`; it does not change the result.
        epochs: passes over the samples.
        batch: samples per step.
        seed: the seed of the order of the samples, of dropout and of the random control.
        evaluate: held-out inputs and labels, or a function from the classifier to a dictionary of scores.
        evaluate_every: epochs between two such measurements; the last epoch is always measured.
        checkpoint: the file to continue from, if it exists, and to write at the end of every epoch.
        checkpoint_steps: also write the checkpoint after this many steps.
        callbacks: functions that are called after each epoch with its `Progress`, such as `tensorboard(folder)`.
        inspect: collect what pruning does to this many samples in the first epoch, for the pruning inspector; or an
            `Inspector` with more options. The result is the history's `inspection`.
        watch: a function that is called after each step, too.
        group: the processes that train together, such as `torch.distributed.group.WORLD`; None for this process alone.
            `batch` is the number of samples of all processes. Only the first process calls callbacks and writes the
            checkpoint.

    Returns:
        The metrics of every epoch: a list with a method `record()`.

    Raises:
        InputError: if the arguments do not fit together.
        TrainingError: if a loss is not a finite number.
        FileError: if the checkpoint cannot be read or written, or belongs to another run.
        RankError: if another process of the group has ended, or does not answer.

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
    ranks = _ranks_of(group, classifier)
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
    # train also if the caller is in inference mode or has disabled gradients
    with torch.inference_mode(False), torch.enable_grad():
        loader = BatchLoader(samples, options.workers)
        if clip is not None and clip.encoder is not None and embeddings is None:
            embeddings = _embedded(clip.encoder, loader)
        schedule = PruningSchedule(samples, clip, embeddings, once, bank, options.seed, inspector, ranks, draws)
        trainer = Trainer(classifier, samples, engine, schedule, optimiser, rate, loader, options, ranks)
        with own_randomness(classifier, mixed(options.seed, ranks.rank) if ranks.rank else options.seed):
            trainer.run()
        seen = None
        if inspector is not None and inspector.entries:
            seen = inspector.inspection(schedule.notes(options.batch), samples.load)
        config = {"epochs": options.epochs, "evaluate_every": options.evaluate_every, **trainer.identity()}
        return History(trainer.history, config, seen)


def check_parts(classifier: Any, engine: Any) -> None:
    """Check the types of classifier and engine, and that the classifier has weights to train.

    Raises:
        InputError: a type is wrong, or there is nothing to train.
    """
    if not isinstance(classifier, nn.Module):
        raise InputError(f"expected the classifier to be a torch.nn.Module, got a {type(classifier).__name__}")
    if not isinstance(engine, nn.Module):
        raise InputError(
            f"expected the engine to be one of clipper.engines or a torch.nn.Module, got a {type(engine).__name__}"
        )
    weights = list(classifier.parameters())
    if any(isinstance(weight, nn.UninitializedParameter) for weight in weights):
        return  # the first batch determines the shapes of the weights
    if not any(weight.requires_grad for weight in weights):
        raise InputError(
            "expected a classifier with weights to learn, got one without weights, or with frozen weights only"
        )
    if any(weight.is_inference() for weight in weights):
        raise InputError(
            "expected a classifier that can learn, got one made in torch.inference_mode(); make it outside"
        )


def _ranks_of(group: Any, classifier: nn.Module) -> Ranks:
    """The processes that train together, if something averages the gradients of all of them."""
    ranks = Ranks(group)
    averaged = isinstance(classifier, DistributedDataParallel) and Ranks(classifier.process_group).size == ranks.size
    if group is not None and not averaged:
        raise InputError(
            "expected a classifier in torch.nn.parallel.DistributedDataParallel over the same group, to average the "
            f"gradients of its {ranks.size} processes, got a {type(classifier).__name__}"
        )
    return ranks


def check_pruning(clip: Any, once: Any) -> None:
    """Check the options of pruning.

    Raises:
        InputError: `clip` is not a `Clipper`, or `once` is not True or False.
    """
    if clip is not None and not isinstance(clip, Clipper):
        raise InputError(f"expected clip=Clipper(...) or None, got a {type(clip).__name__}")
    yes_or_no(once, "once")


def check_optimiser(optimiser: Any, classifier: nn.Module) -> None:
    """Check that an optimiser updates the classifier's weights with one step per batch.

    Raises:
        InputError: it does not.
    """
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
    """The inspector, from a number of samples to show or as the caller made it; None for 0 samples."""
    if isinstance(inspect, Inspector):
        return replace(inspect)  # a copy, because the caller may use it for several runs
    wanted = whole_number(inspect, "inspect", least=0, most=MOST)
    return Inspector(wanted) if wanted else None


def _embedded(encoder: Any, loader: BatchLoader) -> Tensor:
    """The embeddings of all samples by a frozen encoder, `(n, m, d)`; samples need not fit into memory."""
    samples: Samples = loader.samples
    if samples.in_memory:
        return embed(encoder, samples.inputs)
    parts = list(torch.split(torch.arange(len(samples)), _ENCODED))
    return torch.cat([embed(encoder, inputs) for inputs in loader.epoch(parts, range(len(parts)))])


@dataclass
class Trainer:
    """The state of a run: its parts and its progress."""

    classifier: nn.Module
    samples: Samples
    engine: nn.Module
    schedule: PruningSchedule
    optimiser: torch.optim.Optimizer
    scheduler: LRScheduler | None
    loader: BatchLoader
    options: Options
    ranks: Ranks = field(default_factory=Ranks)
    history: list[EpochMetrics] = field(default_factory=list)
    step: int = 0
    """The number of batches done in the current epoch."""
    running_metrics: RunningMetrics = field(default_factory=RunningMetrics)

    def __post_init__(self) -> None:
        spent = self.schedule.spent()  # time before the first epoch counts in that epoch
        self.running_metrics = RunningMetrics(seconds=spent, pruning_seconds=spent)
        device = self.samples.candidates.device.type
        half = self.options.autocast == torch.float16  # its range is too small for most gradients
        self.scaler = torch.amp.GradScaler(device, enabled=half)
        self._autocast = (
            nullcontext() if self.options.autocast is None else torch.autocast(device, self.options.autocast)
        )

    @property
    def network(self) -> nn.Module:
        """The classifier as the caller made it."""
        return self.classifier.module if isinstance(self.classifier, DistributedDataParallel) else self.classifier

    def run(self) -> None:
        """Train until the last epoch."""
        options = self.options
        if options.checkpoint is not None:
            self.resume(options.checkpoint)
        watch = options.watch if self.ranks.rank == 0 else None
        callbacks = [*options.callbacks, *([watch] if watch else [])] if self.ranks.rank == 0 else []
        while len(self.history) < options.epochs:
            for progress in self.steps():
                if watch:
                    watch(progress)
                if options.checkpoint and options.checkpoint_steps and not progress.step % options.checkpoint_steps:
                    self.save(options.checkpoint)
            progress = self.end_epoch()
            if options.checkpoint is not None:
                self.save(options.checkpoint)
            for callback in callbacks:
                callback(progress)

    def steps(self) -> Iterator[Progress]:
        """Train the remaining batches of the current epoch; yield after each."""
        self.classifier.train()
        epoch = len(self.history) + 1
        batches = self.samples.batches(self.options.batch, self.options.seed, epoch)
        self.schedule.begin(batches, mixed(self.options.seed, epoch))
        rank = [self.ranks.rank] if self.ranks.rank else []  # each rank augments its images differently
        seeds = [mixed(self.options.seed, epoch, step, *rank) for step in range(self.step, len(batches))]
        left = [self.own_share(ids) for ids in batches[self.step :]]
        start = time.perf_counter()
        for batch, ids, inputs in zip(batches[self.step :], left, self.loader.epoch(left, seeds), strict=True):
            self.learn(ids, inputs, epoch, len(batch))
            self.step += 1
            self.running_metrics.pruning_seconds += self.schedule.spent()
            self.running_metrics.seconds += time.perf_counter() - start
            yield Progress(epoch, self.step, len(batches), self.running_metrics.metrics(epoch), ended=False)
            start = time.perf_counter()

    def own_share(self, batch: Tensor) -> Tensor:
        """This rank's share of a batch; one sample if the share is empty, because every rank must take every step."""
        share = self.ranks.share(batch)
        return share if len(share) else batch[:1]

    def learn(self, ids: Tensor, inputs: Tensor, epoch: int, batch: int) -> None:
        """One step of Algorithm 1 on the samples `ids (n,)` with `inputs (n, m, *shape)`.

        `batch` is the number of samples of all ranks.
        """
        used = self.samples.used
        own = self.ranks.sizes(batch)[self.ranks.rank]  # 0 if the sample is another rank's; its loss then has weight 0
        with self._autocast:
            log_probs, embedding = classify(self.classifier, inputs, None if used is None else used[ids])
        _check_classes(log_probs, self.samples.candidates.classes)
        stop_if_broken(log_probs, ids, epoch, "log-probability")
        if embedding is not None and self.options.autocast is not None:
            embedding = embedding.float()
        before, kept = self.schedule.of_batch(
            self.step, None if embedding is None else embedding[:own], log_probs[:own]
        )
        if not own:
            before = kept = self.samples.candidates.batch(ids)
        targets = None if self.samples.targets is None else self.samples.targets[ids]
        if embedding is None and self.schedule.embeddings is not None:
            embedding = self.schedule.embeddings[ids]  # the engine also uses those of a frozen encoder
        context = Context(targets, None if embedding is None else embedding.detach(), before)
        losses = losses_of(self.engine, log_probs, kept, context)
        stop_if_broken(losses, ids, epoch, "loss")
        self.optimiser.zero_grad()
        loss = losses.mean() * (own * self.ranks.size / batch)  # so that the mean over ranks is the mean over samples
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.options.clip_gradients is not None:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.classifier.parameters(), self.options.clip_gradients)
        with in_words(f"the optimiser {type(self.optimiser).__name__}"):
            self.scaler.step(self.optimiser)
        self.scaler.update()
        if isinstance(self.scheduler, _BY_STEP):
            with in_words(f"the scheduler {type(self.scheduler).__name__}"):
                self.scheduler.step()
        gold = None if self.samples.gold is None else self.samples.gold[ids]
        counted = RunningMetrics(gold=None if gold is None else 0)
        if own:
            counted.count(losses, before, kept, gold)
            if gold is not None and self.schedule.draws is not None:
                counted.drawn = int(before.contains(gold).sum())
        self.running_metrics.add(self.ranks.summed(counted.sums))

    def end_epoch(self) -> Progress:
        """Measure the classifier if that is due, step the scheduler, and add the epoch to the history."""
        epoch, steps, options = len(self.history) + 1, self.step, self.options
        scores = None
        if options.evaluate is not None and (epoch % options.evaluate_every == 0 or epoch == options.epochs):
            scores = measured(self.network, options.evaluate, self.samples.candidates.kinds)
        metrics = self.running_metrics.metrics(epoch, scores)
        if self.scheduler is not None and not isinstance(self.scheduler, _BY_STEP):
            with in_words(f"the scheduler {type(self.scheduler).__name__}"):
                if isinstance(self.scheduler, ReduceLROnPlateau):
                    self.scheduler.step(metrics.loss)
                else:
                    self.scheduler.step()
        self.history.append(metrics)
        self.step, self.running_metrics = 0, RunningMetrics()
        return Progress(epoch, steps, steps, metrics, ended=True)

    def save(self, path: str | Path) -> None:
        """Write the whole state of the run to a checkpoint; only the first rank writes."""
        random = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, _gpus(self.classifier))]
        own, *others = self.ranks.all_of({"engine": self.engine.state_dict(), "random": random})
        if self.ranks.rank:
            return
        state: dict[str, Any] = {
            "classifier": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            **own,
            "bank": self.schedule.bank.state_dict() if self.schedule.bank else None,
            "history": [asdict(metrics) for metrics in self.history],
            "step": self.step,
            "tally": asdict(self.running_metrics),
            **({} if self.scheduler is None else {"scheduler": self.scheduler.state_dict()}),
            **({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}),
            **({"inspector": self.schedule.inspector.state()} if self.schedule.inspector else {}),
            **({"other ranks": others} if others else {}),
        }
        save_checkpoint(path, state, self.identity())

    def resume(self, path: str | Path) -> None:
        """Continue from a checkpoint, if there is one. A checkpoint that does not fit changes nothing."""
        state = self.ranks.from_first(lambda: load_checkpoint(path, self.identity()))
        if state is None:
            return
        with refused_unless_it_fits(path, self.network, deepcopy(self.network.state_dict())):
            self._take_up(state)

    def _take_up(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["classifier"])
        self.optimiser.load_state_dict(state["optimiser"])
        _check_moments(self.optimiser)
        everyone = [state, *state.get("other ranks", [])]
        own = everyone[self.ranks.rank] if self.ranks.rank < len(everyone) else None  # there may have been fewer ranks
        self.engine.load_state_dict((own or state)["engine"])
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
        self.step, self.running_metrics = state["step"], RunningMetrics(**state["tally"])
        steps = -(-len(self.samples) // self.options.batch)
        if not isinstance(self.step, int) or not 0 <= self.step <= steps:
            raise InputError(f"expected a step of 0 to {steps}, got {self.step!r}")
        self.running_metrics.metrics(1).check()
        whole, epochs = len(self.history), self.options.epochs
        if [metrics.epoch for metrics in self.history] != list(range(1, whole + 1)):
            raise InputError("expected the metrics of every epoch in their order")
        if whole > epochs or (whole == epochs and self.step):
            raise InputError(f"it is past epoch {epochs}, with {whole} finished epochs; raise epochs= to continue")
        if own is not None:
            cpu, *gpus = own["random"]
            torch.set_rng_state(cpu)
            for gpu, generator in zip(_gpus(self.classifier), gpus, strict=False):  # or continue without the GPUs
                torch.cuda.set_rng_state(generator, gpu)

    def identity(self) -> dict[str, Any]:
        """The properties that a run and its checkpoint must have in common; a missing one is the same as None."""
        return {
            **parts_of(self.network, self.engine, self.optimiser),
            "batch": self.options.batch,
            "seed": self.options.seed,
            "data": self.samples.fingerprint(),
            "scheduler": None if self.scheduler is None else type(self.scheduler).__name__,
            "autocast": None if self.options.autocast is None else str(self.options.autocast),
            "clip_gradients": self.options.clip_gradients,
            **self.schedule.identity(),
        }


def parts_of(classifier: nn.Module, engine: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, str]:
    """The parts of a run as text that a checkpoint can compare."""
    return {
        "classifier": type(classifier).__name__,
        "engine": type(engine).__name__,
        "engine options": str(_plain_options(vars(engine))),
        "optimiser": type(optimiser).__name__,
        "optimiser options": str(_plain_options(optimiser.defaults)),
    }


@contextmanager
def refused_unless_it_fits(path: str | Path, classifier: nn.Module, weights: dict[str, Any]) -> Iterator[None]:
    """Convert an exception in restoring a checkpoint into a `FileError`, and restore the classifier's `weights`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        classifier.load_state_dict(weights)
        why = str(error) if isinstance(error, ClipperError) else repr(error)
        raise FileError(f"{path} does not fit this run ({why}); remove it to start anew") from error


@contextmanager
def own_randomness(module: nn.Module, seed: int) -> Iterator[None]:
    """Seed the generators that the module's layers draw from, and restore their states after the block.

    Args:
        module: the module, whose devices determine the generators.
        seed: the seed.

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
    """Refuse running means of other shapes, which torch would accept and then fail on."""
    for weight, state in optimiser.state.items():
        for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"):
            mean = state.get(name)
            if isinstance(mean, Tensor) and mean.shape != weight.shape:
                raise InputError(f"expected {name} of shape {tuple(weight.shape)}, got {tuple(mean.shape)}")


def _plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are numbers or text and are not stored elsewhere."""
    ours = {name: value for name, value in options.items() if not name.startswith("_") and name != "training"}
    return {name: value for name, value in ours.items() if value is None or isinstance(value, int | float | str)}
