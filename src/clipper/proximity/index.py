"""Indexes for nearest-neighbour search: built by a method that suits the size of the pool, saved, and memory-mapped.

`build` makes an `Index`, `search` queries it; `index_files.py` stores it in a folder. Every method returns exact
distances for the neighbours that it finds, and its recall is measured on some queries. Like `neighbours.py`, this file
knows vectors and groups, but no samples or labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from clipper.arguments import (
    CountProgress,
    as_tensor,
    one_of,
    real_number,
    seed_number,
    seeded,
    shown,
    whole_number,
    whole_numbers,
)
from clipper.errors import InputError
from clipper.files import checked_path
from clipper.proximity.approximate import FaissStructure, faiss_method
from clipper.proximity.index_files import MANIFEST, TYPES, check_folder, read_index, write_index
from clipper.proximity.neighbours import (
    ExactSearch,
    Neighbours,
    NeighbourSearch,
    SearchReport,
    Vectors,
    best_pairs,
    check_distances,
    joined,
    own_group_size,
    scale_of,
)
from clipper.proximity.ties import lengths

Method = Literal["auto", "exact", "ivf", "hnsw", "nn-descent"]
METHODS: tuple[str, ...] = get_args(Method)
NAMES = (*METHODS, "faiss")
"""What `search=` takes by name; "faiss" is an older name of "ivf"."""

EXACT_PAIRS = 10**10
"""Up to this many pairs of a query and an instance, the default search is exact: 100,000 × 100,000."""

_QUERIES = 1 << 14
"""Queries that are answered at a time, so that progress shows."""

_TUNED_ON = 1_000
"""Queries on which `build` tunes the search effort."""

_MEASURED_ON = 1_000
"""Queries for which recall is measured at most."""


@dataclass(frozen=True, eq=False)
class Index:
    """A pool of vectors, indexed for search. It is a `NeighbourSearch` in that pool; `build` makes one.

    Attributes:
        vectors: the pool, `(instances, d)`, and the group of each instance.
        method: "exact", "ivf", "hnsw" or "nn-descent".
        reason: why this method.
        effort: how thoroughly to search: cells of an inverted file, or candidates of a graph; 0 if exact.
        structure: what the method keeps beside the vectors; None if exact.
        scale: the structure holds the vectors times this number.
    """

    vectors: Vectors
    method: str
    reason: str
    effort: int = 0
    structure: FaissStructure | None = None
    scale: float = 1.0

    def __len__(self) -> int:
        return len(self.vectors.values)

    def __repr__(self) -> str:
        size, width = self.vectors.values.shape
        return f"Index({size:,} vectors of {width} dimensions, {self.method})"

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: CountProgress | None = None,
    ) -> Neighbours:
        """As in `NeighbourSearch.find`, in the pool that the index was built for.

        Raises:
            InputError: `pool` differs from the one that the index was built for.
        """
        self.check_same(pool)
        return self.neighbours(queries, k, radius, progress)

    def neighbours(
        self,
        queries: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: CountProgress | None = None,
        measured: int | None = None,
        seed: int = 0,
    ) -> Neighbours:
        """As `search`, for queries that have groups and were checked."""
        found = self.unmeasured(queries, k, radius, progress)
        return replace(found, report=self.report_on(found, queries, k, radius, measured, seed))

    def unmeasured(
        self, queries: Vectors, k: int | None, radius: float, progress: CountProgress | None = None
    ) -> Neighbours:
        """As `neighbours`, without a report."""
        if self.structure is None or k is None:
            return ExactSearch().find(queries, self.vectors, k, radius, progress)
        if not len(queries.values):
            return Neighbours(queries.group[:0], queries.group[:0], queries.values[:0, 0])
        parts = []
        for start in range(0, len(queries.values), _QUERIES):
            stop = min(start + _QUERIES, len(queries.values))
            part = queries if stop - start == len(queries.values) else queries.part(start, stop)
            near = self._nearest(part, k, radius, self.effort)
            parts.append(Neighbours(near.query + start, near.index, near.distance))
            if progress:
                progress(stop, len(queries.values))
        return joined(parts)

    def report_on(
        self, found: Neighbours, queries: Vectors, k: int | None, radius: float, measured: int | None, seed: int
    ) -> SearchReport:
        """How the neighbours of all queries were found; recall is measured for some, see `search`."""
        if self.structure is None or k is None:
            reason = self.reason if self.structure is None else "all within a radius are looked for"
            return SearchReport("exact", reason, 1.0)
        if measured is None:
            measured = min(_MEASURED_ON, max(100, len(queries.values) // 100))
        if not len(queries.values):
            measured = 0
        return self._measure(queries, found, k, radius, measured, seed)

    def _nearest(self, queries: Vectors, k: int, radius: float, effort: int) -> Neighbours:
        """Neighbours of some queries by the structure; by exact search where it returns too few."""
        assert self.structure is not None
        device, size = queries.values.device, len(self)
        asked = (queries.values * self.scale).float()
        own = own_group_size(queries.group, self.vectors.group)
        places = self.structure.nearest(asked, min(k + own, size), effort).to(device)  # (queries, k + own or more)
        row, place = (places >= 0).nonzero(as_tuple=True)
        column = places[row, place]
        foreign = queries.group[row] != self.vectors.group[column]
        row, column = row[foreign], column[foreign]
        distance = lengths(queries.values[row], self.vectors.values[column])
        found = best_pairs(Neighbours(row, column, distance), k, math.inf)
        reach = min(k, size - own)
        short = (torch.bincount(found.query, minlength=len(queries.values)) < reach).nonzero().flatten()
        if len(short):
            exact = ExactSearch().find(Vectors(queries.values[short], queries.group[short]), self.vectors, k)
            kept = found.take((~torch.isin(found.query, short)).nonzero().flatten())
            more = Neighbours(short[exact.query], exact.index, exact.distance)
            found = best_pairs(joined([kept, more]), None, math.inf)
        return check_distances(best_pairs(found, k, radius, single=True))

    def _measure(
        self, queries: Vectors, found: Neighbours, k: int, radius: float, measured: int, seed: int
    ) -> SearchReport:
        """The report on what was found, its recall measured for some of the queries."""
        if not measured:
            return self._report(None, 0)
        total = len(queries.values)
        sample = torch.randperm(total, generator=seeded(seed))[:measured].sort().values.to(queries.values.device)
        exact = self._exact(queries, sample, k, radius)
        place = torch.full((total,), -1, device=sample.device)
        place[sample] = torch.arange(len(sample), device=sample.device)
        own = found.take((place[found.query] >= 0).nonzero().flatten())
        recall = _recall(exact, Neighbours(place[own.query], own.index, own.distance), len(sample))
        return self._report(recall, len(sample))

    def _exact(self, queries: Vectors, sample: Tensor, k: int, radius: float) -> Neighbours:
        asked = Vectors(queries.values[sample], queries.group[sample])
        return ExactSearch(memory=1 << 24).find(asked, self.vectors, k, radius)

    def _report(self, recall: float | None, measured: int) -> SearchReport:
        return SearchReport(self.method, self.reason, recall, measured)

    def tuned(self, k: int, recall: float, seed: int) -> Index:
        """The same index with the least effort that reaches `recall` for the k nearest of a sample of the pool."""
        if self.structure is None or not len(self):
            return self
        generator = seeded(seed)
        sample = torch.randperm(len(self), generator=generator)[:_TUNED_ON].sort().values.to(self.vectors.values.device)
        asked = Vectors(self.vectors.values[sample], self.vectors.group[sample])
        exact = self._exact(self.vectors, sample, k, math.inf)
        wanted = min(1.0, recall + math.sqrt(recall * (1 - recall) / max(1, len(exact))))  # a standard error above

        def enough(effort: int) -> bool:
            return _recall(exact, self._nearest(asked, k, math.inf, effort), len(sample)) >= wanted

        efforts = list(self.structure.efforts)
        place = next((i for i, effort in enumerate(efforts) if enough(effort)), len(efforts) - 1)
        least, most = efforts[place - 1] if place else 0, efforts[place]
        for _ in range(3):  # efforts are powers of two: between them, there is a cheaper one
            middle = (least + most) // 2
            if middle <= least:
                break
            least, most = (least, middle) if enough(middle) else (middle, most)
        return replace(self, effort=most)

    def check_same(self, pool: Vectors) -> None:
        """Raise an `InputError` if the pool differs from the one that the index was built for."""
        mine = self.vectors
        if pool is mine:
            return
        same = pool.values.shape == mine.values.shape and pool.values.dtype == mine.values.dtype
        if not same or not _equal(pool.values, mine.values) or not torch.equal(pool.group, mine.group.to(pool.group)):
            raise InputError(
                f"expected the pool that the index was built of, {len(mine.values):,} vectors of "
                f"{mine.values.shape[1]} dimensions, got {len(pool.values):,} of {pool.values.shape[1]}"
                f"{' with other values or other groups' if same else ''}; build the index again"
            )

    def save(self, path: str | Path) -> None:
        """Write the index into a folder; an older index there is replaced when the new one is complete.

        Args:
            path: the folder; it is created.

        Raises:
            FileError: the folder cannot be written, or holds something other than an index.
        """
        write_index(self, path)

    @classmethod
    def load(cls, path: str | Path, *, check: bool = True) -> Index:
        """The index in a folder, mapped into memory: vectors are read when a query needs them.

        Args:
            path: the folder that `save` wrote.
            check: whether to compare checksums, for which every file is read once.

        Raises:
            FileError: there is no index, or it is damaged.
            MissingExtraError: the package that it was built with is not installed.
        """
        return cls(*read_index(path, check))


def build(
    pool: Tensor,
    method: Method = "auto",
    *,
    k: int = 1,
    recall: float = 0.95,
    group: Tensor | None = None,
    seed: int = 0,
) -> Index:
    """Build an index for nearest-neighbour search in a pool of vectors.

    By default, small pools are searched exactly, and larger ones by an inverted file if FAISS is installed. The search
    effort of approximate methods is set so that they reach `recall` on a sample of the pool.

    Args:
        pool: `(instances, d)`; or `(n, m, d)`, where instances of one sample are never each other's neighbours. For
            the cosine, vectors of length one.
        method: "auto", "exact", "ivf" (FAISS, an inverted file), "hnsw" (FAISS, a navigable graph) or "nn-descent"
            (FAISS, a graph of neighbours' neighbours).
        k: about how many neighbours searches will ask for.
        recall: which share of the true neighbours should be found.
        group: `(instances,)`, ascending: instances of one group are never each other's neighbours. By default the
            groups are the samples of `(n, m, d)`; in `(instances, d)`, each instance is its own group.
        seed: the seed of the random draws.

    Returns:
        The index.

    Raises:
        InputError: the vectors are not finite or differ in shape, or an argument is out of range.
        MissingExtraError: the method needs a package that is not installed.

    Examples:
        >>> index = build(torch.tensor([[0.0], [1.0], [5.0]]))
        >>> index
        Index(3 vectors of 1 dimensions, exact)
        >>> search(index, torch.tensor([[4.0]]), k=2).index.tolist()
        [2, 1]
    """
    one_of(method, "method", METHODS)
    k = whole_number(k, "k", 1)
    recall, seed = real_number(recall, "recall", above=0, most=1), seed_number(seed)
    values, size = _flat(pool, "pool")
    _check_finite(values, "pool")
    if group is not None:
        own = whole_numbers(group, "groups (instances,)").long().to(values.device).contiguous()
        if own.shape != values.shape[:1] or bool((own[1:] < own[:-1]).any()) or (len(own) and int(own[0]) < 0):
            raise InputError(f"expected groups of shape ({len(values)},), ascending from 0 on, got {shown(group)}")
        return build_of(Vectors(values, own), method, len(values), k, recall, seed)
    return build_of(Vectors(values, None, size), method, len(values), k, recall, seed)


def build_of(pool: Vectors, method: str, queries: int, k: int | None = 1, recall: float = 0.95, seed: int = 0) -> Index:
    """As `build`, for vectors that were checked, and a number of `queries` to come."""
    chosen, reason = chosen_method(method, queries, pool.values)
    if chosen == "exact":
        return Index(pool, chosen, reason)
    scale = scale_of(pool.values, pool.values, torch.float32)
    if scale is None:
        if method == "auto":
            return Index(pool, "exact", "the vectors are of sizes too different for single precision")
        raise InputError(
            "the embeddings are of sizes too different for FAISS, which knows single precision only; use the exact "
            'search, search="exact"'
        )
    structure = FaissStructure.built(faiss_method(chosen), pool.values, scale, seed)
    return Index(pool, chosen, reason, structure.efforts[0], structure, scale).tuned(k or 1, recall, seed)


def chosen_method(method: str, queries: int, pool: Tensor) -> tuple[str, str]:
    """The method for a number of queries in a pool, and why."""
    if not len(pool):
        return "exact", "the pool is empty"
    if method != "auto":
        return method, "asked for"
    pairs = f"{queries:,} × {len(pool):,} pairs"
    if queries * len(pool) <= EXACT_PAIRS:
        return "exact", f"{pairs} are few"
    if pool.device.type != "cpu":
        return "exact", f"the pool is on {pool.device}"
    if find_spec("faiss") is None:
        return "exact", f"{pairs} are many, but FAISS is not installed: pip install 'clipper-nesy[faiss]'"
    return "ivf", f"{pairs} are many, and FAISS is installed"


def search(
    index: Index,
    queries: Tensor,
    k: int | None = 1,
    radius: float | None = None,
    *,
    group: Tensor | None = None,
    measured: int | None = None,
    seed: int = 0,
    progress: CountProgress | None = None,
) -> Neighbours:
    """The k nearest of each query in the pool of an index.

    Args:
        index: what `build` made, or `Index.load` read.
        queries: `(queries, d)`.
        k: how many neighbours, or as many as exist; None for all within `radius`.
        radius: only neighbours nearer than this.
        group: `(queries,)`: the group that each query belongs to; instances of that group are left out. -1, the
            default, for none.
        measured: for how many of the queries recall is measured; by default one in a hundred, 100 to 1,000 of them.
        seed: the seed of the draw of these queries.
        progress: called with the number of queries done and their total.

    Returns:
        Pairs of a query and an instance of the pool, sorted by query, then distance; and a report on how they were
        found.

    Raises:
        InputError: the queries are not finite or not of the pool's dimension, or an argument is out of range.
        BudgetError: more pairs lie within `radius` than memory should hold.

    Examples:
        >>> index = build(torch.tensor([[0.0], [1.0], [5.0]]))
        >>> near = search(index, torch.tensor([[0.2], [9.0]]), k=1)
        >>> near.index.tolist(), near.report.recall
        ([0, 2], 1.0)
    """
    if not isinstance(index, Index):
        raise InputError(f"expected an Index, got {shown(index)}; build(pool) makes one, Index.load(path) reads one")
    k = None if k is None else whole_number(k, "k", 1)
    limit = math.inf if radius is None else real_number(radius, "radius", above=0, finite=False)
    if k is None and radius is None:
        raise InputError("expected k, radius or both, got neither")
    measured = None if measured is None else whole_number(measured, "number of queries to measure recall for", 0)
    mine = index.vectors.values
    values, _ = _flat(queries, "queries")
    if values.shape[1] != mine.shape[1]:
        raise InputError(f"expected queries of {mine.shape[1]} dimensions like the index, got {values.shape[1]}")
    _check_finite(values, "queries")
    values = values.to(mine)
    own = torch.full((len(values),), -1, device=mine.device)
    if group is not None:
        own = whole_numbers(group, "groups (queries,)").long().to(mine.device).contiguous()
        if own.shape != values.shape[:1]:
            raise InputError(f"expected groups of shape ({len(values)},), got {shown(group)}")
    return index.neighbours(Vectors(values, own), k, limit, progress, measured, seed_number(seed))


@dataclass(frozen=True)
class IndexedSearch:
    """A neighbour search that builds an index of the pool, or uses one saved in a folder.

    Attributes:
        method: as in `build`; "faiss" is another name for "ivf".
        recall: the share of the true neighbours that should be found.
        seed: the seed of the random draws.
        folder: where the index is saved. If there is none yet, it is built and saved there.

    Examples:
        >>> from clipper import ProximityGraph
        >>> graph = ProximityGraph.from_embeddings(torch.rand(50, 2, 3), k=2, search=IndexedSearch("exact"))
        >>> graph.reports[0].method
        'exact'
    """

    method: str = "auto"
    recall: float = 0.95
    seed: int = 0
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        one_of(self.method, "method", NAMES)
        real_number(self.recall, "recall", above=0, most=1)
        seed_number(self.seed)
        if self.folder is not None:
            checked_path(self.folder)

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: CountProgress | None = None,
    ) -> Neighbours:
        """As in `NeighbourSearch.find`; approximate methods may miss some neighbours and return farther ones.

        Raises:
            FileError: the index in the folder is damaged, or cannot be written.
            InputError: the index in the folder was built for another pool or by another method.
            MissingExtraError: the method needs a package that is not installed.
        """
        if progress:
            progress(0, len(queries.values))  # an index takes time before the first query
        return self.index(pool, len(queries.values), k).find(queries, pool, k, radius, progress)

    def index(self, pool: Vectors, queries: int, k: int | None = 1) -> Index:
        """The index of a pool for a number of queries: the one in the folder, or a new one."""
        method = "ivf" if self.method == "faiss" else self.method
        if self.folder is None:
            return build_of(pool, method, queries, k, self.recall, self.seed)
        if not (Path(self.folder) / MANIFEST).exists():
            check_folder(Path(self.folder))
            index = build_of(pool, method, queries, k, self.recall, self.seed)
            index.save(self.folder)
            return index
        index = Index.load(self.folder)
        if method not in ("auto", index.method):
            raise InputError(f'the index in {self.folder} is by "{index.method}", not by "{method}"; remove it first')
        return index


def search_named(given: object) -> NeighbourSearch | None:
    """The search that a name, an index or a search of the caller's own stands for; None if it is none of these."""
    if isinstance(given, str):
        return IndexedSearch(given) if given in NAMES else None
    if isinstance(given, bytes | type) or not callable(getattr(given, "find", None)):
        return None
    return given  # type: ignore[return-value]


def _recall(exact: Neighbours, found: Neighbours, queries: int) -> float:
    """The share of the pairs of an exact search that were found; pairs at the same distance count as equal."""
    if not len(exact):
        return 1.0
    farthest = torch.zeros(queries, dtype=exact.distance.dtype, device=exact.query.device)
    farthest.scatter_reduce_(0, exact.query, exact.distance, "amax")
    right = found.distance <= farthest[found.query] * (1 + 1e-6)
    wanted = torch.bincount(exact.query, minlength=queries)
    return float(torch.bincount(found.query[right], minlength=queries).minimum(wanted).sum() / len(exact))


def _flat(given: object, name: str) -> tuple[Tensor, int]:
    """Vectors `(instances, d)` of single or double precision, and how many of them make a group."""
    values = as_tensor(given, f"{name} (instances, d)").detach()
    if values.ndim not in (2, 3) or not math.prod(values.shape[1:]):
        raise InputError(f"expected {name} of shape (instances, d) or (samples, slots, d), got {tuple(values.shape)}")
    size = values.shape[1] if values.ndim == 3 else 1
    values = values.flatten(0, -2)
    return values if values.dtype in TYPES else values.float(), size


def _check_finite(values: Tensor, name: str) -> None:
    if math.isfinite(float(values.sum())):
        return
    bad = (~torch.isfinite(values).all(1)).nonzero().flatten()
    if len(bad):
        raise InputError(
            f"expected finite numbers in the {name}, got NaN or infinity in {len(bad)} vectors, the first of them "
            f"{int(bad[0])}; check the encoder and its input"
        )


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tables of vectors are equal; looked at in pieces, because they may be mapped files."""
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    step = 1 << 16
    return all(torch.equal(a[i : i + step], b[i : i + step].to(a.device)) for i in range(0, len(a), step))
