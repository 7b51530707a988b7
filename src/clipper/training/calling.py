"""Calling the user's parts: a classifier on a batch of samples, and an engine with what it asks for."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from clipper.candidates import CandidateSet
from clipper.errors import InputError, TrainingError


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
    output = classifier(instances)
    log_probs, embedding = (output, None) if isinstance(output, Tensor) else output
    if log_probs.ndim != 2 or len(log_probs) != len(instances):
        raise InputError(
            f"expected the classifier to return log-probabilities of shape ({len(instances)}, c), "
            f"got {tuple(log_probs.shape)}"
        )
    if used is not None:
        log_probs, embedding = _spread(log_probs, used), None if embedding is None else _spread(embedding, used)
    return log_probs.view(samples, slots, -1), None if embedding is None else embedding.view(samples, slots, -1)


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
    """The engine's loss of each sample, `(n,)`; it is given targets, embeddings or unpruned candidates if it asks."""
    offered: dict[str, Any] = {"unpruned": unpruned, "embeddings": None if embedding is None else embedding.detach()}
    if getattr(engine, "outputs", None) is not None:  # without outputs a target has no place among them
        offered["targets"] = targets
    asked = inspect.signature(engine.forward).parameters
    losses: Tensor = engine(log_probs, kept, **{name: offered[name] for name in offered if name in asked})
    if losses.shape != (kept.samples,):
        raise InputError(f"expected losses of shape ({kept.samples},) from the engine, got {tuple(losses.shape)}")
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
