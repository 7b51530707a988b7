"""ProximityGraph: which instances are so similar that they should share a label.

This file knows embeddings and instance ids, but no candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clipper.arguments import (
    CountProgress,
    as_tensor,
    real_number,
    shown,
    usable_device,
    whole_number,
    whole_numbers,
    yes_or_no,
)
from clipper.errors import InputError
from clipper.proximity.index import METHODS, chosen_method, search_named
from clipper.proximity.instances import Embeddings, OneEmbedding, Pool, instances_of, one_table, vectors_of
from clipper.proximity.neighbours import (
    DistanceFunction,
    ExactSearch,
    Neighbours,
    NeighbourSearch,
    SearchReport,
    Vectors,
    joined,
    own_group_size,
)

Metric = str | DistanceFunction
Search = str | NeighbourSearch | Mapping[str, "str | NeighbourSearch"]


@dataclass(frozen=True, eq=False)
class ProximityGraph:
    """Directed edges from instance to instance (id = sample · slots + slot).

    Attributes:
        source: `(E,)` instance ids.
        target: `(E,)` instance ids, in the pool if there is one.
        distance: `(E,)`, the length of each edge.
        instances: how many instances edges can start from, and how many they can lead to, if known.
        degree: how many edges start at each instance, if that is the same for all and the edges are sorted by source.
        reports: how neighbours were found, for each kind of label and encoder; empty if they were given.

    Examples:
        >>> embeddings = torch.tensor([[[0.0], [9.0]], [[0.1], [5.0]]])  # (samples, slots, d)
        >>> graph = ProximityGraph.from_embeddings(embeddings, k=1)
        >>> list(zip(graph.source.tolist(), graph.target.tolist()))
        [(0, 2), (1, 3), (2, 0), (3, 1)]
    """

    source: Tensor
    target: Tensor
    distance: Tensor
    instances: tuple[int, int] | None = None
    degree: int | None = None
    reports: tuple[SearchReport, ...] = ()

    @classmethod
    def from_embeddings(
        cls,
        embeddings: Embeddings,
        k: int | None = 1,
        radius: float | None = None,
        mutual: bool = False,
        metric: Metric = "l2",
        *,
        share: float | None = None,
        kind: Tensor | None = None,
        kinds: Sequence[str] | None = None,
        within_sample: bool = False,
        pool: Pool | None = None,
        search: Search | None = None,
        allow_fewer: bool = False,
        progress: CountProgress | None = None,
    ) -> ProximityGraph:
        """Connect each instance to the instances that lie close to it.

        If two instances are equally far, the one with the lower id counts as nearer. With the cosine metric, zero
        vectors are at distance 0 from one another and at distance 1 from everything else. Distances are rounded, so
        that a pair at exactly `radius`, such as orthogonal vectors with the cosine metric and radius 1, may count as
        nearer; choose a radius a little smaller to leave such pairs out.

        Args:
            embeddings: `(n, m, d)`, a tensor, an array or nested lists. A list of tensors or arrays for several
                encoders of the same instances, whose edges are merged. A mapping from kind to embeddings if each kind
                of label has its own encoder (then `kind` and `kinds` are needed).
            k: edges to the k nearest; None for all within `radius`.
            radius: only edges shorter than this.
            mutual: only edges between instances that are each other's neighbours.
            metric: "l2", "cosine", or a function `(a, d), (b, d) -> (a, b)`.
            share: only this share of the edges, the shortest ones; 0.5 for the shorter half.
            kind: `(n, m)`, as `Candidates.kind`: instances of different kinds are not connected, -1 is unused.
            kinds: the names of the kinds, in the order of their numbers in `kind`.
            within_sample: allow edges between instances of one sample.
            pool: look for neighbours among these instances instead of among `embeddings`.
            search: "exact", "ivf", "hnsw", "nn-descent", an `Index` of these instances, or a search of your own. By
                default chosen by the size of the pool; `reports` says which. A mapping from kind to search if the
                embeddings are a mapping.
            allow_fewer: if fewer than k neighbours exist, use these instead of raising an error.
            progress: called with the number of instances done and their total.

        Returns:
            The graph, its edges sorted by source, then distance.

        Raises:
            InputError: the embeddings are not finite or differ in shape, an option is out of range, or there are fewer
                than k neighbours.
            BudgetError: a search within `radius` finds more edges than memory should hold.
        """
        k = None if k is None else whole_number(k, "k", 1)
        radius = None if radius is None else real_number(radius, "radius", above=0, finite=False)
        share = None if share is None else real_number(share, "share of edges", above=0, most=1)
        mutual, within_sample = yes_or_no(mutual, "mutual"), yes_or_no(within_sample, "within_sample")
        allow_fewer = yes_or_no(allow_fewer, "allow_fewer")
        _check_arguments(k, radius, metric, mutual, pool, search)
        embeddings = one_table(embeddings)
        if isinstance(embeddings, Sequence):
            parts = [
                cls.from_embeddings(
                    part, k, radius, mutual, metric, share=share, kind=kind, kinds=kinds, within_sample=within_sample,
                    pool=own, search=search, allow_fewer=allow_fewer, progress=progress,
                )
                for part, own in zip(embeddings, _pools_for(embeddings, pool), strict=True)
            ]  # fmt: skip
            reports = tuple(report for part in parts for report in part.reports)
            return replace(cls.merge(parts), reports=reports)
        found, reports = [], ()
        for group in instances_of(embeddings, kind, pool, kinds):
            queries, searched = vectors_of(group, metric == "cosine", within_sample)
            if k is not None and not allow_fewer:
                _check_enough(k, queries, searched, group.name)
            finder, reason = _finder(search, metric, group.kind, queries, searched)
            # the exact Euclidean search finds NaN and infinity by itself
            if type(finder) is not ExactSearch or finder.distance is not None:
                searched.check_finite()
                if queries is not searched:
                    queries.check_finite()
            near = finder.find(queries, searched, k, _search_radius(radius, metric), progress)
            found.append(group.named(near))
            report = SearchReport("exact", reason, 1.0) if isinstance(finder, ExactSearch) else near.report
            reports = reports if report is None else (*reports, report)
        if not found:
            nothing = torch.empty(0, dtype=torch.long)
            return cls.from_edges(nothing, nothing)
        own = _size(embeddings)
        instances = own, own if pool is None else _size(pool.embeddings)
        regular = k is not None and group.query_ids is None and len(near) == k * own
        graph = cls._assembled(found, cosine=metric == "cosine", instances=instances, degree=k if regular else None)
        return replace(graph._gated(radius if metric == "cosine" else None, mutual, share), reports=reports)

    @classmethod
    def from_edges(cls, source: Tensor, target: Tensor, distance: Tensor | None = None) -> ProximityGraph:
        """A graph with given edges; instance ids are sample · slots + slot.

        Args:
            source: where each edge starts, `(E,)`.
            target: where each edge ends, `(E,)`.
            distance: how long each edge is, `(E,)`; all 0 if not given.

        Returns:
            The graph, its edges in the given order.

        Raises:
            InputError: the shapes differ, an id is negative, or a distance is not finite.

        Examples:
            >>> ProximityGraph.from_edges([0], [2])
            ProximityGraph(1 edges)
        """
        source, target = (
            whole_numbers(source, "instance ids").long(),
            whole_numbers(target, "instance ids").long(),
        )
        length = torch.zeros(source.shape) if distance is None else as_tensor(distance, "distances").detach()
        if source.ndim != 1 or source.shape != target.shape or source.shape != length.shape:
            raise InputError(
                f"expected source, target and distance of one shape (edges,), "
                f"got {tuple(source.shape)}, {tuple(target.shape)} and {tuple(length.shape)}"
            )
        for ids in (source, target):
            if len(ids) and int(ids.min()) < 0:
                raise InputError(f"expected instance ids of 0 and more (sample · slots + slot), got {int(ids.min())}")
        if not bool(torch.isfinite(length).all()):
            raise InputError("expected finite distances, got NaN or infinity")
        length = length if length.is_floating_point() else length.float()
        return cls(source, target.to(source.device), length.to(source.device))

    @classmethod
    def merge(cls, graphs: Sequence[ProximityGraph]) -> ProximityGraph:
        """All edges of several graphs over the same instances; of edges that occur twice, the shortest is kept.

        Raises:
            InputError: the list is empty, or holds something other than graphs.
        """
        graphs = list(graphs) if isinstance(graphs, Iterable) and not isinstance(graphs, Tensor) else [graphs]
        wrong = [type(graph).__name__ for graph in graphs if not isinstance(graph, ProximityGraph)]
        if wrong or not graphs:
            raise InputError(f"expected a list of at least one graph to merge, got {wrong[0] if wrong else 'none'}")
        merged = cls._assembled(
            [Neighbours(g.source, g.target, g.distance) for g in graphs], instances=graphs[0].instances
        )
        order = merged.target.argsort(stable=True)  # the edges are sorted by source and distance already
        order = order[merged.source[order].argsort(stable=True)]
        source, target = merged.source[order], merged.target[order]
        again = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
        first = torch.cat([again.new_ones(1), ~again])[: len(source)]
        keep = torch.zeros_like(first).scatter_(0, order, first)
        return merged._subset(keep.nonzero().flatten())

    @classmethod
    def _assembled(
        cls,
        found: list[Neighbours],
        *,
        instances: tuple[int, int] | None,
        cosine: bool = False,
        degree: int | None = None,
    ) -> ProximityGraph:
        joint = joined(found)
        source, target, distance = joint.query, joint.index, joint.distance
        if cosine:
            distance = distance.square() / 2  # of unit vectors: 1 - cos
        if len(found) > 1:
            order = distance.argsort(stable=True)
            order = order[source[order].argsort(stable=True)]
            source, target, distance = source[order], target[order], distance[order]
        return cls(source, target, distance, instances, degree)

    def _gated(self, radius: float | None, mutual: bool, share: float | None) -> ProximityGraph:
        graph = self
        if radius is not None:
            graph = graph._subset((graph.distance < radius).nonzero().flatten())
        if mutual and len(graph):
            span = max(graph.instances or (0,))
            there, back = graph.source * span + graph.target, (graph.target * span + graph.source).sort().values
            found = back[torch.searchsorted(back, there).clamp(max=len(back) - 1)]
            graph = graph._subset((found == there).nonzero().flatten())
        if share is not None:
            most = math.ceil(share * len(graph) * (1 - 1e-12))  # 0.07 · 100 is a little more than 7
            closest = graph.distance.argsort(stable=True)[:most]
            graph = graph._subset(closest.sort().values)
        return graph

    @classmethod
    def joined(cls, graphs: Sequence[ProximityGraph]) -> ProximityGraph:
        """The edges of several graphs, concatenated; they must have no edge in common."""
        if len(graphs) == 1:
            return graphs[0]
        columns = zip(*((g.source, g.target, g.distance) for g in graphs), strict=True)
        source, target, distance = (torch.cat(column) for column in columns)
        return cls(source, target, distance, reports=SearchReport.together([r for g in graphs for r in g.reports]))

    def leaving(self, first: int, last: int) -> ProximityGraph:
        """The edges from the instances `first` to `last - 1`, sources counted from `first`; needs sorted sources."""
        ends = torch.tensor([first, last], device=self.source.device)
        low, high = torch.searchsorted(self.source, ends).tolist()
        edges = slice(low, high)
        return ProximityGraph(self.source[edges] - first, self.target[edges], self.distance[edges], degree=self.degree)

    def _subset(self, edges: Tensor) -> ProximityGraph:
        source, target, distance = (c.index_select(0, edges) for c in (self.source, self.target, self.distance))
        return ProximityGraph(source, target, distance, self.instances)

    def to(self, device: torch.device | str) -> ProximityGraph:
        """The same edges on another device."""
        device = usable_device(device)
        moved = {name: getattr(self, name).to(device) for name in ("source", "target", "distance")}
        return replace(self, **moved)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"ProximityGraph({len(self):,} edges)"


def _size(embeddings: Embeddings) -> int:
    """How many instances embeddings have, used or not."""
    table = next(iter(embeddings.values())) if isinstance(embeddings, Mapping) else embeddings
    samples, slots, *_ = (table if isinstance(table, Tensor) else as_tensor(table, "embeddings")).shape
    return int(samples * slots)


def _check_arguments(
    k: int | None,
    radius: float | None,
    metric: Metric,
    mutual: bool,
    pool: Pool | None,
    search: object,
) -> None:
    if k is None and radius is None:
        raise InputError("expected k, radius or both, got neither; k=1 is the paper's choice")
    named = isinstance(metric, str) and metric in ("l2", "cosine")
    if not named and (isinstance(metric, type) or not callable(metric)):
        raise InputError(f'expected the metric "l2", "cosine" or a function, got {metric!r}')
    if pool is not None and not isinstance(pool, Pool):
        raise InputError(f"expected a Pool, got {type(pool).__name__}; pool=Pool(embeddings) makes one")
    if mutual and pool is not None:
        raise InputError(
            "mutual=True needs edges in both directions, but none start at a pool's instances: leave out one"
        )
    exact = search is None or (isinstance(search, str) and search in ("auto", "exact"))
    if not exact and not isinstance(metric, str):
        raise InputError(
            "a distance function works with the exact search only: leave search out, or use a named metric"
        )


def _finder(
    search: Search | None, metric: Metric, kind: str, queries: Vectors, pool: Vectors
) -> tuple[NeighbourSearch, str]:
    """The search for a kind of label, and, if it is the exact one, the reason."""
    if isinstance(search, Mapping):
        if kind not in search:
            raise InputError(
                f"expected a search for each kind of label, got none for {kind!r}; with one search per kind, give the "
                "embeddings by kind, too"
            )
        search = search[kind]
    if not isinstance(metric, str):
        return ExactSearch(distance=metric), "the metric is a function"
    if search is None or (isinstance(search, str) and search in ("auto", "exact")):
        method, reason = chosen_method("auto" if search is None else search, len(queries.values), pool.values)
        if method == "exact":
            return ExactSearch(), reason
    found = search_named("auto" if search is None else search)
    if found is None:
        names = ", ".join(f'"{name}"' for name in METHODS)
        raise InputError(
            f"expected search to be {names}, an Index or a search such as ExactSearch(), got {shown(search)}"
        )
    return found, "asked for"


def _search_radius(radius: float | None, metric: Metric) -> float:
    """The radius to search; for the cosine metric, that between unit vectors, slightly enlarged."""
    if radius is None:
        return math.inf
    return math.sqrt(2 * radius) * (1 + 1e-6) if metric == "cosine" else float(radius)


def _check_enough(k: int, queries: Vectors, pool: Vectors, name: str) -> None:
    own, size = own_group_size(queries.group, pool.group), len(pool.values)
    if k > size - own:
        pool.check_finite()
        queries.check_finite()
        raise InputError(
            f"k={k} is larger than the pool: {size} instances{name}, of which {own} may belong to the "
            f"query's own sample, leave {size - own} neighbours; lower k or give more samples"
        )


def _pools_for(encoders: Sequence[OneEmbedding], pool: Pool | None) -> Sequence[Pool | None]:
    if pool is None:
        return [None] * len(encoders)
    theirs = pool.embeddings if isinstance(pool.embeddings, list) else [pool.embeddings]
    if len(theirs) != len(encoders):
        raise InputError(f"expected a pool with one embedding per encoder, {len(encoders)} in all, got {len(theirs)}")
    return [Pool(part, pool.kind, pool.samples) for part in theirs]
