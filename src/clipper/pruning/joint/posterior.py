"""Posterior: how probable each candidate is once the whole pool has had its say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Literal

import torch
from torch import Tensor

from clipper.arguments import real_number
from clipper.candidates.base import gold_labels
from clipper.proximity import ProximityGraph
from clipper.pruning.joint.calibration import Calibration, calibration_of
from clipper.pruning.joint.credible_set import averaged, credible_labels, smallest_credible_set
from clipper.pruning.joint.factors import CandidateFactor
from clipper.pruning.joint.fitting import Verification
from clipper.pruning.joint.trust import Trust
from clipper.pruning.objectives import listed_only, prune_along
from clipper.pruning.result import Pruning, Set

Verdict = Literal["joint", "unsettled", "uninformative"]


@dataclass(frozen=True, eq=False)
class Posterior(Generic[Set]):
    """What the pool as a whole says about each sample; plain tensors on the candidates' device.

    `infer` returns it.

    Attributes:
        candidates: what the labels could be, as given.
        graph: the edges, as given or as found.
        labels: `(n, m)`: each sample's most probable candidate; -1 in unused slots.
        marginals: `(n, m, c)`: the probability of each label of each slot; zero in unused slots.
        probability: `(Ω,)`: the probability of each candidate; a sample's sum to one. Candidates that are not listed
            are listed for it, if they are few enough.
        verdict: "joint": believe it. "unsettled": the messages did not come to rest, or the formulas bear too little of
            it out. "uninformative": they bear it out no more than chance would.
        converged: whether the verdict is "joint".
        energy: the weight of the pairs to which `labels` gives different labels, as a share of the weight of all.
        trust: how often pairs disagree, by length, as fitted or as given.
        confusion: `(c, c)`: how many times likelier than by chance two labels meet in a pair that disagrees, as fitted.
        verification: how well the samples' own formulas bear out what their neighbours say.
        log_odds: `(n, m, c, ways)`: what all other samples say about each instance; its own sample's formula has no
            part in it. One reading for each way to name the labels that the formulas allow.
        weight: `(ways,)`: how probable each of these readings is, the most probable first.
    """

    candidates: Set
    graph: ProximityGraph
    log_odds: Tensor
    weight: Tensor
    labels: Tensor
    marginals: Tensor
    energy: float
    trust: Trust
    confusion: Tensor
    verification: Verification
    verdict: Verdict

    @property
    def converged(self) -> bool:
        """Whether the posterior is to be believed."""
        return self.verdict == "joint"

    @cached_property
    def probability(self) -> Tensor:
        """`(Ω,)`: of each candidate; a sample's sum to one. Only where they are listed."""
        listed = self.candidates.to_candidates()
        return averaged(CandidateFactor(listed).probability, self.log_odds.flatten(0, 1), self.weight)

    def prune(self, mass: float = 0.95) -> Pruning[Set]:
        """Keep the fewest candidates of each sample that hold `mass` of the probability, at least one.

        Equally probable candidates stay or go together. If candidates are not listed, improbable labels go instead,
        such that the candidates without them hold the mass.

        A posterior that did not converge abstains. If it is unsettled, each sample is pruned by its nearest neighbours
        alone ("exact"); if the graph is uninformative, all candidates stay.

        Args:
            mass: the share of the probability that the survivors hold, above 0 and at most 1.

        Returns:
            A `Pruning`: `candidates` holds the survivors.

        Raises:
            InputError: the mass is no such number.
        """
        mass = real_number(mass, "mass", above=0, most=1)
        if self.verdict == "unsettled":
            return self._by_nearest()
        mass = 1.0 if self.verdict == "uninformative" else mass
        listed = listed_only(self.candidates)
        keep = allowed = None
        if listed is None:
            allowed = credible_labels(self.candidates, self.log_odds, self.weight, self.marginals, self.labels, mass)
        else:
            all_stay = torch.ones_like(listed.sample, dtype=torch.bool)
            keep = smallest_credible_set(listed, self.probability, mass) if mass < 1 else all_stay
        unproved = dict.fromkeys(range(self.candidates.samples), 1)
        return Pruning(
            self.candidates, self.graph, self.candidates.support,
            keep=keep, allowed=allowed, one_by_one=True, open_bounds=unproved,
        )  # fmt: skip

    def calibration(self, gold: Tensor) -> Calibration:
        """How well the probabilities fit gold labels `(n, m)`, for measuring only.

        Args:
            gold: `(n, m)` labels; a tensor, an array or lists.

        Returns:
            A `Calibration`.
        """
        gold = gold_labels(gold, self.candidates)
        believed = replace(self, verdict="joint")
        return calibration_of(lambda mass: believed.prune(mass).candidates, self.marginals, gold)

    def _by_nearest(self) -> Pruning[Set]:
        """The pruning by each instance's shortest edge alone, among all edges."""
        nearest = self._nearest
        graph = ProximityGraph(self.graph.source[nearest], self.graph.target[nearest], self.graph.distance[nearest])
        pruning = prune_along(self.candidates, graph, self.candidates.support, "exact")
        return pruning.among(self.graph, nearest)

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
