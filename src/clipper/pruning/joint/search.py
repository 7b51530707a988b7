"""Search: states that explain the pool, found separately for each fold of hidden formulas.

Belief propagation from a single start ends in a poor local optimum if there are few samples with many candidates. So
many states are propagated in parallel with decreasing noise, each with the formulas of one fold hidden. The first
states start from noise and from clusters that were found without formulas and named by the formulas. Later states start
from a crossover of two good states, from the best state without the labels of islands, or from the best state with its
groups renamed. States of one fold never use those of another, so the formulas of a fold can test the states that were
found without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clipper.arguments import widest_float
from clipper.pruning.joint.naming import NamingEvidence, anneal_names, enough_judges, unused_labels
from clipper.pruning.joint.pool import Pool, one_hot
from clipper.pruning.joint.potential import Potential
from clipper.pruning.joint.propagate import Schedule, Score, propagate, score, zero_messages
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.pairs import Edges, disagreeing_share
from clipper.pruning.ranks import ALONE, Ranks


@dataclass(frozen=True, eq=False)
class States:
    """Labellings of the pool with their scores.

    Attributes:
        labels: the labellings, `(n*m, states)`.
        score: the score (log Z) of each, `(states,)`.
    """

    labels: Tensor
    score: Tensor

    def best(self, count: int, apart: float, ranks: Ranks = ALONE) -> States:
        """The `count` most probable states that differ from all better ones in more instances than the share `apart`.

        `ranks`: the processes that share the pool.
        """
        chosen: list[int] = []
        for state in self.score.argsort(descending=True, stable=True).tolist():
            other = self.labels[:, chosen] != self.labels[:, state : state + 1]
            if not chosen or bool((ranks.mean(other.float()) > apart).all()):
                chosen.append(state)
            if len(chosen) == count:
                break
        return States(self.labels[:, chosen], self.score[chosen])

    def joined(self, other: States) -> States:
        """The states of both."""
        return States(torch.cat([self.labels, other.labels], 1), torch.cat([self.score, other.score]))


@dataclass(frozen=True, eq=False)
class Found:
    """The result of a search.

    Attributes:
        fold: `(n,)`: the fold of each sample.
        states: the states of each fold, the best first, found without the formulas of the fold.
        complete: whether the search ended before the deadline.
    """

    fold: Tensor
    states: list[States]
    complete: bool


def search(
    pool: Pool,
    potential: Potential,
    settings: InferenceSettings,
    generator: torch.Generator,
    out_of_time: Callable[[], bool],
    starts: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
    previous: Found | None = None,
) -> Found:
    """The best states of each fold.

    Args:
        pool: the pool.
        potential: ψ.
        settings: the constants.
        generator: the random generator.
        out_of_time: whether the deadline has passed.
        starts: the number of states in a generation; by default it depends on the size of the pool.
        progress: called with the share of the search that is done.
        previous: an earlier search of the same samples to continue from.
    """
    samples, near = pool.samples, pool.nearest(settings.searched)
    together = near.states_within(settings.memory)
    folds = min(samples, settings.folds, max(2, together))  # a large pool has few poor local optima
    order = (torch.randperm(samples, generator=generator) % folds).to(pool.unary.device)
    order = order[pool.first_copy]  # a copy would tell what a hidden formula says
    names, order = torch.unique(order, return_inverse=True)
    folds, fold = len(names), pool.own_samples(order)
    if previous is not None:
        folds, fold = len(previous.states), previous.fold
    per_fold = max(2, (starts or min(settings.starts, together)) // folds)
    search = _Search(pool, near, potential, settings, generator, fold, folds, together)
    whole = Schedule(settings.rounds, settings.noise, 1 / 2)
    hurried = replace(whole, rounds=settings.hurried)
    if previous is None:
        groups = search.clusters(whole)
        elite = search.cooled(hurried, {f: [None, search.named(groups.labels[:, 0], f)] for f in range(folds)})
    else:
        groups = previous.states[0]
        elite = search.cooled(hurried, {f: search.moves(previous.states[f], f, 2) for f in range(folds)})
    behind = list(range(folds)) if search.unused(elite) else search.behind(elite)
    if behind and previous is None:
        hints = {f: [None] * (per_fold - 1) + [search.named(groups.labels[:, -1], f)] for f in behind}
        elite |= search.better(elite, search.cooled(whole, hints), per_fold)
    offspring = replace(whole, rounds=settings.rounds // 2, noise=settings.noise / 2)
    for generation in range(settings.generations):
        behind = search.behind(elite)
        if not behind:
            break
        if out_of_time():
            return Found(fold, [elite[f] for f in range(folds)], False)
        progress(generation / settings.generations)
        new = search.cooled(offspring, {f: search.moves(elite[f], f, per_fold) for f in behind})
        elite |= search.better(elite, new, per_fold)
    progress(1.0)
    return Found(fold, [elite[f] for f in range(folds)], True)


@dataclass(frozen=True, eq=False)
class _Search:
    """What all steps of a search have in common."""

    pool: Pool
    near: Pool
    potential: Potential
    settings: InferenceSettings
    generator: torch.Generator
    fold: Tensor
    folds: int
    together: int

    def clusters(self, schedule: Schedule) -> States:
        """Groups of instances found from the pairs only, without any formula, under arbitrary names."""
        samples, states = self.pool.factor.shape[0], max(2, min(self.folds, self.together))
        hidden = torch.ones(samples, states, dtype=torch.bool, device=self.fold.device)
        apart = replace(self.pool, disbelieved=hidden[:, 0])
        return self._different(self._states(apart, schedule, None, hidden), 2)

    def cooled(self, schedule: Schedule, hints: dict[int, list[Tensor | None]]) -> dict[int, States]:
        """New states of some folds, one for each hint, the best first."""
        flat = [(f, hint) for f, mine in hints.items() for hint in mine]
        nothing = torch.zeros_like(self.pool.unary[:, :, 0])
        found: dict[int, States] = {}
        for begin in range(0, len(flat), self.together):
            part = flat[begin : begin + self.together]
            which = torch.tensor([f for f, _ in part], device=self.fold.device)
            hint = torch.stack([nothing if one is None else one for _, one in part], 2)
            states = self._states(self.near, schedule, hint, self.fold[:, None] == which)
            for f in {f for f, _ in part}:
                mine = States(states.labels[:, which == f], states.score[which == f])
                found[f] = found[f].joined(mine) if f in found else mine
        return {f: self._different(states, len(states.score)) for f, states in found.items()}

    def _states(self, pool: Pool, schedule: Schedule, hint: Tensor | None, hidden: Tensor) -> States:
        start = zero_messages(pool, hidden.shape[1])
        messages, _ = propagate(pool, self.potential, start, schedule, hint, hidden, self.generator)
        labels = pool.best(pool.heard(messages).add_(pool.unary), hidden)
        return States(labels, score(pool, self.potential, messages, hidden).total)

    def better(self, old: dict[int, States], new: dict[int, States], count: int) -> dict[int, States]:
        """For each fold with new states, the best of its old and new ones."""
        return {f: self._different(old[f].joined(states), count) for f, states in new.items()}

    def _different(self, states: States, count: int) -> States:
        return states.best(count, self.settings.negligible, self.pool.ranks)

    def unused(self, elite: dict[int, States]) -> bool:
        """Whether the most probable state uses some label for no instance."""
        return bool(unused_labels(self.pool, elite[_leading(elite)].labels[:, :1], self.settings).any())

    def behind(self, elite: dict[int, States]) -> list[int]:
        """The folds that have not found the groups of the most probable state, under any naming."""
        lead = _leading(elite)
        groups = {f: one_hot(states.labels[:, :1], self.pool.classes)[:, :, 0] for f, states in elite.items()}
        least = (1 - self.settings.negligible) * float(self.pool.ranks.total(groups[lead].sum()))
        shared = {f: self.pool.ranks.total(groups[lead].T @ mine) for f, mine in groups.items()}
        return [f for f, both in shared.items() if min(float(both.amax(d).sum()) for d in (0, 1)) < least]

    def moves(self, states: States, fold: int, count: int) -> list[Tensor | None]:
        """Hints for new states, in turn: groups renamed, islands without labels, crossovers of two states."""
        edges, settings = self.near.edges, self.settings
        agreement = 1 - disagreeing_share(edges, states.labels)  # (n*m, states)
        hints = one_hot(states.labels, self.pool.classes) * (settings.hint * agreement.square()[:, None])
        made: list[Tensor | None] = [self.named(states.labels[:, 0], fold)]
        for turn in range(1, count):
            if turn % 2 or states.labels.shape[1] == 1:
                island = islands(self.pool.edges, states.labels[:, 0])
                removed = torch.rand(edges.shard.total, generator=self.generator).to(hints.device) * turn < 1
                made.append(hints[:, :, 0] * ~((island >= 0) & removed[island.clamp(min=0)])[:, None])
            else:
                pick = torch.randint(states.labels.shape[1], (2,), generator=self.generator).tolist()
                made.append((hints[:, :, pick[0]] + hints[:, :, pick[1]]) / 2)
        return made

    def named(self, labels: Tensor, fold: int) -> Tensor:
        """A hint `(n*m, c)`: groups `(n*m,)` under the names that make the visible formulas most probable."""
        hint = one_hot(labels[:, None], self.pool.classes)[:, :, 0] * self.settings.hint
        heard = self.pool.edges.around(hint)
        judge = NamingEvidence(
            self.pool, heard / self.settings.hint, self.settings, self.fold == fold,
            most=enough_judges(self.pool, self.settings),
        )  # fmt: skip
        orders, evidence = anneal_names(
            judge, self.pool.kinds, self.settings.walkers, self.generator, self.settings.exchanges
        )
        return hint[:, orders[int(evidence.argmax())].to(hint.device)]


def _leading(elite: dict[int, States]) -> int:
    """The fold with the most probable state."""
    return max(elite, key=lambda f: float(elite[f].score[0]))


def islands(edges: Edges, labels: Tensor) -> Tensor:
    """The connected component of equal labels that each instance lies in, named by its first instance, `(n*m,)`.

    Instances in the largest component of a label get -1; the other components are its islands. A group with a common
    wrong label disagrees with others only at its border, so no single instance can change its label. If the labels of
    the whole group are removed, it takes the label of its surroundings.

    Examples:
        >>> from clipper import ProximityGraph
        >>> chain = Edges.of(ProximityGraph.from_edges([0, 1, 2, 3, 4], [1, 2, 3, 4, 5]), instances=6)
        >>> islands(chain, torch.tensor([0, 0, 1, 1, 1, 0])).tolist()
        [-1, -1, -1, -1, -1, 5]
    """
    ranks = edges.shard.ranks
    part = edges.subset(~edges.differs(labels[:, None])[:, 0]).components(1)  # (n*m,), counted over all ranks
    size = ranks.total(torch.bincount(part, minlength=edges.shard.total))
    label = labels + 1  # an unused slot has -1
    largest = torch.zeros(int(ranks.most(label.max())) + 1, dtype=size.dtype, device=size.device)
    largest = ranks.most(largest.scatter_reduce(0, label, size[part], "amax"))
    return part.masked_fill((size[part] == largest[label]) | (labels < 0), -1)


def region_weights(pool: Pool, labels: Tensor, scores: Score, sharpness: float) -> Tensor:
    """The local probability of each state at each sample, `(n, states)`.

    The connected samples in which a state differs from the first one form a region. States that differ from the first
    one in overlapping regions are weighed there by the terms of their score in these regions. In all other samples, the
    first state has the whole weight.

    Args:
        pool: the pool.
        labels: the labellings, `(n*m, states)`.
        scores: the scores of these states.
        sharpness: the power that probabilities are raised to.
    """
    samples, slots, _ = pool.factor.shape
    states, edges, ranks = labels.shape[1], pool.edges, pool.ranks
    differs = (labels != labels[:, :1]).view(samples, slots, states).any(1)  # (n, states)
    weight = torch.zeros(samples, states, dtype=widest_float(labels.device), device=labels.device)
    weight[:, 0] = 1
    if not ranks.any(differs):
        return weight
    some = differs.any(1)  # (n,)
    region = edges.components(slots, some)  # (n,), counted over all ranks
    # A pair belongs to the region of either end. A pair between two samples in which no state differs belongs to none.
    first, second = edges.first[edges.counted], edges.second[edges.counted]
    around = edges.shard.bordered(region.repeat_interleave(slots))  # of own and borrowed instances
    home = torch.where(some[first // slots], around[first], around[second])
    value = weight.new_zeros(pool.samples, states).index_add_(0, region, scores.samples.to(weight))
    value = ranks.total(value.index_add_(0, home, scores.pairs[edges.counted].to(weight)))
    # A state that equals the first one in a part of a region is weighed by its differences only.
    fresh = torch.zeros(pool.samples, states, dtype=torch.bool, device=labels.device)
    fresh = ranks.most(fresh.scatter_reduce(0, region[:, None].expand(-1, states), differs, "amax"))  # of each region
    fresh[:, 0] = True
    log = ((value - value[:, :1]) * sharpness).masked_fill(~fresh, -torch.inf)
    # Equal labellings of a region count once.
    for state in range(2, states):
        for other in range(1, state):
            unlike = (labels[:, state] != labels[:, other]).view(samples, slots).any(1)
            apart = torch.zeros(pool.samples, dtype=torch.int, device=labels.device)
            apart = ranks.most(apart.scatter_reduce(0, region, unlike.int(), "amax")).bool()
            log[:, state] = log[:, state].masked_fill(~apart & fresh[:, other], -torch.inf)
    return torch.where(some[:, None], log.softmax(1)[region], weight)
