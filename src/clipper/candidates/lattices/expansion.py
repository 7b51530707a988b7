"""From a state machine to its layered graph: forward from the start for all targets at once, then trimmed backward."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import shown
from clipper.candidates.checks import called
from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.trimming import trimmed
from clipper.errors import BudgetError, InputError

BUDGET = 5_000_000
"""Arcs that `Lattice.from_rule` follows before it asks for another way."""

Step = Callable[[Any, int], Any]
Accept = Callable[[Any], Hashable]


def expand(
    start: Hashable,
    step: Step,
    accept: Accept,
    templates: Sequence[tuple[int, Hashable]],
    domains: Sequence[Sequence[int]],
    classes: int,
    budget: int = BUDGET,
) -> StateGraph:
    """The states that lie on a way from the start to one of the templates, pairs of length and target.

    Examples:
        >>> graph = expand(0, lambda total, label: total + label, lambda total: total, [(2, 1)], [range(3)] * 2, 3)
        >>> graph.sizes, graph.arcs  # from 0 by 0 or 1 to 0 or 1, from there to 1
        ((1, 2, 1), 4)
    """
    place: dict[tuple[int, Hashable], int] = {template: i for i, template in enumerate(templates)}
    deepest, arcs = len(domains), 0
    states: list[Hashable] = [start]
    tables: list[Tensor] = []
    ends = [torch.full((1,), -1)]
    for depth, domain in enumerate(domains, start=1):
        arcs += len(states) * len(domain)
        _check_budget(arcs, depth, deepest, budget)
        table, states = _one_slot(states, step, domain)
        ending = [place.get((depth, accepted(accept, state)), -1) for state in states]
        if depth == deepest:  # nothing follows: states that end alike are one
            table, states, ending = _merged(table, states, ending)
        tables.append(table)
        ends.append(torch.tensor(ending, dtype=torch.long))
    labels = [torch.tensor(list(domain), dtype=torch.long) for domain in domains]
    layers, kept = trimmed(labels, tables, ends)
    lengths = torch.tensor([length for length, _ in templates])
    return StateGraph(tuple(layers), tuple(kept), tuple(target for _, target in templates), lengths, classes)


def _one_slot(states: list[Hashable], step: Step, domain: Sequence[int]) -> tuple[Tensor, list[Hashable]]:
    """Where each label leads from each state, `(states, a)`, -1 for nowhere; and the states behind."""
    place: dict[Hashable, int] = {}
    rows = []
    for state in states:
        reached = [stepped(step, state, label) for label in domain]
        rows.append([-1 if after is None else place.setdefault(after, len(place)) for after in reached])
    return torch.tensor(rows, dtype=torch.long).reshape(len(states), len(domain)), list(place)


def _merged(table: Tensor, states: list[Hashable], ending: list[int]) -> tuple[Tensor, list[Hashable], list[int]]:
    used = sorted({end for end in ending if end >= 0})
    place = {end: i for i, end in enumerate(used)}
    number = torch.tensor([*(place.get(end, -1) for end in ending), -1])  # the last for what leads nowhere
    return number[table], [states[ending.index(end)] for end in used], used


def stepped(step: Step, state: Hashable, label: int) -> Hashable:
    """The state that follows, or an error that names the state and the label."""
    try:
        after: Hashable = called(step, state, label)
    except Exception as error:
        raise InputError(
            f"step failed on state {shown(state)} and label {label}: {type(error).__name__}: {error}. "
            "It must return a hashable state, or None where the label cannot follow"
        ) from error
    return after


def accepted(accept: Accept, state: Hashable) -> Hashable:
    """The target of a sample that ends in a state, or an error that names the state."""
    try:
        target: Hashable = called(accept, state)
    except Exception as error:
        raise InputError(
            f"accept failed on state {shown(state)}: {type(error).__name__}: {error}. "
            "It must return a hashable target, or None where a sample cannot end"
        ) from error
    return target


def _check_budget(arcs: int, depth: int, deepest: int, budget: int) -> None:
    if arcs > budget:
        raise BudgetError(
            f"the state machine has more than {arcs:,} arcs after {depth} of {deepest} slots, over the budget of "
            f"{budget:,}. Let states that behave alike be equal, narrow the slots with domains=, raise budget= if "
            "memory and time allow, or search with clipper.candidates.beam_search, which needs no lattice"
        )
