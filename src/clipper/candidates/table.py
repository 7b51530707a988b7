"""Candidates: for each sample, the label combinations that satisfy its formula, packed row by row.

This file does not depend on embeddings, graphs or losses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import torch
from torch import Tensor

from clipper.arguments import (
    as_list,
    as_tensor,
    number_in_words,
    one_of,
    seeded,
    shown,
    usable_device,
    whole_number,
    whole_numbers,
    widened,
    widest_float,
)
from clipper.candidates import packed
from clipper.candidates.abduction import BUDGET, templates
from clipper.candidates.base import (
    CandidateSet,
    Impossible,
    allowed_by_slot,
    check_none_emptied,
    check_nonempty,
    check_span,
    gold_labels,
    outside_inference_mode,
)
from clipper.candidates.kinds import Classes, Kind, kind_of_label, kinds_of, smallest_type
from clipper.candidates.rules import Rule
from clipper.candidates.task import check_takes_one_tuple
from clipper.errors import BudgetError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from clipper.candidates.program import Labels, Sentence


_FEW, _SORTED = 16, 4096
"""Up to `_FEW` best candidates of more than `_SORTED` rows are found faster one after the other than by sorting."""
_CHUNK = 1 << 18
"""Candidates processed at a time if an intermediate result would be large."""
_CELLS = 1 << 26
"""Largest number of entries in a table of labels that is computed in one step."""
_MOST_CELLS = 1 << 35
"""Largest number of entries in a table of labels; a larger table is refused."""
_INHERITED = ("plain", "kind", "support_with_unused")
"""Cached properties that a copy on another device keeps."""


@dataclass(frozen=True, eq=False)
class Candidates(CandidateSet):
    """The possible labels of each sample, listed: a row for each candidate.

    Build it with `from_rule`, `from_program`, `from_lists`, `from_tensors` or `read`, which check their input.

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)
        >>> candidates
        Candidates(3 samples, 15 candidates, 2 slots, 10 classes)
        >>> candidates.counts
        [9, 3, 3]
        >>> candidates.labels[candidates.sample == 1].tolist()
        [[0, 2], [1, 1], [2, 0]]

    Attributes:
        labels: `(Ω, m)`, the smallest integer type that fits; -1 in unused slots.
        offsets: `(n+1,)`: the candidates of sample `i` are the rows `offsets[i]` to `offsets[i+1]`.
        kinds: the kinds of label; one, unless several classifiers are trained.
        slot_kinds: `(n, m)`: the kind of label in each slot, stored if there may be samples without candidates, from
            which it cannot be read; else None.
    """

    LISTED: ClassVar[int] = 100_000_000

    labels: Tensor
    offsets: Tensor
    kinds: tuple[Kind, ...]
    slot_kinds: Tensor | None = None

    @overload
    @classmethod
    def from_rule(
        cls,
        rule: Rule,
        targets: Any,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
        impossible: Impossible = "refuse",
    ) -> CandidateSet: ...

    @overload
    @classmethod
    def from_rule(
        cls,
        rule: Callable[..., Any],
        targets: Any,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
        impossible: Impossible = "refuse",
    ) -> Candidates: ...

    @classmethod
    @outside_inference_mode
    def from_rule(
        cls,
        rule: Rule | Callable[..., Any],
        targets: Any,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
        impossible: Impossible = "refuse",
    ) -> CandidateSet:
        """All label combinations that a rule maps to each sample's target.

        Args:
            rule: any function from a tuple of labels to the target, or one of `clipper.rules`. A function that only
                uses arithmetic is called for all combinations at once, any other once for each combination. With a rule
                of `clipper.rules` that has too many candidates to list, the result is a `Lattice`.
            targets: the target of each of the `n` samples.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: the number of labels, or a mapping from each kind of label to its number.
            domains: the labels that each slot may have; all labels if not given.
            budget: the largest number of label combinations to try; with a rule of `clipper.rules`, the largest number
                of candidates to list.
            impossible: "refuse" a target that no labels satisfy, or "keep" its sample without candidates.

        Returns:
            The candidates of all samples, in lexicographic order.

        Raises:
            InputError: if no labels give the target of a sample, or the rule fails.
            BudgetError: if there are more combinations than the budget.
        """
        if isinstance(rule, Rule):
            return rule.candidates(targets, slots, classes, domains=domains, budget=budget, impossible=impossible)
        if isinstance(rule, str) or not callable(rule):
            raise InputError(
                f"expected a rule, any callable on a tuple of labels, got {shown(rule)}; a rule by its name is "
                "clipper.rules.named(name)"
            )
        if getattr(rule, "__module__", None) == "clipper.rules":
            raise InputError(f"expected a rule, got the function that makes one; call it: rules.{rule.__name__}(…)")
        check_takes_one_tuple(rule)
        kinds = kinds_of(classes)
        found = templates(rule, targets, slots, kinds[-1].stop, domains, budget, impossible)
        some = found.counts[found.counts > 0]
        check_labels(found.labels, torch.repeat_interleave(some), offsets_of(some), kinds)
        slot_kinds = None if len(some) == len(found.counts) else kind_of_label(found.typical, kinds)
        distinct = cls(found.labels.to(smallest_type(kinds)), offsets_of(found.counts), kinds, slot_kinds)
        _ = distinct.support_with_unused, distinct.plain  # computed for few rows, inherited by all samples
        return distinct.batch(found.shared)

    @classmethod
    @outside_inference_mode
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
            samples: a `Sentence` for each sample, or its text if all samples have the same slots and facts.
            labels: the labels of each kind, by predicate: `{"name": ["dog", …], "rel": ["on", …]}`.
            slots: the slots of samples whose `Sentence` has none, `["digit(x1, _)", "digit(x2, _)"]`.
            budget: the largest number of candidates of distinct sentences to list.
            time_limit: seconds for grounding and solving.
            per_sample: draw this many candidates of each sample uniformly, if there are more.
            seed: the seed of these draws.

        Returns:
            The candidates of all samples.

        Raises:
            InputError: if the theory or a sentence is wrong, or no labels satisfy a sentence.
            BudgetError: if there are more candidates than the budget, or time runs out.

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
    @outside_inference_mode
    def from_lists(cls, samples: Sequence[Sequence[Sequence[int]]], classes: Classes) -> Candidates:
        """Candidates given one by one: `samples[i]` lists the label tuples of sample `i`.

        Samples may have different numbers of slots; a repeated tuple is kept (`distinct` drops repetitions).

        Args:
            samples: a list of label tuples for each sample.
            classes: the number of labels, or a mapping from each kind of label to its number.

        Returns:
            The candidates, in the given order.

        Raises:
            InputError: a sample has no candidates, its tuples differ in length, or a label is out of range.

        Examples:
            >>> Candidates.from_lists([[(0, 8), (1, 7)], [(2,)]], classes=10).labels.tolist()
            [[0, 8], [1, 7], [2, -1]]
        """
        labels, counts = padded(samples)
        return cls.from_tensors(labels, torch.repeat_interleave(counts), classes)

    @classmethod
    @outside_inference_mode
    def from_tensors(
        cls, labels: Tensor, sample: Tensor, classes: Classes, *, samples: int | None = None
    ) -> Candidates:
        """Candidates as tensors.

        Args:
            labels: `(Ω, m)`, a candidate in each row; -1 in unused slots.
            sample: `(Ω,)`, the sample of each candidate, ascending from 0 without gaps.
            classes: the number of labels, or a mapping from each kind of label to its number.
            samples: how many samples there must be, if given.

        Returns:
            The candidates, copied into the smallest type that fits.

        Raises:
            InputError: if shapes, ids or labels do not fit together.
        """
        kinds = kinds_of(classes)
        labels, sample = whole_numbers(labels, "labels"), whole_numbers(sample, "sample ids").long()
        if labels.ndim != 2 or not labels.numel():
            raise InputError(f"expected labels of shape (candidates, slots), got {tuple(labels.shape)}")
        if labels.device != sample.device:
            raise InputError(f"expected labels and sample ids on one device, got {labels.device} and {sample.device}")
        check_sample_ids(sample, len(labels))
        found = int(sample[-1]) + 1
        wanted = found if samples is None else whole_number(samples, "samples")
        if found > wanted:
            raise InputError(f"expected {wanted} samples, got sample ids up to {found - 1}")
        if found < wanted:
            raise InputError(
                f"expected at least one candidate per sample, but {shown(wanted - found)} of {shown(wanted)} has no "
                f"candidates: sample ids end at {found - 1}"
            )
        offsets = offsets_of(torch.bincount(sample))
        check_labels(labels, sample, offsets, kinds)
        made = cls(labels.to(smallest_type(kinds), copy=True), offsets, kinds)
        _ = made.plain  # computed once, inherited by all batches
        return made

    @classmethod
    def read(cls, path: str | Path, classes: Classes | None = None) -> Candidates:
        """Read a file that `write` wrote, or a Parquet file from another program.

        Args:
            path: the file, or a folder of files.
            classes: the number of labels, if the file does not store it.

        Returns:
            The candidates.

        Raises:
            FileError: if the file is missing, damaged or of another format.
            InputError: if it contains anything but candidates.
        """
        from clipper.candidates.storage import read_candidates

        return read_candidates(path, classes)

    def write(self, path: str | Path) -> None:
        """Write a Parquet file. A failed write leaves no partial file.

        Args:
            path: the file; it must not exist yet.

        Raises:
            FileError: if it exists or cannot be written.
            InputError: if a sample has no candidates.
        """
        from clipper.candidates.storage import write_candidates

        write_candidates(self, path)

    def to_arrow(self) -> pa.Table:
        """An Arrow table: `sample`, `slot_0` … `slot_{m-1}` (null where unused); kinds in the metadata.

        You can pass it to pandas, polars and Hugging Face datasets: `table.to_pandas()`, `polars.from_arrow(table)`,
        `datasets.Dataset(table)`.
        """
        from clipper.candidates.storage import to_arrow

        return to_arrow(self)

    @classmethod
    def from_arrow(cls, table: Any, classes: Classes | None = None) -> Candidates:
        """Read candidates from a table such as `to_arrow` returns.

        Args:
            table: columns `sample` and `slot_0` … `slot_{m-1}`, sorted by sample; an Arrow table, a data frame of
                pandas or polars, or any object with Arrow's stream interface.
            classes: the number of labels, or a mapping from each kind of label to its number, if the metadata do not
                contain it; other libraries drop these metadata.

        Returns:
            The candidates.

        Raises:
            InputError: the table contains anything but candidates.
        """
        from clipper.candidates.storage import from_arrow

        return from_arrow(table, classes)

    def facts(self, predicate: str, syntax: Literal["prolog", "scallop"] = "prolog") -> str:
        """A fact for each candidate, as text for a logic program: the sample, then a label for each slot.

        Args:
            predicate: the name of the facts: a lower-case letter, then letters, digits or underscores.
            syntax: "prolog" for Prolog, ProbLog, DeepProbLog and answer-set programs, "scallop" for Scallop.

        Returns:
            The facts; unused slots hold -1.

        Raises:
            InputError: the predicate is not such a name, or there is no such syntax.

        Examples:
            >>> candidates = Candidates.from_lists([[(0, 8), (1, 7)], [(0, 2)]], classes=10)
            >>> print(candidates.facts("kept"), end="")
            kept(0, 0, 8).
            kept(0, 1, 7).
            kept(1, 0, 2).
            >>> print(candidates.facts("kept", "scallop"), end="")
            rel kept = {(0, 0, 8), (0, 1, 7), (1, 0, 2)}
        """
        one_of(syntax, "syntax", ("prolog", "scallop"))
        if not isinstance(predicate, str) or not re.fullmatch("[a-z][A-Za-z0-9_]*", predicate):
            raise InputError(
                f"expected a predicate such as kept: a lower-case letter, then letters, digits or underscores, got "
                f"{shown(predicate)}"
            )
        rows = torch.cat([self.sample[:, None], self.labels], dim=1).tolist()
        tuples = [f"({', '.join(map(str, row))})" for row in rows]
        if syntax == "scallop":
            return f"rel {predicate} = {{{', '.join(tuples)}}}\n"
        return "".join(f"{predicate}{row}.\n" for row in tuples)

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.offsets) - 1

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return self.labels.shape[1]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.labels.device

    @cached_property
    def counts(self) -> list[int]:
        """How many candidates each sample has."""
        counts: list[int] = self.offsets.diff().tolist()
        return counts

    @property
    def log_counts(self) -> Tensor:
        """The log of the number of candidates of each sample, `(n,)`, in double precision if the device has it."""
        return widened(self.offsets.diff()).log()

    @cached_property
    @outside_inference_mode
    def sample(self) -> Tensor:
        """Each candidate's sample, `(Ω,)`, ascending."""
        ids = torch.arange(self.samples, device=self.offsets.device)
        return torch.repeat_interleave(ids, self.offsets.diff(), output_size=len(self))

    @cached_property
    def most(self) -> int:
        """The largest number of candidates of a sample; 0 if there are no samples."""
        return int(self.offsets.diff().max()) if self.samples else 0

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that distinguish this set from others, for fingerprints."""
        return self.labels, self.offsets

    @property
    def first(self) -> Tensor:
        """One candidate of each sample, `(n, m)`; -1 in unused slots, and where a sample has none."""
        if self.impossible is None:
            return self.labels[self.offsets[:-1]].long()
        some = self.possible()
        first = self.offsets.new_full((self.samples, self.slots), -1)
        return first.masked_scatter_(some[:, None], self.labels[self.offsets[:-1][some]].long())

    @cached_property
    @outside_inference_mode
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        return kind_of_label(self.first, self.kinds) if self.slot_kinds is None else self.slot_kinds

    @cached_property
    @outside_inference_mode
    def impossible(self) -> Tensor | None:
        """The samples that were kept although no labels satisfy their formula, `(n,)` bool; None if there are none."""
        if self.slot_kinds is None or bool(self.possible().all()):
            return None
        return ~self.possible()

    @cached_property
    @outside_inference_mode
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        return self.support_with_unused[:, 1:]

    @cached_property
    @outside_inference_mode
    def support_with_unused(self) -> Tensor:
        """As `support`, with a first column for the label -1, `(n*m, c+1)` bool."""
        width = self.classes + 1
        cells = self.samples * self.slots * width
        if cells > _MOST_CELLS:
            raise BudgetError(
                f"the table of which of {self.classes:,} labels {self.samples * self.slots:,} instances may have "
                f"would have {number_in_words(cells)} entries; batch the samples, or number the labels without gaps"
            )
        if (len(self) <= _CHUNK and cells <= _CELLS) or self.samples <= 1:
            size = self.samples * width
            times = [packed.occurrences(self._cells(slot), size).view(-1, width) for slot in range(self.slots)]
            return (torch.stack(times, dim=1) > 0).view(-1, width)
        half = self.samples // 2  # halving bounds the memory
        halves = self.span(0, half), self.span(half, self.samples)
        return torch.cat([part.support_with_unused for part in halves])

    def take(self, table: Tensor, slot: int) -> Tensor:
        """The entry of `table (n*m, c+1)` for each candidate's label in a slot, `(Ω,)`; its first column is for -1."""
        column = table.view(self.samples, self.slots, table.shape[1])[:, slot].flatten()
        return column.index_select(0, self._cells(slot))

    def _cells(self, slot: int) -> Tensor:
        """The indices of the labels of a slot in a flat table of `(n, c+1)` whose first column is for -1, `(Ω,)`."""
        return self.label_zero + self.labels[:, slot]

    @cached_property
    @outside_inference_mode
    def cells(self) -> Tensor:
        """The indices of the labels in a table of log-probabilities, see `packed.table_cells`."""
        return packed.table_cells(self)

    @cached_property
    @outside_inference_mode
    def label_zero(self) -> Tensor:
        """The index of the label 0 of each candidate's sample in a flat table of `(n, c+1)`, `(Ω,)`."""
        width = self.classes + 1
        kind = torch.int32 if self.samples * width < torch.iinfo(torch.int32).max else torch.int64
        start = torch.arange(1, self.samples * width + 1, width, dtype=kind, device=self.labels.device)
        return start.index_select(0, self.sample)

    def subset(self, keep: Tensor) -> Candidates:
        """The candidates where `keep` is true.

        Args:
            keep: which rows to keep, `(Ω,)` bool.

        Raises:
            InputError: if a sample would lose its last candidate.
        """
        keep = as_tensor(keep, "keep").to(self.device)
        if keep.shape != (len(self),) or keep.dtype != torch.bool:
            raise InputError(f"expected keep of shape ({len(self)},) bool, got {tuple(keep.shape)} of {keep.dtype}")
        kept = self.rows_where(keep, may_empty=False)
        check_none_emptied(self, kept.possible())
        return kept

    @outside_inference_mode
    def rows_where(self, keep: Tensor, *, may_empty: bool = True) -> Candidates:
        """As `subset`, but samples may lose their last candidate, unless the caller knows that `keep` empties none."""
        labels = self.labels.index_select(0, keep.nonzero().flatten())
        kept = replace(self, labels=labels, offsets=self.offsets_where(keep))
        if not may_empty or self.slot_kinds is not None or bool(kept.possible().all()):
            return kept
        return replace(kept, slot_kinds=self.kind)  # samples that lost their last candidate no longer show their kinds

    def offsets_where(self, keep: Tensor) -> Tensor:
        """The offsets of `rows_where`, `(n+1,)`."""
        return torch.constant_pad_nd(keep.cumsum(0), (1, 0)).index_select(0, self.offsets)

    def narrowed(self, allowed: Tensor) -> Candidates:
        """As `restrict`, but samples may lose their last candidate; `possible` tells which have one left."""
        table = torch.nn.functional.pad(allowed_by_slot(allowed, self).to(self.device), (1, 0), value=True)
        keep = torch.ones(len(self), dtype=torch.bool, device=self.device)
        for slot in range(self.slots):
            keep &= self.take(table.flatten(0, 1), slot)
        return self.rows_where(keep)

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        return self.offsets.diff() > 0

    @outside_inference_mode
    def select(self, ids: Tensor) -> Candidates:
        """As `batch`, for `ids (b,)` on the set's device; they are not checked."""
        start, counts = self.offsets[ids], self.offsets.diff()[ids]
        offsets = offsets_of(counts)
        total = int(offsets[-1])
        sample = torch.repeat_interleave(counts, output_size=total)
        rows = (start - offsets[:-1]).index_select(0, sample).add_(torch.arange(total, device=sample.device))
        slot_kinds = None if self.slot_kinds is None else self.slot_kinds.index_select(0, ids)
        batch = Candidates(self.labels.index_select(0, rows), offsets, self.kinds, slot_kinds)
        batch.__dict__["sample"] = sample
        if "plain" in self.__dict__:  # properties of a sample do not depend on its batch
            batch.__dict__["plain"] = self.plain
        if "kind" in self.__dict__:
            batch.__dict__["kind"] = self.kind.index_select(0, ids)
        if "support_with_unused" in self.__dict__:
            shared = self.support_with_unused.view(self.samples, self.slots * (self.classes + 1)).index_select(0, ids)
            batch.__dict__["support_with_unused"] = shared.view(-1, self.classes + 1)
        return batch

    def span(self, first: int, last: int) -> Candidates:
        """The candidates of the samples `first` to `last - 1`, as a view."""
        check_span(first, last, self)
        offsets = self.offsets[first : last + 1]
        begin, end = offsets[[0, -1]].tolist()
        slot_kinds = None if self.slot_kinds is None else self.slot_kinds[first:last]
        return Candidates(self.labels[begin:end], offsets - begin, self.kinds, slot_kinds)

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        gold = gold_labels(gold, self)
        found = torch.zeros(self.samples, dtype=torch.bool, device=self.labels.device)
        for start in range(0, len(self), _CHUNK):
            labels, sample = self.labels[start : start + _CHUNK], self.sample[start : start + _CHUNK]
            hit = torch.ones_like(sample, dtype=torch.bool)
            for own, wanted in zip(labels.unbind(1), gold.unbind(1), strict=True):  # a slot at a time is faster
                hit &= (own == wanted.index_select(0, sample)) | (own < 0)
            found[sample[hit]] = True
        return found

    def _log_probability(self, log_probs: Tensor) -> Tensor:
        return packed.log_probability(log_probs, self)

    def _entropy(self, log_probs: Tensor) -> Tensor:
        return packed.segment_entropy(packed.candidate_log_probs(log_probs, self), self)

    def _outputs(self, log_probs: Tensor, k: int | None) -> Tensor:
        products = packed.cross_log_probs(log_probs, self).exp()  # (Ω, b)
        if k is None:
            return packed.segment_sum(products, self).T
        rows, found = packed.segment_top(products, self, k)  # (k, n, b)
        best = products.gather(0, rows.flatten(0, 1)).view_as(found)
        return torch.where(found, best, 0).sum(0).T

    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        values = packed.candidate_log_probs(packed.ranked(log_probs), self)
        if k <= _FEW and len(self) > _SORTED:
            rows, found = packed.segment_top(values, self, k)  # (k, n)
            sample, rank = found.T.nonzero(as_tuple=True)
            return self._rows(self.labels[rows[rank, sample]], sample)
        order = values.argsort(descending=True, stable=True)
        order = order[self.sample[order].argsort(stable=True)]  # by sample; within a sample, the best first
        rank = torch.arange(len(order), device=order.device) - self.offsets[self.sample]
        kept = (rank < min(k, len(self))).nonzero()[:, 0]
        return self._rows(self.labels[order[kept]], self.sample[kept])

    def _drawn(self, per_sample: int, generator: torch.Generator, log_probs: Tensor | None) -> Candidates:
        if log_probs is None:
            return self.subset(self.random_ranks(generator) < min(per_sample, len(self)))
        values = packed.candidate_log_probs(widened(log_probs), self)
        ruled_out = packed.segment_max(values, self) == -torch.inf  # then draw uniformly
        values = values.masked_fill(ruled_out[self.sample], 0)
        share = (values - packed.segment_logsumexp(values, self)[self.sample]).exp()
        row = torch.arange(len(self), device=self.device)
        last = packed.segment_max(torch.where(share > 0, row, -1), self)  # rounding must not choose a weight of 0
        steps = share.cumsum(0)
        start = torch.nn.functional.pad(steps, (1, 0))[self.offsets]  # (n+1,)
        noise = torch.rand(self.samples, per_sample, generator=generator, dtype=torch.float64).to(steps)
        drawn = torch.searchsorted(steps, start[:-1, None] + noise * start.diff()[:, None], right=True)
        keep = torch.zeros(len(self), dtype=torch.bool, device=self.device)
        keep[torch.minimum(drawn, last[:, None])] = True
        return self.subset(keep)

    def to_candidates(self, budget: int | None = None) -> Candidates:
        """The set itself, because it is listed already."""
        if budget is not None:
            self._check_rows(len(self), whole_number(budget, "budget", least=0))
        return self

    def _all(self) -> Candidates:
        return self

    def random_ranks(self, seed: int | torch.Generator) -> Tensor:
        """The rank of each candidate in a random order of its sample's candidates, `(Ω,)`."""
        generator = seed if isinstance(seed, torch.Generator) else seeded(seed)
        noise = torch.rand(len(self), generator=generator, dtype=torch.float64)
        if widest_float(self.device) == torch.float64:
            order = (self.sample + noise.to(self.device)).argsort()
        else:  # in single precision, adding the number of the sample would leave the noise few digits
            order = noise.argsort().to(self.device)
            order = order[self.sample[order].argsort(stable=True)]
        place = torch.arange(len(self), device=order.device) - self.offsets[self.sample]
        return torch.empty_like(order).scatter_(0, order, place)

    @outside_inference_mode
    def distinct(self) -> Candidates:
        """The set without repeated candidates; rows are sorted within each sample."""
        rows = torch.unique(torch.cat([self.sample[:, None], self.labels.long()], dim=1), dim=0)
        return self._rows(rows[:, 1:], rows[:, 0])

    @outside_inference_mode
    def to(self, device: torch.device | str) -> Candidates:
        """The same candidates on another device."""
        device = usable_device(device)
        slot_kinds = None if self.slot_kinds is None else self.slot_kinds.to(device)
        moved = Candidates(self.labels.to(device), self.offsets.to(device), self.kinds, slot_kinds)
        known = {name: self.__dict__[name] for name in _INHERITED if name in self.__dict__}
        moved.__dict__.update({name: v.to(device) if isinstance(v, Tensor) else v for name, v in known.items()})
        return moved

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Candidates({self.samples:,} samples, {len(self):,} candidates, "
            f"{self.slots} slots, {self.classes} classes)"
        )


