"""The formulas as a lattice: forward and backward sums instead of a list, so that any number of candidates will do."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet, Lattice
from clipper.candidates.graph_building import condensed, templates_of
from clipper.pruning.joint.factors import CandidateFactor, Factor
from clipper.pruning.objectives import listed_only

_WORTH = 4
"""Candidates for each arc, from which on to walk a graph is faster by far than to look up a list: 14 times on MAX-4."""


def factor_of(candidates: CandidateSet) -> Factor:
    """The faster one: a lattice, also of candidates that are listed, if few states stand for all of them.

    Examples:
        >>> pools = [Candidates.from_rule(rule, targets=[8] * 50, slots=4, classes=10) for rule in (sum, max)]
        >>> [type(factor_of(pool)).__name__ for pool in pools]  # 165 and 2,465 candidates a sample
        ['CandidateFactor', 'LatticeFactor']
    """
    listed = listed_only(candidates)
    if listed is None:
        return LatticeFactor(candidates)
    lattice = _worthwhile(listed)
    return CandidateFactor(listed) if lattice is None else LatticeFactor(lattice)


def _worthwhile(candidates: Candidates) -> Lattice | None:
    template, firsts = templates_of(candidates)
    different = candidates.batch(firsts)
    if _WORTH * len(different) > len(candidates):
        return None  # few samples have a formula in common, so that a graph would be about as large
    graph = condensed(different)
    if graph is None or _WORTH * graph.arcs * candidates.samples > len(candidates):
        return None
    return Lattice(template, candidates.kinds, graph=graph)


class LatticeFactor:
    """As `CandidateFactor`, for candidates that nobody lists.

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

    def __init__(self, lattice: CandidateSet) -> None:
        self.lattice = lattice
        self.shape = lattice.samples, lattice.slots, lattice.classes

    @property
    def size(self) -> int:
        """Numbers that one start needs."""
        return self.lattice.samples * self.lattice.states

    @property
    def count(self) -> int:
        """How many candidates all samples have together."""
        return sum(self.lattice.counts)

    @property
    def support(self) -> Tensor:
        """The labels that a slot has in some candidate, `(n*m, c)` bool."""
        return self.lattice.support

    def part(self, samples: Tensor, /) -> LatticeFactor:
        """The formulas of some samples."""
        return LatticeFactor(self.lattice.batch(samples))

    def marginals(self, field: Tensor, /) -> Tensor:
        """The probability of each label of each slot, `(n*m, c, starts)`."""
        n, m, c = self.shape
        marginals = self._repeated(field).marginals(self._by_sample(field))  # (n*starts, m, c)
        return marginals.view(n, -1, m, c).permute(0, 2, 3, 1).reshape(field.shape)

    def best(self, field: Tensor, /) -> Tensor:
        """The labels of each sample's most probable candidate, `(n*m, starts)`; -1 in unused slots."""
        n, m, _ = self.shape
        labels = self._repeated(field).top_k(self._by_sample(field), 1).labels.long()  # (n*starts, m)
        return labels.view(n, -1, m).transpose(1, 2).reshape(n * m, -1)

    def evidence(self, field: Tensor, /) -> Tensor:
        """log Σ over a sample's candidates of exp(Σ of the field at its labels), `(n, starts)`."""
        return self._repeated(field).log_probability(self._by_sample(field)).view(self.shape[0], -1)

    def _repeated(self, field: Tensor) -> CandidateSet:
        """Each sample once for each start."""
        starts = field.shape[2]
        if starts == 1:
            return self.lattice
        return self.lattice.batch(torch.arange(self.shape[0], device=field.device).repeat_interleave(starts))

    def _by_sample(self, field: Tensor) -> Tensor:
        """`(n*starts, m, c)`"""
        n, m, c = self.shape
        return field.view(n, m, c, -1).permute(0, 3, 1, 2).reshape(-1, m, c)
