"""Means, deviations and intervals as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from clipper.errors import require


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation over the seeds.

    Examples:
        >>> spread([1.0, 2.0, 3.0])
        '2.0 ± 1.0'
    """
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


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
