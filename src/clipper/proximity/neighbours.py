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
from clipper.proximity.selection import by_row_then_value, entries_up_to, first_of_each_row, kth_smallest, one_per_row

DistanceFunction = Callable[[Tensor, Tensor], Tensor]
"""`(queries, d), (pool, d) -> (queries, pool)`: any distance a user may prefer."""

Progress = Callable[[int, int], None]
"""Called with the number of queries done and their total."""

MOST_EDGES = 200_000_000
"""Pairs that a radius search returns before it says that the radius is too large."""


POOL_PIECE = 1 << 14
"""Instances of the pool that queries are compared with at a time."""

_NEAR = 1024
"""A squared distance below this many rounding errors is measured again."""


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
    group_size: int = 0
    """How many instances each group has, one group after the other; 0 if they differ."""

    def part(self, start: int, stop: int) -> Vectors:
        """The instances from `start` to `stop - 1`."""
        return Vectors(self.values[start:stop], self.group[start:stop])


class NeighbourSearch(Protocol):
    """What a neighbour search must offer."""

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: Progress | None = None,
    ) -> Neighbours:
        """The k nearest of each query (all if None) less than `radius` away, outside its group."""


@dataclass(frozen=True)
class ExactSearch:
    """Exact search in bounded memory: by matrix products, or by any distance function.

    A matrix product ranks the pool up to rounding; every pair that rounding could have misplaced is measured again,
    coordinate by coordinate, so that equal vectors are at distance 0 and true ties go to the lower index.
    """

    distance: DistanceFunction | None = None
    """Euclidean if None."""
    memory: int = 1 << 25
    """Distances held at a time."""

    def find(
        self,
        queries: Vectors,
        pool: Vectors,
        k: int | None,
        radius: float = math.inf,
        progress: Progress | None = None,
    ) -> Neighbours:
        """The k nearest of each query (all if None) less than `radius` away, outside its group."""
        if not len(pool.values):
            return Neighbours(pool.group, pool.group, pool.values.new_empty(0))
        width = min(len(pool.values), POOL_PIECE)
        rows = max(1, self.memory // width)
        found = []
        pairs = 0
        for start in range(0, len(queries.values), rows):
            part = queries if rows >= len(queries.values) else queries.part(start, start + rows)
            near = self._find_for(part, pool, k, radius, width)
            found.append(Neighbours(near.query + start if start else near.query, near.index, near.distance))
            pairs += len(near.query)
            if pairs > MOST_EDGES:
                raise BudgetError(f"more than {MOST_EDGES:,} pairs lie within radius {radius}: choose a smaller one")
            if progress:
                progress(min(start + rows, len(queries.values)), len(queries.values))
        return joined(found)

    def _find_for(self, queries: Vectors, pool: Vectors, k: int | None, radius: float, width: int) -> Neighbours:
        largest = torch.finfo(queries.values.dtype).max
        bound: Tensor | None = None  # (queries,): no pair above it is wanted
        parts, errors = [], []
        for start in range(0, len(pool.values), width):
            piece = pool if width == len(pool.values) else pool.part(start, start + width)
            score, slack = self._scores(queries, piece)
            if k is None:
                bound = slack + (radius if self.distance else radius * radius)
            elif k <= len(piece.values):
                own = kth_smallest(score, k) + slack
                bound = own if bound is None else torch.minimum(bound, own)
            limit = torch.full_like(slack, largest) if bound is None else bound.clamp(max=largest)
            query, index = entries_up_to(score, limit)
            parts.append(Neighbours(query, index + start if start else index, score[query, index]))
            errors.append(slack)
        found = joined(parts)
        single = one_per_row(found.query)
        if self.distance is None:  # ties may lie in different pieces, so that all are looked at together
            slack = errors[0] if len(errors) == 1 else torch.stack(errors).amax(0)
            doubtful = _doubtful(found.query, found.distance, slack[found.query], radius, single)
            found = self._measured(queries.values, pool.values, found, doubtful)
        return found if single and radius == math.inf else best_pairs(found, k, radius)

    def _scores(self, queries: Vectors, pool: Vectors) -> tuple[Tensor, Tensor]:
        """Numbers that rank the pool for each query, `(queries, pool)`, infinite within a group; their error."""
        if self.distance is not None:
            score = _called(self.distance, queries.values, pool.values)
            slack = torch.zeros_like(score[:, 0])
        else:
            score, slack = _squared_distances(queries.values, pool.values)
        _leave_out_own_group(score, queries, pool)
        return score, slack

    def _measured(self, queries: Tensor, pool: Tensor, pairs: Neighbours, doubtful: Tensor) -> Neighbours:
        """The pairs with distances for squared ones, the doubtful ones measured coordinate by coordinate."""
        query, index, distance = pairs.query, pairs.index, pairs.distance.clamp(min=0).sqrt_()
        if len(doubtful):
            for part in torch.split(doubtful, max(1, self.memory // queries.shape[1])):
                difference = queries.index_select(0, query[part]) - pool.index_select(0, index[part])
                distance[part] = torch.linalg.vector_norm(difference, dim=1)
        return Neighbours(query, index, distance)


def _doubtful(query: Tensor, score: Tensor, slack: Tensor, radius: float, single: bool) -> Tensor:
    """Pairs so near, so close to the radius, or so nearly tied with another of their query that rounding matters."""
    doubt = score <= _NEAR * slack
    if radius < math.inf:
        doubt |= (score - radius * radius).abs() <= slack
    if not single:
        order = score.argsort()
        order = order[query[order].argsort(stable=True)]
        row, value = query[order], score[order]
        tied = (row[1:] == row[:-1]) & (value[1:] - value[:-1] <= slack[order[1:]])
        doubt[order[1:][tied]] = True
        doubt[order[:-1][tied]] = True
    return doubt.nonzero().flatten()


def _squared_distances(queries: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances up to rounding, `(queries, pool)`, and a bound on the rounding of each row."""
    centre = pool.mean(0)  # distances do not change, but there is less to cancel
    b = pool - centre
    a = b if queries is pool else queries - centre
    b_norm = torch.linalg.vector_norm(b, dim=1).square_()
    a_norm = b_norm if queries is pool else torch.linalg.vector_norm(a, dim=1).square_()
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


def _leave_out_own_group(score: Tensor, queries: Vectors, pool: Vectors) -> None:
    """Make the scores within a group infinite; the pool's groups are ascending."""
    if queries is pool and pool.group_size:  # consecutive groups of one size: the blocks on the diagonal
        size = pool.group_size
        score.view(len(score) // size, size, -1, size).diagonal(dim1=0, dim2=2).fill_(math.inf)
        return
    first = torch.searchsorted(pool.group, queries.group)
    last = torch.searchsorted(pool.group, queries.group, right=True)
    reach = torch.arange(int((last - first).max()), device=score.device)
    column = first[:, None] + reach  # (queries, largest group)
    row, place = (column < last[:, None]).nonzero(as_tuple=True)
    score[row, column[row, place]] = math.inf


def own_group_size(query: Tensor, pool: Tensor) -> int:
    """How many instances of the pool a query may have to leave out; `pool (P,)` is ascending."""
    sizes = torch.searchsorted(pool, query, right=True) - torch.searchsorted(pool, query)
    return int(sizes.max())


def best_pairs(pairs: Neighbours, k: int | None, radius: float) -> Neighbours:
    """The first k of each query (all if None) that lie within the radius."""
    query, index, distance = pairs.query, pairs.index, pairs.distance
    if not one_per_row(query):
        order = by_row_then_value(query, distance, index)
        query, index, distance = query[order], index[order], distance[order]
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
