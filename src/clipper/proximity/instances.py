"""From embeddings `(n, m, d)` to the vectors that are searched: used slots only, one kind of label at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from clipper.arguments import all_within, as_tensor, whole_numbers, widened
from clipper.errors import InputError
from clipper.proximity.neighbours import Neighbours, Vectors

OneEmbedding = Tensor | Mapping[str, Tensor]
Embeddings = OneEmbedding | Sequence[OneEmbedding]

_EXACT_IN_SINGLE = 1 << 24
"""Up to here, single precision holds every whole number."""

_SHORT = 1e-12
"""Vectors shorter than this are made longer before their direction is taken."""


@dataclass(frozen=True)
class Pool:
    """Instances to find neighbours among, instead of the batch itself.

    Attributes:
        embeddings: `(N, m, d)`, in the same form as the batch's.
        kind: `(N, m)`, as `Candidates.kind` of the pool.
        samples: `(n,)`: the index of each sample of the batch in the pool, so that none finds itself; -1 if it is not
            there.
    """

    embeddings: Embeddings
    kind: Tensor | None = None
    samples: Tensor | None = None


@dataclass(frozen=True)
class InstanceGroup:
    """Queries and pool of one kind of label.

    Attributes:
        name: the name of the kind in error messages.
        kind: the kind of label, where embeddings are given by kind; else empty.
        query_ids: the instance id of each query; None if all slots of all samples are queries, in order.
        pool_ids: the same for the pool.
        queries: the queries' vectors, `(queries, d)`.
        pool: the pool's vectors, `(instances, d)`.
        query_place: each query's own id in the pool, -1 if it is not there; None if the pool is the queries.
        slots: how many slots a sample has, `m`.
    """

    name: str
    kind: str
    query_ids: Tensor | None
    pool_ids: Tensor | None
    queries: Tensor
    pool: Tensor
    query_place: Tensor | None
    slots: int

    def named(self, found: Neighbours) -> Neighbours:
        """The pairs with instance ids in place of positions."""
        query = found.query if self.query_ids is None else self.query_ids[found.query]
        index = found.index if self.pool_ids is None else self.pool_ids[found.index]
        return Neighbours(query, index, found.distance)


def one_table(embeddings: Embeddings) -> Embeddings:
    """Convert an array or nested lists to a tensor; mappings and lists of several encoders' tensors stay."""
    if isinstance(embeddings, Mapping):
        return embeddings
    if isinstance(embeddings, tuple):
        raise InputError(
            f"expected embeddings (samples, slots, d), got a tuple of {len(embeddings)}; unpack what a network "
            "returns, log_probs, embeddings = network(x); a list means several encoders"
        )
    if isinstance(embeddings, list) and embeddings and not all(isinstance(p, list | int | float) for p in embeddings):
        return embeddings
    return as_tensor(embeddings, "embeddings (samples, slots, d)")


def instances_of(
    embeddings: OneEmbedding, kind: Tensor | None, pool: Pool | None, kinds: Sequence[str] | None = None
) -> Iterator[InstanceGroup]:
    """One group for each kind of label that occurs; `kinds`: their names, in order."""
    own = _by_kind(kind, kinds)
    if isinstance(embeddings, Mapping) and own is None:
        raise InputError("expected kind (n, m) beside one embedding per kind, got none; pass kind=candidates.kind")
    theirs = None if pool is None else _by_kind(pool.kind, kinds)
    occurring = [0] if own is None else list(own.ids)
    names = _names(embeddings, occurring, kinds) if isinstance(embeddings, Mapping) else None
    for index in occurring:
        name = "" if names is None else names[index]
        query_ids, queries, slots, batch = _of_kind(_table(embeddings, name), own, index)
        pool_ids, vectors, place = query_ids, queries, None
        if pool is not None:
            table = _table(pool.embeddings, name)
            pool_ids, vectors, pool_slots, pool_size = _of_kind(table, theirs, index)
            _check_same_shape(queries, slots, vectors, pool_slots)
            ids = torch.arange(len(queries), device=queries.device) if query_ids is None else query_ids
            place = _place_in_pool(ids, slots, pool.samples, batch, pool_size)
            wider = torch.promote_types(queries.dtype, vectors.dtype)
            queries, vectors = queries.to(wider), vectors.to(wider)
        if len(queries):
            label = f" of kind {name or index!r}" if len(occurring) > 1 else ""
            yield InstanceGroup(label, name, query_ids, pool_ids, queries, vectors, place, slots)


