"""Tasks: images drawn into samples, and the rule that their labels satisfy. A task is a file with a rule."""

from clipper.benchmarks.tasks import hwf, maximum, total
from clipper.benchmarks.tasks.drawing import Task, draw
from clipper.benchmarks.tasks.formulas import published_formulas
from clipper.benchmarks.tasks.registry import DOMAINS, RULES, register

__all__ = ["DOMAINS", "RULES", "Task", "draw", "hwf", "maximum", "published_formulas", "register", "total"]
