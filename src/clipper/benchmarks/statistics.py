"""Numbers as people write them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation over the seeds.

    Examples:
        >>> spread([1.0, 2.0, 3.0])
        '2.0 ± 1.0'
    """
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


_STUDENT = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
    2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
)  # fmt: skip
"""Student's t for 95 %, by degrees of freedom from 1."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, by Student's t; infinite for a single value.

    Examples:
        >>> low, high = interval([1.0, 2.0, 3.0])
        >>> round(low, 2), round(high, 2)
        (-0.48, 4.48)
    """
    if len(values) < 2:
        return float("-inf"), float("inf")
    t = _STUDENT[len(values) - 2] if len(values) - 2 < len(_STUDENT) else 1.96
    reach = t * statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values) - reach, statistics.mean(values) + reach
