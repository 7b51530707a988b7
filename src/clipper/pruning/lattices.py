"""Pruning a lattice: a pruning only forbids labels, so nothing has to be listed to be pruned.

If all edges of a sample together leave a candidate, they are the best choice, since more edges never keep more. Only
where they do not, there is something to decide.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning.consistency import by_sample_then_reach, edge_rejects, labels_left
from clipper.pruning.contested import Contested, best_choices, smallest_blocks
from clipper.pruning.result import Pruning, Set


def prune_lattice(
    lattice: Set, graph: ProximityGraph, support: Tensor, objective: str = "exact", solver: str = "closed-form"
) -> Pruning[Set]:
    """As `prune_along`, for a lattice; `support (N*m, c)` of the graph's targets.

    Examples:
        >>> from clipper import Lattice
        >>> from clipper.candidates.machines import SUM
        >>> lattice = Lattice.from_rule(*SUM, targets=[8, 2, 16], slots=2, classes=10)
        >>> graph = ProximityGraph.from_edges([0, 0], [2, 4])  # x₁ is close to x′₁ and to x″₁
        >>> prune_lattice(lattice, graph, lattice.support)
        Pruning(7 of 15 candidates discarded, 1 of 2 edges chosen)
    """
    _check(objective, solver)
    rejects = edge_rejects(support, graph)  # (E, c)
    effective = rejects & lattice.support.index_select(0, graph.source)
    active = by_sample_then_reach(graph, effective.any(1).nonzero()[:, 0], lattice.slots)
    chosen = torch.ones_like(graph.source, dtype=torch.bool)
    contested = _contested(lattice, graph, support, active, effective)
    bounds: dict[int, int] = {}
    if contested:
        decide = best_choices if objective == "exact" else smallest_blocks
        verdicts = decide(lattice, list(contested.values()))
        for (own, sample), (taken, bound) in zip(contested.items(), verdicts, strict=True):
            dropped = [place for places, kept in zip(sample.edges, taken, strict=True) if not kept for place in places]
            chosen[active[own + torch.tensor(dropped, device=active.device)]] = False
            if bound is not None:
                bounds[sample.sample] = bound
    allowed = labels_left(lattice, graph, support, chosen)
    return Pruning(lattice, graph, support, edges=chosen, allowed=allowed, open_bounds=bounds)


def _contested(
    lattice: CandidateSet, graph: ProximityGraph, support: Tensor, active: Tensor, effective: Tensor
) -> dict[int, Contested]:
    """The samples that all edges together would empty, by the place of their first edge among the `active (A,)`."""
    sample = graph.source[active] // lattice.slots  # (A,), ascending
    involved, first, count = _runs(sample)
    if not len(involved):
        return {}
    everything = labels_left(lattice, graph, support, torch.ones_like(graph.source, dtype=torch.bool))
    tables = everything.view(lattice.samples, -1)[involved].view(-1, lattice.classes)
    emptied = ~lattice.batch(involved).narrowed(tables).possible()
    rows = zip(involved[emptied].tolist(), first[emptied].tolist(), count[emptied].tolist(), strict=True)
    result = {}
    for number, start, edges in rows:
        own = active[start : start + edges]
        forbids = torch.zeros(edges, lattice.slots, lattice.classes, dtype=torch.bool, device=own.device)
        forbids[torch.arange(edges, device=own.device), graph.source[own] % lattice.slots] = effective[own]
        result[start] = Contested.from_edges(number, forbids.flatten(1))
    return result


def _runs(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct `values (A,)`, ascending; where each begins; how often it comes."""
    distinct, count = torch.unique_consecutive(values, return_counts=True)
    return distinct, count.cumsum(0) - count, count


def _check(objective: str, solver: str) -> None:
    if objective not in ("exact", "paper"):
        raise InputError(
            f'expected the objective "exact" or "paper" for a lattice, got {objective!r}; the random control discards '
            "candidates one by one: take some with lattice.draw(), list them with to_candidates(), or let a Clipper "
            "with this objective prune along edges drawn at random"
        )
    if solver != "closed-form":
        raise InputError(
            f'expected solver="closed-form" for a lattice, got {solver!r}; an integer program lists every candidate: '
            "use lattice.to_candidates() where they are few"
        )
