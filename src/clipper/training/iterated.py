"""Iterated training: infer, prune, train, look through the trained encoder, and infer again."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.pruning import Clipper, Posterior, infer
from clipper.training.calling import classify
from clipper.training.loop import train
from clipper.training.metrics import Figures
from clipper.training.samples import Samples, SampleSource, samples_of

MakeOptimiser = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass: what was inferred, and how the training on it went."""

    posterior: Posterior
    changed: float
    """The share of instances whose most probable label differs from the pass before; 1 in the first."""
    history: list[Figures]
    """The figures of every epoch; the last one's are the ones to report."""


def train_iterated(
    classifier: nn.Module,
    data: SampleSource | tuple[Tensor, Candidates],
    engine: nn.Module,
    embeddings: Tensor,
    *,
    passes: int = 3,
    still: float = 0.01,
    clip: Clipper | None = None,
    evidence: bool = False,
    make_optimiser: MakeOptimiser | None = None,
    seed: int = 0,
    **options: Any,
) -> list[Pass]:
    """Train a classifier, in place, on what the pool as a whole makes probable; then let it look again.

    Each pass trains from the classifier's first weights, so that no pass learns from an earlier one's mistakes except
    through what is inferred. It ends when a pass changes hardly any label, when the posterior abstains, or when the
    formulas bear out the new embeddings less than the old ones: then the last pass's training stands.

    Args:
        classifier: maps `(instances, *shape)` to `log_probs (instances, c)` and the embedding `(instances, d)`.
        data: a task, or inputs `(n, m, *shape)` and candidates.
        engine: turns `log_probs` and candidates into a loss per sample.
        embeddings: a frozen encoder's, to begin with, `(n, m, d)`.
        passes: at most.
        still: the share of labels below which a change is none.
        clip: how to build the graph and how much mass to keep; its objective is "joint" whatever it says.
        evidence: let the trained classifier's log-probabilities enter the inference, too.
        make_optimiser: from the classifier to its optimiser; AdamW by default.
        seed: of all that is random.
        options: for `train`, such as `epochs`, `batch` and `held_out`.

    Examples:
        >>> from clipper.engines import SemanticLoss
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 0, 2], slots=2, classes=3)
        >>> network = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(-1))
        >>> inputs = torch.rand(4, 2, 5, generator=torch.Generator().manual_seed(0))
        >>> done = train_iterated(network, (inputs, candidates), SemanticLoss(), inputs, passes=1, epochs=2)
        >>> len(done), len(done[0].history)
        (1, 2)
    """
    if passes < 1:
        raise InputError(f"expected at least one pass, got {passes}")
    samples, clip = samples_of(data), clip or Clipper(objective="joint")
    first_weights = deepcopy(classifier.state_dict())
    done: list[Pass] = []
    log_probs: Tensor | None = None
    for _ in range(passes):
        posterior = _inferred(clip, samples, embeddings, log_probs, seed)
        changed = _changed(posterior, done)
        if done and (changed < still or not _better(posterior, done[-1].posterior)):
            break
        classifier.load_state_dict(first_weights)
        kept = Samples(samples.inputs, posterior.prune(clip.mass).candidates, samples.gold, samples.targets)
        optimiser = make_optimiser(classifier) if make_optimiser else None
        done.append(
            Pass(posterior, changed, train(classifier, kept, engine, optimiser=optimiser, seed=seed, **options))
        )
        if not posterior.converged or len(done) == passes:
            break
        said, embeddings = look(classifier, samples.inputs)
        log_probs = said if evidence else None
    return done


@torch.no_grad()
def look(classifier: nn.Module, inputs: Tensor, chunk: int = 256) -> tuple[Tensor, Tensor]:
    """What a trained classifier says of all samples: `log_probs (n, m, c)` and embeddings `(n, m, d)`."""
    training = classifier.training
    classifier.eval()
    try:
        parts = [classify(classifier, part) for part in torch.split(inputs, chunk)]
    finally:
        classifier.train(training)
    vectors = [embedding for _, embedding in parts if embedding is not None]
    if len(vectors) < len(parts):
        raise InputError("expected the classifier to return (log_probs, embedding), got log_probs alone; use passes=1")
    return torch.cat([log_probs for log_probs, _ in parts]), torch.cat(vectors)


def _inferred(clip: Clipper, samples: Samples, embeddings: Tensor, log_probs: Tensor | None, seed: int) -> Posterior:
    graph = clip.joint().graph(samples.candidates, embeddings)
    return infer(samples.candidates, graph, log_probs=log_probs, seed=seed)


def _changed(posterior: Posterior, done: list[Pass]) -> float:
    if not done:
        return 1.0
    used = posterior.labels >= 0
    return float((posterior.labels != done[-1].posterior.labels)[used].double().mean())


def _better(new: Posterior, old: Posterior) -> bool:
    return new.converged and new.verification.explained > old.verification.explained
