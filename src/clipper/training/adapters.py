"""Calling the user's parts: a classifier on a batch of samples, an engine, and several classifiers as one.

If there are several kinds of label, their inputs are stored in one tensor, and each kind has its own network. In this
**packing**, the row of an instance contains the number of its kind, then its flattened input, then zeros. So batches,
memory banks, checkpoints and neighbour searches do not depend on kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from clipper.arguments import shown
from clipper.candidates import CandidateSet, Kind
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


@dataclass(frozen=True)
class Packing:
    """How inputs of several kinds are packed into one tensor.

    Attributes:
        kinds: the kinds of label, in the order of the label axis.
        shapes: the shape of one input of each kind.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_lists([[(0, 3)], [(2, 4)]], classes={"name": 3, "rel": 2})
        >>> inputs = {"name": torch.rand(2, 2, 1, 8, 8), "rel": torch.rand(2, 2, 5)}  # each where its kind is
        >>> packing = Packing.of(inputs, candidates)
        >>> packing.pack(inputs, candidates.kind).shape
        torch.Size([2, 2, 65])
    """

    kinds: tuple[Kind, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, inputs: Mapping[str, Tensor], candidates: CandidateSet) -> Packing:
        """The packing for inputs and candidates.

        Args:
            inputs: by kind, `(n, m, *shape)` each.
            candidates: the possible labels; they name the kinds.

        Returns:
            The packing.

        Raises:
            InputError: a kind has no inputs, or there are some of an unknown kind.
        """
        _check_names(inputs, candidates.kinds)
        return cls(candidates.kinds, tuple(tuple(inputs[kind.name].shape[2:]) for kind in candidates.kinds))

    @property
    def width(self) -> int:
        """The length of a row."""
        return 1 + max(map(prod, self.shapes))

    def pack(self, inputs: Mapping[str, Tensor], kind: Tensor) -> Tensor:
        """Pack all inputs into one tensor.

        Args:
            inputs: by kind, `(n, m, *shape)` each.
            kind: the kind of label in each slot, `(n, m)`; -1 where it is unused.

        Returns:
            `(n, m, width)`: in each slot the number of its kind, then its input, flattened and filled up with zeros.

        Raises:
            InputError: the inputs of a kind have another shape.
        """
        first = next(iter(inputs.values()))
        packed = first.new_zeros(*kind.shape, self.width)
        packed[..., 0] = kind
        for number, (own, shape) in enumerate(zip(self.kinds, self.shapes, strict=True)):
            table = inputs[own.name]
            if tuple(table.shape) != (*kind.shape, *shape):
                raise InputError(
                    f"expected inputs of kind {own.name!r} of shape {(*kind.shape, *shape)}, got {tuple(table.shape)}"
                )
            where = kind == number
            packed[..., 1 : 1 + prod(shape)][where] = table[where].flatten(1)
        return packed

    def unpacked(self, rows: Tensor) -> Iterator[tuple[Kind, Tensor, Tensor]]:
        """Each kind with the places of its instances in `rows (instances, width)`, and their inputs.

        Raises:
            InputError: the rows have another width.
        """
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(f"expected packed inputs of shape (instances, {self.width}), got {tuple(rows.shape)}")
        for number, (kind, shape) in enumerate(zip(self.kinds, self.shapes, strict=True)):
            places = (rows[:, 0] == number).nonzero()[:, 0]
            if len(places):
                values = rows.index_select(0, places)[:, 1 : 1 + prod(shape)]
                yield kind, places, values.reshape(-1, *shape)


class Classifiers(nn.Module):
    """One network per kind, called as one classifier on packed inputs.

    A label of another kind has log-probability -inf; in unused slots all labels are equally likely.

    Args:
        networks: by kind; each maps `(instances, *shape)` to log-probabilities of its own labels, alone or with an
            embedding. Embeddings of different lengths are padded with zeros; different kinds are never compared.
        packing: how the inputs are packed into one tensor.

    Examples:
        >>> packing = Packing((Kind("name", 0, 3), Kind("rel", 3, 5)), ((4,), (6,)))
        >>> networks = {"name": nn.Linear(4, 3), "rel": nn.Linear(6, 2)}
        >>> scores = {name: nn.Sequential(network, nn.LogSoftmax(-1)) for name, network in networks.items()}
        >>> Classifiers(scores, packing)(torch.zeros(7, 7)).shape
        torch.Size([7, 5])
    """

    def __init__(self, networks: Mapping[str, nn.Module], packing: Packing) -> None:
        super().__init__()
        _check_names(networks, packing.kinds)
        self.networks = nn.ModuleDict(networks)
        self.packing = packing

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """`(instances, width)` to log-probabilities `(instances, c)`, and embeddings where the networks give some."""
        classes = self.packing.kinds[-1].stop
        log_probs = inputs.new_full((len(inputs), classes), -torch.inf)
        log_probs[inputs[:, 0] < 0] = -torch.tensor(float(classes)).log().item()
        embeddings: list[tuple[Tensor, Tensor]] = []
        for kind, places, values in self.packing.unpacked(inputs):
            output = self.networks[kind.name](values)
            scores, embedding = (output, None) if isinstance(output, Tensor) else output
            _check_scores(scores, kind)
            columns = torch.arange(kind.start, kind.stop, device=inputs.device)
            log_probs = log_probs.index_put((places[:, None], columns), scores)
            if embedding is not None:
                embeddings.append((places, embedding))
        return (log_probs, _together(embeddings, len(inputs))) if embeddings else log_probs


@dataclass(frozen=True)
class Encoders:
    """One encoder per kind, called as one on packed inputs.

    Attributes:
        encoders: by kind; each maps `(instances, *shape)` to `(instances, d)`.
        packing: how the inputs are packed into one tensor.

    Examples:
        >>> packing = Packing((Kind("name", 0, 3), Kind("rel", 3, 5)), ((4,), (6,)))
        >>> encode = Encoders({"name": lambda boxes: boxes, "rel": lambda pairs: pairs[:, :2]}, packing)
        >>> encode(torch.zeros(7, 7)).shape
        torch.Size([7, 4])
    """

    encoders: Mapping[str, Callable[[Tensor], Tensor]]
    packing: Packing

    def __post_init__(self) -> None:
        _check_names(self.encoders, self.packing.kinds)

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, width)` to `(instances, d)`."""
        parts = [(places, self.encoders[kind.name](values)) for kind, places, values in self.packing.unpacked(inputs)]
        return _together(parts, len(inputs))


def _together(parts: list[tuple[Tensor, Tensor]], instances: int) -> Tensor:
    """Vectors of several kinds in one table, `(instances, longest)`, zeros where there is nothing."""
    longest = max(vectors.shape[1] for _, vectors in parts)
    table = parts[0][1].new_zeros(instances, longest)
    for places, vectors in parts:
        table = table.index_copy(0, places, nn.functional.pad(vectors, (0, longest - vectors.shape[1])))
    return table


def _check_names(given: Mapping[str, object], kinds: tuple[Kind, ...]) -> None:
    names = [kind.name for kind in kinds]
    if sorted(given) != sorted(names):
        raise InputError(f"expected one for each of the kinds {', '.join(names)}, got {', '.join(given)}")


def _check_scores(scores: Tensor, kind: Kind) -> None:
    if scores.ndim != 2 or scores.shape[1] != kind.stop - kind.start:
        raise InputError(
            f"expected {kind.stop - kind.start} log-probabilities per instance from the network of kind "
            f"{kind.name!r}, got shape {tuple(scores.shape)}"
        )
