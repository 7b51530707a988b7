"""Construction of state graphs: from a rule's steps, targets and lengths, or from listed candidates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from clipper.arguments import one_of, shown
from clipper.candidates.base import Impossible
from clipper.candidates.kinds import Kind, kind_of_label
from clipper.candidates.rules import Machine, Step
from clipper.candidates.state_graph import StateGraph, trimmed
from clipper.candidates.table import Candidates
from clipper.candidates.task import numbered, read_task
from clipper.errors import BudgetError, InputError

BUDGET = 5_000_000
"""Default limit of the arcs that `Lattice.from_rule` follows."""


def state_graph_of(
    machine: Machine,
    targets: Sequence[Hashable] | Tensor,
    slots: int | Sequence[int],
    kinds: tuple[Kind, ...],
    domains: Sequence[Sequence[int]] | None,
    budget: int,
    impossible: Impossible = "refuse",
) -> tuple[StateGraph, Tensor]:
    """The graph of all distinct pairs of length and target, and the pair of each sample, `(n,)`.

    Args:
        machine: the rule as a state machine.
        targets: the target of each sample.
        slots: how many labels the machine reads; a list for samples of different lengths.
        kinds: the kinds of label.
        domains: the labels that each slot may have; all labels if None.
        budget: the largest number of arcs.
        impossible: "refuse" a target that no labels satisfy, or "keep" its sample without candidates.

    Raises:
        InputError: if no labels give the target of a sample, or the machine fails.
        BudgetError: if there are more arcs than the budget.
    """
    one_of(impossible, "impossible", get_args(Impossible))
    wanted, lengths, taken = read_task(targets, slots, domains, kinds[-1].stop, budget)
    pairs = list(zip(lengths, wanted, strict=True))
    templates, template = numbered(pairs)
    graph = expand(machine, templates, taken, kinds[-1].stop, budget)
    if impossible == "refuse":
        _check_attained(graph, pairs, template)
    return graph, template


def kind_of_slots(graph: StateGraph, kinds: tuple[Kind, ...]) -> Tensor:
    """The kind of label in each slot of each template, `(templates, m)`; -1 where the slot is unused."""
    if len(kinds) == 1:
        used = torch.arange(graph.slots, device=graph.lengths.device) < graph.lengths[:, None]
        return used.long() - 1
    kind = kind_of_label(torch.arange(graph.classes, device=graph.lengths.device), kinds)  # (c,)
    lowest = torch.where(graph.support, kind, len(kinds)).amin(2)
    highest = torch.where(graph.support, kind, -1).amax(2)
    mixed = (lowest < highest).nonzero()
    if len(mixed):
        template, slot = (int(i) for i in mixed[0])
        raise InputError(
            f"slot {slot} holds labels of different kinds in different candidates of the target "
            f"{shown(graph.targets[template])}; one classifier reads a slot: narrow the slot with domains="
        )
    if graph.complete:
        return highest
    first = torch.stack([kind[layer.labels[0]] for layer in graph.layers])  # for templates without candidates
    used = torch.arange(graph.slots, device=first.device) < graph.lengths[:, None]
    return torch.where(graph.attained[:, None] | ~used, highest, first)


def _check_attained(graph: StateGraph, pairs: Sequence[tuple[int, Hashable]], template: Tensor) -> None:
    missing = (~graph.attained[template]).nonzero()
    if len(missing):
        sample = int(missing[0])
        length, target = pairs[sample]
        raise InputError(
            f"sample {sample}: no labels of {length} slots give the target {shown(target)}; "
            "correct the target, leave the sample out, or keep it without candidates with impossible='keep'"
        )


def expand(
    machine: Machine,
    templates: Sequence[tuple[int, Hashable]],
    domains: Sequence[Sequence[int]],
    classes: int,
    budget: int = BUDGET,
) -> StateGraph:
    """The states on a path from the start to one of the templates, which are pairs of length and target.

    Examples:
        >>> from clipper.candidates.rules import SUM
        >>> graph = expand(SUM, [(2, 1)], [range(3)] * 2, 3)
        >>> graph.sizes, graph.arcs  # from 0 by 0 or 1 to 0 or 1, from there to 1
        ((1, 2, 1), 4)
    """
    place: dict[tuple[int, Hashable], int] = {template: i for i, template in enumerate(templates)}
    deepest, arcs = len(domains), 0
    states: list[Hashable] = [machine.start]
    tables: list[Tensor] = []
    ends = [torch.full((1,), -1)]
    for depth, domain in enumerate(domains, start=1):
        arcs += len(states) * len(domain)
        if arcs > budget:
            raise BudgetError(
                f"the state machine has more than {arcs:,} arcs after {depth} of {deepest} slots, over the budget of "
                f"{budget:,}. Make states with the same continuations equal, narrow the slots with domains=, "
                "raise budget= if memory and time allow, or use clipper.candidates.beam_search, which needs no lattice"
            )
        table, states = _one_slot(states, machine.step, domain)
        ending = [place.get((depth, machine.accept(state)), -1) for state in states]
        if depth == deepest:  # nothing follows: merge all states with the same target
            table, states, ending = _merged_ends(table, states, ending)
        tables.append(table)
        ends.append(torch.tensor(ending, dtype=torch.long))
    labels = [torch.tensor(list(domain), dtype=torch.long) for domain in domains]
    layers, kept = trimmed(labels, tables, ends)
    lengths = torch.tensor([length for length, _ in templates])
    return StateGraph(tuple(layers), tuple(kept), tuple(target for _, target in templates), lengths, classes)


def _one_slot(states: list[Hashable], step: Step, domain: Sequence[int]) -> tuple[Tensor, list[Hashable]]:
    """The index of the state after each state and label, `(states, a)`, -1 for a dead end; and these states."""
    place: dict[Hashable, int] = {}
    rows = []
    for state in states:
        reached = [step(state, label) for label in domain]
        rows.append([-1 if after is None else place.setdefault(after, len(place)) for after in reached])
    return torch.tensor(rows, dtype=torch.long).reshape(len(states), len(domain)), list(place)


def _merged_ends(table: Tensor, states: list[Hashable], ending: list[int]) -> tuple[Tensor, list[Hashable], list[int]]:
    used = sorted({end for end in ending if end >= 0})
    place = {end: i for i, end in enumerate(used)}
    number = torch.tensor([*(place.get(end, -1) for end in ending), -1])  # the last entry is for dead ends
    return number[table], [states[ending.index(end)] for end in used], used


def templates_of(candidates: Candidates) -> tuple[Tensor, Tensor]:
    """The formula of each sample, `(n,)`, numbered by first appearance, and the first sample of each, `(templates,)`.

    Samples have the same formula if they list the same candidates in the same order.

    Examples:
        >>> candidates = Candidates.from_lists([[(1,)], [(0,), (1,)], [(1,)], [(1,), (0,)]], classes=2)
        >>> [part.tolist() for part in templates_of(candidates)]
        [[0, 1, 0, 2], [0, 1, 3]]
    """
    rows, bounds = candidates.labels.cpu().numpy(), candidates.offsets.tolist()
    _, template = numbered(rows[first:last].tobytes() for first, last in pairwise(bounds))
    firsts = np.unique(template.numpy(), return_index=True)[1]
    return template.to(candidates.device), torch.from_numpy(firsts).to(candidates.device)


def condensed(listed: Candidates) -> StateGraph | None:
    """The smallest graph with a template for each of the samples; None if two of them share a candidate.

    Two prefixes of candidates are one state if the same suffixes lead from them to the same templates. States are
    merged from the last slot to the first, so that the next states are known.

    Examples:
        >>> graph = condensed(Candidates.from_rule(max, targets=[0, 1, 2], slots=3, classes=3))
        >>> graph.sizes, graph.arcs  # a state for each value of the largest label so far
        ((1, 3, 3, 3), 21)
    """
    device, listed = listed.device, listed.to("cpu")  # reading the size of every layer from a GPU would block
    rows, place = torch.unique(listed.labels.long(), dim=0, return_inverse=True)
    if len(rows) < len(listed):
        return None
    template = torch.empty_like(place).scatter_(0, place, listed.sample)  # (Ω,)
    tables, ends = _merged_prefixes(rows, template, listed.classes)
    taken = [(table >= 0).any(0) for table in tables]
    labels = [some.nonzero()[:, 0] for some in taken]
    layers, kept = trimmed(labels, [table[:, some] for table, some in zip(tables, taken, strict=True)], ends)
    lengths = (listed.first >= 0).sum(1)
    return StateGraph(tuple(layers), tuple(kept), tuple(range(listed.samples)), lengths, listed.classes).to(device)


def _merged_prefixes(rows: Tensor, template: Tensor, classes: int) -> tuple[list[Tensor], list[Tensor]]:
    """For each slot, the next state of each state and label, `(states, c)`; for each depth, the end of each state.

    Args:
        rows: all candidates in lexicographic order, `(Ω, m)`.
        template: the template of each candidate, `(Ω,)`.
        classes: the number of labels, `c`.
    """
    slots, lengths = rows.shape[1], (rows >= 0).sum(1)
    differs = (rows[1:] != rows[:-1]).cumsum(1) > 0  # whether the prefix differs from that of the row before
    prefix = pad(differs, (1, 0, 1, 0)).cumsum(0)  # (Ω, m+1): the number of each row's prefix, at each depth
    state = torch.zeros_like(template)
    states: list[Tensor] = []
    for depth in reversed(range(slots + 1)):
        table = rows.new_full((int(prefix[-1, depth]) + 1, classes + 1), -1)
        ending, going = lengths == depth, lengths > depth
        table[prefix[ending, depth], classes] = template[ending]
        if depth < slots:
            table[prefix[going, depth], rows[going, depth]] = state[going]
        merged, number = torch.unique(table, dim=0, return_inverse=True)
        state = number[prefix[:, depth]]
        states.insert(0, merged)
    return [table[:, :classes] for table in states[:-1]], [table[:, classes] for table in states]
