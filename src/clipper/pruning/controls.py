"""The random controls: discard as many candidates as a pruning did, but at random, or prune along random edges."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph


def discard_at_random(candidates: Candidates, count: int | None, per_sample: Tensor | None, seed: int) -> Tensor:
    """Discard candidates at random. Every sample that has candidates keeps at least one.

    Args:
        candidates: the candidates.
        count: how many to discard in total; None to use `per_sample`.
        per_sample: how many to discard of each sample, `(n,)`.
        seed: the seed of the draws.

    Returns:
        The candidates that are left, `(Ω,)` bool.

    Raises:
        InputError: `count` is not a number of candidates that can be discarded.
    """
    rank = candidates.random_ranks(seed)
    if per_sample is not None:
        return rank >= per_sample[candidates.sample]
    expendable = (rank > 0).nonzero().flatten()  # the first of each shuffled sample is safe
    spare = len(expendable)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= spare:
        raise InputError(
            f"expected a count of candidates to discard in 0 … {spare} (each of {candidates.samples} samples keeps "
            f"one), or imitate= with a pruning to copy the numbers from, got {count!r}"
        )
    order = torch.randperm(spare, generator=torch.Generator().manual_seed((seed + 1) % 2**63)).to(rank.device)
    keep = torch.ones_like(rank, dtype=torch.bool)
    keep[expendable[order[:count]]] = False
    return keep


def random_edges(
    graph: ProximityGraph, slots: int, seed: int = 0, *, place: Tensor | None = None, kind: Tensor | None = None
) -> ProximityGraph:
    """Replace the targets of a graph by random ones; each instance keeps its number of edges.

    This is the control for sets whose candidates are not listed. The new targets are a permutation of the old ones, and
    no edge stays within its sample.

    Args:
        graph: the graph.
        slots: the number of slots, `m`.
        seed: the seed of the draws.
        place: the index of each source sample in the pool, `(n,)`, -1 for none; None if the samples are the pool.
        kind: the kind of each instance of the pool, `(N*m,)`; edges then connect instances of one kind.

    Examples:
        >>> graph = ProximityGraph.from_edges([0, 1, 2, 3], [2, 3, 0, 1])
        >>> torch.equal(random_edges(graph, slots=2).source, graph.source)
        True
    """
    generator = torch.Generator().manual_seed(seed)
    sample = graph.source // slots
    own = sample if place is None else place.to(sample.device)[sample]
    kinds = torch.zeros_like(sample) if kind is None else kind.to(sample.device)[graph.target]
    # The generator lives on the CPU, and so does what is drawn again until it fits.
    target, own, kinds = torch.stack([graph.target, own, kinds]).cpu()
    for one in torch.unique(kinds).tolist():
        edges = (kinds == one).nonzero().flatten()
        target[edges] = _drawn(target[edges], own[edges], slots, generator)
    return ProximityGraph(graph.source, target.to(sample.device), graph.distance)


def _drawn(target: Tensor, own: Tensor, slots: int, generator: torch.Generator) -> Tensor:
    """The targets in random order, none in its edge's `own` sample."""
    if bool((target // slots == target[:1] // slots).all()):
        return target  # one sample at the end of all edges: there is nothing to draw from
    places = torch.randperm(len(target), generator=generator)
    while len(within := (target[places] // slots == own).nonzero()[:, 0]):
        places[within] = torch.randint(len(target), (len(within),), generator=generator)
    return target[places]
