"""Calling the user's parts: a classifier on a batch of samples, and an engine with its context."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clipper.candidates import CandidateSet
from clipper.engines.base import Context, check_needs
from clipper.errors import InputError, TrainingError
from clipper.training.checks import in_words


def classify(classifier: nn.Module, inputs: Tensor, used: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """`log_probs (n, m, c)` and, if the classifier gives it, `embedding (n, m, d)`, from one forward pass.

    Args:
        classifier: maps `(instances, *shape)` to log-probabilities, alone or with an embedding.
        inputs: `(n, m, *shape)`.
        used: which slots to look at, `(n, m)` bool; the others' output is 0. All if not given.

    Examples:
        >>> log_probs, embedding = classify(nn.LogSoftmax(-1), torch.rand(5, 2, 10))
        >>> log_probs.shape, embedding
        (torch.Size([5, 2, 10]), None)
    """
    samples, slots = inputs.shape[:2]
    instances = inputs.flatten(0, 1) if used is None else inputs[used]
    with in_words(f"the classifier, given inputs of shape {tuple(instances.shape)},"):
        output = classifier(instances)
    log_probs, embedding = _taken_apart(output, len(instances))
    if used is not None:
        log_probs, embedding = _spread(log_probs, used), None if embedding is None else _spread(embedding, used)
    embedding = None if embedding is None else embedding.reshape(samples, slots, embedding.shape[1])
    return log_probs.reshape(samples, slots, log_probs.shape[1]), embedding


def _taken_apart(output: Any, instances: int) -> tuple[Tensor, Tensor | None]:
    """What a classifier returned, if it is what it should be."""
    pair = (output, None) if isinstance(output, Tensor) else output
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(x, Tensor | None) for x in pair):
        raise InputError(
            f"expected the classifier to return log_probs or (log_probs, embedding), got a {type(output).__name__}"
        )
    log_probs, embedding = pair
    if log_probs is None or log_probs.ndim != 2 or len(log_probs) != instances or not log_probs.is_floating_point():
        got = "None" if log_probs is None else f"{tuple(log_probs.shape)} of {log_probs.dtype}"
        raise InputError(f"expected the classifier to return log-probabilities of shape ({instances}, c), got {got}")
    if embedding is None:
        return log_probs, None
    if embedding.ndim < 2 or len(embedding) != instances or not embedding.is_floating_point():
        raise InputError(
            f"expected the classifier to return an embedding of shape ({instances}, d), "
            f"got {tuple(embedding.shape)} of {embedding.dtype}"
        )
    return log_probs, embedding.flatten(1)


def _spread(rows: Tensor, used: Tensor) -> Tensor:
    """Rows of the used instances among zeros for the others, `(n*m, …)`."""
    return rows.new_zeros(used.numel(), rows.shape[1]).index_copy(0, used.flatten().nonzero()[:, 0], rows)


def losses_of(
    engine: nn.Module,
    log_probs: Tensor,
    kept: CandidateSet,
    *,
    unpruned: CandidateSet,
    embedding: Tensor | None,
    targets: Tensor | None,
) -> Tensor:
    """The engine's loss of each sample, `(n,)`."""
    context = Context(targets, None if embedding is None else embedding.detach(), unpruned)
    check_needs(engine, context)
    with in_words(f"the engine {type(engine).__name__}, called as engine(log_probs, candidates, context=Context(…)),"):
        losses = engine(log_probs, kept, context=context)
    if not isinstance(losses, Tensor):
        raise InputError(f"expected losses of shape ({kept.samples},) from the engine, got a {type(losses).__name__}")
    if losses.shape != (kept.samples,):
        raise InputError(f"expected losses of shape ({kept.samples},) from the engine, got {tuple(losses.shape)}")
    if not losses.requires_grad:
        raise InputError(
            "expected losses that depend on the classifier's weights, got constant ones: "
            "neither the classifier nor the engine may detach what it computes"
        )
    return losses


def stop_if_broken(values: Tensor, ids: Tensor, epoch: int, what: str) -> None:
    """Raise a `TrainingError` that names the first sample with a value that is no finite number.

    Args:
        values: `(n, …)`; negative infinity is a fine log-probability, so only NaN stops there.
        ids: the batch's samples, `(n,)`.
        epoch: counted from 1.
        what: "loss" or "log-probability".
    """
    broken = torch.isnan(values) if what == "log-probability" else ~torch.isfinite(values)
    if not bool(broken.any()):
        return
    rows = broken.flatten(1).any(1) if broken.ndim > 1 else broken
    first = int(rows.nonzero()[0])
    worst = values.detach()[first].flatten()[broken[first].flatten()][0]
    raise TrainingError(
        f"the {what} of sample {int(ids[first])} is {float(worst)} in epoch {epoch} (so are {int(rows.sum())} of the "
        f"batch's {len(ids)} samples); look at that sample's inputs and candidates, or lower the learning rate"
    )
