"""MAX-M: the largest of M digits."""

from clipper.benchmarks.tasks.registry import register
from clipper.candidates.machines import MAX

register("max", max, machine=MAX)
