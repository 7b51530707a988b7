"""Candidates × edges → consistent or not (Definition 3.2), as bit masks and without a list of all pairs.

Whether a candidate σ of sample ℓ is consistent with an edge that leaves slot j depends on σ(j) alone. So one table
over (instance, label) holds, as bits, the edges that a label contradicts, and a candidate's **conflicts** are the
sum of m table entries, however many edges there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet
from clipper.proximity import ProximityGraph

BITS = 62
"""Edges per word; the sign bit stays free, and so does one more for sums."""


@dataclass(frozen=True, eq=False)
class Conflicts:
    """The edges that each candidate contradicts.

    An edge is **active** if some candidate of its source sample contradicts it; only active edges get a bit. Within a
    sample the bits ascend with distance, then with falling edge id: a larger mask drops more distant edges.
    """

    masks: Tensor
    """`(Ω, words)`: bit b of word w is set if the candidate contradicts its sample's active edge w·BITS + b."""
    width: int
    """The largest number of active edges in a sample."""


def edge_rejects(support: Tensor, graph: ProximityGraph) -> Tensor:
    """The labels that each edge forbids its source instance, `(E, c)` bool; `support (N*m, c)` of the targets."""
    return ~support.index_select(0, graph.target)


def labels_left(candidates: CandidateSet, graph: ProximityGraph, support: Tensor, chosen: Tensor) -> Tensor:
    """The intersection of the chosen neighbours' supports, `(n*m, c)` bool; `chosen (E,)` bool."""
    rejects = edge_rejects(support, graph)
    instances = candidates.samples * candidates.slots
    allowed = torch.ones(instances, candidates.classes, dtype=torch.bool, device=rejects.device)
    edge, label = (rejects & chosen[:, None]).nonzero(as_tuple=True)
    allowed[graph.source[edge], label] = False
    return allowed


def conflicts(candidates: Candidates, graph: ProximityGraph, rejects: Tensor) -> Conflicts:
    """Find each candidate's conflicts; `rejects (E, c)` as from `edge_rejects`."""
    source = graph.source
    active = (rejects & candidates.support.index_select(0, source)).any(1).nonzero().flatten()
    edge = by_sample_then_reach(graph, active, candidates.slots)
    source = source.index_select(0, edge)
    sample = source // candidates.slots
    place = torch.arange(len(edge), device=edge.device) - torch.searchsorted(sample, sample)
    width = int(place.max()) + 1 if len(place) else 0
    word, bit = (torch.zeros_like(place), place) if width <= BITS else (place // BITS, place % BITS)
    table = _conflict_table(candidates, source, rejects.index_select(0, edge), word, bit, width)
    masks = [_summed_over_slots(candidates, row) for row in table]
    return Conflicts(torch.stack(masks, dim=1) if len(masks) > 1 else masks[0][:, None], width)


def _summed_over_slots(candidates: Candidates, table: Tensor) -> Tensor:
    masks = candidates.take(table, 0)
    for slot in range(1, candidates.slots):
        masks += candidates.take(table, slot)
    return masks


def by_sample_then_reach(graph: ProximityGraph, edge: Tensor, slots: int) -> Tensor:
    """The edges by source sample, then distance, then falling id."""
    edge = edge.flip(0)
    edge = edge.index_select(0, graph.distance.index_select(0, edge).argsort(stable=True))
    return edge.index_select(0, (graph.source.index_select(0, edge) // slots).argsort(stable=True))


def _conflict_table(
    candidates: Candidates, source: Tensor, rejects: Tensor, word: Tensor, bit: Tensor, width: int
) -> Tensor:
    """Which edges each label of each instance contradicts, `(words, n*m, c+1)`; label -1 contradicts none."""
    shape = (max(1, -(-width // BITS)), candidates.samples * candidates.slots, candidates.classes + 1)
    kind = torch.int32 if width < 32 else torch.int64  # half the bytes, half the time
    table = torch.zeros(shape, dtype=kind, device=source.device)
    flags = rejects.to(table.dtype) << bit.to(table.dtype)[:, None]
    table[:, :, 1:].index_put_((word, source), flags, accumulate=True)
    return table
