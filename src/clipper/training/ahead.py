"""Pruning several batches at once: neighbours are sought within each batch, the rest is done for all together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, cat

from clipper.candidates import CandidateSet
from clipper.proximity import ProximityGraph
from clipper.pruning import Clipper


def prune_together(
    clip: Clipper, candidates: CandidateSet, embeddings: Tensor, batches: Sequence[Tensor], seed: int = 0
) -> list[CandidateSet]:
    """The survivors of each batch, as if the batches had been pruned one after the other.

    Args:
        clip: how to prune.
        candidates: those of all samples.
        embeddings: those of all samples, `(n, m, d)`.
        batches: the sample ids of each batch.
        seed: for the random control.

    Examples:
        >>> import torch
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2, 4, 1], slots=2, classes=10)
        >>> embeddings = torch.tensor([[[1.0], [7.0]], [[1.1], [2.0]], [[5.0], [9.0]], [[5.1], [0.0]]])
        >>> batches = [torch.tensor([0, 1]), torch.tensor([2, 3])]
        >>> [len(kept) for kept in prune_together(Clipper(), candidates, embeddings, batches)]
        [6, 4]
        >>> [len(Clipper()(candidates.batch(ids), embeddings[ids])) for ids in batches]
        [6, 4]
    """
    whole = candidates.batch(cat(list(batches)))
    graph, starts = _graph(clip, candidates, embeddings, batches)
    kept = clip.along(whole, graph, seed=seed).candidates
    return [kept.span(first, last) for first, last in pairwise(starts)]


def _graph(
    clip: Clipper, candidates: CandidateSet, embeddings: Tensor, batches: Sequence[Tensor]
) -> tuple[ProximityGraph, list[int]]:
    """The edges within the batches, instances counted through; and where each batch starts."""
    starts, graphs = [0], []
    for ids in batches:
        graph = clip.graph(candidates.batch(ids), embeddings[ids])
        shift = starts[-1] * candidates.slots
        graphs.append(ProximityGraph(graph.source + shift, graph.target + shift, graph.distance))
        starts.append(starts[-1] + len(ids))
    return ProximityGraph.joined(graphs), starts
