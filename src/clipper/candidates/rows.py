"""Packed rows: the label combinations of many samples in one table, and how parts of it are taken.

This file knows nothing of where they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from clipper.arguments import as_tensor, number_in_words, usable_device, whole_number
from clipper.candidates.checks import check_nonempty, gold_labels, kind_of_label, known_samples
from clipper.candidates.kinds import Kind
from clipper.candidates.packing import offsets_of, shuffled_places, trainable
from clipper.errors import BudgetError, InputError

_CHUNK = 1 << 18
"""Candidates looked at together where an intermediate result would be large."""
_CELLS = 1 << 26
"""Entries of a table of labels counted together."""
_MOST_CELLS = 1 << 35
"""Entries of a table of labels past which there is no use in trying."""


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows of labels, those of a sample next to one another; `Candidates` builds them and checks what it is given."""

    labels: Tensor
    """`(Ω, m)`, the smallest integer type that fits; -1 in unused slots."""
    offsets: Tensor
    """`(n+1,)`: the candidates of sample `i` are the rows `offsets[i]` to `offsets[i+1]`."""
    kinds: tuple[Kind, ...]
    """The kinds of label; one, unless several classifiers are trained."""

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.offsets) - 1

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return self.labels.shape[1]

    @property
    def classes(self) -> int:
        """The length of the label axis, `c`."""
        return self.kinds[-1].stop

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.labels.device

    @property
    def counts(self) -> Tensor:
        """How many candidates each sample has, `(n,)`."""
        return self.offsets.diff()

    @cached_property
    @trainable
    def sample(self) -> Tensor:
        """Each candidate's sample, `(Ω,)`, ascending."""
        ids = torch.arange(self.samples, device=self.offsets.device)
        return torch.repeat_interleave(ids, self.counts, output_size=len(self))

    @cached_property
    def most(self) -> int:
        """How many candidates the sample with the most of them has; 0 without any sample."""
        return int(self.counts.max()) if self.samples else 0

    def prepare(self) -> None:
        """Work out now what an engine will need, so that it is not first worked out in inference mode."""
        _ = self.label_zero, self.kind

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that tell these candidates from others."""
        return self.labels, self.offsets

    @property
    def ragged(self) -> bool:
        """Whether some slots are unused."""
        return len(self) > 0 and int(self.labels.min()) < 0

    @property
    def first(self) -> Tensor:
        """One candidate of each sample, `(n, m)`; -1 in unused slots."""
        return self.labels[self.offsets[:-1]].long()

    @cached_property
    @trainable
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        return kind_of_label(self.labels[self.offsets[:-1]], self.kinds)

    @cached_property
    @trainable
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        return self.support_with_unused[:, 1:]

    @cached_property
    @trainable
    def support_with_unused(self) -> Tensor:
        """As `support`, with a first column for the label -1, `(n*m, c+1)` bool."""
        width = self.classes + 1
        cells = self.samples * self.slots * width
        if cells > _MOST_CELLS:
            raise BudgetError(
                f"a table of which of {self.classes:,} labels each of {self.samples * self.slots:,} instances takes "
                f"would have {number_in_words(cells)} entries; batch the samples, or number the labels without gaps"
            )
        if (len(self) <= _CHUNK and cells <= _CELLS) or self.samples <= 1:
            size = self.samples * width
            times = [torch.bincount(self._cells(slot), minlength=size).view(-1, width) for slot in range(self.slots)]
            return (torch.stack(times, dim=1) > 0).view(-1, width)
        half = self.samples // 2  # memory stays bounded by what a chunk takes
        halves = self.span(0, half), self.span(half, self.samples)
        return torch.cat([part.support_with_unused for part in halves])

    def take(self, table: Tensor, slot: int) -> Tensor:
        """What `table (n*m, c+1)` holds for each candidate's label in a slot, `(Ω,)`; its first column is for -1."""
        column = table.view(self.samples, self.slots, -1)[:, slot].reshape(-1)
        return column.index_select(0, self._cells(slot))

    def _cells(self, slot: int) -> Tensor:
        """Where the labels of a slot lie in a flat table of `(n, c+1)` whose first column stands for -1, `(Ω,)`."""
        return self.label_zero + self.labels[:, slot]

    @cached_property
    @trainable
    def label_zero(self) -> Tensor:
        """Where the label 0 of each candidate's sample lies in a flat table of `(n, c+1)`, `(Ω,)`."""
        width = self.classes + 1
        small = self.samples * width < torch.iinfo(torch.int32).max
        start = torch.arange(1, self.samples * width + 1, width, device=self.labels.device)
        return start.to(torch.int32 if small else torch.int64).index_select(0, self.sample)

    def subset(self, keep: Tensor) -> Self:
        """The candidates where `keep (Ω,)` is true; every sample must keep one."""
        keep = as_tensor(keep, "keep").to(self.labels.device)
        if keep.shape != (len(self),) or keep.dtype != torch.bool:
            raise InputError(f"expected keep of shape ({len(self)},) bool, got {tuple(keep.shape)} of {keep.dtype}")
        before = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
        offsets = before[self.offsets]
        check_nonempty(offsets.diff(), what="would lose their last candidate")
        return type(self)(self.labels.index_select(0, keep.nonzero().flatten()), offsets, self.kinds)

    @trainable
    def batch(self, samples: Tensor | Sequence[int] | slice) -> Self:
        """The candidates of the given samples: ids in the given order, a mask or a slice; a sample may come twice."""
        ids = known_samples(samples, self.samples, self.offsets.device)
        start, counts = self.offsets[ids], self.counts[ids]
        offsets = offsets_of(counts)
        total = int(offsets[-1])
        sample = torch.repeat_interleave(counts, output_size=total)
        rows = (start - offsets[:-1]).index_select(0, sample).add_(torch.arange(total, device=sample.device))
        batch = type(self)(self.labels.index_select(0, rows), offsets, self.kinds)
        batch.__dict__["sample"] = sample
        if "kind" in self.__dict__:  # what is known of a sample holds in whatever batch it is
            batch.__dict__["kind"] = self.kind.index_select(0, ids)
        if "support_with_unused" in self.__dict__:
            shared = self.support_with_unused.view(self.samples, self.slots * (self.classes + 1)).index_select(0, ids)
            batch.__dict__["support_with_unused"] = shared.view(-1, self.classes + 1)
        return batch

    def span(self, first: int, last: int) -> Self:
        """The candidates of the samples `first` to `last - 1`, without a copy."""
        offsets = self.offsets[first : last + 1]
        begin, end = offsets[[0, -1]].tolist()
        return type(self)(self.labels[begin:end], offsets - begin, self.kinds)

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        gold = gold_labels(gold, self.samples, self.slots, self.device)
        found = torch.zeros(self.samples, dtype=torch.bool, device=self.labels.device)
        for start in range(0, len(self), _CHUNK):
            labels, sample = self.labels[start : start + _CHUNK], self.sample[start : start + _CHUNK]
            hit = ((labels == gold[sample]) | (labels < 0)).all(1)
            found[sample[hit]] = True
        return found

    def sample_at_random(self, per_sample: int, seed: int = 0) -> Self:
        """At most `per_sample` candidates of each sample, drawn uniformly without replacement."""
        most = min(whole_number(per_sample, "per_sample"), len(self))
        return self.subset(self.random_ranks(seed) < most)

    def random_ranks(self, seed: int) -> Tensor:
        """Each candidate's place when those of its sample are shuffled, `(Ω,)`."""
        return shuffled_places(self.sample, self.offsets, seed)

    def distinct(self) -> Self:
        """Without repeated candidates; rows come out sorted within each sample."""
        rows = torch.cat([self.sample[:, None], self.labels.long()], dim=1)
        rows = torch.unique(rows, dim=0)
        return type(self)(rows[:, 1:].to(self.labels.dtype), offsets_of(torch.bincount(rows[:, 0])), self.kinds)

    def to(self, device: torch.device | str) -> Self:
        """The same candidates on another device."""
        device = usable_device(device)
        return type(self)(self.labels.to(device), self.offsets.to(device), self.kinds)

    def __len__(self) -> int:
        return len(self.labels)
