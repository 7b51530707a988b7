"""FAISS behind the protocol of `neighbours.py`, for pools where exact search takes too long; its only importer."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clipper.errors import require
from clipper.proximity.neighbours import Neighbours, Progress, Vectors, best_pairs, joined, own_group_size

_QUERIES = 1 << 14
"""Instances looked up at a time, so that progress shows."""


@dataclass(frozen=True)
class FaissSearch:
    """Search by a FAISS index; distances of what it finds are measured exactly."""

    index: str = "auto"
    """A FAISS factory string such as "Flat", "IVF1024,Flat" or "HNSW32"; "auto" is exact up to 20,000 instances."""
    probes: int = 16
    """Cells of an inverted file to look into; more is slower and finds more."""

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: Progress | None = None,
    ) -> Neighbours:
        """What the index finds of the k nearest (all if None) less than `radius` away, outside each query's group."""
        index = self._built(_faiss(), pool.values)
        reach = k and min(k + own_group_size(queries.group, pool.group), len(pool.values))
        found = []
        for start in range(0, len(queries.values), _QUERIES):
            part = queries.values[start : start + _QUERIES]
            row, column = _nearest(index, part, reach) if reach else _within(index, part, radius)
            found.append(_measured(queries, pool, row + start, column, k, radius))
            if progress:
                progress(start + len(part), len(queries.values))
        return joined(found)

    def _built(self, faiss: Any, pool: Tensor) -> Any:
        description = self.index
        if description == "auto":
            cells = int(4 * math.sqrt(len(pool)))
            description = "Flat" if len(pool) <= 20_000 else f"IVF{cells},Flat"
        index = faiss.index_factory(pool.shape[1], description)
        vectors = _numpy(pool)
        if not index.is_trained:
            index.train(vectors[:: max(1, len(vectors) // 200_000)])
        index.add(vectors)
        if hasattr(index, "nprobe"):
            index.nprobe = self.probes
        return index


def _nearest(index: Any, queries: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    _, near = index.search(_numpy(queries), reach)
    column = torch.from_numpy(near).to(queries.device)  # (queries, reach), -1 where the index found no more
    row, place = (column >= 0).nonzero(as_tuple=True)
    return row, column[row, place]


def _within(index: Any, queries: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    limits, _, near = index.range_search(_numpy(queries), float(radius * radius * (1 + 1e-4)))
    row = torch.repeat_interleave(torch.from_numpy(limits.astype("int64")).diff())
    return row.to(queries.device), torch.from_numpy(near).to(queries.device)


def _measured(queries: Vectors, pool: Vectors, row: Tensor, column: Tensor, k: int | None, radius: float) -> Neighbours:
    foreign = queries.group[row] != pool.group[column]
    row, column = row[foreign], column[foreign]
    distance = torch.linalg.vector_norm(queries.values[row] - pool.values[column], dim=1)
    return best_pairs(Neighbours(row, column, distance), k, radius)


def _numpy(values: Tensor) -> Any:
    return values.float().cpu().contiguous().numpy()


def _faiss() -> Any:
    # Its bundled OpenBLAS may take a modern processor for an old one and run several times slower.
    capability = torch.backends.cpu.get_cpu_capability()
    core = {"AVX2": "Haswell", "AVX512": "SkylakeX"}.get(capability)
    if core:
        os.environ.setdefault("OPENBLAS_CORETYPE", core)
    faiss = require("faiss", extra="faiss")
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss
