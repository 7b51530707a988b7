"""Factors: the formulas of all samples, listed or as a lattice, as belief propagation sees them.

`Factor` is all that belief propagation needs to know of a set of candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from math import log
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from clipper.candidates import Candidates, CandidateSet, Lattice
from clipper.candidates.base import TemplateSet
from clipper.candidates.graph_building import condensed, templates_of
from clipper.candidates.table import offsets_of
from clipper.candidates.task import numbered
from clipper.pruning.joint.settings import InferenceSettings, blocks
from clipper.pruning.ranks import ALONE, Ranks


class Factor(Protocol):
    """The formulas of all samples at once; the last axis counts independent starts.

    Starts come last, not first, because a look-up then moves a whole row of them: several times faster.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """Samples, slots and labels: `(n, m, c)`."""

    @property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""

    def part(self, samples: Tensor, /) -> Factor:
        """The formulas of some samples."""

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`, given log-odds `field` of that shape."""

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; -1 in unused slots."""

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""


class CandidateFactor:
    """The formulas as lists of candidates: one look-up per candidate and slot for its score, and one for the marginals.

    Examples:
        >>> factor = CandidateFactor(Candidates.from_lists([[(0, 2), (1, 1)], [(2,)]], classes=3))
        >>> field = torch.zeros(4, 3, 1)  # (n*m, c, starts)
        >>> field[0, 1] = torch.tensor(3.0).log()  # the first slot says 1, three to one
        >>> factor.marginals(field)[0, :, 0]
        tensor([0.2500, 0.7500, 0.0000])
        >>> factor.best(field)[:, 0].tolist()
        [1, 1, 2, -1]
    """

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        n, m, width = candidates.samples, candidates.slots, candidates.classes + 1
        self.shape = n, m, candidates.classes
        small = max(len(candidates) * m, n * m * width) < torch.iinfo(torch.int32).max
        index = torch.int32 if small else torch.int64
        start = torch.arange(1, m * width, width, device=candidates.labels.device, dtype=index)
        self._cells = candidates.labels.to(index) + start  # (Ω, m)
        self._cells += (candidates.sample * (m * width)).to(index)[:, None]
        order = self._cells.flatten().argsort(stable=True)
        self._rows = order.div_(m, rounding_mode="floor").to(index)  # the candidates of each cell, cell by cell
        counts = torch.bincount(self._cells.flatten(), minlength=n * m * width)
        self._bags = pad(counts.cumsum(0), (1, 0))[:-1].to(index)

    @property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""
        return len(self.candidates)

    def part(self, samples: Tensor, /) -> CandidateFactor:
        """The formulas of some samples."""
        return CandidateFactor(self.candidates.batch(samples))

    def probability(self, field: Tensor, /) -> Tensor:
        """The probability of each candidate, `(Ω, starts)`; those of a sample add up to one."""
        return (self.scores(field) - self.evidence(field).index_select(0, self.candidates.sample)).exp_()

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`."""
        weight, _ = self._weights(field)
        mass = embedding_bag(self._rows, weight, self._bags, mode="sum").view(len(field), -1, field.shape[2])
        mass = mass[:, 1:]
        return mass / mass.sum(1, keepdim=True).clamp_(min=torch.finfo(mass.dtype).tiny)  # an unused slot has none

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; the first of equals."""
        score = self.scores(field)  # (Ω, starts)
        sample = self.candidates.sample[:, None].expand_as(score)
        top = score == self._peak(score).index_select(0, self.candidates.sample)
        row = torch.arange(len(score), device=score.device)[:, None].expand_as(score)
        first = torch.full((self.shape[0], score.shape[1]), len(score), device=score.device)
        first.scatter_reduce_(0, sample, torch.where(top, row, len(score)), "amin")
        labels = self.candidates.labels[first.clamp(max=len(score) - 1)].long()  # (n, starts, m)
        return labels.transpose(1, 2).reshape(-1, score.shape[1])

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        weight, peak = self._weights(field)
        row = torch.arange(len(weight), device=weight.device)
        return embedding_bag(row, weight, self.candidates.offsets[:-1], mode="sum").log_() + peak

    def scores(self, field: Tensor, /) -> Tensor:
        """Σ of the field at each candidate's labels, `(Ω, starts)`."""
        table = pad(field, (0, 0, 1, 0)).view(-1, field.shape[2])  # label -1 adds 0
        return embedding_bag(self._cells, table, mode="sum")

    def _weights(self, field: Tensor) -> tuple[Tensor, Tensor]:
        """Each candidate's weight, `(Ω, starts)`, scaled to at most 1, and the log of the scale of each sample."""
        score = self.scores(field)
        peak = self._peak(score)
        score.sub_(peak.index_select(0, self.candidates.sample))
        # The bound keeps results a little above the smallest normal number: for subnormal ones, exp is 30 times slower.
        return score.clamp_(min=log(torch.finfo(score.dtype).tiny) + 1).exp_(), peak

    def _peak(self, score: Tensor) -> Tensor:
        lowest = torch.full((self.shape[0], score.shape[1]), -torch.inf, device=score.device, dtype=score.dtype)
        return lowest.scatter_reduce_(0, self.candidates.sample[:, None].expand_as(score), score, "amax")


