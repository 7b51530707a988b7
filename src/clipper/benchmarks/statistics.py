"""Statistics of results: means with deviations, intervals, the area under the ROC curve, and shares in per cent."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from clipper.errors import require


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over the seeds.

    Examples:
        >>> spread([1.0, 2.0, 3.0])
        '2.0 ± 1.0'
    """
    return f"{statistics.mean(values):.1f} ± {deviation(values):.1f}"


def deviation(values: Sequence[float]) -> float:
    """The standard deviation over the seeds; 0 for a single one.

    Examples:
        >>> deviation([1.0, 2.0, 3.0]), deviation([5.0])
        (1.0, 0.0)
    """
    return statistics.stdev(values) if len(values) > 1 else 0.0


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, by Student's t; infinite for a single value.

    Examples:
        >>> low, high = interval([1.0, 2.0, 3.0])
        >>> round(low, 2), round(high, 2)
        (-0.48, 4.48)
    """
    if len(values) < 2:
        return float("-inf"), float("inf")
    special: Any = require("scipy.special", extra="benchmarks")
    student = float(special.stdtrit(len(values) - 1, 0.975))
    reach = student * statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values) - reach, statistics.mean(values) + reach


def mean_or_none(values: Sequence[float]) -> float | None:
    """The mean; None if there are no values."""
    return statistics.fmean(values) if values else None


def auroc(scores: Tensor, positive: Tensor) -> float:
    """The share of pairs of a positive and a negative in which the positive has the higher score; a tie counts half.

    Args:
        scores: of each instance, `(n,)`.
        positive: which instances are positive, `(n,)` bool; there must be some, and some that are not.

    Examples:
        >>> from torch import tensor
        >>> auroc(tensor([3.0, 1.0, 2.0, 1.0]), tensor([True, True, False, False]))
        0.625
    """
    difference = scores[positive][:, None] - scores[~positive]
    return float(((difference > 0).double() + (difference == 0).double() / 2).mean())


def percent(share: float | None) -> str:
    """A share in per cent; a dash if there is none.

    Examples:
        >>> percent(0.125), percent(None)
        ('12.5 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f} %"
