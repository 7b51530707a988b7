"""Factors: what a sample's formula says about its slots, given what others say about them.

This is all that belief propagation needs to know of a set of candidates, listed or not.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from clipper.candidates import Candidates


class Factor(Protocol):
    """The formulas of all samples at once; the last axis counts independent starts.

    Starts come last, not first, because a look-up then moves a whole row of them: several times faster.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """Samples, slots and labels: `(n, m, c)`."""

    @property
    def size(self) -> int:
        """Numbers that one start needs."""

    @property
    def count(self) -> int:
        """How many candidates all samples have together."""

    @property
    def support(self) -> Tensor:
        """The labels that a slot has in some candidate, `(n*m, c)` bool."""

    def part(self, samples: Tensor, /) -> Factor:
        """The formulas of some samples."""

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`, given log-odds `field` of that shape."""

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; -1 in unused slots."""

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""


class CandidateFactor:
    """The formulas as lists of candidates: one look-up per candidate and slot, there and back.

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
        start = torch.arange(0, m * width, width, device=candidates.labels.device)
        cells = (candidates.sample * (m * width))[:, None] + start + 1 + candidates.labels.long()  # (Ω, m)
        small = max(cells.numel(), n * m * width) < torch.iinfo(torch.int32).max
        index = torch.int32 if small else torch.int64
        order = cells.flatten().argsort(stable=True)
        self._cells = cells.to(index)
        self._rows = order.div_(m, rounding_mode="floor").to(index)  # the candidates of each cell, cell by cell
        counts = torch.bincount(cells.flatten(), minlength=n * m * width)
        self._bags = pad(counts.cumsum(0), (1, 0))[:-1].to(index)

    @property
    def size(self) -> int:
        """Numbers that one start needs."""
        return len(self.candidates)

    @property
    def count(self) -> int:
        """How many candidates all samples have together."""
        return len(self.candidates)

    @property
    def support(self) -> Tensor:
        """The labels that a slot has in some candidate, `(n*m, c)` bool."""
        return self.candidates.support

    def part(self, samples: Tensor, /) -> CandidateFactor:
        """The formulas of some samples."""
        return CandidateFactor(self.candidates.batch(samples))

    def probability(self, field: Tensor, /) -> Tensor:
        """Of each candidate, `(Ω, starts)`; a sample's sum to one."""
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
        return self.candidates.labels.long()[first].transpose(1, 2).reshape(-1, score.shape[1])

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        weight, peak = self._weights(field)
        row = torch.arange(len(weight), device=weight.device)
        return embedding_bag(row, weight, self.candidates.offsets[:-1], mode="sum").log_() + peak

    def scores(self, field: Tensor, /) -> Tensor:
        """Σ of the field at each candidate's labels, `(Ω, starts)`."""
        table = pad(field, (0, 0, 1, 0)).view(-1, field.shape[2])  # label -1 says nothing
        return embedding_bag(self._cells, table, mode="sum")

    def _weights(self, field: Tensor) -> tuple[Tensor, Tensor]:
        """Each candidate's weight, `(Ω, starts)`, at most 1; and the log of what they were divided by."""
        score = self.scores(field)
        peak = self._peak(score)
        return score.sub_(peak.index_select(0, self.candidates.sample)).exp_(), peak

    def _peak(self, score: Tensor) -> Tensor:
        lowest = torch.full((self.shape[0], score.shape[1]), -torch.inf, device=score.device, dtype=score.dtype)
        return lowest.scatter_reduce_(0, self.candidates.sample[:, None].expand_as(score), score, "amax")
