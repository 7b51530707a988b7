"""MAX-M: the largest of M digits."""

from clipper.benchmarks.tasks.registry import register

register("max", max)
