"""Nearest neighbours behind one protocol: exact here, approximate in `approximate.py`.

A search knows vectors and groups; it knows nothing of samples, slots or labels. Instances of one group are never
each other's neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clipper.errors import BudgetError, InputError
from clipper.proximity.selection import by_row_then_value, entries_up_to, first_of_each_row, kth_smallest

DistanceFunction = Callable[[Tensor, Tensor], Tensor]
"""`(queries, d), (pool, d) -> (queries, pool)`: any distance a user may prefer."""

Progress = Callable[[int, int], None]
"""Called with the number of queries done and their total."""

MOST_EDGES = 200_000_000
"""Pairs that a radius search returns before it says that the radius is too large."""


@dataclass(frozen=True)
class Neighbours:
    """Pairs sorted by query, then distance, then pool index."""

    query: Tensor
    """`(pairs,)`"""
    index: Tensor
    """`(pairs,)`, into the pool."""
    distance: Tensor
    """`(pairs,)`"""


@dataclass(frozen=True)
class Vectors:
    """What is searched: `values (instances, d)` and their `group (instances,)`, ascending where it is the pool."""

    values: Tensor
    group: Tensor


class NeighbourSearch(Protocol):
    """What a neighbour search must offer."""

    def nearest(self, queries: Vectors, pool: Vectors, k: int, progress: Progress | None = None) -> Neighbours:
        """The k nearest of each query outside its group (fewer if there are no more)."""

    def within(self, queries: Vectors, pool: Vectors, radius: float, progress: Progress | None = None) -> Neighbours:
        """All pairs less than `radius` apart, outside their groups."""


@dataclass(frozen=True)
class ExactSearch:
    """Exact search in bounded memory: by matrix products, or by any distance function.

    A matrix product ranks the pool up to rounding; every pair that rounding could have misplaced is measured again,
    coordinate by coordinate, so that equal vectors are at distance 0 and ties go to the lower index.
    """

    distance: DistanceFunction | None = None
    """Euclidean if None."""
    memory: int = 1 << 24
    """Distances held at a time."""

    def nearest(self, queries: Vectors, pool: Vectors, k: int, progress: Progress | None = None) -> Neighbours:
        """The k nearest of each query outside its group."""
        return self._search(queries, pool, k, math.inf, progress)

    def within(self, queries: Vectors, pool: Vectors, radius: float, progress: Progress | None = None) -> Neighbours:
        """All pairs less than `radius` apart."""
        return self._search(queries, pool, None, radius, progress)

    def _search(
        self, queries: Vectors, pool: Vectors, k: int | None, radius: float, progress: Progress | None
    ) -> Neighbours:
        width = min(len(pool.values), 1 << 14)
        rows = max(1, self.memory // max(1, width))
        found = []
        pairs = 0
        for start in range(0, len(queries.values), rows):
            part = Vectors(queries.values[start : start + rows], queries.group[start : start + rows])
            near = self._search_rows(part, pool, k, radius, width)
            found.append(Neighbours(near.query + start, near.index, near.distance))
            pairs += len(near.query)
            if pairs > MOST_EDGES:
                raise BudgetError(f"more than {MOST_EDGES:,} pairs lie within radius {radius}: choose a smaller one")
            if progress:
                progress(min(start + rows, len(queries.values)), len(queries.values))
        return joined(found)

    def _search_rows(self, queries: Vectors, pool: Vectors, k: int | None, radius: float, width: int) -> Neighbours:
        largest = torch.finfo(queries.values.dtype).max
        bound = torch.full_like(queries.values[:, 0], largest)  # (queries,): no pair above it is wanted
        parts = []
        for start in range(0, len(pool.values), width):
            piece = Vectors(pool.values[start : start + width], pool.group[start : start + width])
            score, slack = self._scores(queries, piece)
            if k is None:
                bound = self._score_of(radius, queries.values) + slack
            elif k <= len(piece.values):
                bound = torch.minimum(bound, kth_smallest(score, k) + slack)
            query, index = entries_up_to(score, bound.clamp(max=largest))
            exact = self._measure(queries.values, piece.values, query, index, score)
            parts.append(Neighbours(query, index + start, exact))
        return best_pairs(joined(parts), k, radius)

    def _scores(self, queries: Vectors, pool: Vectors) -> tuple[Tensor, Tensor]:
        """Numbers that rank the pool for each query, `(queries, pool)`, infinite within a group; their error."""
        if self.distance is not None:
            score = _called(self.distance, queries.values, pool.values)
            slack = torch.zeros_like(score[:, 0])
        else:
            score, slack = _squared_distances(queries.values, pool.values)
        row, column = _own_group(queries.group, pool.group)
        score[row, column] = math.inf
        return score, slack

    def _score_of(self, radius: float, queries: Tensor) -> Tensor:
        if self.distance is not None:
            return torch.full_like(queries[:, 0], radius)
        return torch.full_like(queries[:, 0], radius * radius)

    def _measure(self, queries: Tensor, pool: Tensor, query: Tensor, index: Tensor, score: Tensor) -> Tensor:
        if self.distance is not None:
            return score[query, index]
        pieces = range(0, len(query), max(1, self.memory // queries.shape[1]))
        step = pieces.step
        return torch.cat(
            [torch.linalg.vector_norm(queries[query[i : i + step]] - pool[index[i : i + step]], dim=1) for i in pieces]
            or [score.new_empty(0)]
        )


def _squared_distances(queries: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances up to rounding, `(queries, pool)`, and a bound on the rounding of each row."""
    centre = pool.mean(0)  # distances do not change, but there is less to cancel
    a, b = queries - centre, pool - centre
    a_norm, b_norm = a.square().sum(1), b.square().sum(1)
    score = torch.addmm(b_norm[None], a, b.T, alpha=-2).add_(a_norm[:, None])
    unit = torch.finfo(score.dtype).eps * (4 + math.sqrt(a.shape[1]))
    return score, 2 * unit * (a_norm + b_norm.max())


