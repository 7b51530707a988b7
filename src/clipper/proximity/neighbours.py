"""Nearest-neighbour search: the protocol, and the exact search. Approximate methods are in `index.py`.

A search knows vectors and groups, but no samples, slots or labels. Instances of one group are never each other's
neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from clipper.arguments import CountProgress, as_tensor, whole_number
from clipper.errors import BudgetError, InputError
from clipper.proximity.selection import (
    WIDE,
    by_row_then_value,
    entries_up_to,
    first_of_each_row,
    in_doubt,
    kth_smallest,
    one_per_row,
)
from clipper.proximity.ties import DistinctPool, PreciseDistances, lengths, nearest_distinct

DistanceFunction = Callable[[Tensor, Tensor], Tensor]
"""`(queries, d), (pool, d) -> (queries, pool)`: a distance function of the user."""

MOST_EDGES = 200_000_000
"""The most pairs that a search returns; with more, it raises a `BudgetError`."""

POOL_PIECE = 1 << 14
"""Instances of the pool that queries are compared with at a time."""

_NEAR = 1024
"""A squared distance below this many rounding errors is measured again."""

_SMALL = 1e-30
"""A radius below this may be 0 in the precision of the embeddings."""

_TIES = 16
"""If a query has more uncertain pairs than this, beyond 2 k, it goes to `ties.py`."""

_PAIRS = 1 << 22
"""Up to this many pairs within a radius, all are checked without first counting the uncertain ones."""

_MOST_SLACK = 1e-9
"""A share of the largest number: where rounding errors are larger than that, squares may overflow."""


@dataclass(frozen=True)
class SearchReport:
    """By which method neighbours were found, why that method was chosen, and its recall.

    Attributes:
        method: "exact", "ivf", "hnsw" or "nn-descent".
        reason: why this method.
        recall: the share of the true neighbours that were found, measured against the exact search. 1 for the exact
            search itself, None if it was not measured.
        measured: for how many queries it was measured.

    Examples:
        >>> print(SearchReport("ivf", "asked for", 0.968, 1000))
        ivf (asked for); recall 0.968 on 1,000 of the queries
    """

    method: str
    reason: str
    recall: float | None = None
    measured: int = 0

    @classmethod
    def together(cls, reports: Sequence[SearchReport]) -> tuple[SearchReport, ...]:
        """One report for each method and reason, its recall over all queries that it was measured for.

        Examples:
            >>> SearchReport.together([SearchReport("ivf", "asked for", r, n) for r, n in ((0.9, 100), (1.0, 300))])
            (SearchReport(method='ivf', reason='asked for', recall=0.975, measured=400),)
        """
        joined: dict[tuple[str, str], SearchReport] = {}
        for new in reports:
            old = joined.setdefault((new.method, new.reason), replace(new, measured=0))
            queries = old.measured + new.measured
            share = old.recall if not queries else (_found(old) + _found(new)) / queries
            joined[new.method, new.reason] = replace(old, recall=share, measured=queries)
        return tuple(joined.values())

    def __str__(self) -> str:
        measured = "" if not self.measured else f"; recall {self.recall:.3f} on {self.measured:,} of the queries"
        return f"{self.method} ({self.reason}){measured}"


def _found(report: SearchReport) -> float:
    """Recall times the number of measured queries."""
    return report.measured * (report.recall or 0.0)


@dataclass(frozen=True)
class Neighbours:
    """Pairs sorted by query, then distance, then pool index.

    Attributes:
        query: which of the queries, `(pairs,)`.
        index: which of the pool's instances, `(pairs,)`.
        distance: the distance between them, `(pairs,)`.
        report: how they were found, if known.
    """

    query: Tensor
    index: Tensor
    distance: Tensor
    report: SearchReport | None = None

    def take(self, places: Tensor) -> Neighbours:
        """The pairs at some `places (rows,)`."""
        query, index, distance = (each.index_select(0, places) for each in (self.query, self.index, self.distance))
        return Neighbours(query, index, distance)

    def __len__(self) -> int:
        return len(self.query)


class Vectors:
    """Vectors to search, and the groups of their instances.

    Attributes:
        values: `(instances, d)`.
        group: `(instances,)`, ascending where it is the pool; instances of one group are never neighbours.
        group_size: the size of every group, if all have the same size and follow one another; else 0.
        largest_group: an upper bound on the size of a group; None if unknown.
        check_finite: raises an error if a vector holds NaN or infinity; the caller provides it, with its own message.
    """

    def __init__(
        self,
        values: Tensor,
        group: Tensor | None = None,
        group_size: int = 0,
        *,
        largest_group: int | None = None,
        check_finite: Callable[[], None] = lambda: None,
    ) -> None:
        """Store vectors and their groups; without `group`, every `group_size` consecutive instances are a group."""
        self.values, self.group_size, self.check_finite = values, group_size, check_finite
        self.largest_group = group_size or largest_group
        if group is not None:
            self.group = group

    @cached_property
    def group(self) -> Tensor:
        """The group of each instance, `(instances,)`."""
        return torch.arange(len(self.values), device=self.values.device) // self.group_size

    @cached_property
    def centre(self) -> Tensor:
        """The mean of all vectors, `(d,)`."""
        return self.values.mean(0)

    def part(self, start: int, stop: int) -> Vectors:
        """The instances from `start` to `stop - 1`."""
        return Vectors(self.values[start:stop], self.group[start:stop], largest_group=self.largest_group)


class NeighbourSearch(Protocol):
    """The protocol of a neighbour search."""

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: CountProgress | None = None,
    ) -> Neighbours:
        """The k nearest of each query less than `radius` away, outside its group.

        Args:
            queries: the vectors whose neighbours are wanted.
            pool: the vectors to search.
            k: how many; None for all within `radius`.
            radius: neighbours must be nearer than this.
            progress: called with the number of queries done and their total.

        Returns:
            The pairs, sorted by query, then distance, then pool index.
        """


@dataclass(frozen=True)
class ExactSearch:
    """Exact search in bounded memory, by matrix products or any distance function.

    A matrix product ranks the pool up to rounding errors. Every pair whose rank could be wrong because of rounding is
    measured again, coordinate by coordinate. So equal vectors have distance 0, and of neighbours at the same distance
    the one with the lower index comes first.

    Attributes:
        distance: a function from `(queries, d)` and `(pool, d)` to their distances `(queries, pool)`; None for the
            Euclidean distance.
        memory: how many distances are held at a time.
    """

    distance: DistanceFunction | None = None
    memory: int = 1 << 25

    def __post_init__(self) -> None:
        whole_number(self.memory, "memory", 1)
        if self.distance is not None and not callable(self.distance):
            raise InputError(f"expected a distance function, or None for the Euclidean distance, got {self.distance!r}")

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: CountProgress | None = None,
    ) -> Neighbours:
        """As in `NeighbourSearch.find`, exactly.

        Raises:
            BudgetError: there are more pairs than memory should hold.
            InputError: a distance overflows, or the distance function does not return finite distances.
        """
        total, size = queries.values.shape[0], pool.values.shape[0]
        if not total or not size:
            return Neighbours(pool.group[:0], pool.group[:0], pool.values.new_empty(0))
        k = None if k is None else min(k, size)
        if k is not None and k * total > MOST_EDGES:
            raise BudgetError(f"k={k} neighbours of {total} instances are more than {MOST_EDGES:,} edges: lower k")
        if radius < _SMALL:  # rounding must not make it 0
            radius = max(radius, torch.finfo(pool.values.dtype).tiny * torch.finfo(pool.values.dtype).eps)
        width = min(size, POOL_PIECE)
        rows = max(1, self.memory // (width if k is None or k <= width else size))
        ties = _Ties(self.distance, queries, pool, k, radius)
        found, pairs, counted = [], 0, False
        parts = [(start, min(start + rows, total)) for start in range(0, total, rows)]
        while parts:
            start, stop = parts.pop(0)
            part = queries if stop - start == total else queries.part(start, stop)
            near, tied = self._find_for(part, pool, k, radius, width, ties)
            if near is None:
                if not counted:
                    counted = self._count(queries, pool, radius, width, rows)
                parts[:0] = [(start, (start + stop) // 2), ((start + stop) // 2, stop)]
                continue
            if tied is not None and len(tied):
                scale = None if start or self.distance else scale_of(queries.values, pool.values, pool.values.dtype)
                if scale not in (None, 1):
                    return scaled_back(self.find(*scaled(queries, pool, scale), k, radius * scale, progress), scale)
                near = best_pairs(joined([near, *ties.neighbours(part, tied)]), None, math.inf)
                check_distances(near)
            found.append(Neighbours(near.query + start if start else near.query, near.index, near.distance))
            pairs += near.query.shape[0]
            check_budget(pairs, radius)
            if progress:
                progress(stop, total)
        return joined(found)

    def _count(self, queries: Vectors, pool: Vectors, radius: float, width: int, rows: int) -> bool:
        """Raise an error if too many pairs lie within the radius, before they are listed."""
        pairs = 0
        for start in range(0, len(queries.values), rows):
            part = queries.part(start, start + rows)
            for first in range(0, len(pool.values), width):
                score, slack = self._scores(part, pool.part(first, first + width))
                bound = (radius if self.distance else radius * radius) - slack
                pairs += int((score < bound[:, None]).count_nonzero())
                check_budget(pairs, radius)
        return True

    def _find_for(
        self, queries: Vectors, pool: Vectors, k: int | None, radius: float, width: int, ties: _Ties
    ) -> tuple[Neighbours | None, Tensor | None]:
        """The neighbours of some queries, and the queries left out because too many of their pairs are uncertain.

        None for the neighbours if they are too many to list at once.
        """
        if ties.many:
            return _all_tied(queries)
        largest = torch.finfo(queries.values.dtype).max
        bound: Tensor | None = None  # (queries,): no pair above it is wanted
        tied: Tensor | None = None  # (queries,): which have too many pairs in doubt
        parts, errors = [], []
        size = pool.values.shape[0]
        for start in range(0, size, width):
            piece = pool if width == size else pool.part(start, start + width)
            score, slack = self._scores(queries, piece)  # (queries, piece), (queries,)
            if k == 1 and radius == math.inf and queries is piece and 1 < size < WIDE:
                near = self._nearest(score, slack)
                if near is not None:
                    return near, None
            if k is None:
                bound = slack + (radius if self.distance else radius * radius)
            elif k <= piece.values.shape[0]:
                own = kth_smallest(score, k) + slack
                bound = own if bound is None else torch.minimum(bound, own)
            limit = (torch.full_like(slack, largest) + slack if bound is None else bound).clamp(max=largest)
            most = _PAIRS if k is None else score.shape[0] * (2 * k + _TIES)
            entries = entries_up_to(score, limit if tied is None else limit.masked_fill(tied, -math.inf), most)
            if entries is None:
                doubtful = in_doubt(score, limit, slack, most // len(score))
                tied = doubtful if tied is None else tied | doubtful
                entries = entries_up_to(
                    score, limit.masked_fill(tied, -math.inf), most if k is None and len(score) > 1 else score.numel()
                )
                if entries is None:
                    return None, None
            query, index = entries
            if not len(query) and bool(slack[0].isnan()):
                ties.check_finite()
                return _all_tied(queries)
            parts.append(Neighbours(query, index + start if start else index, score[query, index]))
            errors.append(slack)
        found = joined(parts)
        if tied is not None and len(parts) > 1:
            found = found.take((~tied[found.query]).nonzero().flatten())
        single = k == 1 and one_per_row(found.query)
        if self.distance is None:  # ties may be in different pieces, so all are checked together
            slack = errors[0] if len(errors) == 1 else torch.stack(errors).amax(0)
            doubtful = _doubtful(found.query, found.distance, slack[found.query], radius, single)
            found = self._measured(queries.values, pool.values, found, doubtful)
        if tied is not None:
            return best_pairs(found, k, radius, single), tied.nonzero().flatten()
        if single and radius == math.inf:
            return found, None
        outside = None if pool.largest_group is None else size - pool.largest_group  # of a query's own group
        enough = k is not None and radius == math.inf and outside is not None and k <= outside
        return best_pairs(found, k, radius, single, len(queries.values) if enough else None), None

    def _nearest(self, score: Tensor, slack: Tensor) -> Neighbours | None:
        """The nearest of every instance of the pool; None if rounding matters for any of them."""
        scores, index = score.topk(2, dim=1, largest=False)
        nearest, second = scores.unbind(1)
        if not bool(((second > nearest + slack) & (nearest > _NEAR * slack)).all()):
            return None
        distance = nearest.contiguous() if self.distance else nearest.sqrt()
        return Neighbours(torch.arange(len(score), device=score.device), index[:, 0].contiguous(), distance)

    def _scores(self, queries: Vectors, pool: Vectors) -> tuple[Tensor, Tensor]:
        """Scores that rank the pool for each query, `(queries, pool)`, infinite within a group; bounds on their errors.

        All bounds are NaN if the scores cannot be trusted.
        """
        if self.distance is not None:
            score = _called(self.distance, queries.values, pool.values)
            slack = torch.zeros_like(score[:, 0])
        else:
            score, slack = _squared_distances(queries, pool)
        _leave_out_own_group(score, queries, pool)
        return score, slack

    def _measured(self, queries: Tensor, pool: Tensor, pairs: Neighbours, doubtful: Tensor) -> Neighbours:
        """The pairs with distances instead of squared ones; uncertain ones are measured coordinate by coordinate."""
        query, index, distance = pairs.query, pairs.index, pairs.distance.clamp(min=0).sqrt_()
        if doubtful.shape[0]:
            for part in torch.split(doubtful, max(1, self.memory // max(1, queries.shape[1]))):
                distance[part] = lengths(queries.index_select(0, query[part]), pool.index_select(0, index[part]))
        return Neighbours(query, index, distance)


@dataclass
class _Ties:
    """Double-precision search for queries with too many uncertain pairs; built when first needed."""

    distance: DistanceFunction | None
    queries: Vectors
    pool: Vectors
    k: int | None
    radius: float
    many: bool = False
    """Whether the pool has so few distinct vectors that searching these is faster for all queries."""

    def check_finite(self) -> None:
        """Raise an error if a vector holds NaN or infinity."""
        self.pool.check_finite()
        self.queries.check_finite()

    @cached_property
    def _distinct(self) -> DistinctPool:
        made = DistinctPool.of(self.pool.values, self.pool.group, merge=self.distance is None)
        self.many = 8 * len(made.values) <= len(self.pool.values)
        return made

    @cached_property
    def _wanted(self) -> int | None:
        """How many distinct vectors surely contain the k nearest: some may belong only to the query's own group."""
        own = own_group_size(self.queries.group, self.pool.group)
        return None if self.k is None else min(self.k + own, len(self._distinct.values))

    @cached_property
    def _distances(self) -> Callable[[Tensor], Tensor]:
        if self.distance is not None:
            metric = self.distance
            return lambda queries: _called(metric, queries, self.pool.values)
        return PreciseDistances(self._distinct.values, self._wanted, self.radius)

    def neighbours(self, queries: Vectors, rows: Tensor) -> Iterator[Neighbours]:
        """The neighbours of the queries `rows`."""
        values, group = queries.values[rows], queries.group[rows]
        parts = nearest_distinct(
            values, group, self._distinct, self.k, self.radius, self._distances, self._wanted, MOST_EDGES
        )
        for row, index, distance in parts:
            yield best_pairs(Neighbours(rows[row], index, distance), self.k, self.radius)


