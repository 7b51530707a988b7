"""Posterior: how probable each candidate is once the whole pool has had its say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning.joint.calibration import Calibration, calibration_of
from clipper.pruning.joint.mass import heaviest
from clipper.pruning.joint.settling import Verification
from clipper.pruning.joint.trust import Trust
from clipper.pruning.objectives import prune_against
from clipper.pruning.result import Pruning

Verdict = Literal["joint", "unsettled", "uninformative"]


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the pool as a whole says about each sample; plain tensors on the candidates' device."""

    candidates: Candidates
    graph: ProximityGraph
    probability: Tensor
    """`(Ω,)`: of each candidate; a sample's sum to one."""
    labels: Tensor
    """`(n, m)`: each sample's most probable candidate; -1 in unused slots."""
    marginals: Tensor
    """`(n, m, c)`: of each label of each slot; zero in unused slots."""
    energy: float
    """The weight of the pairs to which `labels` gives different labels, as a share of the weight of all pairs."""
    trust: Trust
    """How often pairs disagree, by length, as fitted."""
    verification: Verification
    """How well the samples' own formulas bear out what their neighbours say."""
    verdict: Verdict
    """"joint": believe it. "unsettled": the messages did not come to rest, or the formulas bear too little of it out.
    "uninformative": they bear it out no more than chance would."""

    @property
    def converged(self) -> bool:
        """Whether the posterior is to be believed."""
        return self.verdict == "joint"

    def prune(self, mass: float = 0.95) -> Pruning:
        """Keep the fewest candidates of each sample that hold `mass` of the probability, at least one.

        A posterior that did not converge abstains. Where it is unsettled, each sample is pruned by its nearest
        neighbours alone ("exact"); where the graph is uninformative, no edge is to be believed and all candidates stay.
        """
        if not 0 < mass <= 1:
            raise InputError(f"expected a mass above 0 and at most 1, got {mass}")
        if self.verdict == "unsettled":
            return self._by_nearest()
        keep = heaviest(self.candidates, self.probability, mass)
        if self.verdict == "uninformative":
            keep = torch.ones_like(keep)
        survivors = partial(_support, self.candidates, keep)
        chosen = partial(_respected, self.candidates, self.graph, survivors)
        return Pruning(self.candidates, keep, chosen, lambda _: survivors())

    def calibration(self, gold: Tensor) -> Calibration:
        """How well the probabilities fit gold labels `(n, m)`, for measuring only."""
        if gold.shape != self.labels.shape:
            raise InputError(f"expected gold of shape {tuple(self.labels.shape)}, got {tuple(gold.shape)}")
        return calibration_of(self.candidates, self.probability, self.marginals, gold)

    def _by_nearest(self) -> Pruning:
        nearest = self._nearest
        graph = ProximityGraph(self.graph.source[nearest], self.graph.target[nearest], self.graph.distance[nearest])
        pruning = prune_against(self.candidates, graph, self.candidates.support, "exact")
        return Pruning(self.candidates, pruning.keep, partial(_spread, pruning, nearest), lambda _: pruning.allowed)

    @cached_property
    def _nearest(self) -> Tensor:
        """Each instance's shortest edge, `(E,)` bool."""
        order = self.graph.distance.argsort(stable=True)
        order = order[self.graph.source[order].argsort(stable=True)]
        source = self.graph.source[order]
        first = torch.ones_like(source, dtype=torch.bool)
        first[1:] = source[1:] != source[:-1]
        return torch.zeros_like(first).scatter_(0, order, first)

    def __repr__(self) -> str:
        return (
            f"Posterior({self.candidates.samples:,} samples, {self.verdict}, "
            f"{float(self.marginals.amax(2).mean()):.0%} sure of a label on average)"
        )


def _support(candidates: Candidates, keep: Tensor) -> Tensor:
    return candidates.subset(keep).support


def _respected(candidates: Candidates, graph: ProximityGraph, survivors: partial[Tensor]) -> Tensor:
    """The edges that every survivor is consistent with, `(E,)` bool."""
    return ~(survivors()[graph.source] & ~candidates.support[graph.target]).any(1)


def _spread(pruning: Pruning, among: Tensor) -> Tensor:
    chosen = torch.zeros_like(among)
    chosen[among] = pruning.edges
    return chosen
