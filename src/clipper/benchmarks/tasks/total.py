"""SUM-M: the sum of M digits."""

from clipper.benchmarks.tasks.registry import register
from clipper.candidates.machines import SUM

register("sum", sum, machine=SUM)
