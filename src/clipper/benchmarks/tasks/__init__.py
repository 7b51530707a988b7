"""Tasks: images drawn into samples, and the rule that their labels satisfy. A task is a file with a rule."""

from clipper.benchmarks.tasks import hwf, maximum, total
from clipper.benchmarks.tasks.drawing import (
    MOST_SLOTS,
    LatticeTask,
    Task,
    draw,
    draw_lattice,
    gold_of,
    lattice_of,
    needs_lattice,
)
from clipper.benchmarks.tasks.formulas import published_formulas
from clipper.benchmarks.tasks.registry import DOMAINS, MACHINES, RULES, register

__all__ = [
    "DOMAINS",
    "MACHINES",
    "MOST_SLOTS",
    "RULES",
    "LatticeTask",
    "Task",
    "draw",
    "draw_lattice",
    "gold_of",
    "hwf",
    "lattice_of",
    "maximum",
    "needs_lattice",
    "published_formulas",
    "register",
    "total",
]
