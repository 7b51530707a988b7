"""Edges of the pool's graphical model: undirected, each pair once, with a length that means the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from clipper.proximity import ProximityGraph


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of instances that may share a label.

    A distance says little where instances lie dense and much where they are sparse, so lengths are distances divided
    by the typical distance around both ends: in one pool of 400 handwritten digits the shortest eighth of them erred
    4 times in 100 and the longest 58; by raw distance it was 8 and 44.

    Examples:
        >>> graph = ProximityGraph.from_edges([0, 2, 1], [2, 0, 3], torch.tensor([1.0, 1.0, 4.0]))
        >>> edges = Edges.of(graph, instances=4)
        >>> edges.first.tolist(), edges.second.tolist(), edges.length.tolist()
        ([0, 1], [2, 3], [1.0, 1.0])
    """

    instances: int
    """`n*m`"""
    first: Tensor
    """`(P,)`: the smaller instance id of each pair."""
    second: Tensor
    """`(P,)`"""
    length: Tensor
    """`(P,)`: distance relative to the neighbourhoods of both ends; about 1."""
    rank: Tensor
    """`(P,)`: 0 if one end is the other's nearest neighbour, 1 if it is the second nearest at best, …"""

    @classmethod
    def of(cls, graph: ProximityGraph, instances: int) -> Edges:
        """The pairs of a graph, whichever way they point and however often they come; no instance with itself."""
        loop = graph.source == graph.target
        source, target, distance = graph.source[~loop], graph.target[~loop], graph.distance[~loop].float()
        ends = torch.stack([torch.minimum(source, target), torch.maximum(source, target)])
        key, pair = torch.unique(ends[0] * instances + ends[1], return_inverse=True)
        scale = _typical(source, target, distance, instances)
        around = (scale[source] * scale[target]).sqrt()
        length = torch.where(around > 0, distance / around, distance.sign())
        return cls(
            instances, key // instances, key % instances, _least(length, pair, len(key)),
            _least(_ranks(source, distance), pair, len(key)),
        )  # fmt: skip

    def subset(self, keep: Tensor) -> Edges:
        """The pairs where `keep (P,)` is true."""
        return Edges(self.instances, self.first[keep], self.second[keep], self.length[keep], self.rank[keep])

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def source(self) -> Tensor:
        """Where each of the `2P` messages comes from; message `i + P` is the reverse of message `i`."""
        return torch.cat([self.first, self.second])

    @cached_property
    def target(self) -> Tensor:
        """Where each message goes, `(2P,)`."""
        return torch.cat([self.second, self.first])

    def collected(self, messages: Tensor) -> Tensor:
        """The sum of the messages `(2P, c, starts)` that arrive at each instance, `(n*m, c, starts)`."""
        order, bags = self._arrivals
        flat = messages.reshape(len(messages), messages.shape[1] * messages.shape[2])
        if not len(flat):
            return messages.new_zeros(self.instances, *messages.shape[1:])
        return embedding_bag(order, flat, bags, mode="sum").view(self.instances, *messages.shape[1:])

    def differs(self, labels: Tensor) -> Tensor:
        """Which pairs a labelling `(n*m, starts)` cuts, `(P, starts)` bool."""
        return labels.index_select(0, self.first) != labels.index_select(0, self.second)

    def cut(self, labels: Tensor, weight: Tensor) -> Tensor:
        """The weight `(P,)` of the pairs that each labelling `(n*m, starts)` gives different labels, `(starts,)`."""
        return weight @ self.differs(labels).to(weight.dtype)

    @cached_property
    def _arrivals(self) -> tuple[Tensor, Tensor]:
        counts = torch.bincount(self.target, minlength=self.instances)
        return self.target.argsort(stable=True), pad(counts.cumsum(0), (1, 0))[:-1]


def _typical(source: Tensor, target: Tensor, distance: Tensor, instances: int) -> Tensor:
    """The mean length of the edges that leave an instance, or that reach it if none leaves, `(n*m,)`."""
    leaving, reaching = (_mean(ends, distance, instances) for ends in (source, target))
    return torch.where(torch.bincount(source, minlength=instances) > 0, leaving, reaching)


def _mean(ends: Tensor, distance: Tensor, instances: int) -> Tensor:
    total = distance.new_zeros(instances).index_add_(0, ends, distance)
    return total / torch.bincount(ends, minlength=instances).clamp(min=1)


def _ranks(source: Tensor, distance: Tensor) -> Tensor:
    """Each edge's place among those that leave its source, the shortest first, `(E,)`."""
    order = distance.argsort(stable=True)
    order = order[source[order].argsort(stable=True)]
    arranged = source[order]
    place = torch.arange(len(source), device=source.device) - torch.searchsorted(arranged, arranged)
    return torch.empty_like(place).scatter_(0, order, place)


def _least(values: Tensor, pair: Tensor, pairs: int) -> Tensor:
    """The smallest value of each pair, `(P,)`."""
    start = torch.zeros(pairs, dtype=values.dtype, device=values.device)
    return start.scatter_reduce_(0, pair, values, "amin", include_self=False)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """`labels (n*m, states)` as `(n*m, c, states)`; nothing where the slot is unused."""
    return (labels[:, None] == torch.arange(classes, device=labels.device)[:, None]).float()