def _all_tied(queries: Vectors) -> tuple[Neighbours, Tensor]:
    """No neighbours, and all queries left out."""
    everyone = torch.arange(len(queries.values), device=queries.values.device)
    return Neighbours(everyone[:0], everyone[:0], queries.values[:0, 0]), everyone


def _doubtful(query: Tensor, score: Tensor, slack: Tensor, radius: float, single: bool) -> Tensor:
    """Pairs for which rounding matters: very near, close to the radius, or nearly tied with another of their query."""
    doubt = score <= _NEAR * slack
    if radius < math.inf:
        doubt |= (score - radius * radius).abs() <= slack
    if not single:
        order = score.argsort()
        order = order[query[order].argsort(stable=True)]
        row, value = query[order], score[order]
        tied = (row[1:] == row[:-1]) & (value[1:] - value[:-1] <= slack[order[1:]])  # with the one before
        tied = torch.constant_pad_nd(tied, (1, 0)) | torch.constant_pad_nd(tied, (0, 1))
        doubt |= torch.empty_like(doubt).scatter_(0, order, tied[: len(order)])
    return doubt.nonzero().flatten()


def _squared_distances(queries: Vectors, pool: Vectors) -> tuple[Tensor, Tensor]:
    """Squared distances up to rounding, `(queries, pool)`, and a bound on the rounding of each row.

    The bounds are NaN if squares may overflow, or a vector holds NaN.
    """
    b = pool.values - pool.centre  # distances do not change, but there is less to cancel
    a = b if queries is pool else queries.values - pool.centre
    b_norm = torch.linalg.vector_norm(b, dim=1).square_()
    a_norm = b_norm if queries is pool else torch.linalg.vector_norm(a, dim=1).square_()
    score = torch.addmm(b_norm[None], a, b.T, alpha=-2).add_(a_norm[:, None])
    unit = torch.finfo(score.dtype).eps * (4 + math.sqrt(a.shape[1]))
    underflow = a.shape[1] * torch.finfo(score.dtype).tiny
    longest = b_norm.max()
    largest = longest if queries is pool else torch.maximum(longest, a_norm.max())
    trusted = largest < (_MOST_SLACK * torch.finfo(score.dtype).max - underflow) / (4 * unit)
    return score, (a_norm + longest).mul_(2 * unit).add_(underflow).masked_fill_(~trusted, math.nan)


