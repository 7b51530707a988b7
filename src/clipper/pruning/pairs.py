"""Pairs of near instances in a pool: how long they are, which of them disagree, and how messages pass along them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from clipper.proximity import ProximityGraph
from clipper.pruning.joint.settings import blocks
from clipper.pruning.ranks import ALONE, Ranks, Shard


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of instances that may share a label.

    The length of a pair is its distance, divided by the typical distance around both ends, because the same distance
    is small where instances are sparse and large where they are dense. An example is a pool of 400 handwritten digits.
    In the shortest eighth of its pairs, 4 % have different labels, in the longest eighth 58 %. If the pairs are sorted
    by distance instead, it is 8 % and 44 %.

    Attributes:
        shard: the instances that this process holds, and those that it borrows from other ranks.
        first: `(P,)`: the smaller instance id of each pair; of a pair with another rank's instance, the own one.
        second: `(P,)`: the larger one, or the borrowed one.
        length: `(P,)`: distance relative to the neighbourhoods of both ends; about 1.
        rank: `(P,)`: 0 if one end is the other's nearest neighbour, 1 if it is the second nearest at best, …
        borders: for each other rank, the pairs with its instances, in the same order as on that rank. They come after
            the pairs within this rank: first those with higher ranks, which count here, then those with lower ranks,
            which count there.

    Examples:
        >>> graph = ProximityGraph.from_edges([0, 2, 1], [2, 0, 3], torch.tensor([1.0, 1.0, 4.0]))
        >>> edges = Edges.of(graph, instances=4)
        >>> edges.first.tolist(), edges.second.tolist(), edges.length.tolist()
        ([0, 1], [2, 3], [1.0, 1.0])
    """

    shard: Shard
    first: Tensor
    second: Tensor
    length: Tensor
    rank: Tensor
    borders: dict[int, slice] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: ProximityGraph, instances: int, ranks: Ranks = ALONE) -> Edges:
        """The pairs of instances that a graph connects, in either direction, each once; no instance with itself.

        Args:
            graph: the edges that leave the instances of this rank; targets are counted over all ranks.
            instances: how many this rank holds, `n*m`.
            ranks: the processes that share the pool.
        """
        shard, source, target, distance, place = _directed(graph, Shard.of(ranks, instances))
        first, second, pair = _undirected(source, target, shard.total)
        source, target = shard.local(source), shard.local(target)
        scale = shard.bordered(_typical(source, target, distance, shard.reach)[:instances])
        around = (scale[source] * scale[target]).sqrt()
        length = torch.where(around > 0, distance / around, distance.sign())
        length, place = _least(length, pair, len(first)), _least(place, pair, len(first))
        del source, target, distance, around, pair  # to free memory: they include edges of other ranks
        found = cls(shard, shard.local(first), shard.local(second), length, place)
        return found if shard.ranks.size == 1 else found._arranged()

    def _arranged(self) -> Edges:
        """The pairs, sorted by the ids of their ends over all ranks, in the order that `borders` describes."""
        rank, size, own = self.shard.ranks.rank, self.shard.ranks.size, self.shard.instances
        first, second = torch.minimum(self.first, self.second), torch.maximum(self.first, self.second)
        peer = self.shard.owner(self.shard.known_as(second))
        group = torch.where(second < own, 0, torch.where(peer > rank, 1 + peer, 1 + size + peer))
        order = group.argsort(stable=True)
        ends = torch.bincount(group, minlength=1 + 2 * size).cumsum(0).tolist()
        spans = [(peer, 1 + peer + (size if peer < rank else 0)) for peer in range(size)]
        borders = {peer: slice(ends[at - 1], ends[at]) for peer, at in spans if ends[at] > ends[at - 1]}
        return Edges(self.shard, first[order], second[order], self.length[order], self.rank[order], borders)

    def subset(self, keep: Tensor) -> Edges:
        """The pairs where `keep (P,)` is true."""
        borders = {}
        if self.borders:
            kept = pad(keep.cumsum(0), (1, 0))
            spans = {peer: kept[[span.start, span.stop]].tolist() for peer, span in self.borders.items()}
            borders = {peer: slice(first, last) for peer, (first, last) in spans.items() if last > first}
        return Edges(self.shard, self.first[keep], self.second[keep], self.length[keep], self.rank[keep], borders)

    @property
    def apart(self) -> Edges:
        """The pairs with both ends in this process, as for a pool that belongs to this process alone."""
        if self.shard.ranks.size == 1:
            return self
        first, second, length, rank = (
            values[: self.inner] for values in (self.first, self.second, self.length, self.rank)
        )
        return Edges(Shard.of(ALONE, self.instances), first, second, length, rank)

    @property
    def instances(self) -> int:
        """How many instances this process holds, `n*m`."""
        return self.shard.instances

    @property
    def inner(self) -> int:
        """How many pairs have both ends here; they come first."""
        return min((span.start for span in self.borders.values()), default=len(self))

    @property
    def counted(self) -> slice:
        """The pairs that count here: each pair of the pool counts on one rank."""
        ends = [span.stop for peer, span in self.borders.items() if peer > self.shard.ranks.rank]
        return slice(0, max(ends, default=self.inner))

    @cached_property
    def count(self) -> int:
        """How many pairs there are on all ranks together."""
        return self.shard.ranks.count(self.counted.stop)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def source(self) -> Tensor:
        """The instance that sends each message, `(2P,)` if no pair leads to another rank.

        Message `i` goes from the first end of pair `i` to the second, message `inner + i` in the other direction. Of a
        pair with another rank's instance, only the message that arrives here is held.
        """
        return torch.cat([self.first[: self.inner], self.second])

    @property
    def target(self) -> Tensor:
        """The instance that receives each message, `(2P,)`."""
        return torch.cat([self.second[: self.inner], self.first])

    def parts(self, width: int) -> list[slice]:
        """Slices of consecutive pairs to process together, with `width` numbers per message; no slice mixes borders."""
        found = blocks(self.inner, 2 * width)
        for _, span in sorted(self.borders.items()):
            some = blocks(span.stop - span.start, width)
            found += [slice(span.start + part.start, span.start + part.stop) for part in some]
        return found

    def both_ways(self, messages: Tensor, pairs: slice) -> list[Tensor]:
        """The messages of some pairs in each direction; for pairs with another rank, only those that arrive here."""
        back = messages[self.inner + pairs.start : self.inner + pairs.stop]
        return [messages[pairs], back] if pairs.start < self.inner else [back]

    def delivered(self, senders: Tensor, pairs: slice) -> Tensor:
        """The values of the senders whose messages arrive at this rank's instances.

        For pairs within this rank, these are `senders` themselves. For pairs with another rank, both ranks swap them.

        Args:
            senders: values of the senders, `(2k, …)`: first in one direction, then in the other; for pairs with another
                rank, those of this rank's ends, `(k, …)`.
            pairs: the `k` pairs.
        """
        for peer, span in self.borders.items():
            if span.start <= pairs.start < span.stop:
                return self.shard.swapped(senders, peer)
        return senders

    def collected(self, messages: Tensor) -> Tensor:
        """The sum of the logarithms of the messages `(2P, c, starts)` that reach each instance, `(n*m, c, starts)`."""
        flat = messages.reshape(len(messages), messages.shape[1] * messages.shape[2])
        heard = flat.new_zeros(self.instances, flat.shape[1])
        for instances, arrivals, begins in self._parts(flat.shape[1]):
            logs = flat.index_select(0, self._arrivals[0][arrivals]).log_()
            rows = torch.arange(len(logs), device=flat.device)
            heard[instances] = embedding_bag(rows, logs, begins, mode="sum")
        return heard.view(self.instances, *messages.shape[1:])

    def around(self, values: Tensor) -> Tensor:
        """The sum of the `values (n*m, width)` of all instances that each one has a pair with, `(n*m, width)`."""
        order, begins = self._arrivals
        if not len(order):
            return torch.zeros_like(values)
        return embedding_bag(self.source[order], self.shard.bordered(values), begins[:-1], mode="sum")

    def differs(self, labels: Tensor) -> Tensor:
        """The pairs to which a labelling `(n*m, starts)` gives different labels, `(P, starts)` bool."""
        return labels.index_select(0, self.first) != self.shard.bordered(labels).index_select(0, self.second)

    def components(self, slots: int, among: Tensor | None = None) -> Tensor:
        """The connected component of each sample, `(n,)`, named by its first sample; ids count over all ranks.

        Args:
            slots: the number of slots of a sample.
            among: `(n,)` bool: only pairs between these samples connect.
        """
        first, second = self.first[: self.inner] // slots, self.second[: self.inner] // slots
        if among is not None:
            inside = among[first] & among[second]
            first, second = first[inside], second[inside]
        part = _connected(first, second, self.instances // slots)
        return part if self.shard.ranks.size == 1 else self._joined(part + self.shard.first // slots, slots, among)

    def _joined(self, part: Tensor, slots: int, among: Tensor | None) -> Tensor:
        """Join the components `(n,)` of single ranks where pairs connect samples of different ranks."""
        name = part if among is None else part.masked_fill(~among, -1)
        name = self.shard.bordered(name.repeat_interleave(slots))
        across = slice(self.inner, self.counted.stop)
        ends = name[self.first[across]], name[self.second[across]]
        joins = (ends[0] >= 0) & (ends[1] >= 0)
        total = self.shard.total
        key = torch.unique(ends[0][joins] * total + ends[1][joins])  # faster than unique on rows
        key = self.shard.ranks.rows(key, self.shard.ranks.all_of(len(key)))
        if not len(key):
            return part
        pairs = torch.stack([key // total, key % total], 1)
        names, place = torch.unique(pairs, return_inverse=True)
        least = names[_connected(place[:, 0], place[:, 1], len(names))]
        at = torch.searchsorted(names, part).clamp(max=len(names) - 1)
        return torch.where(names[at] == part, least[at], part)

    @cached_property
    def _arrivals(self) -> tuple[Tensor, Tensor]:
        """The messages sorted by receiver, `(2P,)`, and where those of each instance begin and end, `(n*m + 1,)`."""
        target = self.target
        order = target.argsort(stable=True)
        if self.borders:  # then by sender, so that sums are rounded as in one process
            order = self.shard.known_as(self.source).argsort(stable=True)
            order = order[target[order].argsort(stable=True)]
        return order, pad(torch.bincount(target, minlength=self.instances).cumsum(0), (1, 0))

    def _parts(self, width: int) -> list[tuple[slice, slice, Tensor]]:
        """Some instances at a time, their messages in the order of `_arrivals`, and where those of each one begin."""
        if not len(self):
            return []
        some = blocks(self.instances, width * -(-(self.inner + len(self)) // self.instances))
        each = some[0].stop
        if each not in self._known_parts:
            begins = self._arrivals[1]
            ends = [0, *begins[[part.stop for part in some]].tolist()]
            self._known_parts[each] = [
                (part, slice(first, last), begins[part] - first)
                for part, (first, last) in zip(some, pairwise(ends), strict=True)
            ]
        return self._known_parts[each]

    @cached_property
    def _known_parts(self) -> dict[int, list[tuple[slice, slice, Tensor]]]:
        return {}


def _directed(graph: ProximityGraph, shard: Shard) -> tuple[Shard, Tensor, Tensor, Tensor, Tensor]:
    """The shard with what it borrows; source, target, distance and place of the edges of its instances.

    Each edge occurs once, with its shortest distance, and none leads from an instance to itself. Ends are ids over all
    ranks. The place of an edge is its number among the edges that leave its source, the shortest first.
    """
    total, source = shard.total, graph.source + shard.first
    apart = source != graph.target
    directed, edge = torch.unique((source * total + graph.target)[apart], return_inverse=True)
    distance = _least(graph.distance[apart].float(), edge, len(directed))
    del source, apart, edge
    place = rank_among_neighbours(directed // total, distance)
    directed, distance, place = _with_arriving(shard, directed, distance, place)
    source, target = directed // total, directed % total
    return shard.bordering(source, target), source, target, distance, place


def _undirected(source: Tensor, target: Tensor, total: int) -> tuple[Tensor, Tensor, Tensor]:
    """The smaller and the larger end of each pair, `(P,)`, ascending, and the pair of each edge, `(E,)`."""
    key = torch.minimum(source, target).mul_(total).add_(torch.maximum(source, target))
    key, pair = torch.unique(key, return_inverse=True)
    return key // total, key % total, pair


def _with_arriving(shard: Shard, directed: Tensor, distance: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Edges that leave this rank's instances, ascending, and those that reach them from other ranks."""
    ranks = shard.ranks
    if ranks.size == 1:
        return directed, distance, place
    owner = shard.owner(directed % shard.total)
    table = ranks.all_of(torch.bincount(owner, minlength=ranks.size).tolist())
    found = [directed], [distance], [place]
    for peer in range(ranks.size):
        if peer != ranks.rank and table[peer][ranks.rank] + table[ranks.rank][peer]:
            for values in found:
                values.append(ranks.swapped(values[0][owner == peer], peer, table[peer][ranks.rank]))
    order = torch.cat(found[0]).argsort(stable=True)
    directed, distance, place = (torch.cat(values)[order] for values in found)
    return directed, distance, place


def _connected(first: Tensor, second: Tensor, count: int) -> Tensor:
    """For each of `count` nodes, the smallest node that the pairs connect it with, `(count,)`: its component."""
    part = torch.arange(count, device=first.device)
    while True:
        least = torch.minimum(part[first], part[second])
        lower = part.scatter_reduce(0, first, least, "amin").scatter_reduce(0, second, least, "amin")
        lower = lower[lower]
        if bool((lower == part).all()):
            return part
        part = lower


def _typical(source: Tensor, target: Tensor, distance: Tensor, instances: int) -> Tensor:
    """The mean length of the edges that leave an instance, or that reach it if none leaves, `(n*m,)`."""
    leaving, reaching = (_mean(ends, distance, instances) for ends in (source, target))
    return torch.where(torch.bincount(source, minlength=instances) > 0, leaving, reaching)


def _mean(ends: Tensor, distance: Tensor, instances: int) -> Tensor:
    total = distance.new_zeros(instances).index_add_(0, ends, distance)
    return total / torch.bincount(ends, minlength=instances).clamp(min=1)


def rank_among_neighbours(source: Tensor, distance: Tensor) -> Tensor:
    """Each edge's place among those that leave its source, `(E,)`: 0 for the shortest; equal ones stay in order."""
    order = distance.argsort(stable=True)
    order = order[source[order].argsort(stable=True)]
    arranged = source[order]
    place = torch.arange(len(source), device=source.device) - torch.searchsorted(arranged, arranged)
    return torch.empty_like(place).scatter_(0, order, place)


def _least(values: Tensor, pair: Tensor, pairs: int) -> Tensor:
    """The smallest value of each pair, `(P,)`."""
    start = torch.zeros(pairs, dtype=values.dtype, device=values.device)
    return start.scatter_reduce_(0, pair, values, "amin", include_self=False)


def disagreeing_share(edges: Edges, labels: Tensor) -> Tensor:
    """The share of each instance's pairs to which a labelling gives different labels, `(n*m, states)`."""
    cut = edges.differs(labels).to(torch.float)  # (P, states)
    total = cut.new_zeros(edges.instances, labels.shape[1])
    total.index_add_(0, edges.first, cut).index_add_(0, edges.second[: edges.inner], cut[: edges.inner])
    whole = torch.bincount(edges.target, minlength=edges.instances).clamp(min=1)
    return total / whole[:, None]
