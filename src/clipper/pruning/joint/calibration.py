"""Calibration: whether what a posterior calls 90 % certain is right nine times in ten. Needs gold labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.candidates import CandidateSet

MASSES = (0.5, 0.8, 0.9, 0.95, 0.99)
_BINS = 10


@dataclass(frozen=True)
class Calibration:
    """A posterior held against gold labels; shares lie in 0 … 1."""

    right: float
    """Slots whose most probable label is the gold one."""
    error: float
    """Expected calibration error: the mean gap between confidence and being right, weighted by how many there are."""
    confidence: tuple[float, ...]
    """The mean confidence of each bin that is not empty, rising."""
    accuracy: tuple[float, ...]
    """How many of the bin are right."""
    count: tuple[int, ...]
    """How many there are."""
    retained: dict[float, float]
    """For some masses: the share of samples whose gold labels are among the candidates that hold it."""


def calibration_of(survivors: Callable[[float], CandidateSet], marginals: Tensor, gold: Tensor) -> Calibration:
    """Compare the survivors for some masses, and `marginals (n, m, c)`, with `gold (n, m)`."""
    used = gold >= 0
    sure, guess = marginals.max(2)
    sure, right = sure[used].double(), (guess == gold)[used].double()
    place = (sure * _BINS).long().clamp(max=_BINS - 1)
    counts = torch.bincount(place, minlength=_BINS)
    filled = counts > 0
    confidence, accuracy = (
        (torch.bincount(place, weights=values, minlength=_BINS)[filled] / counts[filled]) for values in (sure, right)
    )
    gap = ((confidence - accuracy).abs() * counts[filled]).sum() / max(1, len(sure))
    return Calibration(
        right=float(right.mean()) if len(right) else float("nan"),
        error=float(gap),
        confidence=tuple(confidence.tolist()),
        accuracy=tuple(accuracy.tolist()),
        count=tuple(counts[filled].tolist()),
        retained={mass: float(survivors(mass).contains(gold).double().mean()) for mass in MASSES},
    )
