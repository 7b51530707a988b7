"""Several kinds of label: their inputs packed into one tensor, and their networks and encoders used as one.

In a **packing**, the row of an instance contains the number of its kind, then its flattened input, then zeros. So
batches, memory banks, checkpoints and neighbour searches do not depend on kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from clipper.candidates import CandidateSet, Kind
from clipper.errors import InputError


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
