"""Distances that never change: a frozen encoder's, measured once for the pool and looked up by every batch."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.proximity.neighbours import Neighbours, Progress, Vectors, best_pairs
from clipper.proximity.selection import entries_up_to, kth_smallest

MOST_INSTANCES = 4096
"""A larger pool's table would not fit into a processor's memory hierarchy; searching is as fast then."""


class KnownDistances:
    """A neighbour search that looks up Euclidean distances; the "vectors" it is given are rows of its table.

    Args:
        embeddings: those of all samples, `(n, m, d)`.

    Examples:
        >>> known = KnownDistances(torch.tensor([[[0.0], [9.0]], [[0.5], [5.0]]]))
        >>> pool = Vectors(known.rows.flatten(0, 1), group=torch.tensor([0, 0, 1, 1]))
        >>> known.nearest(pool, pool, k=1).index.tolist()
        [2, 3, 0, 1]
    """

    def __init__(self, embeddings: Tensor) -> None:
        flat = embeddings.detach().flatten(0, 1).double()  # in double precision, rounding hardly misleads
        flat = flat - flat.mean(0)
        norm = flat.square().sum(1)
        squared = torch.addmm(norm[None], flat, flat.T, alpha=-2).add_(norm[:, None])
        self.table = squared.clamp_(min=0).sqrt_().to(embeddings.dtype)  # (n*m, n*m)
        shape = (*embeddings.shape[:2], 1)
        self.rows = torch.arange(len(flat), device=flat.device).view(shape).to(torch.float64)
        """`(n, m, 1)`: what stands for the embeddings in a search."""

    def nearest(self, queries: Vectors, pool: Vectors, k: int, progress: Progress | None = None) -> Neighbours:
        """The k nearest of each query outside its group."""
        del progress
        score = self._scores(queries, pool)
        bound = kth_smallest(score, min(k, score.shape[1])).clamp(max=torch.finfo(score.dtype).max)
        row, column = entries_up_to(score, bound)
        return best_pairs(Neighbours(row, column, score[row, column]), k, torch.inf)

    def within(self, queries: Vectors, pool: Vectors, radius: float, progress: Progress | None = None) -> Neighbours:
        """All pairs less than `radius` apart."""
        del progress
        score = self._scores(queries, pool)
        row, column = (score < radius).nonzero(as_tuple=True)
        return best_pairs(Neighbours(row, column, score[row, column]), None, radius)

    def _scores(self, queries: Vectors, pool: Vectors) -> Tensor:
        """Distances `(queries, pool)`, infinite within a group."""
        rows, columns = queries.values[:, 0].long(), pool.values[:, 0].long()
        score = self.table.index_select(0, rows).index_select(1, columns)
        return score.masked_fill_(queries.group[:, None] == pool.group, torch.inf)
