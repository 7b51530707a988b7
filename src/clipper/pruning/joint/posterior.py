"""Posterior: the probability of each candidate given the whole pool, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Literal

import torch
from torch import Tensor, finfo

from clipper.arguments import one_of, real_number, whole_number, widened, widest_float
from clipper.candidates import Candidates
from clipper.candidates.base import gold_labels
from clipper.proximity import ProximityGraph
from clipper.pruning.factors import listed_factor
from clipper.pruning.joint.naming import Naming, Namings
from clipper.pruning.joint.pool import Pool, one_hot
from clipper.pruning.joint.potential import Trust
from clipper.pruning.joint.search import Found
from clipper.pruning.joint.settings import InferenceSettings, blocks
from clipper.pruning.joint.verification import Verification
from clipper.pruning.objectives import listed_only, prune_along
from clipper.pruning.pairs import disagreeing_share, rank_among_neighbours
from clipper.pruning.ranks import Traffic
from clipper.pruning.result import Pruning, Set

Verdict = Literal["joint", "ambiguous", "unsettled", "uninformative"]
INFORMATIVE = ("joint", "ambiguous")
"""The verdicts under which hidden formulas confirm the labels, though perhaps not their names."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """The messages to instances in every state, with the weights of states and namings.

    Attributes:
        pool: the formulas and the prior evidence.
        heard: `(n*m, c, states)`: the log-odds of the messages from all other samples.
        weight: `(n, states)`: the local probability of each state at each sample.
        namings: the namings.
        solved: the exact probability of each candidate, by sample, for samples in small components.
    """

    pool: Pool
    heard: Tensor
    weight: Tensor
    namings: Namings
    solved: dict[int, Tensor]

    def readings(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The field (messages in one state under one naming), `(n*m, c, 1)`, and its weight at each sample, `(n,)`."""
        for order, share in zip(self.namings.orders.to(self.heard.device), self.namings.weight.tolist(), strict=True):
            for state in range(self.heard.shape[2]):
                field = self.pool.unary + self.heard[:, order, state : state + 1]
                yield field, self.weight[:, state] * share

    def averaged(self, conclude: Callable[[Tensor], Tensor], each: Tensor) -> Tensor:
        """The weighted average of `conclude(field)`, `(rows, …)`; `each (rows,)` is the sample of each row."""
        total: Tensor | None = None
        for field, weight in self.readings():
            part = conclude(field)
            part *= weight[each].view(-1, *[1] * (part.ndim - 1))
            total = part if total is None else total.add_(part)
        return torch.empty(0) if total is None else total

    @property
    def first(self) -> Tensor:
        """The most probable field of each sample, `(n*m, c, 1)`."""
        _, m, c = self.pool.factor.shape
        state = self.weight.argmax(1).repeat_interleave(m)[:, None, None].expand(-1, c, 1)
        heard = self.heard[:, self.namings.orders[0].to(self.heard.device)].gather(2, state)
        return self.pool.unary + heard


@dataclass(frozen=True)
class Calibration:
    """A posterior compared with gold labels; shares are numbers from 0 to 1.

    Attributes:
        right: the share of slots whose most probable label is the gold label.
        error: the expected calibration error: the mean difference between confidence and accuracy.
        confidence: the mean confidence of each bin that is not empty, ascending.
        accuracy: the share of right labels in each bin.
        count: the number of labels in each bin.
        retained: for some masses, the share of samples whose gold labels are among the candidates that hold this mass.
    """

    right: float
    error: float
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: tuple[int, ...]
    retained: dict[float, float]


