"""Calling the user's parts: a classifier on a batch of samples, an engine, and their errors in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clipper.arguments import shown
from clipper.candidates import CandidateSet
from clipper.engines.base import Context, check_needs
from clipper.errors import ClipperError, InputError, TrainingError


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Convert an exception in the user's code into an `InputError` that names `what`; out-of-memory errors pass."""
    try:
        yield
    except (ClipperError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError) as error:
        raise InputError(f"{what} failed: {type(error).__name__}: {error}") from error


def classify(classifier: nn.Module, inputs: Tensor, used: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """`log_probs (n, m, c)` and, if the classifier gives it, `embedding (n, m, d)`, from one forward pass.

    Args:
        classifier: maps `(instances, *shape)` to log-probabilities, alone or with an embedding.
        inputs: `(n, m, *shape)`.
        used: the slots to classify, `(n, m)` bool; all if not given. The output of other slots is 0.

    Examples:
        >>> log_probs, embedding = classify(nn.LogSoftmax(-1), torch.rand(5, 2, 10))
        >>> log_probs.shape, embedding
        (torch.Size([5, 2, 10]), None)
    """
    instances = inputs.flatten(0, 1) if used is None else inputs[used]
    with in_words(f"the classifier, given inputs of shape {tuple(instances.shape)},"):
        output = classifier(instances)
    log_probs, embedding = _taken_apart(output, len(instances))
    if used is not None:
        log_probs, embedding = _spread(log_probs, used), None if embedding is None else _spread(embedding, used)
    embedding = None if embedding is None else embedding.reshape(*inputs.shape[:2], embedding.shape[1])
    return log_probs.reshape(*inputs.shape[:2], log_probs.shape[1]), embedding


def _taken_apart(output: Any, instances: int) -> tuple[Tensor, Tensor | None]:
    """The log-probabilities and the embedding in a classifier's output, checked."""
    pair = (output, None) if isinstance(output, Tensor) else output
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(x, Tensor | None) for x in pair):
        raise InputError(
            f"expected the classifier to return log_probs or (log_probs, embedding), got a {type(output).__name__}"
        )
    log_probs, embedding = pair
    if log_probs is None or log_probs.ndim != 2 or len(log_probs) != instances or not log_probs.is_floating_point():
        raise InputError(
            f"expected the classifier to return log-probabilities of shape ({instances}, c), got {shown(log_probs)}"
        )
    if embedding is None:
        return log_probs, None
    if embedding.ndim < 2 or len(embedding) != instances or not embedding.is_floating_point():
        raise InputError(
            f"expected the classifier to return an embedding of shape ({instances}, d), got {shown(embedding)}"
        )
    return log_probs, embedding.flatten(1)


def _spread(rows: Tensor, used: Tensor) -> Tensor:
    """Rows of the used instances among zeros for the others, `(n*m, …)`."""
    return rows.new_zeros(used.numel(), rows.shape[1]).index_copy(0, used.flatten().nonzero()[:, 0], rows)


def losses_of(engine: nn.Module, log_probs: Tensor, kept: CandidateSet, context: Context) -> Tensor:
    """The engine's loss of each sample, `(n,)`."""
    check_needs(engine, context)
    with in_words(f"the engine {type(engine).__name__}, called as engine(log_probs, candidates, context=Context(…)),"):
        losses = engine(log_probs, kept, context=context)
    if not isinstance(losses, Tensor) or losses.shape != (kept.samples,):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
        raise InputError(f"expected losses of shape ({kept.samples},) from the engine, got {got}")
    if not losses.requires_grad:
        raise InputError(
            "expected losses that depend on the classifier's weights, got constant ones: "
            "neither the classifier nor the engine may detach what it computes"
        )
    return losses


def stop_if_broken(values: Tensor, ids: Tensor, epoch: int, what: str) -> None:
    """Raise a `TrainingError` that names the first sample with a value that is no finite number.

    Args:
        values: `(n, …)`; negative infinity is a valid log-probability, so only NaN counts there.
        ids: the samples of the batch, `(n,)`.
        epoch: counted from 1.
        what: "loss" or "log-probability".
    """
    broken = torch.isnan(values) if what == "log-probability" else ~torch.isfinite(values)
    if not bool(broken.any()):
        return
    rows = broken.reshape(len(ids), -1).any(1)
    first = int(rows.nonzero()[0])
    worst = values.detach()[first][broken[first]].flatten()[0]
    raise TrainingError(
        f"the {what} of sample {int(ids[first])} is {float(worst)} in epoch {epoch} (so are {int(rows.sum())} of the "
        f"batch's {len(ids)} samples); check that sample's inputs and candidates, or lower the learning rate"
    )


@torch.no_grad()
def predict(classifier: nn.Module, inputs: Tensor, chunk: int = 256) -> Tensor:
    """The `log_probs (n, m, c)` of a trained classifier for inputs `(n, m, *shape)`; its mode is left as it was."""
    training = classifier.training
    classifier.eval()
    try:
        return torch.cat([classify(classifier, part)[0] for part in torch.split(inputs, chunk)])
    finally:
        classifier.train(training)
