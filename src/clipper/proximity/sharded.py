"""Neighbour search by several processes: the index is saved once, each process memory-maps it and answers queries."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from clipper.arguments import CountProgress
from clipper.executors import Executor, in_order
from clipper.proximity.index import Index, IndexedSearch
from clipper.proximity.index_files import MANIFEST
from clipper.proximity.neighbours import Neighbours, Vectors, check_budget, joined


@dataclass(frozen=True)
class ShardedSearch:
    """Searches a pool for the neighbours of its own instances, in the processes of an executor.

    The result is the same as that of `IndexedSearch`, which runs in this process.

    Attributes:
        executor: the executor whose processes search.
        scratch: a folder that all processes see; the caller removes what is written there.
        method: as in `build`.
        index: the folder of a saved index, as `IndexedSearch.folder`; by default, one is written into `scratch`.
        queries: how many instances one job has. A multiple of 2^14 makes the same batches, and so exactly the same
            results, as one process.
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
        progress: CountProgress | None = None,
    ) -> Neighbours:
        """As in `IndexedSearch.find`.

        Raises:
            WorkerDiedError: a process died repeatedly.
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
    """One job: the instances `start` to `stop - 1` of an index, whose neighbours to search."""

    folder: Path
    start: int
    stop: int
    k: int | None
    radius: float


def _neighbours(part: _Part) -> Neighbours:
    """The neighbours of some instances, queries counted from the first; runs in a worker."""
    index = _mapped(part.folder, (part.folder / MANIFEST).stat().st_mtime_ns)
    pool = index.vectors
    everyone = part.stop - part.start == len(index)
    return index.unmeasured(pool if everyone else pool.part(part.start, part.stop), part.k, part.radius)


@lru_cache(maxsize=1)
def _mapped(folder: Path, written: int) -> Index:
    """The index in a folder, memory-mapped; checksums were compared when it was written or loaded."""
    del written
    return Index.load(folder, check=False)
