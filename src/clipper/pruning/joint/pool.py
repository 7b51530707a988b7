"""The pool as a graphical model: formulas of samples, pairs of near instances, and what is known beforehand.

`Factor` is all that belief propagation needs to know of a set of candidates, listed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from math import log
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from clipper.candidates import Candidates, CandidateSet, Lattice
from clipper.candidates.graph_building import condensed, templates_of
from clipper.candidates.table import offsets_of
from clipper.candidates.task import numbered
from clipper.proximity import ProximityGraph
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.objectives import listed_only
from clipper.pruning.ranks import ALONE, Ranks, Shard


def blocks(rows: int, width: int) -> list[slice]:
    """Split `rows` rows of `width` numbers into consecutive slices of about `InferenceSettings.block` numbers.

    Examples:
        >>> blocks(5, InferenceSettings.block // 2)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, InferenceSettings.block // max(1, width))
    return [slice(begin, min(begin + step, rows)) for begin in range(0, rows, step)]


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


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """`labels (n*m, states)` as `(n*m, c, states)`; all zeros where the slot is unused."""
    return (labels[:, None] == torch.arange(classes, device=labels.device)[:, None]).float()


class Factor(Protocol):
    """The formulas of all samples at once; the last axis counts independent starts.

    Starts come last, not first, because a look-up then moves a whole row of them: several times faster.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """Samples, slots and labels: `(n, m, c)`."""

    @property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""

    def part(self, samples: Tensor, /) -> Factor:
        """The formulas of some samples."""

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`, given log-odds `field` of that shape."""

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; -1 in unused slots."""

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""


class CandidateFactor:
    """The formulas as lists of candidates: one look-up per candidate and slot for its score, and one for the marginals.

    Examples:
        >>> factor = CandidateFactor(Candidates.from_lists([[(0, 2), (1, 1)], [(2,)]], classes=3))
        >>> field = torch.zeros(4, 3, 1)  # (n*m, c, starts)
        >>> field[0, 1] = torch.tensor(3.0).log()  # the first slot says 1, three to one
        >>> factor.marginals(field)[0, :, 0]
        tensor([0.2500, 0.7500, 0.0000])
        >>> factor.best(field)[:, 0].tolist()
        [1, 1, 2, -1]
    """

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        n, m, width = candidates.samples, candidates.slots, candidates.classes + 1
        self.shape = n, m, candidates.classes
        small = max(len(candidates) * m, n * m * width) < torch.iinfo(torch.int32).max
        index = torch.int32 if small else torch.int64
        start = torch.arange(1, m * width, width, device=candidates.labels.device, dtype=index)
        self._cells = candidates.labels.to(index) + start  # (Ω, m)
        self._cells += (candidates.sample * (m * width)).to(index)[:, None]
        order = self._cells.flatten().argsort(stable=True)
        self._rows = order.div_(m, rounding_mode="floor").to(index)  # the candidates of each cell, cell by cell
        counts = torch.bincount(self._cells.flatten(), minlength=n * m * width)
        self._bags = pad(counts.cumsum(0), (1, 0))[:-1].to(index)

    @property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""
        return len(self.candidates)

    def part(self, samples: Tensor, /) -> CandidateFactor:
        """The formulas of some samples."""
        return CandidateFactor(self.candidates.batch(samples))

    def probability(self, field: Tensor, /) -> Tensor:
        """The probability of each candidate, `(Ω, starts)`; those of a sample add up to one."""
        return (self.scores(field) - self.evidence(field).index_select(0, self.candidates.sample)).exp_()

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`."""
        weight, _ = self._weights(field)
        mass = embedding_bag(self._rows, weight, self._bags, mode="sum").view(len(field), -1, field.shape[2])
        mass = mass[:, 1:]
        return mass / mass.sum(1, keepdim=True).clamp_(min=torch.finfo(mass.dtype).tiny)  # an unused slot has none

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; the first of equals."""
        score = self.scores(field)  # (Ω, starts)
        sample = self.candidates.sample[:, None].expand_as(score)
        top = score == self._peak(score).index_select(0, self.candidates.sample)
        row = torch.arange(len(score), device=score.device)[:, None].expand_as(score)
        first = torch.full((self.shape[0], score.shape[1]), len(score), device=score.device)
        first.scatter_reduce_(0, sample, torch.where(top, row, len(score)), "amin")
        labels = self.candidates.labels[first.clamp(max=len(score) - 1)].long()  # (n, starts, m)
        return labels.transpose(1, 2).reshape(-1, score.shape[1])

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        weight, peak = self._weights(field)
        row = torch.arange(len(weight), device=weight.device)
        return embedding_bag(row, weight, self.candidates.offsets[:-1], mode="sum").log_() + peak

    def scores(self, field: Tensor, /) -> Tensor:
        """Σ of the field at each candidate's labels, `(Ω, starts)`."""
        table = pad(field, (0, 0, 1, 0)).view(-1, field.shape[2])  # label -1 adds 0
        return embedding_bag(self._cells, table, mode="sum")

    def _weights(self, field: Tensor) -> tuple[Tensor, Tensor]:
        """Each candidate's weight, `(Ω, starts)`, scaled to at most 1, and the log of the scale of each sample."""
        score = self.scores(field)
        peak = self._peak(score)
        score.sub_(peak.index_select(0, self.candidates.sample))
        # The bound keeps results a little above the smallest normal number: for subnormal ones, exp is 30 times slower.
        return score.clamp_(min=log(torch.finfo(score.dtype).tiny) + 1).exp_(), peak

    def _peak(self, score: Tensor) -> Tensor:
        lowest = torch.full((self.shape[0], score.shape[1]), -torch.inf, device=score.device, dtype=score.dtype)
        return lowest.scatter_reduce_(0, self.candidates.sample[:, None].expand_as(score), score, "amax")


class CandidateBlocks:
    """As `CandidateFactor`, for a larger pool: it processes some formulas at a time and needs little extra memory.

    A formula that several samples share can be stored once. These samples are then processed like additional starts.
    Formulas that are shared by equally many samples are processed together.

    Examples:
        >>> different = Candidates.from_lists([[(0, 2), (1, 1)], [(2, 2)]], classes=3)
        >>> factor = CandidateBlocks(different, torch.tensor([0, 1, 0]))
        >>> field = torch.zeros(6, 3, 1)  # (n*m, c, starts)
        >>> field[4, 1] = torch.tensor(3.0).log()  # the first slot of the last sample says 1, three to one
        >>> factor.best(field).view(3, 2).tolist()
        [[0, 2], [2, 2], [1, 1]]
    """

    def __init__(self, different: Candidates, formula: Tensor | None = None) -> None:
        """Store the formulas, and which of them each sample has, `(n,)`; None if each sample has its own."""
        if formula is None:
            formula = torch.arange(different.samples, device=different.device)
        self.different, self.formula = different, formula
        self.shape = len(formula), different.slots, different.classes
        self._lengths = different.offsets.diff()[formula]  # (n,): candidates
        many = torch.bincount(formula, minlength=different.samples)
        ordered, begins = formula.argsort(stable=True), pad(many.cumsum(0), (1, 0))
        self._groups: list[tuple[CandidateFactor, Tensor]] = []  # formulas, and their samples `(formulas, times)`
        for times in torch.unique(many[many > 0]).tolist():
            alike = (many == times).nonzero()[:, 0]
            rows = int(different.offsets.diff()[alike].sum())
            place = torch.arange(times, device=formula.device)
            for part in blocks(len(alike), -(-rows // len(alike))):
                samples = ordered[begins[alike[part]][:, None] + place]
                self._groups.append((CandidateFactor(different.batch(alike[part])), samples))

    @cached_property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""
        return int(self._lengths.sum())

    def part(self, samples: Tensor, /) -> CandidateBlocks:
        """The formulas of some samples."""
        return CandidateBlocks(self.different, self.formula[samples])

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`."""
        n, m, c = self.shape
        found = torch.empty_like(field).view(n, m, c, -1)
        for factor, samples, part in self._parts(field):
            found[samples] = factor.marginals(part).view(len(samples), m, c, *samples.shape[1:], -1).movedim(-2, 1)
        return found.view(field.shape)

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; the first of equals."""
        n, m, _ = self.shape
        found = torch.empty(n, m, field.shape[2], dtype=torch.long, device=field.device)
        for factor, samples, part in self._parts(field):
            found[samples] = factor.best(part).view(len(samples), m, *samples.shape[1:], -1).movedim(2, 1)
        return found.view(n * m, -1)

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        found = field.new_empty(self.shape[0], field.shape[2])
        for factor, samples, part in self._parts(field):
            found[samples] = factor.evidence(part).view(*samples.shape, -1)
        return found

    def probability(self, field: Tensor, /) -> Tensor:
        """The probability of each candidate, `(Ω, starts)`; those of a sample add up to one."""
        found = field.new_empty(self.size, field.shape[2])
        begins = pad(self._lengths.cumsum(0), (1, 0))
        for factor, samples, part in self._parts(field):
            rows = factor.candidates
            place = torch.arange(len(rows), device=field.device) - rows.offsets[rows.sample]
            found[begins[samples][rows.sample] + place[:, None]] = factor.probability(part).view(
                len(rows), *samples.shape[1:], -1
            )
        return found

    def _parts(self, field: Tensor) -> Iterator[tuple[CandidateFactor, Tensor, Tensor]]:
        """Formulas, some of their samples `(formulas, times)`, and the field of these, `(formulas*m, c, times*starts)`.

        Block by block.
        """
        n, m, c = self.shape
        by_sample = field.view(n, m, c, field.shape[2])
        for factor, samples in self._groups:
            for some in blocks(samples.shape[1], factor.size * field.shape[2]):
                chosen = samples[:, some]
                part = by_sample[chosen].movedim(1, -2)  # (formulas, m, c, times, starts)
                yield factor, chosen, part.reshape(len(chosen) * m, c, -1)


def listed_factor(candidates: Candidates) -> CandidateFactor | CandidateBlocks:
    """The formulas as lists of candidates. In a large pool, samples with equal formulas share one list."""
    if len(candidates) > InferenceSettings.memory:
        formula, firsts = templates_of(candidates)
        return CandidateBlocks(candidates.batch(firsts), formula)
    return CandidateFactor(candidates) if len(candidates) <= InferenceSettings.block else CandidateBlocks(candidates)


_WORTH = 2
"""With at least this many candidates per arc, a graph is much faster than a list: 14 times on MAX-4."""


def factor_of(candidates: CandidateSet, ranks: Ranks = ALONE) -> Factor:
    """The faster factor: a lattice if few states represent the candidates, even if they are listed; else lists.

    The choice depends on the samples of all `ranks` together, so that all of them choose the same.

    Examples:
        >>> pools = [Candidates.from_rule(rule, targets=[8] * 50, slots=4, classes=10) for rule in (sum, max)]
        >>> [type(factor_of(pool)).__name__ for pool in pools]  # 165 and 2,465 candidates a sample
        ['CandidateFactor', 'LatticeFactor']
    """
    listed = listed_only(candidates)
    if listed is None:
        return LatticeFactor(candidates)
    lattice = _worthwhile(listed, ranks)
    return listed_factor(listed) if lattice is None else LatticeFactor(lattice)


def _worthwhile(candidates: Candidates, ranks: Ranks) -> Lattice | None:
    template, firsts = formulas_of(candidates, ranks)
    different, many = candidates.batch(firsts), ranks.count(len(candidates))
    if _WORTH * ranks.count(len(different)) > many:
        return None  # few samples have a formula in common, so that a graph would be about as large
    graph = condensed(of_all_ranks(different, ranks))
    if graph is None or _WORTH * graph.arcs * ranks.count(candidates.samples) > many:
        return None
    return Lattice(template, candidates.kinds, graph=graph)


def formulas_of(candidates: Candidates, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """As `templates_of`, numbered over all ranks; the first samples only of formulas that no earlier rank has."""
    template, firsts = templates_of(candidates)
    if ranks.size == 1:
        return template, firsts
    rows, bounds = candidates.labels.cpu().numpy(), candidates.offsets.tolist()
    digests = [blake2b(rows[bounds[i] : bounds[i + 1]].tobytes()).digest() for i in firsts.tolist()]
    found = ranks.all_of(digests)
    before = sum(map(len, found[: ranks.rank]))
    _, numbers = numbered(digest for part in found for digest in part)
    own = numbers[before : before + len(digests)]
    new = own > (int(numbers[:before].max()) if before else -1)
    return own.to(template.device)[template], firsts[new.to(firsts.device)]


def of_all_ranks(candidates: Candidates, ranks: Ranks) -> Candidates:
    """The candidates of all ranks, one after the other."""
    if ranks.size == 1:
        return candidates
    samples = ranks.all_of(candidates.samples)
    labels = ranks.rows(candidates.labels, ranks.all_of(len(candidates)))
    counts, kind = ranks.rows(candidates.offsets.diff(), samples), ranks.rows(candidates.kind, samples)
    return Candidates(labels, offsets_of(counts), candidates.kinds, kind if bool((counts == 0).any()) else None)


class LatticeFactor:
    """As `CandidateFactor`, for candidates that are not listed.

    Examples:
        >>> from clipper import Lattice
        >>> from clipper.candidates.rules import SUM
        >>> factor = LatticeFactor(Lattice.from_rule(*SUM, targets=[2, 4], slots=2, classes=3))
        >>> field = torch.zeros(4, 3, 1)  # (n*m, c, starts)
        >>> field[0, 1] = torch.tensor(2.0).log()  # the first slot says 1, two to one to each of the others
        >>> factor.marginals(field)[0, :, 0]
        tensor([0.2500, 0.5000, 0.2500])
        >>> factor.best(field)[:, 0].tolist()
        [1, 1, 2, 2]
    """

    def __init__(self, lattice: CandidateSet) -> None:
        self.lattice = lattice
        self.shape = lattice.samples, lattice.slots, lattice.classes

    @property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""
        return self.lattice.samples * self.lattice.states

    def part(self, samples: Tensor, /) -> LatticeFactor:
        """The formulas of some samples."""
        return LatticeFactor(self.lattice.batch(samples))

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`."""
        n, m, c = self.shape
        found = torch.empty_like(field).view(n, m, c, -1)
        for some, lattice, part in self._parts(field):
            found[some] = lattice.marginals(part).view(-1, field.shape[2], m, c).movedim(1, -1)
        return found.view(field.shape)

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; -1 in unused slots."""
        n, m, _ = self.shape
        found = torch.empty(n, m, field.shape[2], dtype=torch.long, device=field.device)
        for some, lattice, part in self._parts(field):
            top = lattice.top_k(part, 1)
            labels = torch.full((len(part), m), -1, device=field.device)
            labels[top.sample] = top.labels.long()  # a sample without candidates has none
            found[some] = labels.view(-1, field.shape[2], m).transpose(1, 2)
        return found.view(n * m, -1)

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        parts = [lattice.log_probability(part) for _, lattice, part in self._parts(field)]
        return torch.cat(parts).view(self.shape[0], -1) if parts else field.new_zeros(0, field.shape[2])

    def _parts(self, field: Tensor) -> Iterator[tuple[slice, CandidateSet, Tensor]]:
        """Some samples, their lattice once for each start, and their field, `(some*starts, m, c)`; block by block."""
        n, m, c = self.shape
        starts = field.shape[2]
        by_sample = field.view(n, m, c, starts)
        for some in blocks(n, self.lattice.states * starts):
            part = by_sample[some]
            samples = torch.arange(some.start, some.stop, device=field.device).repeat_interleave(starts)
            lattice = self.lattice if starts == 1 and len(part) == n else self.lattice.batch(samples)
            yield some, lattice, part.movedim(-1, 1).reshape(len(samples), m, c)


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool as a graphical model: formulas, pairs of near instances, and what is known of single instances.

    Attributes:
        factor: the formulas.
        edges: the pairs.
        unary: `(n*m, c, 1)`: log-odds that are known beforehand, such as a classifier's or those of a known label.
        possible: `(n*m, c)` bool: the labels of each slot's kind; none where the slot is unused.
        kinds: the labels of each kind.
        disbelieved: `(n,)` bool: samples whose formula is left out; None for none.
    """

    factor: Factor
    edges: Edges
    unary: Tensor
    possible: Tensor
    kinds: list[range]
    disbelieved: Tensor | None = None

    @property
    def classes(self) -> int:
        """How many labels there are."""
        return self.unary.shape[1]

    @property
    def ranks(self) -> Ranks:
        """The processes that share the pool."""
        return self.edges.shard.ranks

    @property
    def samples(self) -> int:
        """How many samples all ranks have together."""
        return self.edges.shard.total // self.factor.shape[1]

    def own_samples(self, rows: Tensor) -> Tensor:
        """The rows of this rank's samples, `(n, …)`, of `rows` with one row for each sample of all ranks."""
        first = self.edges.shard.first // self.factor.shape[1]
        return rows[first : first + self.factor.shape[0]]

    @cached_property
    def size(self) -> int:
        """Numbers that the formulas of all ranks need for one state."""
        return self.ranks.count(self.factor.size)

    @cached_property
    def others(self) -> Tensor:
        """`(P,)`: labels of the pair's kind, less the one they may share; at least 1."""
        return (self.possible.sum(1)[self.edges.first] - 1).clamp(min=1).to(self.unary.dtype)

    @cached_property
    def typical(self) -> Tensor:
        """`(c, 1)`: how many instances would have each label if all labels of a kind were as frequent."""
        possible = self.possible.to(self.unary.dtype)
        return self.ranks.total((possible / possible.sum(1, keepdim=True).clamp(min=1)).sum(0))[:, None]

    @cached_property
    def same_kind(self) -> Tensor:
        """`(c, c)` bool: which labels are of the same kind."""
        possible = self.possible.to(self.unary.dtype)
        return (self.ranks.total(possible.T @ possible) > 0) | torch.eye(len(possible.T), device=possible.device).bool()

    def heard(self, messages: Tensor) -> Tensor:
        """The sum of the messages to each instance, in log-odds, `(n*m, c, states)`."""
        return self.edges.collected(messages)

    def beliefs(self, field: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The probability of each label, `(n*m, c, states)`; samples that are `hidden (n, states)` have no formula."""
        return self._where_hidden(hidden, field, self.factor.marginals, self.independent, self.by_slot)

    def best(self, field: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The most probable labels, `(n*m, states)`; -1 in unused slots."""
        return self._where_hidden(hidden, field, self.factor.best, self._alone, lambda h: self.by_slot(h)[:, 0])

    def evidence(self, field: Tensor, hidden: Tensor | None = None) -> Tensor:
        """log Σ exp of the field over what a sample's labels may be, `(n, states)`."""
        return self._where_hidden(hidden, field, self.factor.evidence, self.total, lambda h: h)

    def _alone(self, field: Tensor) -> Tensor:
        alone = field.masked_fill(~self.possible[:, :, None], -torch.inf).argmax(1)
        return alone.masked_fill(~self.possible.any(1)[:, None], -1)

    def _where_hidden(
        self,
        hidden: Tensor | None,
        field: Tensor,
        formulas: Callable[[Tensor], Tensor],
        free: Callable[[Tensor], Tensor],
        spread: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The result of `formulas`; for hidden samples that of `free`, which uses the field without any formula."""
        if self.without_formulas:
            return free(field)
        hidden = self._hidden(hidden)
        return formulas(field) if hidden is None else torch.where(spread(hidden), free(field), formulas(field))

    @cached_property
    def without_formulas(self) -> bool:
        """Whether the formulas of all samples are left out."""
        return self.disbelieved is not None and bool(self.disbelieved.all())

    def _hidden(self, hidden: Tensor | None) -> Tensor | None:
        if self.disbelieved is None:
            return hidden
        return self.disbelieved[:, None] if hidden is None else hidden | self.disbelieved[:, None]

    def surprise(self, field: Tensor) -> Tensor:
        """-log of each formula's probability if the field labels its slots independently, `(n, states)`."""
        return self.total(field) - self.factor.evidence(field)

    def tempered(self, heard: Tensor, sharpness: float, mistaken: float) -> Tensor:
        """The prior evidence plus the scaled messages, in log-odds, `(n*m, c, states)`; messages are never certain.

        Args:
            heard: the messages, log-odds `(n*m, c, states)`.
            sharpness: the factor on the messages.
            mistaken: the probability that the label of an instance does not depend on its neighbours' at all.
        """
        if not mistaken:
            return self.unary + heard * sharpness
        labels = self.possible.sum(1).clamp(min=1)[:, None, None]
        share = self.independent(heard * sharpness) * (1 - mistaken) + mistaken / labels
        return self.unary + share.log().masked_fill_(~self.possible[:, :, None], 0)

    def independent(self, field: Tensor) -> Tensor:
        """The probability of each label by the field alone, `(n*m, c, states)`; none in unused slots."""
        return field.masked_fill(~self.possible[:, :, None], -torch.inf).softmax(1).nan_to_num_(0)

    def total(self, field: Tensor) -> Tensor:
        """log Σ exp of the field over all labellings of a sample, `(n, states)`."""
        slots = field.masked_fill(~self.possible[:, :, None], -torch.inf).logsumexp(1)
        slots = slots.masked_fill(~self.possible.any(1)[:, None], 0)  # an unused slot adds 0
        return slots.view(self.factor.shape[0], self.factor.shape[1], -1).sum(1)

    def by_slot(self, samples: Tensor) -> Tensor:
        """`(n, states)` as `(n*m, 1, states)`."""
        return samples.repeat_interleave(self.factor.shape[1], 0)[:, None]

    def states_within(self, memory: int) -> int:
        """How many states can be propagated at a time if so many numbers may be held; at least one."""
        return max(1, memory // (self.size + 2 * self.edges.count * self.classes))

    def nearest(self, neighbours: int) -> Pool:
        """The pool with only those pairs in which one instance is among the `neighbours` nearest of the other."""
        return replace(self, edges=self.edges.subset(self.edges.rank < neighbours))
