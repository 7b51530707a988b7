"""Candidates: for each sample, the label combinations that satisfy its formula, packed row by row.

This file knows nothing of embeddings, graphs or losses.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clipper.arguments import shown, whole_number, whole_numbers
from clipper.candidates.abduction import BUDGET, Rule, templates
from clipper.candidates.checks import check_labels, check_sample_ids
from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.packing import offsets_of, padded, smallest_type, trainable
from clipper.candidates.rows import PackedRows
from clipper.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from clipper.candidates.programs.wording import Sentence
    from clipper.candidates.programs.writing import Labels


@dataclass(frozen=True, eq=False)
class Candidates(PackedRows):
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

    @classmethod
    @trainable
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
        labels, counts, shared = templates(rule, targets, slots, kinds[-1].stop, domains, budget)
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
    @trainable
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
    @trainable
    def from_tensors(
        cls, labels: Tensor, sample: Tensor, classes: Classes, *, samples: int | None = None
    ) -> Candidates:
        """Candidates as `labels (Ω, m)` and `sample (Ω,)`, ascending; `samples`, if given, must be their number."""
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
        return cls(labels.to(smallest_type(kinds), copy=True), offsets, kinds)

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

    def __repr__(self) -> str:
        return (
            f"Candidates({self.samples:,} samples, {len(self):,} candidates, "
            f"{self.slots} slots, {self.classes} classes)"
        )
