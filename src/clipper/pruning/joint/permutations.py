"""Permutations of labels: all that exchanges lead to if they are few, and a random walk among them if they are many."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import factorial, prod

import torch
from torch import Tensor

Pair = tuple[int, int]

_STEPS = 4
"""Exchanges that a walk tries, for each label that may be exchanged."""


def exchanges(pairs: Sequence[Pair], classes: int) -> Tensor:
    """The present order, then one with each pair of labels exchanged, `(1 + pairs, c)`.

    Examples:
        >>> exchanges([(0, 2)], classes=3).tolist()
        [[0, 1, 2], [2, 1, 0]]
    """
    orders = torch.arange(classes).repeat(1 + len(pairs), 1)
    for order, (a, b) in zip(orders[1:], pairs, strict=True):
        order[a], order[b] = b, a
    return orders


def all_orders(pairs: Sequence[Pair], classes: int, most: int) -> Tensor | None:
    """All orders that exchanges of these pairs lead to, `(ways, c)`, the present one first; None if more than `most`.

    Examples:
        >>> all_orders([(0, 2)], classes=3, most=2).tolist()
        [[0, 1, 2], [2, 1, 0]]
        >>> all_orders([(0, 1), (1, 2)], classes=3, most=2) is None
        True
    """
    groups = _groups(pairs)
    if prod(factorial(len(group)) for group in groups) > most:
        return None
    orders = []
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        order = torch.arange(classes)
        for group, chosen in zip(groups, choice, strict=True):
            order[group] = torch.tensor(chosen)
        orders.append(order)
    return torch.stack(orders)


def random_walk(
    pairs: Sequence[Pair], classes: int, score: Callable[[Tensor], Tensor], walkers: int, seed: int = 0
) -> Tensor:
    """Orders `(walkers, c)`, each as probable as its score makes it: Metropolis' walk by exchanges.

    Args:
        pairs: labels that may be exchanged.
        classes: how many labels there are.
        score: the log-probability of orders `(ways, c)`, up to a constant, `(ways,)`.
        walkers: how many walks, all at once.
        seed: of the walks.
    """
    generator = torch.Generator().manual_seed(seed)
    orders = torch.arange(classes).repeat(walkers, 1)
    table, walker = torch.tensor(pairs), torch.arange(walkers)
    level = score(orders).cpu()
    steps = _STEPS * len({label for pair in pairs for label in pair})
    for step in range(steps):
        a, b = table[torch.randint(len(table), (walkers,), generator=generator)].unbind(1)
        proposed = orders.clone()
        proposed[walker, a], proposed[walker, b] = orders[walker, b], orders[walker, a]
        reached = score(proposed).cpu()
        goes = torch.rand(walkers, generator=generator).log() < reached - level
        if step == steps - 1:
            goes &= walker % 2 == 0  # or all walks would be of even length where every exchange is welcome
        orders, level = torch.where(goes[:, None], proposed, orders), torch.where(goes, reached, level)
    return orders


def _groups(pairs: Sequence[Pair]) -> list[list[int]]:
    """The labels that pairs connect, each group in order."""
    groups: list[set[int]] = []
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if not group & set(pair)] + [set(pair).union(*touched)]
    return [sorted(group) for group in groups]
