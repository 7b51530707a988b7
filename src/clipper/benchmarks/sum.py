"""SUM-M: the sum of M digits."""

from __future__ import annotations

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.drawing import DIGITS, ImageRule, image_benchmark, on_digits
from clipper.benchmarks.registry import Benchmark, register
from clipper.candidates import rules

SUM_RULE = ImageRule("sum", sum, machine=rules.SUM, counts_from_zero=True)


@register("sum", data=DIGITS, quick=on_digits)
def build(config: RunConfig) -> Benchmark:
    """Samples of M images, and the sum of their labels."""
    return image_benchmark(config, SUM_RULE)
