"""SUM-M: the sum of M digits."""

from clipper.benchmarks.tasks.registry import register

register("sum", sum)
