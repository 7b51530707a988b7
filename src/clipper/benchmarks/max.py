"""MAX-M: the largest of M digits."""

from __future__ import annotations

from clipper import rules
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.drawing import DIGITS, image_benchmark, on_digits
from clipper.benchmarks.registry import Benchmark, register

MAX_RULE = rules.largest()


@register("max", data=DIGITS, quick=on_digits)
def build(config: RunConfig) -> Benchmark:
    """Samples of M images, and the largest of their labels."""
    return image_benchmark(config, MAX_RULE)