@dataclass(frozen=True, eq=False)
class Posterior(Generic[Set]):
    """The result of joint inference: the labels of all samples with their probabilities. `infer` returns it.

    All tensors are on the device of the candidates.

    Attributes:
        candidates: what the labels could be, as given.
        graph: the edges, as given or as found.
        labels: `(n, m)`: the most probable labels of each sample; -1 in unused slots. They are a candidate, unless its
            target is probably wrong.
        marginals: `(n, m, c)`: the probability of each label of each slot; zero in unused slots.
        probability: `(Ω,)`: the probability of each candidate if the target is right; a sample's sum to one. Candidates
            that are not listed are listed for it, if they are few enough.
        verdict: "joint": you can use the labels. "ambiguous": the groups are found, but several ways to name them are
            possible, see `namings`. "unsettled": the labels are not reliable: the search did not end, most folds found
            other labels, the labels explain too little of the hidden formulas, neighbours have equal targets for
            another reason than equal labels (a leak), or a class seems to be missing (a misfit). "uninformative":
            neighbours predict hidden formulas no better than a class prior does.
        converged: whether the verdict is "joint".
        expected_accuracy: the expected share of right labels; those of samples without candidates count for less. If
            the verdict is "unsettled" or "uninformative", ignore it.
        suspicion: `(n,)`: the probability that a sample's target is wrong.
        namings: the ways to name the labels that the formulas allow, the most probable first; each has an `order (c,)`,
            the name of each label of `labels`, and a `weight`. There is one if the formulas determine the names.
        energy: the share of the pairs to which `labels` gives different labels, weighted by how much they should agree.
        trust: how often pairs disagree, by length, as fitted or as given.
        confusion: `(c, c)`: how many times likelier than by chance two labels meet in a pair that disagrees, as fitted.
        verification: how well the messages of the other samples predict hidden formulas.
        wrong: the share of wrong targets, as fitted or as given.
        found: the result of the search, for `infer(…, previous=posterior)`; None for "em".
        support: `(N*m, c)` bool: the labels that the instances of all ranks may have; None without a group.
        traffic: the number of bytes that this rank sent to others; None for "em".
    """

    candidates: Set
    graph: ProximityGraph
    labels: Tensor
    marginals: Tensor
    energy: float
    trust: Trust
    confusion: Tensor
    verification: Verification
    verdict: Verdict
    mixture: Mixture
    settings: InferenceSettings
    found: Found | None = None
    support: Tensor | None = None
    traffic: Traffic | None = None

    @property
    def converged(self) -> bool:
        """Whether the verdict is "joint"."""
        return self.verdict == "joint"

    @property
    def suspicion(self) -> Tensor:
        """`(n,)`: the probability that a sample's target is wrong."""
        return self.verification.suspicion

    @property
    def wrong(self) -> float:
        """The share of wrong targets, as fitted or as given."""
        return self.verification.wrong

    @property
    def expected_accuracy(self) -> float:
        """The expected share of right labels.

        A sample without candidates has no formula that could confirm its labels: they come from its neighbours alone.
        They count as better than chance only as far as the neighbours predict hidden formulas of other samples.
        """
        used = self.labels >= 0
        sure = widened(self.marginals.gather(2, self.labels.clamp(min=0)[..., None])[..., 0])
        if self.candidates.impossible is not None:
            chance = 1 / widened(self.mixture.pool.possible.sum(1).clamp(min=1).view_as(used))
            explained = min(max(self.verification.explained, 0.0), 1.0)
            unconfirmed = torch.minimum(sure, chance + explained * (sure - chance))
            sure = torch.where(self.candidates.impossible[:, None], unconfirmed, sure)
        sure = sure[used]
        return float(sure.mean()) if len(sure) else 1.0

    @property
    def namings(self) -> list[Naming]:
        """The ways to name the labels, the most probable first; a single one if two classes may share a name."""
        ways = self.mixture.namings
        first = ways.orders[0]
        # Label y takes the messages for label orders[y]. So label y of the first way is order⁻¹(first(y)) in another.
        return [
            Naming(order.argsort()[first], weight)
            for order, weight in zip(ways.orders, ways.weight.tolist(), strict=True)
        ]

    @cached_property
    def probability(self) -> Tensor:
        """`(Ω,)`: the probability of each candidate; those of a sample add up to one. Lists the candidates first."""
        listed = self.candidates.to_candidates()
        probability = self.mixture.averaged(listed_factor(listed).probability, listed.sample)[:, 0]
        for sample, exact in self.mixture.solved.items():
            probability[listed.offsets[sample] : listed.offsets[sample + 1]] = exact.to(probability)
        return probability

    def prune(self, mass: float = InferenceSettings.mass, fallback: Literal["all", "exact"] = "all") -> Pruning[Set]:
        """Keep the fewest candidates of each sample whose total probability is at least `mass`; at least one.

        Equally probable candidates are kept or discarded together. If candidates are not listed, improbable labels are
        forbidden instead, so that the candidates without them hold the mass. A sample whose target is probably wrong
        keeps all of its candidates. If there are more namings than the search could list, no candidate is discarded
        because of a name.

        A posterior that is "unsettled" or "uninformative" abstains: all candidates stay.

        Args:
            mass: the share of the probability that the survivors hold, above 0 and at most 1.
            fallback: what to do if the posterior is "unsettled": "all" keeps all candidates; "exact" prunes each sample
                by its nearest neighbours only, which can discard gold labels if the embeddings are poor.

        Returns:
            A `Pruning`: `candidates` holds the survivors.

        Raises:
            InputError: the mass or the fallback has an invalid value.
        """
        mass = real_number(mass, "mass", above=0, most=1)
        one_of(fallback, "fallback", ("all", "exact"))
        if self.verdict == "unsettled" and fallback == "exact":
            return self._by_nearest()
        mass = mass if self.verdict in INFORMATIVE else 1.0
        listed = listed_only(self.candidates)
        whole = self.suspicion > 1 / 2
        keep = allowed = None
        if listed is None:
            allowed = self._credible_labels(mass, whole)
        elif mass < 1:
            keep = self._credible_candidates(listed, mass) | whole[listed.sample]
        else:
            keep = torch.ones_like(listed.sample, dtype=torch.bool)
        return Pruning(self.candidates, self.graph, self._reached, keep=keep, allowed=allowed, one_by_one=True)

    def _credible_candidates(self, listed: Candidates, mass: float) -> Tensor:
        """The fewest candidates of each sample that hold `mass` of its probability, `(Ω,)` bool; sample by sample."""
        keep = []
        for some in blocks(listed.samples, -(-len(listed) // max(1, listed.samples))):
            part = listed.span(some.start, some.stop)
            first, last = listed.offsets[[some.start, some.stop]].tolist()
            chosen = smallest_credible_set(part, self.probability[first:last], mass, self.settings.still)
            keep.append(self._whatever_the_names(part, chosen))
        return torch.cat(keep) if keep else torch.ones_like(listed.sample, dtype=torch.bool)

    def _whatever_the_names(self, listed: Candidates, keep: Tensor) -> Tensor:
        """`keep (Ω,)`, and all candidates that differ from a kept one only in labels whose names are not settled."""
        namings = self.mixture.namings
        if namings.exhaustive:
            return keep
        labels = listed.labels.long()
        blind = torch.where(labels < 0, labels, namings.orbit.to(keep.device)[labels.clamp(min=0)])
        _, pattern = torch.unique(torch.cat([listed.sample[:, None], blind], 1), dim=0, return_inverse=True)
        seen = torch.zeros(int(pattern.max()) + 1, dtype=torch.bool, device=keep.device)
        seen[pattern[keep]] = True
        return seen[pattern]

    def _credible_labels(self, mass: float, whole: Tensor) -> Tensor:
        """Few labels whose candidates hold `mass` of each sample's probability, `(n*m, c)` bool.

        A pruned lattice forbids labels, not single candidates. So all labels with a probability below a threshold are
        forbidden, with the highest threshold that leaves enough. The most probable candidate always stays.
        """
        n, m, c = self.mixture.pool.factor.shape
        support = self.candidates.support
        if mass >= 1:
            return support
        certain = one_hot(self.labels.view(-1, 1), c)[:, :, 0].bool().view(n, m, c)
        readings = [(widened(f[:, :, 0].view(n, m, c)), widened(w)) for f, w in self.mixture.readings()]
        total = [self.candidates.log_probability(f) for f, _ in readings]
        low = torch.full_like(total[0], finfo(torch.float).eps).log()  # a threshold that keeps enough, up to rounding
        high = torch.zeros_like(low)  # a threshold that may not
        while float((high - low).max()) > self.settings.still:
            middle = (low + high) / 2
            kept = certain | (self.marginals >= middle.exp()[:, None, None])
            narrowed = self.candidates.narrowed(kept.flatten(0, 1))
            left = sum((narrowed.log_probability(f) - t).exp() * w for (f, w), t in zip(readings, total, strict=True))
            enough = torch.as_tensor(left) >= mass - self.settings.still**2
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        kept = certain | (self.marginals >= (1 - self.settings.still) * low.exp()[:, None, None])
        for sample, exact in self.mixture.solved.items():
            kept[sample] = certain[sample] | self._credible_labels_of(sample, exact, mass)
        if not self.mixture.namings.exhaustive:
            orbit = self.mixture.namings.orbit.to(kept.device)
            some = torch.zeros_like(kept, dtype=torch.int).index_add_(2, orbit, kept.int())  # of each orbit
            kept = some[:, :, orbit] > 0
        return support & (kept | whole[:, None, None]).flatten(0, 1)

    def _credible_labels_of(self, sample: int, exact: Tensor, mass: float) -> Tensor:
        """The labels of a sample above the highest threshold whose candidates hold `mass`, `(m, c)` bool.

        Args:
            sample: a sample in a small component.
            exact: the probability of each of its candidates.
            mass: the mass to hold.
        """
        rows = self.candidates.batch([sample]).to_candidates().labels.T.long()  # (m, Ω_i)
        marginals = self.marginals[sample]
        lowest = marginals.gather(1, rows.clamp(min=0)).masked_fill(rows < 0, torch.inf).amin(0)  # of each candidate
        order = lowest.argsort(descending=True, stable=True)
        held = widened(exact)[order].cumsum(0) >= mass - self.settings.still**2
        last = order[held.int().argmax()] if bool(held.any()) else order[-1]
        return marginals >= (1 - self.settings.still) * lowest[last]

    def ask(self, k: int = 1) -> Tensor:
        """The instances whose labels would be most informative: `k` ids (sample · m + slot), the best first.

        An answer fixes the label of the instance, reduces the uncertainty of its neighbours and its sample, and, if
        there are several namings, helps to decide between them.

        Args:
            k: how many.

        Returns:
            `(k,)` instance ids, at most as many as there are used slots.

        Raises:
            InputError: `k` is not a whole number above 0.
        """
        k = whole_number(k, "k")
        labels, edges = self.labels.flatten(), self.mixture.pool.edges
        used, group = labels >= 0, labels.clamp(min=0)
        unsure = _entropy(self.marginals.flatten(0, 1)) * used
        # The label of an instance whose neighbours agree with it is more informative about its group.
        typical = 1 - disagreeing_share(edges, labels[:, None])[:, 0]
        asked = torch.zeros(self.candidates.classes, device=labels.device)
        source, target = edges.source, edges.target
        open_ = used.clone()
        chosen: list[int] = []
        for _ in range(min(k, int(used.sum()))):
            whole = torch.zeros_like(asked).index_add_(0, group, unsure) / (1 + asked) ** 2
            worth = (whole[group] * typical + unsure).masked_fill(~open_, -1)
            best = int(worth.argmax())
            chosen.append(best)
            asked[group[best]] += 1
            open_[best] = False
            unsure[best] = 0
            near = target[source == best]
            unsure[near] = unsure[near] / 2
            typical[near] = typical[near] / 2
        return torch.tensor(chosen, dtype=torch.long, device=labels.device)

    def calibration(self, gold: Tensor) -> Calibration:
        """Compare the probabilities with gold labels. This is for evaluation only.

        Args:
            gold: `(n, m)` labels; a tensor, an array or lists.

        Returns:
            A `Calibration`.
        """
        gold = gold_labels(gold, self.candidates)
        believed = replace(self, verdict="joint")
        used = gold >= 0
        sure, guess = self.marginals.max(2)
        sure, right = widened(sure[used]), widened((guess == gold)[used])
        bins = 2 * len(self.settings.measured_masses)
        place = (sure * bins).long().clamp(max=bins - 1)
        counts = torch.bincount(place, minlength=bins)
        filled = counts > 0
        confidence, accuracy = (
            (torch.bincount(place, weights=values, minlength=bins)[filled] / counts[filled]) for values in (sure, right)
        )
        gap = ((confidence - accuracy).abs() * counts[filled]).sum() / max(1, len(sure))
        return Calibration(
            right=float(right.mean()) if len(right) else float("nan"),
            error=float(gap),
            confidence=tuple(confidence.tolist()),
            accuracy=tuple(accuracy.tolist()),
            count=tuple(counts[filled].tolist()),
            retained={
                mass: float(widened(believed.prune(mass).candidates.contains(gold)).mean())
                for mass in self.settings.measured_masses
            },
        )

    def to_arrow(self) -> Any:
        """A table with a row for each instance: sample, slot, label, probability, second label, suspicion and status.

        Returns:
            A `pyarrow.Table`. The second label is of the same kind as the label; null if the kind has only one label.
            `status` is "ok", or the first of these that holds: "wrong target" (suspicion above one half), the verdict
            if it is not "joint", "unsure" (a probability below 0.9).
        """
        import pyarrow

        used = (self.labels >= 0).cpu()
        sample, slot = used.nonzero().unbind(1)
        marginals, labels = self.marginals.cpu()[used], self.labels.cpu()[used]
        probability = marginals.gather(1, labels[:, None])[:, 0]
        possible = self.mixture.pool.possible.view_as(self.marginals).cpu()[used]  # labels of the slot's kind
        others = marginals.scatter(1, labels[:, None], -1).masked_fill(~possible, -1)
        alone = possible.sum(1) < 2  # a kind of one label has no second one
        second = pyarrow.array(others.argmax(1).numpy(), mask=alone.numpy())
        suspicion = self.suspicion.cpu()[sample]
        status = []
        for doubt, sure in zip(suspicion.tolist(), probability.tolist(), strict=True):
            plain = "ok" if sure >= self.settings.sure else "unsure"
            status.append("wrong target" if doubt > 1 / 2 else plain if self.verdict == "joint" else self.verdict)
        columns = {
            "sample": sample.numpy(), "slot": slot.numpy(), "label": labels.numpy(), "probability": probability.numpy(),
            "second": second, "suspicion": suspicion.numpy(), "status": status,
        }  # fmt: skip
        return pyarrow.table(columns)

    def _by_nearest(self) -> Pruning[Set]:
        """The "exact" pruning along the shortest edge of each instance."""
        nearest = rank_among_neighbours(self.graph.source, self.graph.distance) == 0  # (E,)
        graph = ProximityGraph(self.graph.source[nearest], self.graph.target[nearest], self.graph.distance[nearest])
        pruning = prune_along(self.candidates, graph, self._reached, "exact")
        return pruning.among(self.graph, nearest)

    @property
    def _reached(self) -> Tensor:
        """The possible labels of the instances that edges lead to, `(N*m, c)` bool."""
        return self.candidates.support if self.support is None else self.support

    def __repr__(self) -> str:
        right = (
            f", {self.expected_accuracy:.0%} of the labels expected to be right" if self.verdict in INFORMATIVE else ""
        )
        return f"Posterior({self.candidates.samples:,} samples, {self.verdict}{right})"


def _entropy(belief: Tensor) -> Tensor:
    """The entropy of each row, in nats."""
    return -torch.xlogy(belief, belief).sum(1)


def smallest_credible_set(candidates: Candidates, probability: Tensor, mass: float, equal: float) -> Tensor:
    """The fewest candidates of each sample that hold `mass`, `(Ω,)` bool, and all as probable as the last of them.

    All that are equally probable stay together, because choosing among them by their order would be arbitrary: if two
    names are equally probable, the more frequent group would get the smaller label. Probabilities that differ by a
    share of `equal` count as equal.

    Examples:
        >>> candidates = Candidates.from_lists([[(0,), (1,), (2,)], [(1,)]], classes=3)
        >>> smallest_credible_set(candidates, torch.tensor([0.1, 0.3, 0.6, 1.0]), mass=0.8, equal=0.001).tolist()
        [False, True, True, True]
    """
    if widest_float(probability.device) != torch.double:  # or sums over a large pool would be inexact
        return smallest_credible_set(candidates.to("cpu"), probability.cpu(), mass, equal).to(probability.device)
    order = probability.argsort(descending=True, stable=True)
    order = order[candidates.sample[order].argsort(stable=True)]
    sorted_mass = probability[order].double()
    before = sorted_mass.cumsum(0) - sorted_mass
    begins = candidates.offsets[:-1].clamp(max=max(0, len(before) - 1))
    before = before - before[begins][candidates.sample]
    needed = before < mass - finfo(torch.float).eps
    needed[begins] = True  # the first one always stays
    last = torch.where(needed, sorted_mass, 1.0)
    lowest = last.new_ones(candidates.samples).scatter_reduce_(0, candidates.sample, last, "amin")
    return probability.double() >= (1 - equal) * lowest[candidates.sample]
