"""Distances that never change: a frozen encoder's, measured once for the pool and looked up by every batch."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_INSTANCES = 4096
"""A larger pool's table would leave the processor's caches, and searching is as fast then."""


class KnownDistances:
    """A metric that looks Euclidean distances up; the "vectors" it is given are row numbers of its table.

    Args:
        embeddings: those of all samples, `(n, m, d)`.

    Examples:
        >>> known = KnownDistances(torch.tensor([[[0.0], [9.0]], [[0.5], [5.0]]]))
        >>> known(known.rows[0], known.rows[1])
        tensor([[0.5000, 5.0000],
                [8.5000, 4.0000]])
    """

    def __init__(self, embeddings: Tensor) -> None:
        flat = embeddings.detach().flatten(0, 1).double()  # in double precision, rounding hardly misleads
        flat = flat - flat.mean(0)
        norm = flat.square().sum(1)
        squared = torch.addmm(norm[None], flat, flat.T, alpha=-2).add_(norm[:, None])
        self._table = squared.clamp_(min=0).sqrt_().float()  # (n*m, n*m)
        row = torch.arange(len(flat), device=flat.device, dtype=torch.float32)
        self.rows = row.view(*embeddings.shape[:2], 1)
        """`(n, m, 1)`: what stands for the embeddings in a search."""

    def __call__(self, queries: Tensor, pool: Tensor) -> Tensor:
        """`(queries, 1), (pool, 1) -> (queries, pool)`"""
        return self._table.index_select(0, queries[:, 0].long()).index_select(1, pool[:, 0].long())
