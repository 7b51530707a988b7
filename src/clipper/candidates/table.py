"""Candidates: for each sample, the label combinations that satisfy its formula, packed row by row.

This file knows nothing of embeddings, graphs or losses.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clipper.candidates.abduction import BUDGET, Rule, templates
from clipper.candidates.checks import check_labels, check_nonempty, check_sample_ids, kind_of_label, known_samples
from clipper.candidates.kinds import Classes, Kind, kinds_of
from clipper.candidates.packing import offsets_of, padded, shuffled_places, smallest_type
from clipper.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from clipper.candidates.programs.wording import Sentence
    from clipper.candidates.programs.writing import Labels

_CHUNK = 1 << 18
"""Candidates looked at together where an intermediate result would be large."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """What the labels of each sample could be.

    Build one with `from_rule`, `from_program`, `from_lists`, `from_tensors` or `read`; these check their input.

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)
        >>> candidates
        Candidates(3 samples, 15 candidates, 2 slots, 10 classes)
        >>> candidates.counts.tolist()
        [9, 3, 3]
        >>> candidates.labels[candidates.sample == 1].tolist()
        [[0, 2], [1, 1], [2, 0]]
    """

    labels: Tensor
    """`(Ω, m)`, the smallest integer type that fits; -1 in unused slots."""
    offsets: Tensor
    """`(n+1,)`: the candidates of sample `i` are the rows `offsets[i]` to `offsets[i+1]`."""
    kinds: tuple[Kind, ...]
    """The kinds of label; one, unless several classifiers are trained."""

    @classmethod
    def from_rule(
        cls,
        rule: Rule,
        targets: Sequence[Hashable] | Tensor,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
    ) -> Candidates:
        """All label combinations that a rule maps to each sample's target.

        Args:
            rule: any callable on a tuple of labels. Arithmetic runs on all combinations at once, anything else
                once per combination; samples with the same target share the work.
            targets: what the rule gives for each of the `n` samples.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: how many labels there are, or a mapping from kind to number.
            domains: the labels each slot may take, if not all of them.
            budget: label combinations to try at most.
        """
        kinds = kinds_of(classes)
        every_label = range(kinds[-1].stop)
        labels, counts, shared = templates(rule, targets, slots, domains or every_label, budget)
        offsets = offsets_of(counts)
        check_labels(labels, torch.repeat_interleave(counts), offsets, kinds)
        distinct = cls(labels.to(smallest_type(kinds)), offsets, kinds)
        _ = distinct.support_with_unused, distinct.kind  # worked out for a few rows, inherited by all samples
        return distinct.batch(shared)

    @classmethod
    def from_program(
        cls,
        theory: str | Path,
        samples: Sequence[Sentence | str],
        labels: Labels,
        *,
        slots: Sequence[str] = (),
        budget: int = BUDGET,
        time_limit: float = 60.0,
        per_sample: int | None = None,
        seed: int = 0,
    ) -> Candidates:
        """All label combinations under which a logic program satisfies each sample's sentence (extra `logic`).

        Args:
            theory: an answer-set program over label atoms such as `name(o1, dog)`, as text or as the path of a file.
            samples: a `Sentence` each, or its text where slots and facts are shared.
            labels: the labels of each kind, by predicate: `{"name": ["dog", …], "rel": ["on", …]}`.
            slots: the slots of samples that bring none of their own, `["digit(x1, _)", "digit(x2, _)"]`.
            budget: candidates of distinct sentences to list at most.
            time_limit: seconds for grounding and solving.
            per_sample: draw so many candidates of each sample uniformly, where there are more.
            seed: of these draws.

        Examples:
            >>> theory = "total(S) :- S = #sum { D,X : digit(X, D) }."
            >>> slots = ["digit(x1, _)", "digit(x2, _)"]
            >>> Candidates.from_program(theory, ["total(8)", "total(2)"], {"digit": range(10)}, slots=slots)
            Candidates(2 samples, 12 candidates, 2 slots, 10 classes)
        """
        from clipper.candidates.program import Program

        program = Program(theory, labels, slots, time_limit)
        return program.candidates(samples, budget=budget, per_sample=per_sample, seed=seed)

    @classmethod
    def from_lists(cls, samples: Sequence[Sequence[Sequence[int]]], classes: Classes) -> Candidates:
        """Candidates given one by one: `samples[i]` lists the label tuples of sample `i`.

        Samples may have different numbers of slots; a repeated tuple is kept (`distinct` drops repetitions).

        Examples:
            >>> Candidates.from_lists([[(0, 8), (1, 7)], [(2,)]], classes=10).labels.tolist()
            [[0, 8], [1, 7], [2, -1]]
        """
        labels, counts = padded(samples)
        return cls.from_tensors(labels, torch.repeat_interleave(counts), classes)

    @classmethod
    def from_tensors(
        cls, labels: Tensor, sample: Tensor, classes: Classes, *, samples: int | None = None
    ) -> Candidates:
        """Candidates as `labels (Ω, m)` and `sample (Ω,)`, ascending; `samples`, if given, must be their number."""
        kinds = kinds_of(classes)
        labels, sample = torch.as_tensor(labels), torch.as_tensor(sample)
        if labels.ndim != 2 or not len(labels):
            raise InputError(f"expected labels of shape (candidates, slots), got {tuple(labels.shape)}")
        check_sample_ids(sample, len(labels))
        counts = torch.bincount(sample.long(), minlength=samples or 0)
        if samples is not None and len(counts) != samples:
            raise InputError(f"expected {samples} samples, got sample ids up to {len(counts) - 1}")
        check_nonempty(counts)
        offsets = offsets_of(counts)
        check_labels(labels, sample, offsets, kinds)
        return cls(labels.to(smallest_type(kinds)), offsets, kinds)

    @classmethod
    def read(cls, path: str | Path, classes: Classes | None = None) -> Candidates:
        """Read what `write` wrote; `classes` only for Parquet files from elsewhere."""
        from clipper.candidates.storage import read_candidates

        return read_candidates(path, classes)

    def write(self, path: str | Path) -> None:
        """Write a Parquet file, whole or not at all."""
        from clipper.candidates.storage import write_candidates

        write_candidates(self, path)

    def to_arrow(self) -> pa.Table:
        """An Arrow table: `sample`, `slot_0` … `slot_{m-1}` (null where unused); kinds in the metadata."""
        from clipper.candidates.storage import to_arrow

        return to_arrow(self)

    @classmethod
    def from_arrow(cls, table: pa.Table, classes: Classes | None = None) -> Candidates:
        """The reverse of `to_arrow`."""
        from clipper.candidates.storage import from_arrow

        return from_arrow(table, classes)

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
    def sample(self) -> Tensor:
        """Each candidate's sample, `(Ω,)`, ascending."""
        ids = torch.arange(self.samples, device=self.offsets.device)
        return torch.repeat_interleave(ids, self.counts, output_size=len(self))

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
        return int(self.labels.min()) < 0

    @property
    def first(self) -> Tensor:
        """One candidate of each sample, `(n, m)`; -1 in unused slots."""
        return self.labels[self.offsets[:-1]].long()

    @cached_property
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        return kind_of_label(self.labels[self.offsets[:-1]], self.kinds)

    @cached_property
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        return self.support_with_unused[:, 1:]

    @cached_property
    def support_with_unused(self) -> Tensor:
        """As `support`, with a first column for the label -1, `(n*m, c+1)` bool."""
        width = self.classes + 1
        if len(self) <= _CHUNK or self.samples == 1:
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
    def label_zero(self) -> Tensor:
        """Where the label 0 of each candidate's sample lies in a flat table of `(n, c+1)`, `(Ω,)`."""
        width = self.classes + 1
        small = self.samples * width < torch.iinfo(torch.int32).max
        start = torch.arange(1, self.samples * width + 1, width, device=self.labels.device)
        return start.to(torch.int32 if small else torch.int64).index_select(0, self.sample)

    def subset(self, keep: Tensor) -> Candidates:
        """The candidates where `keep (Ω,)` is true; every sample must keep one."""
        if keep.shape != (len(self),) or keep.dtype != torch.bool:
            raise InputError(f"expected keep of shape ({len(self)},) bool, got {tuple(keep.shape)} of {keep.dtype}")
        before = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
        offsets = before[self.offsets]
        check_nonempty(offsets.diff(), what="would lose their last candidate")
        return Candidates(self.labels.index_select(0, keep.nonzero().flatten()), offsets, self.kinds)

    def batch(self, samples: Tensor | Sequence[int]) -> Candidates:
        """The candidates of the given samples, in the given order; a sample may come twice."""
        ids = known_samples(samples, self.samples, self.offsets.device)
        start, counts = self.offsets[ids], self.counts[ids]
        offsets = offsets_of(counts)
        total = int(offsets[-1])
        sample = torch.repeat_interleave(counts, output_size=total)
        rows = (start - offsets[:-1]).index_select(0, sample).add_(torch.arange(total, device=sample.device))
        batch = Candidates(self.labels.index_select(0, rows), offsets, self.kinds)
        batch.__dict__["sample"] = sample
        if "kind" in self.__dict__:  # what is known of a sample holds in whatever batch it is
            batch.__dict__["kind"] = self.kind.index_select(0, ids)
        if "support_with_unused" in self.__dict__:
            shared = self.support_with_unused.view(self.samples, -1).index_select(0, ids)
            batch.__dict__["support_with_unused"] = shared.view(-1, self.classes + 1)
        return batch

    def span(self, first: int, last: int) -> Candidates:
        """The candidates of the samples `first` to `last - 1`, without a copy."""
        offsets = self.offsets[first : last + 1]
        begin, end = offsets[[0, -1]].tolist()
        return Candidates(self.labels[begin:end], offsets - begin, self.kinds)

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        if gold.shape != (self.samples, self.slots):
            raise InputError(f"expected gold of shape ({self.samples}, {self.slots}), got {tuple(gold.shape)}")
        found = torch.zeros(self.samples, dtype=torch.bool, device=self.labels.device)
        for start in range(0, len(self), _CHUNK):
            labels, sample = self.labels[start : start + _CHUNK], self.sample[start : start + _CHUNK]
            hit = ((labels == gold[sample]) | (labels < 0)).all(1)
            found[sample[hit]] = True
        return found

    def sample_at_random(self, per_sample: int, seed: int = 0) -> Candidates:
        """At most `per_sample` candidates of each sample, drawn uniformly without replacement."""
        if per_sample < 1:
            raise InputError(f"expected per_sample of at least 1, got {per_sample}")
        return self.subset(self.random_ranks(seed) < per_sample)

    def random_ranks(self, seed: int) -> Tensor:
        """Each candidate's place when those of its sample are shuffled, `(Ω,)`."""
        return shuffled_places(self.sample, self.offsets, seed)

    def distinct(self) -> Candidates:
        """Without repeated candidates; rows come out sorted within each sample."""
        rows = torch.cat([self.sample[:, None], self.labels.long()], dim=1)
        rows = torch.unique(rows, dim=0)
        return Candidates(rows[:, 1:].to(self.labels.dtype), offsets_of(torch.bincount(rows[:, 0])), self.kinds)

    def to(self, device: torch.device | str) -> Candidates:
        """The same candidates on another device."""
        return Candidates(self.labels.to(device), self.offsets.to(device), self.kinds)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Candidates({self.samples:,} samples, {len(self):,} candidates, "
            f"{self.slots} slots, {self.classes} classes)"
        )
