"""Naming: which label each group of instances has. Pairs do not determine it, only formulas do.

A permutation of all labels changes no pair. A reversal or shift of the label axis is a product of many exchanges, each
of which contradicts formulas by itself. So namings are found by simulated annealing from many random orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import gcd

import torch
from torch import Tensor

from clipper.arguments import widened, widest_float
from clipper.pruning.joint.pool import Pool, one_hot
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.ranks import ALONE, Ranks


@dataclass(frozen=True, eq=False)
class Naming:
    """One way to name the groups of instances.

    Attributes:
        order: `(c,)`: the name of each label of `posterior.labels` in this naming.
        weight: its probability among the namings that were found.
    """

    order: Tensor
    weight: float


@dataclass(frozen=True, eq=False)
class Namings:
    """The ways to name the labels that the formulas allow.

    Attributes:
        orders: `(ways, c)`: in each naming, label y takes the messages for label `orders[:, y]`; the most probable
            first.
        evidence: `(ways,)`: the log-odds of each against the first.
        exhaustive: whether the search found all namings, as far as it can tell.
        orbit: `(c,)`: the smallest label that each label may exchange names with.
    """

    orders: Tensor
    evidence: Tensor
    exhaustive: bool
    orbit: Tensor

    @property
    def weight(self) -> Tensor:
        """`(ways,)`: the probability of each naming."""
        return self.evidence.softmax(0)

    @classmethod
    def given(cls, classes: int) -> Namings:
        """The identity as the only naming."""
        return cls(torch.arange(classes)[None], torch.zeros(1), True, torch.arange(classes))


class NamingEvidence:
    """The log-probability of the formulas if the labels of the messages are renamed."""

    def __init__(
        self,
        pool: Pool,
        heard: Tensor,
        settings: InferenceSettings,
        hidden: Tensor | None = None,
        *,
        wrong: float = 0.0,
        prior: Tensor | None = None,
        most: int | None = None,
        known: Tensor | None = None,
    ) -> None:
        """Prepare the evidence for messages under names that may be wrong.

        Args:
            pool: the pool.
            heard: the messages to instances, `(n*m, c)`: log-odds, or log-probabilities if targets may be wrong.
            settings: the constants.
            hidden: `(n,)` bool: samples whose formulas are not used.
            wrong: the share of wrong targets.
            prior: the surprise of each formula if its target is wrong, `(n,)`.
            most: about how many formulas to use; None for all.
            known: `(n,)` bool: samples with a known label.
        """
        judges = torch.arange(pool.factor.shape[0], device=heard.device)
        for left_out in (hidden, pool.disbelieved):
            judges = judges if left_out is None else judges[~left_out[judges]]
        n, m, c = pool.factor.shape
        many = pool.ranks.count(len(judges)) if most is not None else 0
        if most is not None and many > most:  # take every `step`-th formula of all ranks together
            step = -(-many // most)
            judges = judges[-pool.ranks.before(len(judges)) % step :: step]
        self.ranks = pool.ranks
        self.factor, self.unary, self.heard, self.possible = pool.factor, pool.unary[:, :, 0], heard, pool.possible
        if len(judges) < n:
            self.factor = pool.factor.part(judges)
            self.unary, self.heard, self.possible = (
                value.view(n, m, c)[judges].flatten(0, 1) for value in (self.unary, self.heard, self.possible)
            )
        self.wrong, self.prior = wrong, None if prior is None else widened(prior[judges])
        self.known = None if known is None else known[judges]
        self.together = max(1, settings.memory // (self.factor.size + self.heard.numel() + 1))

    def __call__(self, orders: Tensor) -> Tensor:
        """The log-probability of all formulas under each of the `orders (ways, c)`, up to a constant, `(ways,)`."""
        some = torch.split(orders, self.together) if len(orders) and len(self.heard) else []
        parts = [self._evidence(part.T.to(self.heard.device)).sum(0) for part in some]
        own = (
            torch.cat(parts).to(orders.device)
            if parts
            else torch.zeros(len(orders), dtype=widest_float(orders.device), device=orders.device)
        )
        return self.ranks.total(own)

    def against_first(self, orders: Tensor) -> Tensor:
        """The log-odds of each of the `orders (ways, c)` against the first, without the most decisive sample.

        So a single wrongly labelled instance cannot decide the naming. A sample with a known label always counts.
        """
        first = self._evidence(orders[:1].T.to(self.heard.device))
        total = first.new_zeros(len(orders))
        least, most = total.clone(), total.clone()
        for way, order in enumerate(orders.to(self.heard.device)):
            odds = (self._evidence(order[:, None]) - first)[:, 0]
            alone = odds if self.known is None else odds.masked_fill(self.known, 0)
            total[way] = odds.sum()
            if len(odds):
                least[way], most[way] = alone.min().clamp(max=0), alone.max().clamp(min=0)
        total, least, most = self.ranks.total(total), -self.ranks.most(-least), self.ranks.most(most)
        return torch.where(total < 0, (total - least).clamp(max=0), (total - most).clamp(min=0)).to(orders.device)

    def _evidence(self, orders: Tensor) -> Tensor:
        """The evidence of the judges, the samples whose formulas are used, `(judges, ways)`, for `orders (c, ways)`."""
        field = self.unary[:, :, None] + self.heard[:, orders]
        right = widened(self.factor.evidence(field))
        if not self.wrong or self.prior is None:
            return right
        slots = field.masked_fill(~self.possible[:, :, None], -torch.inf).logsumexp(1)
        slots = slots.masked_fill(~self.possible.any(1)[:, None], 0).view(len(right), -1, orders.shape[1])
        wrong = right.new_tensor(self.wrong)
        return torch.logaddexp(right + (-wrong).log1p(), slots.to(right).sum(1) - self.prior[:, None] + wrong.log())


def enough_judges(pool: Pool, settings: InferenceSettings) -> int:
    """The number of formulas that score the namings that walkers try."""
    _, m, c = pool.factor.shape
    each = pool.size // max(pool.samples, 1) + m * c
    return max(settings.walkers, settings.memory // (2 * 2 * settings.walkers * each))


class NamingSearch:
    """Searches all namings that the formulas allow, given the messages to instances.

    In a large pool, a part of the formulas scores the namings that are tried. All formulas score the remaining ones,
    because a single formula may decide.
    """

    def __init__(
        self,
        pool: Pool,
        heard: Tensor,
        labels: Tensor,
        settings: InferenceSettings,
        generator: torch.Generator,
        *,
        wrong: float = 0.0,
        prior: Tensor | None = None,
        known: Tensor | None = None,
    ) -> None:
        """Prepare a search, given the messages `heard (n*m, c)` as log-probabilities, and the `labels (n*m,)`.

        The walkers use `generator`; the other arguments are those of `NamingEvidence`.
        """
        self.kinds, self.settings, self.generator = pool.kinds, settings, generator
        judges = partial(NamingEvidence, pool, heard, settings, wrong=wrong, prior=prior, known=known)
        most = enough_judges(pool, settings)
        self.part, self.everybody = judges(most=most), judges()
        self.unused = unused_labels(pool, labels[:, None], settings).cpu()
        if bool(self.unused.any()):
            mistaken = self.unused.to(labels.device)[labels] & (labels >= 0)  # the few that have such a label
            self.merged = judges(mistaken.view(pool.factor.shape[0], -1).any(1), most=most)

    def everywhere(self) -> Namings:
        """The best naming, and all others that are about equally probable.

        Walkers start from random orders until enough of them have ended at namings as probable as the best one. Shifts,
        reversals and multiplications of the label axis are also tried.
        """
        settings = self.settings
        orders = _affine(self.kinds, settings.walkers)
        level = self.part(orders)
        arrived = 0
        for _ in range(2):
            walked, reached = anneal_names(
                self.part, self.kinds, 2 * settings.walkers, self.generator, 2 * settings.exchanges
            )
            orders, level = torch.cat([orders, walked]), torch.cat([level, reached])
            arrived += int((reached[1:] >= level.max() - settings.improbable).sum())
            if 2 * arrived >= settings.walkers:
                break
        found = torch.unique(orders[level >= level.max() - settings.improbable], dim=0)
        best = self.everybody(found)
        found, leader = found[best >= best.max() - settings.improbable], found[best.argmax()]
        while True:  # with all formulas, an exchange may improve the result of a part of them
            tried = _exchanges(leader, self.kinds)
            tried = torch.cat([leader[None], tried[self.part(tried) >= self.part(leader[None]) - settings.improbable]])
            level = self.everybody(tried)
            if float(level.max() - level[0]) <= settings.still:
                return self.around(leader, found, 2 * arrived >= settings.walkers)
            leader = tried[level.argmax()]

    def around(self, leader: Tensor, found: Tensor | None = None, exhaustive: bool = False) -> Namings:
        """A naming `(c,)`, and all others that are about equally probable.

        Permutations that map one good naming to another, and exchanges of two labels, are tried on all of them, because
        equally probable namings form a group.

        Args:
            leader: the best naming.
            found: others, `(ways, c)`.
            exhaustive: whether a global search has found no others.
        """
        improbable, most = self.settings.improbable, 2 * self.settings.walkers
        least, level = self.part(leader[None]) - improbable, self.everybody(leader[None])

        def good(tried: Tensor) -> Tensor:
            """The namings that neither a part of the formulas nor all formulas rule out."""
            tried = tried[self.part(tried) >= least]
            return tried[(self.everybody(tried) - level).abs() <= improbable]

        group = {tuple(leader.tolist()): None}
        new = _exchanges(leader, self.kinds) if found is None else torch.cat([found, _exchanges(leader, self.kinds)])
        while True:
            more = [order for order in map(tuple, good(new).tolist()) if order not in group]
            if not more:
                break
            group |= dict.fromkeys(more)
            if len(group) > most:
                exhaustive = False
                break
            listed = torch.tensor(list(group))
            # the permutation from each naming to each other one, applied to all namings
            steps = torch.cat([a[b.argsort()][listed] for a in listed for b in listed])
            tried = [order for order in map(tuple, torch.unique(steps, dim=0).tolist()) if order not in group]
            exhaustive = exhaustive and len(tried) <= most**2
            new = torch.tensor(tried[: most**2], dtype=torch.long).view(-1, len(leader))
        orders = torch.tensor(list(group))
        evidence = self.everybody(orders)
        # The leader stays first: it may be more probable for reasons besides the formulas.
        rank = torch.cat([torch.zeros(1, dtype=torch.long), 1 + evidence[1:].argsort(descending=True, stable=True)])
        listed = orders[rank[:most]]
        merged = self._merged(leader)
        return Namings(
            listed, self.everybody.against_first(listed), exhaustive and not bool(merged.any()),
            _orbits(orders, self.kinds, merged),
        )  # fmt: skip

    def _merged(self, leader: Tensor) -> Tensor:
        """The labels whose names are not settled if the state has merged two classes, `(c,)` bool.

        A label without instances may belong to a part of any group. So walkers search again, with each such label as an
        additional name of some group. If other groups can then be renamed, no name of the kind is settled. `leader
        (c,)` is the naming of the state.
        """
        found = torch.zeros_like(self.unused)
        if not bool(self.unused.any()):
            return found
        settings, unused = self.settings, self.unused[leader]
        walkers = settings.walkers * min(settings.walkers, max(map(len, self.kinds)))  # some for each group
        groups = leader.repeat(walkers, 1)
        for kind in self.kinds:
            places = torch.arange(kind.start, kind.stop)
            spare, others = places[unused[places]], places[~unused[places]]
            if len(spare) and len(others):
                pick = torch.randint(len(others), (walkers, len(spare)), generator=self.generator)
                pick[:, 0] = torch.arange(walkers) % len(others)
                groups[:, spare] = leader[others[pick]]
        orders, level = anneal_names(self.merged, self.kinds, walkers, self.generator, 2 * settings.exchanges, groups)
        renamed = (orders != leader) & ~unused & (level >= self.merged(leader[None]) - settings.improbable)[:, None]
        for kind in self.kinds:
            found[kind.start : kind.stop] = renamed[:, kind.start : kind.stop].any()
        return found


def unused_labels(pool: Pool, labels: Tensor, settings: InferenceSettings) -> Tensor:
    """The labels that almost no instance has in `labels (n*m, 1)`, `(c,)` bool: two classes may share one name.

    Kinds with many labels are skipped, because a pool may well lack some of them.
    """
    size = pool.ranks.total(one_hot(labels, pool.classes).sum(0))
    few = torch.tensor([len(kind) <= settings.walkers for kind in pool.kinds for _ in kind], device=size.device)
    return (size < settings.negligible * pool.typical)[:, 0] & few


def _exchanges(order: Tensor, kinds: list[range]) -> Tensor:
    """All exchanges of two labels of a kind, applied to `order (c,)`, `(ways, c)`."""
    pairs = [(a, b) for kind in kinds for a in kind for b in range(a + 1, kind.stop)]
    orders = order.repeat(len(pairs), 1)
    for exchanged, (a, b) in zip(orders, pairs, strict=True):
        exchanged[a], exchanged[b] = order[b], order[a]
    return orders


def _affine(kinds: list[range], most: int) -> Tensor:
    """All maps y → a y + b modulo the number of labels of a kind that are permutations, kind by kind, `(ways, c)`."""
    identity = torch.arange(kinds[-1].stop)
    orders = [identity]
    for kind in kinds:
        size = len(kind)
        if size > 2 * most:
            continue
        for a in range(1, size):
            for b in range(size if gcd(a, size) == 1 else 0):
                order = identity.clone()
                order[kind.start : kind.stop] = kind.start + (a * torch.arange(size) + b) % size
                orders.append(order)
    return torch.stack(orders)


def _orbits(orders: Tensor, kinds: list[range], merged: Tensor) -> Tensor:
    """The smallest label that each label may exchange names with, `(c,)`.

    All labels of a kind that some naming changes are one orbit, because namings that are not listed may map any of them
    to any other.

    Args:
        orders: some namings, `(ways, c)`.
        kinds: the labels of each kind.
        merged: `(c,)` bool: other labels whose names are not settled.

    Examples:
        >>> _orbits(torch.tensor([[0, 1, 2, 3], [0, 2, 1, 3]]), [range(4)], torch.zeros(4, dtype=torch.bool)).tolist()
        [0, 1, 1, 3]
    """
    renamed = (orders[0].argsort()[orders] != torch.arange(orders.shape[1])).any(0) | merged
    orbit = torch.arange(orders.shape[1])
    for kind in kinds:
        some = renamed[kind.start : kind.stop].nonzero()[:, 0] + kind.start
        orbit[some] = some[:1]
    return orbit


def anneal_names(
    evidence: NamingEvidence,
    kinds: list[range],
    walkers: int,
    generator: torch.Generator,
    steps: int,
    groups: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Simulated annealing: the final naming of each walker, `(walkers, c)`, and its log-probability, `(walkers,)`.

    Each walker starts from a random order of its groups, the first one from the present order. A step exchanges two
    labels of a kind and is accepted by Metropolis' rule, at a decreasing temperature.

    Args:
        evidence: the log-probability of the formulas under a naming.
        kinds: the labels of each kind.
        walkers: the number of walkers.
        generator: the random generator.
        steps: the number of steps for each label.
        groups: the group of each label for each walker, `(walkers, c)`; if None, each label is a group.
    """
    orders = torch.arange(kinds[-1].stop).repeat(walkers, 1) if groups is None else groups.clone()
    for kind in kinds:
        for place in range(1, walkers):
            mixed = kind.start + torch.randperm(len(kind), generator=generator)
            orders[place, kind.start : kind.stop] = orders[place, mixed]
    wide = [kind for kind in kinds if len(kind) > 1]
    if not wide:
        return orders, evidence(orders)
    device, last = evidence.heard.device, steps * max(map(len, kinds))
    pairs = torch.tensor([(a, b) for kind in wide for a in kind for b in range(a + 1, kind.stop)])
    # All random numbers are drawn first, so that the device need not wait for them.
    drawn = [
        (torch.randint(len(pairs), (walkers,), generator=generator), torch.rand(walkers, generator=generator).log())
        for _ in range(last)
    ]
    exchanged, log_uniform = (torch.stack(part).to(device) for part in zip(*drawn, strict=True))  # (last, walkers)
    orders, pairs, walker = orders.to(device), pairs.to(device), torch.arange(walkers, device=device)
    level = evidence(orders)
    hottest = max(1.0, float(level[0] - level.median()) / len(kinds[0]))
    for step in range(last):
        temperature = hottest ** (1 - 2 * step / last)
        a, b = pairs[exchanged[step]].unbind(1)
        proposed = orders.clone()
        proposed[walker, a], proposed[walker, b] = orders[walker, b], orders[walker, a]
        reached = evidence(proposed)
        accepted = log_uniform[step] * temperature < reached - level
        orders, level = torch.where(accepted[:, None], proposed, orders), torch.where(accepted, reached, level)
    return orders.cpu(), level.cpu()


def matched(labels: Tensor, others: Tensor, classes: int, ranks: Ranks = ALONE) -> Tensor:
    """For each label in `others (n*m,)`, the label that most of its instances have in `labels (n*m,)`, `(c,)`.

    Each label is used once. The matching is greedy, the largest overlap first; labels without instances keep their
    order. `ranks`: the processes that share the pool.

    Examples:
        >>> matched(torch.tensor([1, 1, 0, 2]), torch.tensor([0, 0, 1, 1]), classes=3).tolist()
        [1, 0, 2]
    """
    both = one_hot(others[:, None], classes)[:, :, 0].T @ one_hot(labels[:, None], classes)[:, :, 0]
    shared = 2 * ranks.total(both).long().cpu() + torch.eye(classes, dtype=torch.long)  # among equals, the same name
    order = torch.arange(classes)
    for _ in range(classes):
        other, label = divmod(int(shared.argmax()), classes)
        order[other] = label
        shared[other], shared[:, label] = -1, -1
    return order.to(labels.device)
