"""The processes of a `torch.distributed` group, and the share of a pool that each of them holds.

A process without a group counts as a group of one. So the same code serves both: a sum over ranks is its own sum,
nothing is sent, and it waits for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from clipper.arguments import as_tensor, shown, whole_number, widened
from clipper.errors import ClipperError, InputError, RankError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Value = TypeVar("Value")

_AXES = 3
"""The number of axes of embeddings `(n, m, d)`."""
_DRAWN = 1 << 16
"""Random numbers drawn at a time; torch draws normal ones sixteen at a time, so a multiple of that."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a group, seen from one of them; without a group, this process only.

    Attributes:
        group: a process group of `torch.distributed`, or None.

    Raises:
        InputError: `group` is no process group, or this process does not belong to it.

    Examples:
        >>> Ranks().size, Ranks().span(5)
        (1, (0, 5))
    """

    group: ProcessGroup | None = None

    def __post_init__(self) -> None:
        if self.group is not None and not (dist.is_available() and isinstance(self.group, dist.ProcessGroup)):
            raise InputError(
                "expected group to be a process group that this process belongs to, such as torch.distributed.group."
                f"WORLD after torch.distributed.init_process_group, got {shown(self.group)}"
            )

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return 0 if self.group is None else dist.get_rank(self.group)

    @property
    def size(self) -> int:
        """How many processes there are."""
        return 1 if self.group is None else dist.get_world_size(self.group)

    def sizes(self, samples: int) -> list[int]:
        """How many samples each rank takes; the first ranks take one more if they do not divide evenly."""
        each, more = divmod(samples, self.size)
        return [each + (rank < more) for rank in range(self.size)]

    def span(self, samples: int) -> tuple[int, int]:
        """Where this rank's share of a number of samples begins and ends."""
        sizes = self.sizes(samples)
        first = sum(sizes[: self.rank])
        return first, first + sizes[self.rank]

    def share(self, rows: Tensor) -> Tensor:
        """This rank's share of rows that all ranks have."""
        first, last = self.span(len(rows))
        return rows[first:last]

    def all_of(self, own: Value) -> list[Value]:
        """The objects of all ranks, in the order of the ranks."""
        if self.group is None:
            return [own]
        found: list[Any] = [None] * self.size
        with self._waiting():
            dist.all_gather_object(found, own, group=self.group)
        return found

    def at_first(self, own: Value) -> list[Value]:
        """The objects of all ranks, on the first rank only; an empty list on the others."""
        if self.group is None:
            return [own]
        found: list[Any] | None = None if self.rank else [None] * self.size
        with self._waiting():
            dist.gather_object(own, found, dst=dist.get_global_rank(self.group, 0), group=self.group)
        return found or []

    def summed(self, own: Mapping[str, float]) -> dict[str, float]:
        """The sums over all ranks by name, the same on each of them."""
        found = self.all_of(dict(own))
        return {name: sum(each[name] for each in found) for name in own}

    def rows(self, own: Tensor, sizes: Sequence[int]) -> Tensor:
        """The rows `(n, …)` of all ranks, one after the other, without gradient; `sizes`: how many each has."""
        if self.group is None or not any(sizes):
            return own.detach()
        sent = torch.nn.functional.pad(as_bytes(own), (0, 0, 0, max(sizes) - len(own)))
        parts = [torch.empty_like(sent) for _ in sizes]
        with self._waiting():
            dist.all_gather(parts, sent, group=self.group)
        found = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
        return from_bytes(found, own.dtype).view(-1, *own.shape[1:])

    def from_first(self, make: Callable[[], Value]) -> Value:
        """What the first rank computes, sent to all ranks. They wait for it; if it fails, all fail."""
        if self.group is None:
            return make()
        made: list[Any] = [None, None]
        if self.rank == 0:
            try:
                made[0] = make()
            except ClipperError as error:
                made[1] = error
        with self._waiting():
            dist.broadcast_object_list(made, src=dist.get_global_rank(self.group, 0), group=self.group)
        if made[1] is not None:
            raise made[1]
        return cast(Value, made[0])

    def total(self, own: Tensor) -> Tensor:
        """The sum over all ranks, of the shape of `own`; the same on each of them."""
        return own if self.group is None else self._reduced(own, dist.ReduceOp.SUM)

    def most(self, own: Tensor) -> Tensor:
        """The elementwise maximum over all ranks; for bool, whether it is true on any rank."""
        if self.group is None:
            return own
        whole = own.to(torch.uint8) if own.dtype == torch.bool else own
        return self._reduced(whole, dist.ReduceOp.MAX).to(own.dtype)

    def any(self, own: Tensor) -> bool:
        """Whether something is true on any rank."""
        return bool(self.most(own.any()))

    def mean(self, own: Tensor) -> Tensor:
        """The mean over the rows `(n, …)` of all ranks."""
        if self.group is None:
            return own.mean(0)
        rows = torch.tensor([len(own)], device=own.device)
        return (self.total(widened(own).sum(0)) / self.total(rows)).to(own)

    def count(self, own: int) -> int:
        """How many there are on all ranks together."""
        return sum(self.all_of(own))

    def before(self, own: int) -> int:
        """How many there are on the ranks before this one."""
        return sum(self.all_of(own)[: self.rank])

    def swapped(self, own: Tensor, peer: int, rows: int) -> Tensor:
        """Exchange rows `(n, …)` with another rank: returns the rows that it sends, of the same type."""
        got, other = own.new_empty(rows, *own.shape[1:]), dist.get_global_rank(cast("ProcessGroup", self.group), peer)
        both = [
            dist.P2POp(dist.isend, own.contiguous(), other, self.group),
            dist.P2POp(dist.irecv, got, other, self.group),
        ]
        with self._waiting():
            for work in dist.batch_isend_irecv(both):
                work.wait()
        return got

    def agreed(self, make: Callable[[], Value]) -> Value:
        """What this rank computes. If that fails on any rank, all ranks raise an error that says why."""
        made, failed = None, None
        try:
            made = make()
        except ClipperError as error:
            failed = error
        found = self.all_of(None if failed is None else str(failed))
        if failed is not None:
            raise failed
        for rank, reason in enumerate(found):
            if reason is not None:
                raise InputError(f"rank {rank} failed: {reason}")
        return cast(Value, made)

    def _reduced(self, own: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        found = own.clone(memory_format=torch.contiguous_format)
        with self._waiting():
            dist.all_reduce(found, op=how, group=self.group)
        return found

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Turn torch's error into a `RankError` if other ranks do not answer."""
        try:
            yield
        except RuntimeError as error:
            raise RankError(
                f"rank {self.rank} of {self.size} got no answer from the others. If one has ended, its message says "
                "why, and a run with a checkpoint goes on from it; if one needs more time, raise timeout= of "
                f"torch.distributed.init_process_group. What torch says: {error}"
            ) from error


ALONE = Ranks()
"""A process without a group."""


@dataclass
class Traffic:
    """Counts what a rank sent to others in rounds of messages.

    Attributes:
        sent: the number of bytes.
    """

    sent: int = 0


@dataclass(frozen=True, eq=False)
class Shard:
    """The instances of a pool that this rank holds.

    Global ids number the instances of all ranks, in the order of the ranks. If an own instance has an edge with an
    instance of another rank, this rank **borrows** the latter: it holds a copy of its values. Local ids are 0 to
    `instances - 1` for own instances, then those of borrowed ones.

    Attributes:
        ranks: the processes that share the pool.
        sizes: how many instances each rank holds.
        lent: for each rank, the own instances that it borrows, ascending.
        borrowed: global ids of the instances that this rank borrows, ascending.
        counts: how many of these each rank holds.
        traffic: counts what was sent so far.

    Examples:
        >>> alone = Shard.of(Ranks(), instances=6)
        >>> alone.first, alone.total, alone.bordered(torch.arange(6)).tolist()
        (0, 6, [0, 1, 2, 3, 4, 5])
    """

    ranks: Ranks
    sizes: tuple[int, ...]
    lent: tuple[Tensor, ...] = ()
    borrowed: Tensor | None = None
    counts: tuple[int, ...] = ()
    traffic: Traffic = field(default_factory=Traffic)

    @classmethod
    def of(cls, ranks: Ranks, instances: int) -> Shard:
        """The share of a rank with this many instances; nothing is borrowed yet."""
        return cls(ranks, tuple(ranks.all_of(instances)))

    @property
    def instances(self) -> int:
        """How many this rank holds."""
        return self.sizes[self.ranks.rank]

    @property
    def first(self) -> int:
        """How many the ranks before this one hold."""
        return sum(self.sizes[: self.ranks.rank])

    @property
    def total(self) -> int:
        """How many all ranks hold."""
        return sum(self.sizes)

    @property
    def reach(self) -> int:
        """How many local ids there are: own and borrowed instances."""
        return self.instances + sum(self.counts)

    def owner(self, ids: Tensor) -> Tensor:
        """The rank that holds each instance, by global id."""
        ends = torch.tensor(self.sizes, device=ids.device).cumsum(0)
        return torch.searchsorted(ends, ids, right=True)

    def bordering(self, source: Tensor, target: Tensor) -> Shard:
        """The same share, which borrows every instance that has an edge with an own one. Global ids, `(E,)` each."""
        if self.ranks.size == 1:
            return self
        leaves, arrives = self.holds(source) & ~self.holds(target), self.holds(target) & ~self.holds(source)
        own = torch.cat([source[leaves], target[arrives]]) - self.first
        others = torch.cat([target[leaves], source[arrives]])
        borrowed = torch.unique(others)
        owner = self.owner(others)
        lent = tuple(torch.unique(own[owner == rank]) for rank in range(self.ranks.size))
        counts = torch.bincount(self.owner(borrowed), minlength=self.ranks.size).tolist()
        return replace(self, lent=lent, borrowed=borrowed, counts=tuple(counts))

    def holds(self, ids: Tensor) -> Tensor:
        """Which instances are this rank's own, by global id."""
        return (ids >= self.first) & (ids < self.first + self.instances)

    def local(self, ids: Tensor) -> Tensor:
        """Local ids of own and borrowed instances, by global id."""
        if self.borrowed is None:
            return ids - self.first
        place = self.instances + torch.searchsorted(self.borrowed, ids)
        return torch.where(self.holds(ids), ids - self.first, place)

    def known_as(self, ids: Tensor) -> Tensor:
        """The reverse of `local`: global ids."""
        if self.borrowed is None or not len(self.borrowed):
            return ids + self.first
        borrowed = self.borrowed[(ids - self.instances).clamp(min=0)]
        return torch.where(ids < self.instances, ids + self.first, borrowed)

    def bordered(self, values: Tensor) -> Tensor:
        """The rows `(instances, …)` of own instances, and after them those of borrowed ones."""
        if self.borrowed is None or not len(self.borrowed):
            return values
        sent = values.to(torch.uint8) if values.dtype == torch.bool else values
        parts = [
            self.ranks.swapped(sent[lent], peer, count).to(values.dtype)
            for peer, (lent, count) in enumerate(zip(self.lent, self.counts, strict=True))
            if count
        ]
        return torch.cat([values, *parts])

    def swapped(self, rows: Tensor, peer: int) -> Tensor:
        """Exchange values `(k, …)` along the pairs with another rank: send those of the own ends, get the others'."""
        self.traffic.sent += rows.numel() * rows.element_size()
        return self.ranks.swapped(rows, peer, len(rows))

    def normal(self, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        """Normal random numbers for own instances, `(instances, …)`: the same as one process would draw for them."""
        if self.ranks.size == 1:
            return torch.randn(tuple(shape), generator=generator)
        width = math.prod(shape[1:])
        first, last = self.first * width, (self.first + self.instances) * width
        ends = [*range(0, self.total * width - _DRAWN + 1, _DRAWN)] or [0]
        kept = []
        for begin, end in pairwise([*ends, self.total * width]):
            drawn = torch.randn(end - begin, generator=generator)
            if begin < last and end > first:  # a slice would keep all of what was drawn
                kept.append(drawn[max(first - begin, 0) : last - begin])
        return torch.cat(kept).view(tuple(shape))


def partition(embeddings: Tensor, parts: int) -> Tensor:
    """Assign samples to ranks, `(n,)`, so that fewer pairs of neighbours lie on different ranks.

    The samples are split in half along the direction of largest variance, then each half in the same way. The sizes of
    the ranks differ by one at most. A sample's instances stay together, so many pairs are still cut.

    Args:
        embeddings: of all samples, `(n, m, d)`.
        parts: how many ranks there are.

    Raises:
        InputError: the embeddings have another shape, or there are fewer samples than ranks.

    Examples:
        >>> embeddings = torch.tensor([[[0.0], [0.1]], [[5.0], [5.1]], [[0.2], [0.1]], [[5.2], [5.3]]])
        >>> rank = partition(embeddings, parts=2)
        >>> bool(rank[0] == rank[2]), bool(rank[1] == rank[3]), bool(rank[0] == rank[1])
        (True, True, False)
    """
    values, parts = as_tensor(embeddings, "embeddings").detach(), whole_number(parts, "parts")
    if values.ndim != _AXES or len(values) < parts:
        raise InputError(
            f"expected embeddings of shape (n, m, d) of at least {parts} samples, one a rank, got {tuple(values.shape)}"
        )
    rank = torch.zeros(len(values), dtype=torch.long, device=values.device)
    open_ = [(torch.arange(len(values), device=values.device), 0, parts)]
    while open_:
        samples, first, many = open_.pop()
        rank[samples] = first
        if many == 1:
            continue
        flat = widened(values[samples]).flatten(0, 1)
        flat = flat - flat.mean(0)
        direction = torch.linalg.eigh(flat.T @ flat).eigenvectors[:, -1]
        order = samples[(flat @ direction).view(len(samples), -1).sum(1).argsort(stable=True)]
        half = len(samples) * (many // 2) // many
        open_ += [(order[:half], first, many // 2), (order[half:], first + many // 2, many - many // 2)]
    return rank


def as_bytes(rows: Tensor) -> Tensor:
    """Rows `(n, …)` as `(n, bytes)`."""
    width = math.prod(rows.shape[1:])
    return rows.detach().reshape(len(rows), width).contiguous().view(torch.uint8)


def from_bytes(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The reverse: `(n, bytes)` as `(n, numbers)`."""
    return rows.clone(memory_format=torch.contiguous_format).view(dtype)  # contiguous() does not copy a single row
