"""Trust: how often near instances disagree all the same, by how far apart they are; fitted without gold labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_ERROR = 0.01
"""No pair is trusted more than this where trust is fitted: a message of certainty could never be outvoted."""
SMALLEST_GIVEN = 1e-6
"""The smallest error that trust may be given with: messages of single precision say no more."""

_STEPS = 25
_RIDGE = 0.01
"""Doubt about the slope, so that a handful of pairs makes no cliff."""


@dataclass(frozen=True)
class Trust:
    """The probability that a pair of a given length disagrees: a logistic curve that never falls.

    Examples:
        >>> Trust(level=0.0, slope=2.0).error(torch.tensor([0.5, 1.0, 1.5]))
        tensor([0.2689, 0.5000, 0.7311])
        >>> Trust.constant(0.2).error(torch.tensor([0.5, 1.5]))
        tensor([0.2000, 0.2000])
    """

    level: float
    """The log-odds of disagreement at length 1."""
    slope: float
    """How much they grow with the length."""

    @classmethod
    def constant(cls, error: float) -> Trust:
        """The same for all pairs."""
        return cls(float(torch.tensor(error, dtype=torch.float64).logit()), 0.0)

    @classmethod
    def by_rank(cls, length: Tensor, nearest: float = 0.05, farthest: float = 0.5) -> Trust:
        """What to begin with: the shortest pairs rarely disagree, of the longest every other one does."""
        if not len(length):
            return cls.constant((nearest + farthest) / 2)
        place = torch.empty_like(length).scatter_(0, length.argsort(), torch.linspace(0, 1, len(length)).to(length))
        return cls.fitted(length, nearest + (farthest - nearest) * place)

    @classmethod
    def fitted(cls, length: Tensor, disagreement: Tensor) -> Trust:
        """The curve that fits the probability that each pair disagrees best, both `(P,)`.

        Examples:
            >>> length = torch.linspace(0.5, 1.5, 1000)
            >>> Trust.fitted(length, torch.sigmoid(-1 + 3 * (length - 1)))
            Trust(level=-1.0, slope=3.0)
        """
        x = torch.stack([torch.ones_like(length), length - 1], dim=1).double()  # (P, 2)
        y = disagreement.double().clamp(1e-4, 1 - 1e-4)
        if not len(y):
            return cls.constant(0.3)
        best = torch.stack([y.mean().logit(), torch.zeros_like(y[0])])
        ridge = torch.tensor([1e-6, _RIDGE], dtype=torch.float64, device=y.device)
        for _ in range(_STEPS):
            p = torch.sigmoid(x @ best)
            hessian = (x * (p * (1 - p))[:, None]).T @ x + ridge.diag()
            step = torch.linalg.solve(hessian, x.T @ (y - p) - ridge * best)
            best = best + step.clamp(-2, 2)
        level, slope = best.tolist()
        return cls(level, slope) if slope >= 0 else cls.constant(float(y.mean()))

    def error(self, length: Tensor) -> Tensor:
        """The probability that pairs of these lengths disagree, `(P,)`."""
        return torch.sigmoid(self.level + self.slope * (length - 1))

    def __repr__(self) -> str:
        return f"Trust(level={round(self.level, 2)}, slope={round(self.slope, 2)})"
