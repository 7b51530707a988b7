"""Neighbours of queries that have many instances at about the same distance.

A matrix product in the precision of the embeddings cannot rank equal vectors, tight clusters that are far apart, or
numbers whose squares overflow. Here every distinct vector is stored once, and distances are computed in double
precision, so that the work does not grow with the number of ties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.arguments import widened
from clipper.errors import BudgetError
from clipper.proximity.selection import kth_smallest, mask_of_smallest

_ENTRIES = 1 << 22
"""Distances held at a time; each takes about 50 bytes."""

_TRUSTED = 1 << 24
"""Squared distances of this many rounding errors are exact enough to be rounded to single precision."""


@dataclass(frozen=True)
class DistinctPool:
    """The pool's distinct vectors, by their first instance.

    Attributes:
        values: `(distinct, d)`: the vectors.
        member: `(instances,)`: the instances of the first vector, ascending, then those of the second …
        begin: `(distinct + 1,)`: where the instances of a vector begin among the members.
        key: `(instances,)`, ascending: vector and group of each member.
        groups: how many keys each vector has.
    """

    values: Tensor
    member: Tensor
    begin: Tensor
    key: Tensor
    groups: int

    @classmethod
    def of(cls, values: Tensor, group: Tensor, *, merge: bool = True) -> DistinctPool:
        """Bring equal vectors together; without `merge`, every instance counts as distinct."""
        instances = torch.arange(len(values), device=values.device)
        if merge:
            found, place = torch.unique(values, dim=0, return_inverse=True)
            first = torch.full((len(found),), len(values), device=values.device)
            first.scatter_reduce_(0, place, instances, "amin")
            rank = torch.empty_like(first)
            rank[first.argsort()] = torch.arange(len(first), device=values.device)
            place, values = rank[place], values[first.sort().values]
        else:
            place = instances
        member = place.argsort(stable=True)
        begin = torch.cat([place.new_zeros(1), torch.bincount(place, minlength=len(values)).cumsum(0)])
        groups = int(group.max()) + 2  # a query of no group has -1
        return cls(values, member, begin, place[member] * groups + group[member] + 1, groups)

    def own(self, vector: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
        """For pairs of a vector and a group: where the members of the vector that are in the group begin and end."""
        key = vector * self.groups + (group + 1).clamp(max=self.groups)  # no member is in group -1
        return torch.searchsorted(self.key, key), torch.searchsorted(self.key, key, right=True)


def nearest_distinct(
    queries: Tensor,
    group: Tensor,
    pool: DistinctPool,
    k: int | None,
    radius: float,
    distances: Callable[[Tensor], Tensor],
    wanted: int | None,
    most: int,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Query, instance and distance of pairs that contain the k nearest (all within the radius if None), in parts."""
    step = max(1, _ENTRIES // len(pool.values))
    for start in range(0, len(queries), step):
        part = queries[start : start + step]
        value = distances(part)  # (queries, vectors)
        mask = value < radius if wanted is None else mask_of_smallest(value, wanted)
        row, vector = mask.nonzero(as_tuple=True)
        row, index, distance = _instances(row, vector, value[row, vector], group[start : start + step], pool, k, most)
        yield row + start, index, distance


def _instances(
    row: Tensor, vector: Tensor, distance: Tensor, group: Tensor, pool: DistinctPool, k: int | None, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The first k instances (all if None) of each vector that are not of the query's group."""
    low, high = pool.own(vector, group[row])
    begin = pool.begin[vector]
    count = pool.begin[vector + 1] - begin - (high - low)
    if k is not None:
        count = count.clamp(max=k)
        order = distance.argsort(stable=True)
        order = order[row[order].argsort(stable=True)]
        row, distance, count = row[order], distance[order], count[order]
        low, high, begin = low[order], high[order], begin[order]
        count = count * (_nearer(row, distance, count) < k)
    if int(count.sum()) > most:
        raise BudgetError(f"expected a radius within which at most {most:,} pairs lie: choose a smaller one")
    pair = torch.repeat_interleave(count)
    place = torch.arange(len(pair), device=row.device) - (count.cumsum(0) - count)[pair] + begin[pair]
    place = torch.where(place < low[pair], place, place + (high - low)[pair])
    return row[pair], pool.member[place], distance[pair]


def _nearer(row: Tensor, distance: Tensor, count: Tensor) -> Tensor:
    """How many instances of its row are strictly nearer than each pair; pairs sorted by row, then distance."""
    if not len(row):
        return count
    place = torch.arange(len(row), device=row.device)
    before = count.cumsum(0) - count
    new_row = torch.cat([row.new_ones(1, dtype=torch.bool), row[1:] != row[:-1]])
    new = new_row.clone()
    new[1:] |= distance[1:] != distance[:-1]
    row_start, tie_start = (torch.where(starts, place, 0).cummax(0).values for starts in (new_row, new))
    return before[tie_start] - before[row_start]


class PreciseDistances:
    """Euclidean distances from the pool in double precision, rounded to the embeddings' own.

    What cannot be ranked in double precision either is measured coordinate by coordinate.
    """

    def __init__(self, pool: Tensor, k: int | None, radius: float) -> None:
        self.pool, self.k, self.radius = pool, k, radius
        self.centre = widened(pool[:: max(1, len(pool) // 1024)]).median(0).values  # outliers do not move the median
        self.centred = widened(pool) - self.centre
        self.norm = self.centred.square().sum(1)

    def __call__(self, queries: Tensor) -> Tensor:
        """`(queries, pool)`: right for the k nearest, or within the radius; infinite for most others."""
        a = widened(queries) - self.centre
        limits = torch.finfo(a.dtype)
        norm = a.square().sum(1)
        score = torch.addmm(self.norm[None], a, self.centred.T, alpha=-2).add_(norm[:, None])
        error = (norm[:, None] + self.norm).mul_(2 * limits.eps * (4 + math.sqrt(a.shape[1])))
        error.add_(a.shape[1] * limits.tiny)  # squares may underflow
        if self.k is None:
            bound = score.new_full((len(score),), self.radius * self.radius)
        else:
            bound = kth_smallest((score + error).nan_to_num_(math.inf, math.inf), min(self.k, len(self.pool)))
        bound = bound * (1 + 1e-6)  # what single precision may round to the same distance
        near = ~(score - error > bound[:, None])  # true for NaN
        doubt = near if queries.dtype == a.dtype else near & ~(score >= _TRUSTED * error)
        value = score.clamp_(min=0).sqrt_().to(queries.dtype).masked_fill_(~near, math.inf)
        row, column = doubt.nonzero(as_tuple=True)
        step = max(1, _ENTRIES // max(1, queries.shape[1]))
        for i, j in zip(torch.split(row, step), torch.split(column, step), strict=True):
            value[i, j] = lengths(queries[i], self.pool[j])
        return value


def lengths(a: Tensor, b: Tensor) -> Tensor:
    """The distance of each row of `a (rows, d)` from its row of `b`, without overflow for numbers of any size."""
    difference = a - b
    length: Tensor = torch.linalg.vector_norm(difference, dim=1)
    limits = torch.finfo(length.dtype)
    low, high = math.sqrt(limits.tiny / limits.eps), math.sqrt(limits.max) * limits.eps
    odd = (~((length > low) & (length < high))).nonzero().flatten()  # squares may have under- or overflowed
    if not len(odd):
        return length
    part = difference[odd]
    if not bool(part.any()):
        return length  # equal vectors
    too_far = ~torch.isfinite(part).all(1)
    part = part.where(~too_far[:, None], a[odd] / 2 - b[odd] / 2)
    largest = part.abs().amax(1)
    exact = torch.linalg.vector_norm(part / largest.where(largest > 0, 1)[:, None], dim=1) * largest
    length[odd] = exact.where(~too_far, 2 * exact)
    return length
