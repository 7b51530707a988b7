"""SUM-M: the sum of M digits."""

from clipper.benchmarks.tasks.registry import register
from clipper.candidates.rules import SUM

register("sum", sum, machine=SUM)
