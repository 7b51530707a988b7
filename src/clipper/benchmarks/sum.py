"""SUM-M: the sum of M digits."""

from __future__ import annotations

from clipper import rules
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.drawing import DIGITS, image_benchmark, on_digits
from clipper.benchmarks.registry import Benchmark, register

SUM_RULE = rules.total()


@register("sum", data=DIGITS, quick=on_digits)
def build(config: RunConfig) -> Benchmark:
    """Samples of M images, and the sum of their labels."""
    return image_benchmark(config, SUM_RULE)
