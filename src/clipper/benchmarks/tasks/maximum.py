"""MAX-M: the largest of M digits."""

from clipper.benchmarks.tasks.registry import register
from clipper.candidates.rules import MAX

register("max", max, machine=MAX)
