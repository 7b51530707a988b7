"""The rules that a task may be named after. Knows no image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clipper.candidates.rules import Machine
from clipper.errors import InputError

Rule = Callable[..., Any]
"""From a tuple of labels, one per slot, to a whole number."""
Domains = Callable[[int], Sequence[Sequence[int]]]
"""From the number of slots to the labels that each slot may take."""

RULES: dict[str, Rule] = {}
"""The rules by name."""
DOMAINS: dict[str, Domains] = {}
"""For the rules whose slots do not take every label: which they take."""
MACHINES: dict[str, Machine] = {}
"""For the rules that read one label after the other: the state machine that gives the same, for lattices."""


def register(name: str, rule: Rule, domains: Domains | None = None, *, machine: Machine | None = None) -> None:
    """Add a task: from now on `draw` knows it by its name.

    Args:
        name: what to call it.
        rule: any callable from a tuple of labels to a whole number; arithmetic runs on all combinations at once.
        domains: from the number of slots to the labels that each slot may take; every label if not given.
        machine: the same rule as a state machine; with it, candidates need not be enumerated.

    Examples:
        >>> register("last", lambda labels: labels[-1])
        >>> RULES.pop("last")((3, 1, 4))
        4
    """
    if name in RULES and RULES[name] is not rule:
        raise InputError(f"expected a new name for the task, but {name!r} is taken; choose another")
    RULES[name] = rule
    if domains is not None:
        DOMAINS[name] = domains
    if machine is not None:
        MACHINES[name] = machine


def rule_named(name: str) -> Rule:
    """The rule of a task."""
    if name not in RULES:
        raise InputError(
            f"expected one of the rules {', '.join(RULES)}, got {name!r}; clipper.benchmarks.tasks.register adds one"
        )
    return RULES[name]
