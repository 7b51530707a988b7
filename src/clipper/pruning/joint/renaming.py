"""Renaming: who is near whom does not say what a group of instances is called; the formulas do, if anything does.

Two labels that change places everywhere cut no other pair. If the formulas are the better for it, the labels should; if
they do not care, nobody can tell, and the posterior must not pretend to.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.pruning.joint.factors import Factor
from clipper.pruning.joint.messages import Model
from clipper.pruning.joint.settling import Settled, settle

_SCREENED = 256
"""Samples that judge all exchanges of two labels before the whole pool judges those that are left."""
_AT_ONCE = 1 << 23
"""Numbers held at a time."""
_IMPROBABLE = 10.0
"""Nats by which the formulas must be against an exchange for it to be out of the question."""
_MOST_PAIRS = 200
"""Exchanges that are considered: those that the formulas allow most often, of more than 20 labels."""
_MOST_WAYS = 120
"""Ways to name that are weighed: all orders of five labels."""
_NEGLIGIBLE = 1e-3
_CORRECTIONS = 3


@dataclass(frozen=True, eq=False)
class Readings:
    """What the instances hear, under each way to name the labels that the formulas allow, the likeliest first."""

    field: Tensor
    """`(n*m, c, ways)`: log-odds."""
    weight: Tensor
    """`(ways,)`: their probabilities."""
    as_found: bool = True
    """Whether the first one is how the search named them."""


def named(model: Model, settled: Settled) -> tuple[Settled, Readings]:
    """Correct the names as far as the formulas ask for it, then weigh those that are left."""
    readings = weighed(model, settled.field)
    for _ in range(_CORRECTIONS):
        if readings.as_found:
            break
        again = settle(model, settled.trust, model.factor.best(readings.field[:, :, :1].contiguous()))
        if again.verification.gain <= settled.verification.gain:
            break
        settled, readings = again, weighed(model, again.field)
    return settled, readings


def weighed(model: Model, field: Tensor) -> Readings:
    """How probable each way to name the labels is, given `field (n*m, c, 1)`."""
    heard = field - model.unary
    pairs = _open_pairs(model, heard)
    orders = _orders(pairs, field.shape[1]).to(field.device)  # (ways, c)
    weight = _evidence(model.factor, model.unary, heard, orders).softmax(0)
    first = weight.argsort(descending=True, stable=True)
    first = first[weight[first] >= _NEGLIGIBLE]
    kept = weight[first] / weight[first].sum()
    readings = model.unary + heard[:, :, 0][:, orders[first].T]
    return Readings(readings, kept.to(field), as_found=int(first[0]) == 0)


def _open_pairs(model: Model, heard: Tensor) -> list[tuple[int, int]]:
    """The pairs of labels that may change places, as far as the formulas can tell."""
    pairs = _fitting_pairs(model, heard)
    samples = model.factor.shape[0]
    step = max(1, samples // _SCREENED)
    if step > 1:
        some = torch.arange(0, samples, step, device=heard.device)
        pairs = _not_refuted(
            model.factor.part(some), _of_samples(model, model.unary, some), _of_samples(model, heard, some), pairs
        )
    return _not_refuted(model.factor, model.unary, heard, pairs)


def _fitting_pairs(model: Model, heard: Tensor) -> list[tuple[int, int]]:
    """Pairs of labels such that the formulas of the instances of either allow the other one too, as often as may be."""
    belief = model.factor.marginals(model.unary + heard)[:, :, 0]  # (n*m, c)
    support = model.factor.support.to(belief)  # (n*m, c)
    allowed = (belief.T @ support) / belief.sum(0)[:, None].clamp(min=torch.finfo(belief.dtype).tiny)  # (c, c)
    both = torch.minimum(allowed, allowed.T).triu(1)
    often, place = both.flatten().topk(min(_MOST_PAIRS, both.numel()))
    chosen = place[often > 0].sort().values
    return [(pair // len(both), pair % len(both)) for pair in chosen.tolist()]


def _not_refuted(factor: Factor, unary: Tensor, heard: Tensor, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if not pairs:
        return []
    order = torch.arange(heard.shape[1])
    orders = torch.stack([order, *(_exchanged(order, a, b) for a, b in pairs)]).to(heard.device)
    evidence = _evidence(factor, unary, heard, orders)
    return [
        pair for pair, worse in zip(pairs, (evidence[0] - evidence[1:]).tolist(), strict=True) if worse < _IMPROBABLE
    ]


def _evidence(factor: Factor, unary: Tensor, heard: Tensor, orders: Tensor) -> Tensor:
    """The log-probability of all formulas under each order `(ways, c)` of the labels, up to a constant, `(ways,)`."""
    together = max(1, _AT_ONCE // (factor.size + heard.numel()))
    return torch.cat(
        [
            factor.evidence((unary + heard[:, :, 0][:, some.T]).contiguous()).double().sum(0)
            for some in torch.split(orders, together)
        ]
    )


def _of_samples(model: Model, values: Tensor, samples: Tensor) -> Tensor:
    """The rows of some samples, `(n'*m, c, 1)`."""
    n, m, c = model.factor.shape
    return values.view(n, m, c, 1)[samples].flatten(0, 1)


def _exchanged(order: Tensor, a: int, b: int) -> Tensor:
    swapped = order.clone()
    swapped[a], swapped[b] = order[b], order[a]
    return swapped


def _orders(pairs: list[tuple[int, int]], classes: int) -> Tensor:
    """All orders that exchanges of these pairs lead to, `(ways, c)`, the present one first; if too many, one each."""
    present = torch.arange(classes)
    groups = _groups(pairs)
    ways = 1
    for group in groups:
        for size in range(2, len(group) + 1):
            ways *= size
    if ways > _MOST_WAYS:
        return torch.stack([present, *(_exchanged(present, a, b) for a, b in pairs)])
    orders = []
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        order = present.clone()
        for group, chosen in zip(groups, choice, strict=True):
            order[list(group)] = torch.tensor(chosen)
        orders.append(order)
    return torch.stack(orders)


def _groups(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """The labels that pairs connect, each group in order."""
    groups: list[set[int]] = []
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if not group & set(pair)] + [set(pair).union(*touched)]
    return [sorted(group) for group in groups]