def padded(samples: Sequence[Sequence[Sequence[int]]]) -> tuple[Tensor, Tensor]:
    """`labels (Ω, m)`, unused slots filled with -1, and `counts (n,)` of samples given as lists of label tuples."""
    lists = [
        [_listed(row, f"candidate {j} of sample {i}") for j, row in enumerate(_listed(rows, f"sample {i}"))]
        for i, rows in enumerate(_listed(samples, "samples"))
    ]
    counts = torch.tensor([len(rows) for rows in lists], dtype=torch.long)
    check_nonempty(counts)
    slots = max((len(rows[0]) for rows in lists), default=0)
    if not slots:
        raise InputError(f"expected samples with at least one slot each, got {len(lists)} samples without any")
    flat: list[list[int]] = []
    for i, rows in enumerate(lists):
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise InputError(f"expected candidates of one length in sample {i}, got lengths {set(map(len, rows))}")
        if not set(map(type, chain.from_iterable(rows))) <= {int}:
            rows = [[whole_number(label, f"labels in sample {i}", least=-1) for label in row] for row in rows]
        flat.extend([*row, *[-1] * (slots - width)] for row in rows)
    try:
        return torch.tensor(flat, dtype=torch.long).reshape(-1, slots), counts
    except (RuntimeError, ValueError, OverflowError) as error:
        raise InputError(f"expected labels below 2^63, got larger ones: {error}") from error


