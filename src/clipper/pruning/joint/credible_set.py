"""Credible sets: the fewest candidates that hold a share of the probability."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet

_HALVINGS = 24
_EQUAL = 1e-3
"""Probabilities that differ by a smaller share than this are as good as equal."""
_LOWEST = 1e-9
"""A label less probable than this is kept only if nothing may go."""


def averaged(conclude: Callable[[Tensor], Tensor], field: Tensor, weight: Tensor) -> Tensor:
    """What follows from each reading of `field (n*m, c, ways)`, `(…, 1)` each, averaged by `weight (ways,)`, `(…)`.

    One reading after the other, so that memory does not grow with them.
    """
    total = weight[0] * conclude(field[:, :, :1].contiguous())[..., 0]
    for way in range(1, len(weight)):
        total += weight[way] * conclude(field[:, :, way : way + 1].contiguous())[..., 0]
    return total


def smallest_credible_set(candidates: Candidates, probability: Tensor, mass: float) -> Tensor:
    """The fewest candidates of each sample that hold `mass`, `(Ω,)` bool, and all that equal the last of them.

    To choose among equals by their place would be to decide what nobody knows: where two names are a toss-up, the more
    frequent group would get the smaller label.

    Examples:
        >>> candidates = Candidates.from_lists([[(0,), (1,), (2,)], [(1,)]], classes=3)
        >>> smallest_credible_set(candidates, torch.tensor([0.1, 0.3, 0.6, 1.0]), mass=0.8).tolist()
        [False, True, True, True]
    """
    order = probability.argsort(descending=True, stable=True)
    order = order[candidates.sample[order].argsort(stable=True)]
    sorted_mass = probability[order].double()
    before = sorted_mass.cumsum(0) - sorted_mass
    before = before - before[candidates.offsets[:-1]][candidates.sample]
    needed = before < mass * (1 - 1e-9)
    needed[candidates.offsets[:-1]] = True  # the first one always stays
    last = torch.where(needed, sorted_mass, 1.0)
    lowest = last.new_ones(candidates.samples).scatter_reduce_(0, candidates.sample, last, "amin")
    return probability.double() >= (1 - _EQUAL) * lowest[candidates.sample]


def credible_labels(
    lattice: CandidateSet, log_odds: Tensor, weight: Tensor, marginals: Tensor, best: Tensor, mass: float
) -> Tensor:
    """Few labels whose candidates hold `mass` of each sample's probability, `(n*m, c)` bool.

    A pruned lattice forbids labels, not candidates: those below a threshold, the highest that leaves enough. The most
    probable candidate always stays.

    Args:
        lattice: what the labels could be.
        log_odds: of each label of each slot, without the formula, `(n, m, c, ways)`.
        weight: how probable each of these readings is, `(ways,)`.
        marginals: of each label of each slot, with it, `(n, m, c)`.
        best: the labels of each sample's most probable candidate, `(n, m)`.
        mass: how much.

    Examples:
        >>> from clipper import Lattice
        >>> from clipper.candidates.rules import SUM
        >>> lattice = Lattice.from_rule(*SUM, targets=[2], slots=2, classes=3)
        >>> log_odds = torch.tensor([[[0.1, 0.3, 0.6], [1.0, 1.0, 1.0]]]).log()
        >>> marginals, best = lattice.marginals(log_odds), torch.tensor([[2, 0]])
        >>> kept = credible_labels(lattice, log_odds[..., None], torch.ones(1), marginals, best, mass=0.8)
        >>> lattice.restrict(kept).to_candidates().labels.tolist()
        [[1, 1], [2, 0]]
    """
    labels = torch.arange(lattice.classes, device=best.device)
    certain = (best[..., None] == labels) | (mass >= 1)
    readings = log_odds.double().unbind(3)
    whole = torch.stack([lattice.log_probability(reading) for reading in readings], dim=1)  # (n, ways)
    low = torch.full_like(whole[:, 0], _LOWEST).log()  # leaves enough, or as good as
    high = torch.zeros_like(low)  # may not
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        kept = certain | (marginals >= middle.exp()[:, None, None])
        narrowed = lattice.narrowed(kept.flatten(0, 1))
        left = torch.stack([narrowed.log_probability(reading) for reading in readings], dim=1) - whole
        enough = left.exp() @ weight.double() >= mass * (1 - 1e-9)
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return (certain | (marginals >= (1 - _EQUAL) * low.exp()[:, None, None])).flatten(0, 1)
