"""Mass: the fewest candidates that hold a share of the probability."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import Candidates


def heaviest(candidates: Candidates, probability: Tensor, mass: float) -> Tensor:
    """The fewest candidates of each sample that hold `mass`, `(Ω,)` bool; the earlier one of equals.

    Examples:
        >>> candidates = Candidates.from_lists([[(0,), (1,), (2,)], [(1,)]], classes=3)
        >>> heaviest(candidates, torch.tensor([0.1, 0.3, 0.6, 1.0]), mass=0.8).tolist()
        [False, True, True, True]
    """
    order = probability.argsort(descending=True, stable=True)
    order = order[candidates.sample[order].argsort(stable=True)]
    sorted_mass = probability[order].double()
    before = sorted_mass.cumsum(0) - sorted_mass
    before = before - before[candidates.offsets[:-1]][candidates.sample]
    enough = before >= mass * (1 - 1e-9)
    enough[candidates.offsets[:-1]] = False  # the first one always stays
    return torch.empty_like(enough).scatter_(0, order, ~enough)
