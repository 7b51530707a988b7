"""Which candidates are consistent with which edges (Definition 3.2), as bit masks instead of a list of all pairs.

Whether a candidate σ of sample ℓ is consistent with an edge that leaves slot j depends on σ(j) alone. So one table
over (instance, label) holds, as bits, the edges that a label contradicts, and a candidate's **conflicts** are the
sum of m table entries, however many edges there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet
from clipper.proximity import ProximityGraph

BITS = 62
"""Edges per word; the sign bit stays free, and so does one more for sums."""
FEW = 6
"""Up to this many edges per sample, it is faster to give every edge a bit than to find out which ones need one."""


@dataclass(frozen=True, eq=False)
class Conflicts:
    """The edges that each candidate contradicts, as bit masks.

    Within a sample, the bits of edges ascend with distance, then with decreasing edge id, so a larger mask has more
    distant edges. An edge that no candidate of its source sample contradicts may have no bit.

    Attributes:
        words: `(Ω,)` each: bit b of word w is set if the candidate contradicts its sample's edge w·BITS + b.
        width: the largest number of bits in a sample.
    """

    words: list[Tensor]
    width: int

    @property
    def masks(self) -> Tensor:
        """All words side by side, `(Ω, words)`."""
        return torch.stack(self.words, dim=1)


def edge_rejects(support: Tensor, graph: ProximityGraph) -> Tensor:
    """The labels that each edge forbids its source instance, `(E, c)` bool; `support (N*m, c)` of the targets.

    An edge to an instance of a sample without candidates forbids nothing.
    """
    taken = support.index_select(0, graph.target)
    return ~taken & taken.any(1, keepdim=True)


def labels_left(candidates: CandidateSet, graph: ProximityGraph, support: Tensor, chosen: Tensor) -> Tensor:
    """The labels that the chosen edges leave to each instance, `(n*m, c)` bool; `chosen (E,)` bool."""
    rejects = edge_rejects(support, graph) & chosen[:, None]
    times = torch.zeros(
        candidates.samples * candidates.slots, candidates.classes, dtype=torch.int32, device=chosen.device
    )
    return times.index_add_(0, graph.source, rejects.int()) == 0


def conflicts(candidates: Candidates, graph: ProximityGraph, rejects: Tensor) -> Conflicts:
    """Find each candidate's conflicts; `rejects (E, c)` as from `edge_rejects`."""
    width = (graph.degree or 0) * candidates.slots
    if 0 < width <= FEW and len(graph) == candidates.samples * width:
        return Conflicts([_summed_over_slots(candidates, _table_of_few(candidates, graph, rejects, width))], width)
    active = (rejects & candidates.support.index_select(0, graph.source)).any(1).nonzero().flatten()
    edge = by_sample_then_reach(graph, active, candidates.slots)
    source = graph.source.index_select(0, edge)
    sample = source // candidates.slots
    place = torch.arange(len(edge), device=edge.device) - torch.searchsorted(sample, sample)
    width = int(place.max()) + 1 if len(place) else 0
    table = _conflict_table(candidates, source, rejects.index_select(0, edge), place, width)
    return Conflicts([_summed_over_slots(candidates, word) for word in table], width)


def _summed_over_slots(candidates: Candidates, table: Tensor) -> Tensor:
    """Each candidate's mask, `(Ω,)`, from `table (m, n*(c+1))` as of `_conflict_table`."""
    zero, (first, *others) = candidates.label_zero, zip(table.unbind(0), candidates.labels.unbind(1), strict=True)
    masks = first[0].index_select(0, zero + first[1])
    for column, labels in others:
        masks.add_(column.index_select(0, zero + labels))
    return masks


def by_sample_then_reach(graph: ProximityGraph, edge: Tensor, slots: int) -> Tensor:
    """The edges sorted by source sample, then by distance, then by descending id."""
    edge = edge.flip(0)
    edge = edge.index_select(0, graph.distance.index_select(0, edge).argsort(stable=True))
    return edge.index_select(0, (graph.source.index_select(0, edge) // slots).argsort(stable=True))


def _conflict_table(candidates: Candidates, source: Tensor, rejects: Tensor, place: Tensor, width: int) -> Tensor:
    """Which edges each label of each instance contradicts, `(words, m, n*(c+1))`; label -1 contradicts none."""
    words, n, m = max(1, -(-width // BITS)), candidates.samples, candidates.slots
    kind = torch.int32 if width < 32 else torch.int64  # half the bytes, half the time
    table = torch.zeros(words, m, n, candidates.classes + 1, dtype=kind, device=source.device)
    flags = rejects.to(kind) << (place % BITS).to(kind)[:, None]
    table[..., 1:].index_put_((place // BITS, source % m, source // m), flags, accumulate=True)
    return table.flatten(2)


def _table_of_few(candidates: Candidates, graph: ProximityGraph, rejects: Tensor, width: int) -> Tensor:
    """As `_conflict_table`, `(m, n*(c+1))`, for a graph with the same few edges from every instance: all have bits."""
    n, m = candidates.samples, candidates.slots
    farthest_first = graph.distance.view(n, width).argsort(dim=1, descending=True, stable=True)  # of equals, lower ids
    powers = _falling_powers(width, rejects.device).expand(n, width)
    flag = torch.empty_like(farthest_first, dtype=torch.int32).scatter_(1, farthest_first, powers)
    flags = rejects.view(n, width, -1) * flag[:, :, None]
    if width > m:
        flags = flags.view(n, m, width // m, -1).sum(2, dtype=torch.int32)
    return torch.constant_pad_nd(flags, (1, 0)).transpose(0, 1).reshape(m, -1)


@lru_cache(maxsize=8)
def _falling_powers(width: int, device: torch.device) -> Tensor:
    """2^(width-1), …, 2, 1."""
    return torch.tensor([1 << bit for bit in reversed(range(width))], dtype=torch.int32, device=device)
