"""Iterated training: infer, prune, train, ask the trained classifier about samples it has not seen, infer again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.pruning import Clipper, Posterior, infer
from clipper.training.calling import classify
from clipper.training.loop import train
from clipper.training.metrics import Figures
from clipper.training.samples import Samples, SampleSource, mixed, samples_of

MakeOptimiser = Callable[[nn.Module], torch.optim.Optimizer]
Learn = Callable[..., list[Figures]]
"""From samples and the options of `train` to the figures of every epoch; the classifier begins anew."""


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
        options: for `train`, such as `epochs`, `batch` and `held_out`.

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
    samples, clip = samples_of(data), replace(clip or Clipper(), objective="joint")
    if passes < 1 or not 2 <= folds <= max(2, len(samples)):
        raise InputError(f"expected at least one pass and 2 to {len(samples)} folds, got {passes} and {folds}")
    if options.get("checkpoint") is not None:
        raise InputError("a checkpoint belongs to one training, and this is several: leave it out")
    graph = clip.graph(samples.candidates, embeddings)
    first_weights = deepcopy(classifier.state_dict())

    def learn(what: Samples, **how: Any) -> list[Figures]:
        classifier.load_state_dict(first_weights)
        optimiser = make_optimiser(classifier) if make_optimiser else None
        return train(classifier, what, engine, optimiser=optimiser, seed=seed, **how)

    posterior, changed, done = infer(samples.candidates, graph, seed=seed), 1.0, list[Pass]()
    while True:
        kept = replace(samples, candidates=posterior.prune(clip.mass).candidates)
        done.append(Pass(posterior, changed, learn(kept, **options)))
        if len(done) == passes or not posterior.converged:
            return done
        weights = deepcopy(classifier.state_dict())
        log_probs = _said_by_others(classifier, kept, learn, _folds(len(samples), folds, seed), options)
        classifier.load_state_dict(weights)
        posterior = infer(samples.candidates, graph, log_probs=log_probs, seed=seed)
        changed = _changed(posterior, done[-1].posterior)
        if changed < still or not _better(posterior, done[-1].posterior):
            return done


def _folds(samples: int, folds: int, seed: int) -> list[Tensor]:
    """The sample ids of each part."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(mixed(seed, samples)))
    return list(order.tensor_split(folds))


def _said_by_others(
    classifier: nn.Module, kept: Samples, learn: Learn, parts: list[Tensor], options: Mapping[str, Any]
) -> Tensor:
    """What a classifier says of each sample that learned from the samples of other parts only, `(n, m, c)`."""
    silent = {name: value for name, value in options.items() if name not in ("held_out", "watch")}
    said: list[Tensor] = []
    for part in parts:
        rest = torch.cat([other for other in parts if other is not part])
        learn(kept.subset(rest), **silent)
        said.append(look(classifier, kept.inputs[part.to(kept.inputs.device)]))
    return torch.cat(said)[torch.cat(parts).argsort()]


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