def _called(distance: DistanceFunction, queries: Tensor, pool: Tensor) -> Tensor:
    score = as_tensor(distance(queries, pool), "distances from the metric")
    finite = bool(torch.isfinite(score).all())
    if score.shape != (len(queries), len(pool)) or not finite:
        raise InputError(
            f"expected finite distances of shape ({len(queries)}, {len(pool)}) from the metric, "
            f"got shape {tuple(score.shape)}{'' if finite else ' with NaN or infinity'}"
        )
    return score.to(queries, copy=True)


def _leave_out_own_group(score: Tensor, queries: Vectors, pool: Vectors) -> None:
    """Make the scores within a group infinite; the pool's groups are ascending."""
    if queries is pool and pool.group_size:  # consecutive groups of one size: the blocks on the diagonal
        size = pool.group_size
        score.view(-1, size, score.shape[1] // size, size).diagonal(dim1=0, dim2=2).fill_(math.inf)
        return
    first = torch.searchsorted(pool.group, queries.group)
    last = torch.searchsorted(pool.group, queries.group, right=True)
    most = int((last - first).max()) if pool.largest_group is None else pool.largest_group
    reach = first[:, None] + torch.arange(most, device=score.device)
    column = torch.minimum(reach, last[:, None] - 1)  # (queries, largest group); of a smaller group, the last one again
    if queries is pool:
        score.scatter_(1, column, math.inf)
    else:  # some queries may be of no group
        own = torch.where(first < last, math.inf, -math.inf).to(score.dtype)[:, None].expand_as(column)
        score.scatter_reduce_(1, column.clamp(min=0), own, "amax")


def own_group_size(query: Tensor, pool: Tensor) -> int:
    """How many instances of the pool a query may have to leave out; `pool (P,)` is ascending."""
    sizes = torch.searchsorted(pool, query, right=True) - torch.searchsorted(pool, query)
    return int(sizes.max())


def best_pairs(
    pairs: Neighbours, k: int | None, radius: float, single: bool | None = None, queries: int | None = None
) -> Neighbours:
    """The first k of each query (all if None) that lie within the radius.

    Args:
        pairs: the pairs, in any order.
        k: how many pairs of each query to keep.
        radius: only pairs nearer than this.
        single: whether queries ascend and none occurs twice; computed if not given.
        queries: the number of queries, if each is known to have at least k pairs within the radius.
    """
    if not (one_per_row(pairs.query) if single is None else single):
        pairs = pairs.take(by_row_then_value(pairs.query, pairs.distance, pairs.index))
    if queries is not None and k is not None:
        start = torch.searchsorted(pairs.query, torch.arange(queries, device=pairs.query.device))
        return pairs.take((start[:, None] + torch.arange(k, device=start.device)).flatten())
    if k is None and radius == math.inf:
        return pairs
    keep = torch.ones_like(pairs.query, dtype=torch.bool) if radius == math.inf else pairs.distance < radius
    if k is not None:
        keep &= first_of_each_row(pairs.query, k)
    return pairs.take(keep.nonzero().flatten())


def check_budget(pairs: int, radius: float) -> None:
    """Raise an error if there are more edges than memory should hold."""
    if pairs > MOST_EDGES:
        raise BudgetError(f"more than {MOST_EDGES:,} pairs lie within radius {radius}: choose a smaller one")


def check_distances(found: Neighbours) -> Neighbours:
    """The pairs. Raises an error if a distance overflows in the precision of the embeddings."""
    bad = (~torch.isfinite(found.distance)).nonzero().flatten()
    if len(bad):
        raise InputError(
            f"the distance between two neighbours is beyond the largest number of {found.distance.dtype} "
            f"({len(bad)} of {len(found.distance)} edges); scale the embeddings down, for example embeddings / 4"
        )
    return found


def scale_of(queries: Tensor, pool: Tensor, dtype: torch.dtype) -> float | None:
    """A power of two that brings embeddings of an unusual size near 1; None if some would lose digits in `dtype`."""
    limits = torch.finfo(dtype)
    sizes = [values.abs() for values in (queries, pool)]
    top = max(float(size.max()) for size in sizes)
    if not top or limits.eps**2 < top < limits.max**0.5 * limits.eps:
        return 1.0
    widest = math.frexp(limits.max)[1] - 8  # so that the factor itself does not overflow
    exponent = max(-widest, min(widest, -math.frexp(top)[1]))
    least = min(float(size.where(size > 0, math.inf).min()) for size in sizes)
    return 2.0**exponent if math.ldexp(least, exponent) >= limits.tiny else None


def scaled(queries: Vectors, pool: Vectors, scale: float) -> tuple[Vectors, Vectors]:
    """Queries and pool, multiplied by a number."""
    larger = Vectors(pool.values * scale, pool.group, pool.group_size)
    return larger if queries is pool else Vectors(queries.values * scale, queries.group), larger


def scaled_back(found: Neighbours, scale: float) -> Neighbours:
    """The distances between the vectors before they were `scaled`."""
    return check_distances(Neighbours(found.query, found.index, found.distance / scale))


def joined(parts: list[Neighbours]) -> Neighbours:
    """Several results as one."""
    if len(parts) == 1:
        return parts[0]
    columns: Iterator[tuple[Tensor, ...]] = zip(*((p.query, p.index, p.distance) for p in parts), strict=True)
    query, index, distance = (torch.cat(column) for column in columns)
    return Neighbours(query, index, distance)
