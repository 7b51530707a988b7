"""Iterated training: infer, prune, train, let the classifier label samples that it has not seen, and infer again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clipper.arguments import MOST, as_tensor, real_number, seed_number, whole_number, widened
from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.pruning import Clipper, Posterior, Pruning, infer
from clipper.training.adapters import in_words, predict
from clipper.training.checkpoint import load_checkpoint, save_checkpoint
from clipper.training.inspection import Inspection, Inspector
from clipper.training.loop import (
    History,
    Options,
    check_optimiser,
    check_parts,
    check_pruning,
    inspector_of,
    parts_of,
    refused_unless_it_fits,
    train,
)
from clipper.training.metrics import EpochMetrics
from clipper.training.samples import Samples, fingerprint, mixed, samples_of
from clipper.training.schedule import check_embeddings, check_neighbours, options_of

MakeOptimiser = Callable[[nn.Module], torch.optim.Optimizer]
_LOUD = ("evaluate", "callbacks", "watch")
"""Options that trainings on a part of the pool do not get: these trainings only label the other samples."""
_CHUNK = 256
"""Samples that are loaded and classified at a time."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass of `train_iterated`: the inferred posterior, and the training on it.

    Attributes:
        posterior: the inferred posterior.
        changed: the share of instances whose most probable label differs from the pass before; 1 in the first.
        history: the metrics of every epoch; report those of the last one. It has an `inspection` if `train_iterated`
            was called with `inspect=`.
    """

    posterior: Posterior[CandidateSet]
    changed: float
    history: History


def train_iterated(
    classifier: nn.Module,
    data: Samples | tuple[Any, CandidateSet],
    engine: nn.Module,
    embeddings: Tensor,
    *,
    passes: int = 3,
    folds: int = 2,
    still: float = 0.01,
    clip: Clipper | None = None,
    make_optimiser: MakeOptimiser | None = None,
    seed: int = 0,
    inspect: int | Inspector = 0,
    **options: Any,
) -> list[Pass]:
    """Infer labels jointly, train a classifier on them in place, infer again with its predictions, and so on.

    A classifier repeats the labels that it was trained on, right or wrong. So there is a classifier for each fold, and
    each sample is labelled by one that was not trained on it. Every training starts from the same initial weights. The
    passes end if a pass changes almost no label, if the posterior is "unsettled" or "uninformative", or if it explains
    the formulas less well than before. The result is that of the last training.

    Args:
        classifier: maps `(instances, *shape)` to `log_probs (instances, c)`, alone or with an embedding.
        data: `Samples`, or inputs `(n, m, *shape)` and candidates.
        engine: the loss function of `log_probs` and candidates.
        embeddings: a frozen encoder's output, `(n, m, d)`.
        passes: the largest number of passes.
        folds: number of parts of the pool; each is labelled by a classifier that was trained on the others.
        still: stop if a smaller share of the labels than this changes.
        clip: how to build the graph and how much mass to keep; its objective is ignored and is always "joint".
        make_optimiser: from the classifier to its optimiser; AdamW by default.
        seed: the seed of everything that is random.
        inspect: collect what pruning does to this many samples in each pass, as in `train`.
        options: for each `train`: `epochs`, `batch`, `workers`, `scheduler` (a function from the optimiser to one),
            `autocast`, `clip_gradients`, `evaluate`, `evaluate_every`, `callbacks`, `watch`; and `checkpoint`, the file
            to continue from, if it exists. The current training has its own checkpoint beside it, written every epoch
            and, if given, every `checkpoint_steps` steps. A run that was killed and continued ends with the same
            weights as without the interruption.

    Returns:
        The passes; the classifier has the weights of the last one.

    Raises:
        InputError: if the arguments do not fit together.

    Examples:
        >>> from clipper import Candidates
        >>> from clipper.engines import SemanticLoss
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 0, 2], slots=2, classes=3)
        >>> network = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(-1))
        >>> inputs = torch.rand(4, 2, 5, generator=torch.Generator().manual_seed(0))
        >>> done = train_iterated(network, (inputs, candidates), SemanticLoss(), inputs, passes=1, epochs=2)
        >>> len(done), len(done[0].history)
        (1, 2)
    """
    passes, folds = whole_number(passes, "passes", most=MOST), whole_number(folds, "folds", least=2, most=MOST)
    still, seed = real_number(still, "still", least=0), seed_number(seed)
    _check_options(options)
    check_parts(classifier, engine)
    check_pruning(clip, once=True)
    samples, clip = samples_of(data), replace(clip or Clipper(), objective="joint")
    if folds > max(2, len(samples)):
        raise InputError(f"expected 2 to {len(samples)} folds, one sample each at least, got {folds}")
    embeddings = as_tensor(embeddings, "embeddings")
    check_embeddings(embeddings, samples)
    check_neighbours(clip, samples, len(samples))
    inspector = inspector_of(inspect)
    with torch.inference_mode(False), torch.enable_grad():
        run = _Run(classifier, engine, make_optimiser, seed, options)
        run.identity = {
            **parts_of(classifier, engine, run.optimiser()),
            "seed": seed,
            **{name: options.get(name) for name in ("epochs", "batch", "evaluate_every", "clip_gradients")},
            **{name: str(options[name]) for name in ("autocast",) if options.get(name) is not None},
            "passes": passes,
            "folds": folds,
            "still": still,
            "embeddings": fingerprint(embeddings),
            "data": samples.fingerprint(),
            **options_of(clip),
        }
        run.resume(samples.candidates)
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(mixed(seed, len(samples))))
        parts = order.tensor_split(folds)  # the sample ids of each
        graph = clip.graph(samples.candidates, embeddings)
        posterior, changed, done = infer(samples.candidates, graph, seed=seed), 1.0, list[Pass]()
        while True:  # after an interruption, finished passes repeat only the inference
            pruning = posterior.prune(clip.mass)
            kept = replace(samples, candidates=pruning.candidates)
            epochs = run.learned(f"pass-{len(done) + 1}", kept)
            seen = None if inspector is None else _inspected(replace(inspector), samples, posterior, pruning)
            done.append(Pass(posterior, changed, History(epochs, run.identity, seen)))
            if len(done) == passes or not posterior.converged:
                break
            judged = [run.judged(f"pass-{len(done)}-part-{i + 1}", kept, parts, i) for i in range(folds)]
            log_probs = torch.cat(judged)[order.argsort()]  # (n, m, c), by classifiers that did not see the sample
            before, posterior = posterior, infer(samples.candidates, graph, log_probs=log_probs, seed=seed)
            changed = float(widened((posterior.labels != before.labels)[posterior.labels >= 0]).mean())
            better = posterior.converged and posterior.verification.explained > before.verification.explained
            if changed < still or not better:
                break
        classifier.load_state_dict(run.weights)
        return done


@dataclass
class _Run:
    """The trainings of a run, by name, and the results of those that have ended."""

    classifier: nn.Module
    engine: nn.Module
    make_optimiser: MakeOptimiser | None
    seed: int
    options: Mapping[str, Any]
    histories: dict[str, list[EpochMetrics]] = field(default_factory=dict)
    """The metrics of finished trainings on the whole pool."""
    opinions: dict[str, Tensor] = field(default_factory=dict)
    """The output of classifiers trained on a part of the pool for the other samples, `(k, m, c)`."""
    identity: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first_weights = deepcopy(self.classifier.state_dict())
        self.weights = self.first_weights
        """As the last pass left them."""
        path = self.options.get("checkpoint")
        self.path = None if path is None else Path(path)

    def learned(self, stage: str, kept: Samples) -> list[EpochMetrics]:
        """Train on the remaining candidates, unless this training has finished already."""
        if stage not in self.histories:
            self.histories[stage] = self._train(stage, kept, self.options)
            self.weights = deepcopy(self.classifier.state_dict())
            self._save()
        return self.histories[stage]

    def judged(self, stage: str, kept: Samples, parts: Sequence[Tensor], own: int) -> Tensor:
        """The output for part `own` of a classifier trained on the other parts, `(k, m, c)`."""
        if stage not in self.opinions:
            rest = torch.cat([*parts[:own], *parts[own + 1 :]])
            quiet = {name: value for name, value in self.options.items() if name not in _LOUD}
            self._train(stage, kept.subset(rest), quiet)
            chunks = torch.split(parts[own], _CHUNK)
            self.opinions[stage] = torch.cat([predict(self.classifier, kept.load(ids)) for ids in chunks])
            self._save()
        return self.opinions[stage]

    def _train(self, stage: str, samples: Samples, options: Mapping[str, Any]) -> list[EpochMetrics]:
        """Train from the initial weights, or continue an interrupted training."""
        self.classifier.load_state_dict(self.first_weights)
        own = {**options, "optimiser": self.optimiser(), "seed": self.seed, "checkpoint": self._place(stage)}
        return list(train(self.classifier, samples, self.engine, **own))

    def optimiser(self) -> torch.optim.Optimizer:
        """A new optimiser for the classifier."""
        if self.make_optimiser is None:
            return torch.optim.AdamW(self.classifier.parameters(), lr=1e-3)
        with in_words("make_optimiser"):
            optimiser = self.make_optimiser(self.classifier)
        check_optimiser(optimiser, self.classifier)
        return optimiser

    def _place(self, stage: str) -> Path | None:
        """The checkpoint of one training."""
        return None if self.path is None else self.path.with_name(f"{self.path.stem}.{stage}{self.path.suffix}")

    def _save(self) -> None:
        """Write the results of finished trainings, then remove their checkpoints."""
        if self.path is None:
            return
        state = {
            "classifier": self.weights,
            "first": self.first_weights,
            "engine": self.engine.state_dict(),
            "histories": {stage: [asdict(epoch) for epoch in epochs] for stage, epochs in self.histories.items()},
            "opinions": self.opinions,
        }
        save_checkpoint(self.path, state, self.identity)
        self._remove_ended()

    def _remove_ended(self) -> None:
        for place in map(self._place, [*self.histories, *self.opinions]):
            if place is not None:
                place.unlink(missing_ok=True)

    def resume(self, candidates: CandidateSet) -> None:
        """Continue from a checkpoint, if there is one; else write one."""
        state = None if self.path is None else load_checkpoint(self.path, self.identity)
        if state is None or self.path is None:
            self._save()
            return
        with refused_unless_it_fits(self.path, self.classifier, self.first_weights):
            if "judged" in state:
                raise InputError("it was written by Clipper 0.1")
            self._take_up(state, (candidates.slots, candidates.classes))
        self._remove_ended()  # the process may have been killed after it had stored the result of a training

    def _take_up(self, state: dict[str, Any], shape: tuple[int, int]) -> None:
        self.classifier.load_state_dict(state["first"])
        self.classifier.load_state_dict(state["classifier"])
        self.engine.load_state_dict(state["engine"])
        histories, opinions = dict(state["histories"]), dict(state["opinions"])
        if not all(isinstance(opinion, Tensor) and tuple(opinion.shape[1:]) == shape for opinion in opinions.values()):
            raise InputError(f"expected log-probabilities of shape (samples, {shape[0]}, {shape[1]})")
        self.histories = {
            stage: [EpochMetrics.from_dict(epoch) for epoch in epochs] for stage, epochs in histories.items()
        }
        self.opinions, self.first_weights, self.weights = opinions, state["first"], state["classifier"]


def _check_options(options: Mapping[str, Any]) -> None:
    """Check the options of the trainings before the first inference."""
    if options.get("scheduler") is not None and not callable(options["scheduler"]):
        raise InputError("expected scheduler to be a function from the optimiser to a scheduler: each training has one")
    try:
        Options(**{name: value for name, value in options.items() if name != "scheduler"})
    except TypeError as error:
        raise InputError(f"expected options of a training, got others: {error}") from error


def _inspected(
    inspector: Inspector, samples: Samples, posterior: Posterior[CandidateSet], pruning: Pruning[CandidateSet]
) -> Inspection:
    """The inspection of the pruning of a pass."""
    inspector.begin(samples)
    inspector.add(pruning, torch.arange(len(samples)), posterior=posterior)
    inspector.calibrate(None if samples.gold is None else posterior.calibration(samples.gold))
    notes = ["Neighbours were searched among all samples, before training, by a frozen encoder."]
    return inspector.inspection(notes, samples.load)