class CandidateBlocks:
    """As `CandidateFactor`, for a larger pool: it processes some formulas at a time and needs little extra memory.

    A formula that several samples share can be stored once. These samples are then processed like additional starts.
    Formulas that are shared by equally many samples are processed together.

    Examples:
        >>> different = Candidates.from_lists([[(0, 2), (1, 1)], [(2, 2)]], classes=3)
        >>> factor = CandidateBlocks(different, torch.tensor([0, 1, 0]))
        >>> field = torch.zeros(6, 3, 1)  # (n*m, c, starts)
        >>> field[4, 1] = torch.tensor(3.0).log()  # the first slot of the last sample says 1, three to one
        >>> factor.best(field).view(3, 2).tolist()
        [[0, 2], [2, 2], [1, 1]]
    """

    def __init__(self, different: Candidates, formula: Tensor | None = None) -> None:
        """Store the formulas, and which of them each sample has, `(n,)`; None if each sample has its own."""
        if formula is None:
            formula = torch.arange(different.samples, device=different.device)
        self.different, self.formula = different, formula
        self.shape = len(formula), different.slots, different.classes
        self._lengths = different.offsets.diff()[formula]  # (n,): candidates
        many = torch.bincount(formula, minlength=different.samples)
        ordered, begins = formula.argsort(stable=True), pad(many.cumsum(0), (1, 0))
        self._groups: list[tuple[CandidateFactor, Tensor]] = []  # formulas, and their samples `(formulas, times)`
        for times in torch.unique(many[many > 0]).tolist():
            alike = (many == times).nonzero()[:, 0]
            rows = int(different.offsets.diff()[alike].sum())
            place = torch.arange(times, device=formula.device)
            for part in blocks(len(alike), -(-rows // len(alike))):
                samples = ordered[begins[alike[part]][:, None] + place]
                self._groups.append((CandidateFactor(different.batch(alike[part])), samples))

    @cached_property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""
        return int(self._lengths.sum())

    def part(self, samples: Tensor, /) -> CandidateBlocks:
        """The formulas of some samples."""
        return CandidateBlocks(self.different, self.formula[samples])

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`."""
        n, m, c = self.shape
        found = torch.empty_like(field).view(n, m, c, -1)
        for factor, samples, part in self._parts(field):
            found[samples] = factor.marginals(part).view(len(samples), m, c, *samples.shape[1:], -1).movedim(-2, 1)
        return found.view(field.shape)

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; the first of equals."""
        n, m, _ = self.shape
        found = torch.empty(n, m, field.shape[2], dtype=torch.long, device=field.device)
        for factor, samples, part in self._parts(field):
            found[samples] = factor.best(part).view(len(samples), m, *samples.shape[1:], -1).movedim(2, 1)
        return found.view(n * m, -1)

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        found = field.new_empty(self.shape[0], field.shape[2])
        for factor, samples, part in self._parts(field):
            found[samples] = factor.evidence(part).view(*samples.shape, -1)
        return found

    def probability(self, field: Tensor, /) -> Tensor:
        """The probability of each candidate, `(Ω, starts)`; those of a sample add up to one."""
        found = field.new_empty(self.size, field.shape[2])
        begins = pad(self._lengths.cumsum(0), (1, 0))
        for factor, samples, part in self._parts(field):
            rows = factor.candidates
            place = torch.arange(len(rows), device=field.device) - rows.offsets[rows.sample]
            found[begins[samples][rows.sample] + place[:, None]] = factor.probability(part).view(
                len(rows), *samples.shape[1:], -1
            )
        return found

    def _parts(self, field: Tensor) -> Iterator[tuple[CandidateFactor, Tensor, Tensor]]:
        """Formulas, some of their samples `(formulas, times)`, and the field of these, `(formulas*m, c, times*starts)`.

        Block by block.
        """
        n, m, c = self.shape
        by_sample = field.view(n, m, c, field.shape[2])
        for factor, samples in self._groups:
            for some in blocks(samples.shape[1], factor.size * field.shape[2]):
                chosen = samples[:, some]
                part = by_sample[chosen].movedim(1, -2)  # (formulas, m, c, times, starts)
                yield factor, chosen, part.reshape(len(chosen) * m, c, -1)


def listed_factor(candidates: Candidates) -> CandidateFactor | CandidateBlocks:
    """The formulas as lists of candidates. In a large pool, samples with equal formulas share one list."""
    if len(candidates) > InferenceSettings.memory:
        formula, firsts = templates_of(candidates)
        return CandidateBlocks(candidates.batch(firsts), formula)
    return CandidateFactor(candidates) if len(candidates) <= InferenceSettings.block else CandidateBlocks(candidates)


_WORTH = 2
"""With at least this many candidates per arc, a graph is much faster than a list: 14 times on MAX-4."""


def factor_of(candidates: CandidateSet, ranks: Ranks = ALONE) -> Factor:
    """The faster factor: a lattice if few states represent the candidates, even if they are listed; else lists.

    The choice depends on the samples of all `ranks` together, so that all of them choose the same.

    Examples:
        >>> pools = [Candidates.from_rule(rule, targets=[8] * 50, slots=4, classes=10) for rule in (sum, max)]
        >>> [type(factor_of(pool)).__name__ for pool in pools]  # 165 and 2,465 candidates a sample
        ['CandidateFactor', 'LatticeFactor']
    """
    if isinstance(candidates, TemplateSet):
        return LatticeFactor(candidates)
    listed = candidates.to_candidates()
    lattice = _worthwhile(listed, ranks)
    return listed_factor(listed) if lattice is None else LatticeFactor(lattice)


def _worthwhile(candidates: Candidates, ranks: Ranks) -> Lattice | None:
    template, firsts = formulas_of(candidates, ranks)
    different, many = candidates.batch(firsts), ranks.count(len(candidates))
    if _WORTH * ranks.count(len(different)) > many:
        return None  # few samples have a formula in common, so that a graph would be about as large
    graph = condensed(of_all_ranks(different, ranks))
    if graph is None or _WORTH * graph.arcs * ranks.count(candidates.samples) > many:
        return None
    return Lattice(template, candidates.kinds, graph=graph)


def formulas_of(candidates: Candidates, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """As `templates_of`, numbered over all ranks; the first samples only of formulas that no earlier rank has."""
    template, firsts = templates_of(candidates)
    if ranks.size == 1:
        return template, firsts
    rows, bounds = candidates.labels.cpu().numpy(), candidates.offsets.tolist()
    digests = [blake2b(rows[bounds[i] : bounds[i + 1]].tobytes()).digest() for i in firsts.tolist()]
    found = ranks.all_of(digests)
    before = sum(map(len, found[: ranks.rank]))
    _, numbers = numbered(digest for part in found for digest in part)
    own = numbers[before : before + len(digests)]
    new = own > (int(numbers[:before].max()) if before else -1)
    return own.to(template.device)[template], firsts[new.to(firsts.device)]


def of_all_ranks(candidates: Candidates, ranks: Ranks) -> Candidates:
    """The candidates of all ranks, one after the other."""
    if ranks.size == 1:
        return candidates
    samples = ranks.all_of(candidates.samples)
    labels = ranks.rows(candidates.labels, ranks.all_of(len(candidates)))
    counts, kind = ranks.rows(candidates.offsets.diff(), samples), ranks.rows(candidates.kind, samples)
    return Candidates(labels, offsets_of(counts), candidates.kinds, kind if bool((counts == 0).any()) else None)


class LatticeFactor:
    """As `CandidateFactor`, for candidates that are not listed.

    Examples:
        >>> from clipper import Lattice
        >>> from clipper.candidates.rules import SUM
        >>> factor = LatticeFactor(Lattice.from_rule(*SUM, targets=[2, 4], slots=2, classes=3))
        >>> field = torch.zeros(4, 3, 1)  # (n*m, c, starts)
        >>> field[0, 1] = torch.tensor(2.0).log()  # the first slot says 1, two to one to each of the others
        >>> factor.marginals(field)[0, :, 0]
        tensor([0.2500, 0.5000, 0.2500])
        >>> factor.best(field)[:, 0].tolist()
        [1, 1, 2, 2]
    """

    def __init__(self, lattice: TemplateSet) -> None:
        self.lattice = lattice
        self.shape = lattice.samples, lattice.slots, lattice.classes

    @property
    def size(self) -> int:
        """How many numbers a pass holds for each start."""
        return self.lattice.samples * self.lattice.states

    def part(self, samples: Tensor, /) -> LatticeFactor:
        """The formulas of some samples."""
        return LatticeFactor(self.lattice.batch(samples))

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`."""
        n, m, c = self.shape
        found = torch.empty_like(field).view(n, m, c, -1)
        for some, lattice, part in self._parts(field):
            found[some] = lattice.marginals(part).view(-1, field.shape[2], m, c).movedim(1, -1)
        return found.view(field.shape)

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; -1 in unused slots."""
        n, m, _ = self.shape
        found = torch.empty(n, m, field.shape[2], dtype=torch.long, device=field.device)
        for some, lattice, part in self._parts(field):
            top = lattice.top_k(part, 1)
            labels = torch.full((len(part), m), -1, device=field.device)
            labels[top.sample] = top.labels.long()  # a sample without candidates has none
            found[some] = labels.view(-1, field.shape[2], m).transpose(1, 2)
        return found.view(n * m, -1)

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        parts = [lattice.log_probability(part) for _, lattice, part in self._parts(field)]
        return torch.cat(parts).view(self.shape[0], -1) if parts else field.new_zeros(0, field.shape[2])

    def _parts(self, field: Tensor) -> Iterator[tuple[slice, CandidateSet, Tensor]]:
        """Some samples, their lattice once for each start, and their field, `(some*starts, m, c)`; block by block."""
        n, m, c = self.shape
        starts = field.shape[2]
        by_sample = field.view(n, m, c, starts)
        for some in blocks(n, self.lattice.states * starts):
            part = by_sample[some]
            samples = torch.arange(some.start, some.stop, device=field.device).repeat_interleave(starts)
            lattice = self.lattice if starts == 1 and len(part) == n else self.lattice.batch(samples)
            yield some, lattice, part.movedim(-1, 1).reshape(len(samples), m, c)