def _listed(values: Any, what: str) -> Sequence[Any]:
    """`values` as a sequence."""
    if isinstance(values, list | tuple):
        return values
    expected = f"label tuples for each sample, such as [[(0, 8), (1, 7)], [(0, 2)]], as {what},"
    if isinstance(values, Set):
        raise InputError(f"expected {expected} as a list, got {shown(values)}")
    return as_list(values, expected)


def offsets_of(counts: Tensor) -> Tensor:
    """The first row of each sample, `(n+1,)`, from the number of its rows, `(n,)`."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


def check_sample_ids(sample: Tensor, rows: int) -> None:
    """`sample (Ω,)` must be one number per candidate, ascending from 0 without gaps."""
    if sample.shape != (rows,):
        raise InputError(f"expected one sample id per candidate, shape ({rows},), got {tuple(sample.shape)}")
    step = sample.diff(prepend=sample.new_full((1,), -1))
    if int(sample[0]) < 0 or bool((step < 0).any()):
        raise InputError(
            "expected sample ids from 0 in ascending order, got unsorted or negative ones; "
            "sort the rows by sample first (torch.sort with stable=True keeps their order)"
        )
    gaps = (step > 1).nonzero().flatten()
    if len(gaps):
        after, missing = int(sample[gaps[0]]), int(sample[gaps[0]] - step[gaps[0]]) + 1
        raise InputError(
            f"expected at least one candidate per sample, but sample {missing} has no candidates: the next sample "
            f"id is {after}. No labels satisfy its formula: correct it, or leave it out and renumber the rest"
        )


def check_labels(labels: Tensor, sample: Tensor, offsets: Tensor, kinds: tuple[Kind, ...]) -> None:
    """Labels must lie in range, and a slot must hold one kind of label in all candidates of its sample."""
    without = (labels[offsets[:-1]] == -1).all(1).nonzero().flatten()
    if len(without):
        raise InputError(
            f"expected at least one used slot per sample, got only labels of -1 in sample {int(without[0])}"
        )
    kind = kind_of_label(labels[offsets[:-1]], kinds)
    for start in range(0, len(labels), _CHUNK):
        rows = slice(start, start + _CHUNK)
        _check_range(labels[rows], sample[rows], kinds)
        _check_kinds(labels[rows], sample[rows], kind, kinds)


def _check_range(labels: Tensor, sample: Tensor, kinds: tuple[Kind, ...]) -> None:
    wrong = labels < -1
    if kinds[-1].stop <= torch.iinfo(labels.dtype).max:  # else no label of this type is too large
        wrong |= labels >= kinds[-1].stop
    if bool(wrong.any()):
        row, slot = (int(i) for i in wrong.nonzero()[0])
        raise InputError(
            f"expected labels 0 … {kinds[-1].stop - 1}, or -1 for an unused slot, "
            f"got {int(labels[row, slot])} in slot {slot} of sample {int(sample[row])}"
        )


def _check_kinds(labels: Tensor, sample: Tensor, kind: Tensor, kinds: tuple[Kind, ...]) -> None:
    """All candidates of a sample must have the kinds of its first candidate, `kind (n, m)`."""
    mixed = kind_of_label(labels, kinds) != kind[sample]
    if bool(mixed.any()):
        row, slot = (int(i) for i in mixed.nonzero()[0])
        names = ", ".join(f"{k.name!r} {k.start}…{k.stop - 1}" for k in kinds)
        raise InputError(
            f"slot {slot} of sample {int(sample[row])} holds labels of different kinds in different candidates "
            f"(label {int(labels[row, slot])}; -1 marks an unused slot); the kinds are {names}. "
            "One classifier reads a slot: give every candidate of a sample the same kinds"
        )
