"""Iterated training: infer, prune, train, ask the trained classifier about samples it has not seen, infer again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clipper.arguments import MOST, as_tensor, real_number, seed_number, whole_number
from clipper.candidates import CandidateSet
from clipper.errors import ClipperError, FileError, InputError
from clipper.proximity import ProximityGraph
from clipper.pruning import Clipper, Posterior, infer
from clipper.training.calling import classify
from clipper.training.checkpoint import check_place, load_checkpoint, save_checkpoint
from clipper.training.checks import check_optimiser, check_parts, check_pruning, in_words
from clipper.training.loop import train
from clipper.training.metrics import Figures, checked_held_out
from clipper.training.samples import Samples, SampleSource, fingerprint, mixed, samples_of
from clipper.training.survivors import check_embeddings, check_neighbours
from clipper.training.trainer import plain_options

MakeOptimiser = Callable[[nn.Module], torch.optim.Optimizer]
OPTIONS = ("epochs", "batch", "held_out", "evaluate_every", "checkpoint", "checkpoint_steps", "watch")
"""What may be said about each of the trainings."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass: what was inferred, and how the training on it went."""

    posterior: Posterior[CandidateSet]
    changed: float
    """The share of instances whose most probable label differs from the pass before; 1 in the first."""
    history: list[Figures]
    """The figures of every epoch; the last one's are the ones to report."""


