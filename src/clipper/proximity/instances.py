"""From embeddings `(n, m, d)` to the vectors that may be each other's neighbours: used slots, one kind at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.errors import InputError
from clipper.proximity.neighbours import Vectors

OneEmbedding = Tensor | Mapping[str, Tensor]
Embeddings = OneEmbedding | Sequence[OneEmbedding]


@dataclass(frozen=True)
class Pool:
    """Instances to find neighbours among, when they are not the batch itself."""

    embeddings: Embeddings
    """`(N, m, d)`, in the same form as the batch's."""
    kind: Tensor | None = None
    """`(N, m)`, as `Candidates.kind` of the pool."""
    samples: Tensor | None = None
    """`(n,)`: which of the pool's samples each of the batch is, so that none finds itself; -1 for none."""


@dataclass(frozen=True)
class InstanceGroup:
    """Queries and pool of one kind of label."""

    name: str
    """For messages."""
    kind: str
    """The kind of label, where embeddings are given by kind; else empty."""
    query_ids: Tensor
    pool_ids: Tensor
    queries: Tensor
    pool: Tensor
    query_place: Tensor
    """Each query's own id in the pool, -1 if it is not there."""
    slots: int
    complete: bool
    """Whether queries and pool hold every slot of every sample, so that places are ids."""


def instances_of(embeddings: OneEmbedding, kind: Tensor | None, pool: Pool | None) -> Iterator[InstanceGroup]:
    """One group for each kind of label that occurs."""
    tables = list(embeddings.items()) if isinstance(embeddings, Mapping) else [("", embeddings)]
    if isinstance(embeddings, Mapping) and kind is None:
        raise InputError("expected kind (n, m) beside one embedding per kind, got none; pass kind=candidates.kind")
    kinds = range(len(tables)) if kind is not None and len(tables) > 1 else _occurring(kind)
    for index in kinds:
        name, table = tables[index if len(tables) > 1 else 0]
        query_ids, queries, slots = _of_kind(table, kind, index)
        if pool is None:
            pool_ids, vectors, place = query_ids, queries, query_ids
        else:
            theirs = pool.embeddings[name] if isinstance(pool.embeddings, Mapping) else pool.embeddings
            pool_ids, vectors, pool_slots = _of_kind(theirs, pool.kind, index)
            place = _place_in_pool(query_ids, slots, pool.samples)
            _check_same_shape(queries, slots, vectors, pool_slots)
        complete = kind is None and (pool is None or pool.kind is None)
        if len(query_ids):
            label = f" of kind {name or index!r}" if len(kinds) > 1 else ""
            yield InstanceGroup(label, name, query_ids, pool_ids, queries, vectors, place, slots, complete)


def vectors_of(group: InstanceGroup, cosine: bool, within_sample: bool) -> tuple[Vectors, Vectors]:
    """Queries and pool for the search; instances of one search group are never neighbours."""
    queries, pool = group.queries, group.pool
    if cosine:
        normalise = torch.nn.functional.normalize
        same = pool is queries
        queries = normalise(queries)
        pool = queries if same else normalise(pool)
    size = 1 if within_sample else group.slots
    searched = Vectors(pool, group.pool_ids // size, size if group.complete else 0)
    if group.query_place is group.pool_ids and queries is pool:
        return searched, searched
    return Vectors(queries, torch.div(group.query_place, size, rounding_mode="floor")), searched


def _occurring(kind: Tensor | None) -> Sequence[int]:
    return [0] if kind is None else [int(i) for i in torch.unique(kind).tolist() if i >= 0]


def _of_kind(table: object, kind: Tensor | None, index: int) -> tuple[Tensor, Tensor, int]:
    """Instance ids and vectors `(instances, d)` of the used slots of one kind, and m."""
    flat, slots = _flat(table)
    if kind is None:
        ids = torch.arange(len(flat), device=flat.device)
    else:
        if kind.numel() != len(flat):
            raise InputError(f"expected kind of shape ({len(flat) // slots}, {slots}), got {tuple(kind.shape)}")
        ids = (kind.flatten() == index).nonzero().flatten().to(flat.device)
        flat = flat[ids]
    _check_finite(flat, ids, slots)
    return ids, flat, slots


def _flat(table: object) -> tuple[Tensor, int]:
    """`(n, m, …) -> (n*m, d)`, in single precision at least, and m."""
    if not isinstance(table, Tensor) or table.ndim < 3:
        shape = tuple(table.shape) if isinstance(table, Tensor) else type(table).__name__
        raise InputError(f"expected embeddings of shape (samples, slots, d), got {shape}")
    values = table.detach().flatten(0, 1).flatten(1)
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    return values, table.shape[1]


def _check_finite(values: Tensor, ids: Tensor, slots: int) -> None:
    if math.isfinite(float(values.sum())):  # NaN and infinity survive a sum, which is cheaper than a test of each entry
        return
    bad = (~torch.isfinite(values).all(1)).nonzero().flatten()
    if len(bad):
        instance = int(ids[bad[0]])
        raise InputError(
            f"expected finite embeddings, got NaN or infinity in {len(bad)} instances, the first in slot "
            f"{instance % slots} of sample {instance // slots}; check the encoder and its input"
        )


def _place_in_pool(ids: Tensor, slots: int, samples: Tensor | None) -> Tensor:
    if samples is None:
        return torch.full_like(ids, -1)
    sample = samples.to(ids.device)[ids // slots]
    return torch.where(sample < 0, -1, sample * slots + ids % slots)


def _check_same_shape(queries: Tensor, slots: int, pool: Tensor, pool_slots: int) -> None:
    if (slots, queries.shape[1]) != (pool_slots, pool.shape[1]):
        raise InputError(
            f"expected a pool of {slots} slots and embeddings of length {queries.shape[1]} like the batch's, "
            f"got {pool_slots} slots and length {pool.shape[1]}"
        )
