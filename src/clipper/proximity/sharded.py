"""Neighbour search by several processes: the index is saved once, and each of them maps it and answers some queries."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from clipper.executors import Executor, in_order
from clipper.proximity.index import MANIFEST, Index, IndexedSearch
from clipper.proximity.neighbours import Neighbours, SearchProgress, Vectors, check_budget, joined


@dataclass(frozen=True)
class ShardedSearch:
    """A neighbour search in which an executor's processes look for the neighbours of a pool among themselves.

    It finds what `IndexedSearch` finds, which does it in this process.

    Attributes:
        executor: who searches.
        scratch: a folder that all processes see; what is written there is for the caller to remove.
        method: as in `build`.
        index: the folder of a saved index, as `IndexedSearch.folder`; by default, one is written into `scratch`.
        queries: how many instances one job has. From multiples of 2^14, approximate methods make the same batches, and
            the exact search the same matrix products, as they do in one process.
    """

    executor: Executor
    scratch: Path
    method: str = "auto"
    index: Path | None = None
    queries: int = 1 << 16

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: SearchProgress | None = None,
    ) -> Neighbours:
        """As in `IndexedSearch.find`.

        Raises:
            WorkerDiedError: a process died again and again.
        """
        total = len(queries.values)
        if progress:
            progress(0, total)  # an index takes time before the first query
        folder = (self.index or Path(tempfile.mkdtemp(dir=self.scratch))).absolute()
        index = IndexedSearch(self.method, folder=folder).index(pool, total, k)
        if queries is not pool:
            return index.find(queries, pool, k, radius, progress)
        index.check_same(pool)
        parts: list[Neighbours] = []
        pairs = 0
        jobs = (_Part(folder, i, min(i + self.queries, total), k, radius) for i in range(0, total, self.queries))
        for near in in_order(self.executor, _neighbours, jobs):
            start = len(parts) * self.queries
            parts.append(Neighbours(near.query + start, near.index, near.distance))
            pairs += len(near)
            if k is None:
                check_budget(pairs, radius)
            if progress:
                progress(min(start + self.queries, total), total)
        found = joined(parts)
        return replace(found, report=index.report_on(found, queries, k, radius, None, 0))


class _Part(NamedTuple):
    """Instances of an index whose neighbours are looked for."""

    folder: Path
    start: int
    stop: int
    k: int | None
    radius: float


def _neighbours(part: _Part) -> Neighbours:
    """Those of some instances, queries counted from the first; runs in a worker."""
    index = _mapped(part.folder, (part.folder / MANIFEST).stat().st_mtime_ns)
    pool = index.vectors
    everyone = part.stop - part.start == len(index)
    return index.unmeasured(pool if everyone else pool.part(part.start, part.stop), part.k, part.radius)


@lru_cache(maxsize=1)
def _mapped(folder: Path, written: int) -> Index:
    """The index in a folder; checksums are the business of whoever wrote or loaded it, not of each worker."""
    del written
    return Index.load(folder, check=False)