def train_iterated(
    classifier: nn.Module,
    data: SampleSource | tuple[Tensor, CandidateSet],
    engine: nn.Module,
    embeddings: Tensor,
    *,
    passes: int = 3,
    folds: int = 2,
    still: float = 0.01,
    clip: Clipper | None = None,
    make_optimiser: MakeOptimiser | None = None,
    seed: int = 0,
    **options: Any,
) -> list[Pass]:
    """Train a classifier, in place, on what the pool as a whole makes probable; then give it a say, and train again.

    A classifier repeats what it was taught, right or wrong, so each sample is judged by one that learned from the
    others only: a classifier per fold. Every training begins with the first weights. It ends when a pass would change
    hardly any label, when the posterior abstains, or when the formulas are borne out less than before: the last
    training stands.

    Args:
        classifier: maps `(instances, *shape)` to `log_probs (instances, c)`, alone or with an embedding.
        data: a task, or inputs `(n, m, *shape)` and candidates.
        engine: turns `log_probs` and candidates into a loss per sample.
        embeddings: a frozen encoder's, `(n, m, d)`.
        passes: at most.
        folds: parts of the pool, each judged by a classifier that was trained on the rest.
        still: the share of labels below which a change is none.
        clip: how to build the graph and how much mass to keep; its objective is "joint" whatever it says.
        make_optimiser: from the classifier to its optimiser; AdamW by default.
        seed: of all that is random.
        options: for `train`: `epochs`, `batch`, `held_out`, `evaluate_every`, `watch`; and `checkpoint`, the file to go
            on from, if it exists. The training under way has its own checkpoint beside it, every epoch and, if given,
            every `checkpoint_steps` steps. A run that was killed ends with the weights it would have had.

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
    with torch.inference_mode(False), torch.enable_grad():
        run = _Run(classifier, engine, make_optimiser, seed, options)
        identity = {"passes": passes, "folds": folds, "still": still, "embeddings": fingerprint(embeddings)}
        shape = (len(samples), samples.candidates.slots, samples.candidates.classes)
        run.resume({**identity, "data": samples.fingerprint(), **_way_to_prune(clip)}, shape)
        return _passes(run, samples, clip, clip.graph(samples.candidates, embeddings), passes, folds, still)


def _passes(
    run: _Run, samples: Samples, clip: Clipper, graph: ProximityGraph, passes: int, folds: int, still: float
) -> list[Pass]:
    """All passes; of those that were done before an interruption, only the inference is repeated."""
    posterior, changed, done = infer(samples.candidates, graph, seed=run.seed), 1.0, list[Pass]()
    while True:
        kept = replace(samples, candidates=posterior.prune(clip.mass).candidates)
        done.append(Pass(posterior, changed, run.history(len(done), kept)))
        if len(done) == passes or not posterior.converged:
            break
        log_probs = run.said_by_others(len(done) - 1, kept, _folds(len(samples), folds, run.seed))
        posterior = infer(samples.candidates, graph, log_probs=log_probs, seed=run.seed)
        changed = _changed(posterior, done[-1].posterior)
        if changed < still or not _better(posterior, done[-1].posterior):
            break
    run.classifier.load_state_dict(run.weights)
    return done


@dataclass
class _Run:
    """The trainings of a run, those already done among them, and all that a checkpoint must hold of them."""

    classifier: nn.Module
    engine: nn.Module
    make_optimiser: MakeOptimiser | None
    seed: int
    options: Mapping[str, Any]
    histories: list[list[Figures]] = field(default_factory=list)
    """Of the training of each pass."""
    judged: list[Tensor] = field(default_factory=list)
    """What was said by others after each pass, `(n, m, c)`."""
    said: list[Tensor] = field(default_factory=list)
    """The same of the folds that are done, in the pass under way."""
    ended: list[str] = field(default_factory=list)
    """The trainings that need no checkpoint any more."""

    def __post_init__(self) -> None:
        self.first_weights = deepcopy(self.classifier.state_dict())
        self.weights = self.first_weights
        """As the last pass left them."""
        path = self.options.get("checkpoint")
        self.path = None if path is None else Path(path)
        self.identity: dict[str, Any] = {}

    def history(self, number: int, kept: Samples) -> list[Figures]:
        """The training of a pass on what was kept, unless it is done already."""
        if number == len(self.histories):
            told = {name: value for name, value in self.options.items() if name != "checkpoint"}
            history = self._learn(kept, stage := f"pass-{number + 1}", told)
            self.histories.append(history)
            self.weights = deepcopy(self.classifier.state_dict())
            self._save(stage)
        return self.histories[number]

    def said_by_others(self, number: int, kept: Samples, parts: list[Tensor]) -> Tensor:
        """What a classifier says of each sample that learned from the samples of other parts only, `(n, m, c)`."""
        if number < len(self.judged):
            return self.judged[number]
        silent = {name: self.options[name] for name in self.options if name not in ("held_out", "watch", "checkpoint")}
        for i in range(len(self.said), len(parts)):
            rest = torch.cat(parts[:i] + parts[i + 1 :])
            self._learn(kept.subset(rest), stage := f"pass-{number + 1}-part-{i + 1}", silent)
            self.said.append(look(self.classifier, kept.inputs[parts[i].to(kept.inputs.device)]))
            if i + 1 < len(parts):
                self._save(stage)
        self.judged.append(torch.cat(self.said)[torch.cat(parts).argsort()])
        self.said = []
        self._save(stage)
        return self.judged[number]

    def _learn(self, what: Samples, stage: str, options: Mapping[str, Any]) -> list[Figures]:
        """A training that begins with the first weights, or goes on where it was."""
        self.classifier.load_state_dict(self.first_weights)
        return train(
            self.classifier,
            what,
            self.engine,
            optimiser=self._optimiser(),
            seed=self.seed,
            checkpoint=self._place(stage),
            **options,
        )

    def _optimiser(self) -> torch.optim.Optimizer:
        if self.make_optimiser is None:
            return torch.optim.AdamW(self.classifier.parameters(), lr=1e-3)
        if not callable(self.make_optimiser):
            raise InputError(f"expected make_optimiser to be a function, got a {type(self.make_optimiser).__name__}")
        with in_words("make_optimiser"):
            optimiser = self.make_optimiser(self.classifier)
        check_optimiser(optimiser, self.classifier)
        return optimiser

    def _place(self, stage: str) -> Path | None:
        """The checkpoint of one training."""
        return None if self.path is None else self.path.with_name(f"{self.path.stem}.{stage}{self.path.suffix}")

    def _save(self, ended: str | None = None) -> None:
        """Write what is done, and then remove the checkpoint of the training that has ended."""
        if self.path is None:
            return
        self.ended += [ended] if ended else []
        state = {
            "classifier": self.weights,
            "first": self.first_weights,
            "engine": self.engine.state_dict(),
            "histories": [[asdict(figures) for figures in history] for history in self.histories],
            "judged": self.judged,
            "said": self.said,
            "ended": self.ended,
        }
        save_checkpoint(self.path, state, self.identity)
        self._remove_ended()

    def _remove_ended(self) -> None:
        for place in map(self._place, self.ended):
            if place is not None:
                place.unlink(missing_ok=True)

    def resume(self, identity: Mapping[str, Any], shape: tuple[int, int, int]) -> None:
        """Go on from a checkpoint, if there is one; begin one, if not. `shape` is that of all `log_probs`."""
        optimiser = self._optimiser()
        self.identity = {
            "classifier": type(self.classifier).__name__,
            "engine": type(self.engine).__name__,
            "engine options": str(plain_options(vars(self.engine))),
            "optimiser": type(optimiser).__name__,
            "optimiser options": str(plain_options(optimiser.defaults)),
            "seed": self.seed,
            **{name: self.options.get(name) for name in ("epochs", "batch", "evaluate_every")},
            **identity,
        }
        state = None if self.path is None else load_checkpoint(self.path, self.identity)
        if state is None:
            self._save()
            return
        try:
            self._take_up(state, shape)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            self.classifier.load_state_dict(self.first_weights)
            why = str(error) if isinstance(error, ClipperError) else repr(error)
            raise FileError(f"{self.path} does not fit this run ({why}); remove it to start anew") from error

    def _take_up(self, state: dict[str, Any], shape: tuple[int, int, int]) -> None:
        self.classifier.load_state_dict(state["first"])
        self.classifier.load_state_dict(state["classifier"])
        self.engine.load_state_dict(state["engine"])
        histories = [[Figures.from_dict(figures) for figures in history] for history in state["histories"]]
        judged, said = list(state["judged"]), list(state["said"])
        if not 0 <= len(histories) - len(judged) <= 1 or not all(isinstance(x, Tensor) for x in [*judged, *said]):
            raise InputError("expected a tensor of log-probabilities after each pass but the last")
        if any(tuple(x.shape) != shape for x in judged) or any(tuple(x.shape[1:]) != shape[1:] for x in said):
            raise InputError(f"expected log-probabilities of shape {shape}")
        self.histories, self.judged, self.said = histories, judged, said
        self.first_weights, self.weights = state["first"], state["classifier"]
        if not isinstance(state["ended"], list) or not all(str(stage).startswith("pass-") for stage in state["ended"]):
            raise InputError("expected the trainings that have ended by name")
        self.ended = list(state["ended"])
        self._remove_ended()  # a process may have been killed after it had noted a training


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse what the trainings cannot be told, before the first inference."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise InputError(f"expected no options of a training but {', '.join(OPTIONS)}, got {', '.join(unknown)}")
    for name in ("epochs", "batch", "evaluate_every"):
        if name in options:
            whole_number(options[name], name, most=MOST)
    if options.get("checkpoint_steps") is not None:
        whole_number(options["checkpoint_steps"], "checkpoint_steps", most=MOST)
    if options.get("checkpoint") is not None:
        check_place(options["checkpoint"])
    if options.get("watch") is not None and not callable(options["watch"]):
        raise InputError(f"expected watch to be a function of a Moment, got a {type(options['watch']).__name__}")
    checked_held_out(options.get("held_out"))


def _way_to_prune(clip: Clipper) -> dict[str, str]:
    """How the graph is built and what is kept, in words that a checkpoint can compare."""
    names = ("radius", "mutual", "share", "metric", "mass")
    how = {name: str(getattr(clip, name)) for name in names if not callable(getattr(clip, name))}
    return {"k": str(clip.neighbours), **how}


def _folds(samples: int, folds: int, seed: int) -> list[Tensor]:
    """The sample ids of each part."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(mixed(seed, samples)))
    return list(order.tensor_split(folds))


@torch.no_grad()
def look(classifier: nn.Module, inputs: Tensor, chunk: int = 256) -> Tensor:
    """What a trained classifier says of samples: `log_probs (n, m, c)`."""
    training = classifier.training
    classifier.eval()
    try:
        return torch.cat([classify(classifier, part)[0] for part in torch.split(inputs, chunk)])
    finally:
        classifier.train(training)


def _changed(new: Posterior[Any], old: Posterior[Any]) -> float:
    return float((new.labels != old.labels)[new.labels >= 0].double().mean())


def _better(new: Posterior[Any], old: Posterior[Any]) -> bool:
    return new.converged and new.verification.explained > old.verification.explained
