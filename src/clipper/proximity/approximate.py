"""FAISS behind the protocol of `neighbours.py`, for pools where exact search takes too long; its only importer."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import whole_number
from clipper.errors import InputError, require
from clipper.proximity.neighbours import (
    Neighbours,
    SearchProgress,
    Vectors,
    best_pairs,
    check_distances,
    joined,
    own_group_size,
    scale_of,
)
from clipper.proximity.ties import lengths

_QUERIES = 1 << 14
"""Instances looked up at a time, so that progress shows."""


@dataclass(frozen=True)
class FaissSearch:
    """Search by a FAISS index; distances of what it finds are measured exactly.

    Attributes:
        index: a FAISS factory string such as "Flat", "IVF1024,Flat" or "HNSW32"; "auto" is exact up to 20,000
            instances.
        probes: cells of an inverted file to look into; more is slower and finds more.
    """

    index: str = "auto"
    probes: int = 16

    def __post_init__(self) -> None:
        if not isinstance(self.index, str):
            raise InputError(f'expected a FAISS factory string such as "Flat", got {self.index!r}')
        whole_number(self.probes, "probes", 1)

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: SearchProgress | None = None,
    ) -> Neighbours:
        """As in `NeighbourSearch.find`, but some neighbours may be missed, and farther ones found instead.

        Raises:
            InputError: FAISS cannot work with this index, or with numbers of such different sizes.
            MissingExtraError: FAISS is not installed.
        """
        if not len(pool.values) or not len(queries.values):
            return Neighbours(pool.group[:0], pool.group[:0], pool.values.new_empty(0))
        scale = scale_of(queries.values, pool.values, torch.float32)
        if scale is None:
            raise InputError(
                "the embeddings are of sizes too different for FAISS, which knows single precision only; use the exact "
                'search, search="exact"'
            )
        index = self._built(_faiss(), pool.values * scale)
        reach = k and min(k + own_group_size(queries.group, pool.group), len(pool.values))
        found = []
        for start in range(0, len(queries.values), _QUERIES):
            part = queries.values[start : start + _QUERIES] * scale
            with _refusals(self.index):
                row, column = _nearest(index, part, reach) if reach else _within(index, part, radius * scale)
            found.append(_measured(queries, pool, row + start, column, k, radius))
            if progress:
                progress(start + len(part), len(queries.values))
        return joined(found)

    def _built(self, faiss: Any, pool: Tensor) -> Any:
        description = self.index
        if description == "auto":
            cells = int(4 * math.sqrt(len(pool)))
            description = "Flat" if len(pool) <= 20_000 else f"IVF{cells},Flat"
        vectors = _numpy(pool)
        with _refusals(description):
            index = faiss.index_factory(pool.shape[1], description)
            if not index.is_trained:
                index.train(vectors[:: max(1, len(vectors) // 200_000)])
            index.add(vectors)
        if hasattr(index, "nprobe"):
            index.nprobe = self.probes
        return index


@contextmanager
def _refusals(description: str) -> Iterator[None]:
    """What FAISS refuses, in words."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().rsplit("\n", 1)[-1]
        raise InputError(f'FAISS cannot search with the index {description!r} here ({reason}); try "Flat"') from error


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
    distance = lengths(queries.values[row], pool.values[column])
    return check_distances(best_pairs(Neighbours(row, column, distance), k, radius))


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
