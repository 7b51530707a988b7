"""Naming: who is near whom does not say what a group of instances is called; the formulas do, if anything does.

A permutation of all labels changes no pair. Reversals and shifts of the label axis are products of many exchanges, each
of which the formulas refute by itself, so names are sought from many random orders, by annealing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from clipper.pruning.joint.pool import Pool
from clipper.pruning.joint.settings import InferenceSettings


@dataclass(frozen=True, eq=False)
class Naming:
    """One way to name the groups of instances.

    Attributes:
        order: `(c,)`: what each label of `posterior.labels` is called under this naming.
        weight: its probability among the namings that were found.
    """

    order: Tensor
    weight: float


@dataclass(frozen=True, eq=False)
class Namings:
    """The ways to name the labels that the formulas allow.

    Attributes:
        orders: `(ways, c)`: label y is now called what was heard as `orders[:, y]`; the most probable first.
        evidence: `(ways,)`: the log-probability of the formulas under each.
        exhaustive: whether these are all of them, as far as the search can tell.
    """

    orders: Tensor
    evidence: Tensor
    exhaustive: bool

    @property
    def weight(self) -> Tensor:
        """`(ways,)`: how probable each is."""
        return self.evidence.softmax(0)

    @property
    def open_labels(self) -> Tensor:
        """`(c,)` bool: labels whose name differs between the ways."""
        return (self.orders != self.orders[:1]).any(0)


class NamingEvidence:
    """How probable the formulas are if the labels that instances hear are named otherwise."""

    def __init__(self, pool: Pool, heard: Tensor, settings: InferenceSettings, hidden: Tensor | None = None) -> None:
        """Note what instances hear, `heard (n*m, c)`, under names that may be wrong.

        Formulas of `hidden (n,)` samples have no say. Where there are many, a part of them judges.
        """
        judges = torch.arange(pool.factor.shape[0], device=heard.device)
        for left_out in (hidden, pool.disbelieved):
            judges = judges if left_out is None else judges[~left_out[judges]]
        n, m, c = pool.factor.shape
        each = pool.factor.size // max(n, 1) + m * c
        most = max(settings.walkers, settings.memory // (2 * 2 * settings.walkers * each))
        self.scale = max(1.0, len(judges) / most)
        judges = judges[:: -(-len(judges) // most)] if len(judges) > most else judges
        self.factor = pool.factor.part(judges)
        self.unary, self.heard = (values.view(n, m, c)[judges].flatten(0, 1) for values in (pool.unary[:, :, 0], heard))
        self.together = max(1, settings.memory // (self.factor.size + self.heard.numel() + 1))

    def __call__(self, orders: Tensor) -> Tensor:
        """The log-probability of all formulas under each of the `orders (ways, c)`, up to a constant, `(ways,)`."""
        device = self.heard.device
        parts = [
            self.factor.evidence(self.unary[:, :, None] + self.heard[:, some.T.to(device)]).double().sum(0)
            for some in torch.split(orders, self.together)
        ]
        return torch.cat(parts).cpu() * self.scale


def find_namings(pool: Pool, heard: Tensor, settings: InferenceSettings, generator: torch.Generator) -> Namings:
    """All ways to name the labels that the formulas allow, given what instances hear, `(n*m, c)`.

    Walkers look for namings from random orders, until enough of them have arrived somewhere as good as the best.
    Shifts, reversals and multiplications of the label axis are tried besides. Whatever leads from one good naming to
    another, or exchanges two labels, is then tried on all of them: namings that are equally good form a group.
    """
    judge = NamingEvidence(pool, heard, settings)
    orders = _affine(pool.kinds, settings.walkers)
    level = judge(orders)
    arrived = 0
    for _ in range(settings.patience + 1):
        walked, reached = anneal_names(judge, pool.kinds, 2 * settings.walkers, generator, 2 * settings.exchanges)
        orders, level = torch.cat([orders, walked]), torch.cat([level, reached])
        arrived += int((reached[1:] >= level.max() - settings.improbable).sum())
        if 2 * arrived >= settings.walkers:
            break
    found, level = _good(orders, level, settings.improbable)
    exhaustive, new = 2 * arrived >= settings.walkers, found
    while len(new) and exhaustive:
        steps = [a[b.argsort()] for a in new for b in found]  # from one to another
        tried = torch.unique(
            torch.cat([step[found] for step in steps] + [_exchanges(order, pool.kinds) for order in new]), dim=0
        )
        known = {tuple(order) for order in found.tolist()}
        tried = torch.tensor([order for order in tried.tolist() if tuple(order) not in known], dtype=torch.long)
        if not len(tried):
            break
        new, more = _good(
            tried[: settings.walkers**2], judge(tried[: settings.walkers**2]), settings.improbable, float(level.max())
        )
        found, level = torch.cat([found, new]), torch.cat([level, more])
        exhaustive = len(tried) <= settings.walkers**2 and len(found) <= 2 * settings.walkers
    best = level.argsort(descending=True, stable=True)[: 2 * settings.walkers]
    return Namings(found[best], level[best], exhaustive)


def _exchanges(order: Tensor, kinds: list[range]) -> Tensor:
    """`order (c,)` with every two labels of a kind exchanged, `(ways, c)`."""
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


def _good(orders: Tensor, evidence: Tensor, improbable: float, best: float | None = None) -> tuple[Tensor, Tensor]:
    """Those of the `orders (ways, c)` that are not out of the question, each once."""
    level = float(evidence.max()) if best is None else best
    orders, place = torch.unique(orders, dim=0, return_inverse=True)
    value = evidence.new_full((len(orders),), -torch.inf).scatter_reduce_(0, place, evidence, "amax")
    keep = value >= level - improbable
    return orders[keep], value[keep]


def anneal_names(
    evidence: NamingEvidence, kinds: list[range], walkers: int, generator: torch.Generator, steps: int
) -> tuple[Tensor, Tensor]:
    """Where walkers end, `(walkers, c)`, and how probable the formulas are there, `(walkers,)`.

    Each begins with a random order, the first one with the present one. A step exchanges two labels of a kind and is
    taken by Metropolis' rule, at a temperature that falls. There are `steps` of them for each label.
    """
    classes = kinds[-1].stop
    orders = torch.arange(classes).repeat(walkers, 1)
    for kind in kinds:
        for place in range(1, walkers):
            orders[place, kind.start : kind.stop] = kind.start + torch.randperm(len(kind), generator=generator)
    wide = [kind for kind in kinds if len(kind) > 1]
    level = evidence(orders)
    if not wide:
        return orders, level
    pairs = torch.tensor([(a, b) for kind in wide for a in kind for b in range(a + 1, kind.stop)])
    walker = torch.arange(walkers)
    hottest = max(1.0, float(level[0] - level.median()) / len(kinds[0]))
    last = steps * max(map(len, kinds))
    for step in range(last):
        temperature = hottest ** (1 - 2 * step / last)
        a, b = pairs[torch.randint(len(pairs), (walkers,), generator=generator)].unbind(1)
        proposed = orders.clone()
        proposed[walker, a], proposed[walker, b] = orders[walker, b], orders[walker, a]
        reached = evidence(proposed)
        goes = torch.rand(walkers, generator=generator).log() * temperature < reached - level
        orders, level = torch.where(goes[:, None], proposed, orders), torch.where(goes, reached, level)
    return orders, level


def matched(labels: Tensor, others: Tensor, classes: int) -> Tensor:
    """The label of `labels (n*m,)` that most instances of each label of `others (n*m,)` have, each once, `(c,)`.

    Greedily, the largest overlap first; labels that nobody has keep their order.

    Examples:
        >>> matched(torch.tensor([1, 1, 0, 2]), torch.tensor([0, 0, 1, 1]), classes=3).tolist()
        [1, 0, 2]
    """
    both = (labels >= 0) & (others >= 0)
    shared = torch.bincount(others[both] * classes + labels[both], minlength=classes**2).view(classes, classes)
    shared = 2 * shared + torch.eye(classes, dtype=shared.dtype, device=shared.device)  # of equals, the same name
    order = torch.arange(classes, device=labels.device)
    for _ in range(classes):
        other, label = divmod(int(shared.argmax()), classes)
        order[other] = label
        shared[other], shared[:, label] = -1, -1
    return order
