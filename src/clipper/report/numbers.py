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