def vectors_of(group: InstanceGroup, cosine: bool, within_sample: bool) -> tuple[Vectors, Vectors]:
    """Queries and pool for the search; instances of one search group are never neighbours."""
    queries, pool = group.queries, group.pool
    if cosine:
        same = pool is queries
        queries, undirected = _directions(queries)
        pool, theirs = (queries, undirected) if same else _directions(pool)
        if len(undirected) or len(theirs):
            queries = _with_axis(queries, undirected)
            pool = queries if same else _with_axis(pool, theirs)
    size = 1 if within_sample else group.slots
    check = partial(_check_finite, group.pool, group.pool_ids, group.slots)
    if group.pool_ids is None:
        searched = Vectors(pool, None, size, check_finite=check)
    else:
        searched = Vectors(pool, group.pool_ids // size, largest_group=size, check_finite=check)
    if group.query_place is None:
        return searched, searched
    check = partial(_check_finite, group.queries, group.query_ids, group.slots)
    own = torch.div(group.query_place, size, rounding_mode="floor")
    return Vectors(queries, own, check_finite=check), searched


def _directions(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors of length one, and which of them are zero."""
    norm = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    units = vectors / norm.clamp(min=_SHORT)
    largest = torch.finfo(vectors.dtype).max ** 0.5 / vectors.shape[1]
    odd = (~((norm > _SHORT) & (norm < largest)))[:, 0].nonzero().flatten()
    if not len(odd):
        return units, odd
    part = vectors[odd]  # squares may have under- or overflowed
    size = part.abs().amax(1, keepdim=True)
    units[odd] = torch.nn.functional.normalize(part / size.where(size > 0, 1))
    return units, odd[size[:, 0] == 0]


def _with_axis(units: Tensor, undirected: Tensor) -> Tensor:
    """Add a coordinate along which zero vectors point: their distance is 0 from one another and 1 from all others."""
    axis = units.new_zeros(len(units), 1)
    axis[undirected] = 1
    return torch.cat([units, axis], dim=1)


def _names(embeddings: Mapping[str, Tensor], occurring: Sequence[int], kinds: Sequence[str] | None) -> list[str]:
    """The name of each kind, in the order of the kinds."""
    if kinds is not None and not (isinstance(kinds, list | tuple) and all(isinstance(name, str) for name in kinds)):
        raise InputError(f"expected kinds as a list of names, got {kinds!r}")
    given = list(embeddings)
    if kinds is not None and set(given) != set(kinds):
        raise InputError(f"expected one embedding for each of the kinds {list(kinds)}, by name, got {given}")
    names = given if kinds is None else list(kinds)
    if occurring and occurring[-1] >= len(names):
        raise InputError(f"expected one embedding for each of {occurring[-1] + 1} kinds, got {names}")
    if kinds is None and len(given) > 1:
        raise InputError(
            f"expected kinds beside embeddings by kind, the names in the order of the candidates' kinds, got none for "
            f"{given}; pass kinds=[kind.name for kind in candidates.kinds]"
        )
    return names


def _table(embeddings: object, name: str) -> object:
    """The embeddings of a kind, where they are given by kind."""
    if not isinstance(embeddings, Mapping):
        return embeddings
    if name not in embeddings:
        raise InputError(
            f"expected the pool's embeddings in the form of the batch's{f', with kind {name!r}' if name else ''}, "
            f"got the kinds {list(embeddings)}"
        )
    return embeddings[name]


@dataclass(frozen=True)
class _ByKind:
    """The instances of each kind that occurs, by kind, `(instances,)` each; and the shape of the table of kinds."""

    ids: dict[int, Tensor]
    shape: torch.Size


def _by_kind(kind: object, names: Sequence[str] | None) -> _ByKind | None:
    """The used slots of each kind, from `kind (n, m)`, -1 where a slot is unused; None if there are no kinds."""
    if kind is None:
        return None
    kind = whole_numbers(kind, "kinds (n, m)")
    value, order = kind.flatten().long().sort(stable=True)
    found = None
    if isinstance(names, list | tuple):  # the end of each kind's rows is enough: one read from the device
        ends = torch.searchsorted(value, torch.arange(-1, len(names) + 1, device=value.device)).tolist()
        if ends[0] == 0 and ends[-1] == len(value):
            found = {i: end - start for i, (start, end) in enumerate(pairwise(ends), start=-1) if end > start}
    if found is None:
        found = dict(torch.stack(torch.unique_consecutive(value, return_counts=True)).T.tolist())
    if min(found, default=0) < -1:
        raise InputError(f"expected kinds of 0 and more, -1 for an unused slot, got {min(found)}")
    ids = dict(zip(found, torch.split(order, list(found.values())), strict=True))
    return _ByKind({i: own for i, own in ids.items() if i >= 0}, kind.shape)


def _of_kind(table: object, kinds: _ByKind | None, index: int) -> tuple[Tensor | None, Tensor, int, int]:
    """Instance ids (None for all) and vectors `(instances, d)` of the used slots of one kind, m and n."""
    flat, slots = _flat(table)
    samples = len(flat) // slots
    ids = None
    if kinds is not None:
        if kinds.shape != (samples, slots):
            raise InputError(f"expected kind of shape ({samples}, {slots}), got {tuple(kinds.shape)}")
        ids = kinds.ids[index].to(flat.device) if index in kinds.ids else torch.arange(0, device=flat.device)
        flat = flat[ids]
    return ids, flat, slots, samples


def _flat(table: object) -> tuple[Tensor, int]:
    """`(n, m, …) -> (n*m, d)`, in single precision at least, and m."""
    values = as_tensor(table, "embeddings (samples, slots, d)")
    values = values.detach() if values.requires_grad else values
    if values.ndim < 3 or not values.shape[1] or not math.prod(values.shape[2:]):
        remedy = "; a single slot per sample is embeddings.unsqueeze(1)" if values.ndim == 2 else ""
        raise InputError(f"expected embeddings of shape (samples, slots, d), got {tuple(values.shape)}{remedy}")
    slots = values.shape[1]
    values = values.flatten(0, 1).flatten(1)
    if values.dtype not in (torch.float32, torch.float64):
        whole = not values.is_floating_point() and values.dtype != torch.bool and values.numel()
        large = whole and float(widened(values).abs().max()) > _EXACT_IN_SINGLE
        values = widened(values) if large else values.float()
    return values, slots


def _check_finite(values: Tensor, ids: Tensor | None, slots: int) -> None:
    if math.isfinite(float(values.sum())):  # NaN and infinity survive a sum, which is cheaper than a test of each entry
        return
    bad = (~torch.isfinite(values).all(1)).nonzero().flatten()
    if len(bad):
        instance = int(bad[0] if ids is None else ids[bad[0]])
        raise InputError(
            f"expected finite embeddings, got NaN or infinity in {len(bad)} instances, the first in slot "
            f"{instance % slots} of sample {instance // slots}; check the encoder and its input"
        )


def _place_in_pool(ids: Tensor, slots: int, samples: Tensor | None, batch: int, pool: int) -> Tensor:
    """The instances' own ids in the pool, -1 where their sample is not there; `samples (batch,)`."""
    if samples is None:
        return torch.full_like(ids, -1)
    samples = whole_numbers(samples, "samples of the pool (n,)").to(ids)
    if samples.shape != (batch,) or not all_within(samples, -1, pool - 1):
        raise InputError(
            f"expected the pool's samples of shape ({batch},), which of its {pool} samples each of the batch is or "
            f"-1, got shape {tuple(samples.shape)}{f' with {samples.tolist()}' if samples.numel() < 20 else ''}"
        )
    sample = samples[ids // slots]
    return torch.where(sample < 0, -1, sample * slots + ids % slots)


def _check_same_shape(queries: Tensor, slots: int, pool: Tensor, pool_slots: int) -> None:
    if (slots, queries.shape[1]) != (pool_slots, pool.shape[1]):
        raise InputError(
            f"expected a pool of {slots} slots and embeddings of length {queries.shape[1]} like the batch's, "
            f"got {pool_slots} slots and length {pool.shape[1]}"
        )
