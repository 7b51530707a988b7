"""Label symmetry: who is near whom does not say what a group of instances is called; the formulas do, if anything does.

Two labels that change places everywhere cut no other pair. If the formulas are the better for it, the labels should; if
they do not care, nobody can tell, and the posterior must not pretend to.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.pruning.joint.factors import Factor
from clipper.pruning.joint.fitting import FittedState, fit_states
from clipper.pruning.joint.messages import Model
from clipper.pruning.joint.permutations import Pair, all_orders, exchanges, random_walk

_SCREENED = 256
"""Samples that judge all exchanges of two labels before the whole pool judges those that are left."""
_AT_ONCE = 1 << 23
"""Numbers held at a time."""
_IMPROBABLE = 10.0
"""Nats by which the formulas must be against an exchange for it to be out of the question."""
_MOST_PAIRS = 1000
"""Exchanges that are considered: those that the formulas allow most often, of more than 45 labels."""
_MOST_WAYS = 24
"""Ways to name that are all weighed: the orders of four labels. Of more, some are drawn."""
_WALKERS = 24
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


def correct_names(model: Model, fitted: FittedState) -> tuple[FittedState, Readings]:
    """Correct the names as far as the formulas ask for it, then weigh those that are left."""
    readings = weigh_namings(model, fitted.field)
    for _ in range(_CORRECTIONS):
        if readings.as_found:
            break
        again = fit_states(model, fitted.trust, model.factor.best(readings.field[:, :, :1].contiguous()))
        if again.verification.gain <= fitted.verification.gain:
            break
        fitted, readings = again, weigh_namings(model, again.field)
    return fitted, readings


def weigh_namings(model: Model, field: Tensor) -> Readings:
    """How probable each way to name the labels is, given `field (n*m, c, 1)`."""
    hearing = NamingEvidence(model.factor, model.unary, field - model.unary)
    classes = field.shape[1]
    pairs = _open_pairs(hearing)
    orders = all_orders(pairs, classes, _MOST_WAYS)
    if orders is not None:
        chance = hearing.evidence(orders).softmax(0)
    else:
        walked = random_walk(pairs, classes, hearing.evidence, _WALKERS)
        orders, count = torch.unique(walked, dim=0, return_counts=True)
        chance = count.double() / count.sum()
    first = hearing.evidence(orders).argsort(descending=True, stable=True)
    first = first[chance[first] >= _NEGLIGIBLE]
    weight = chance[first] / chance[first].sum()
    as_found = bool((orders[first[0]] == torch.arange(classes)).all())
    return Readings(hearing.readings(orders[first]), weight.to(field), as_found)


@dataclass(frozen=True, eq=False)
class NamingEvidence:
    """What instances know and hear, and the formulas that judge it."""

    factor: Factor
    unary: Tensor
    """`(n*m, c, 1)`: known beforehand, under its own names."""
    heard: Tensor
    """`(n*m, c, 1)`: from others, under names that may be wrong."""

    def readings(self, orders: Tensor) -> Tensor:
        """Both, with what was heard under other names: of label y now what was said of `orders (ways, c)[:, y]`."""
        return self.unary + self.heard[:, :, 0][:, orders.T.to(self.heard.device)]

    def evidence(self, orders: Tensor) -> Tensor:
        """The log-probability of all formulas under each of the `orders (ways, c)`, up to a constant, `(ways,)`."""
        together = max(1, _AT_ONCE // (self.factor.size + self.heard.numel()))
        parts = [self.factor.evidence(self.readings(some)).double().sum(0) for some in torch.split(orders, together)]
        return torch.cat(parts).cpu()

    def part(self, samples: Tensor) -> NamingEvidence:
        """The same of some samples."""
        n, m, c = self.factor.shape
        unary, heard = (values.view(n, m, c, 1)[samples].flatten(0, 1) for values in (self.unary, self.heard))
        return NamingEvidence(self.factor.part(samples), unary, heard)


def _open_pairs(hearing: NamingEvidence) -> list[Pair]:
    """The pairs of labels that may change places, as far as the formulas can tell."""
    pairs = _fitting_pairs(hearing)
    samples = hearing.factor.shape[0]
    if samples >= 2 * _SCREENED:
        some = torch.arange(0, samples, samples // _SCREENED, device=hearing.heard.device)
        pairs = _not_refuted(hearing.part(some), pairs)
    return _not_refuted(hearing, pairs)


def _fitting_pairs(hearing: NamingEvidence) -> list[Pair]:
    """Pairs of labels such that the formulas of the instances of either allow the other one too, as often as may be."""
    belief = hearing.factor.marginals(hearing.unary + hearing.heard)[:, :, 0]  # (n*m, c)
    support = hearing.factor.support.to(belief)  # (n*m, c)
    allowed = (belief.T @ support) / belief.sum(0)[:, None].clamp(min=torch.finfo(belief.dtype).tiny)  # (c, c)
    both = torch.minimum(allowed, allowed.T).triu(1)
    often, place = both.flatten().topk(min(_MOST_PAIRS, both.numel()))
    chosen = place[often > 0].sort().values
    return [(pair // len(both), pair % len(both)) for pair in chosen.tolist()]


def _not_refuted(hearing: NamingEvidence, pairs: list[Pair]) -> list[Pair]:
    evidence = hearing.evidence(exchanges(pairs, hearing.heard.shape[1]))
    worse = (evidence[0] - evidence[1:]).tolist()
    return [pair for pair, loss in zip(pairs, worse, strict=True) if loss < _IMPROBABLE]