def _called(distance: DistanceFunction, queries: Tensor, pool: Tensor) -> Tensor:
    score = distance(queries, pool)
    if score.shape != (len(queries), len(pool)) or not bool(torch.isfinite(score).all()):
        raise InputError(
            f"expected finite distances of shape ({len(queries)}, {len(pool)}) from the metric, "
            f"got shape {tuple(score.shape)}{'' if torch.isfinite(score).all() else ' with NaN or infinity'}"
        )
    return score.clone()


def _own_group(query: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of all pairs in one group; `pool (P,)` is ascending."""
    first, last = torch.searchsorted(pool, query), torch.searchsorted(pool, query, right=True)
    reach = torch.arange(int((last - first).max()), device=pool.device)
    column = first[:, None] + reach  # (queries, largest group)
    row, place = (column < last[:, None]).nonzero(as_tuple=True)
    return row, column[row, place]


def own_group_size(query: Tensor, pool: Tensor) -> int:
    """How many instances of the pool a query may have to leave out; `pool (P,)` is ascending."""
    sizes = torch.searchsorted(pool, query, right=True) - torch.searchsorted(pool, query)
    return int(sizes.max())


def best_pairs(pairs: Neighbours, k: int | None, radius: float) -> Neighbours:
    """The first k of each query (all if None) that lie within the radius."""
    order = by_row_then_value(pairs.query, pairs.distance, pairs.index)
    query, index, distance = pairs.query[order], pairs.index[order], pairs.distance[order]
    keep = distance < radius
    if k is not None:
        keep &= first_of_each_row(query, k)
    return Neighbours(query[keep], index[keep], distance[keep])


def joined(parts: list[Neighbours]) -> Neighbours:
    """Several results as one."""
    if len(parts) == 1:
        return parts[0]
    columns: Iterator[tuple[Tensor, ...]] = zip(*((p.query, p.index, p.distance) for p in parts), strict=True)
    return Neighbours(*(torch.cat(column) for column in columns))
