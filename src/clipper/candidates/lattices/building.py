"""From a caller's targets, lengths and domains to the graph that all samples share, with the checks at the door."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from clipper.arguments import shown, whole_number
from clipper.candidates.checks import check_longest, domains_of_slots, targets_and_lengths
from clipper.candidates.kinds import Kind, kind_of_label
from clipper.candidates.lattices.expansion import Accept, Step, expand
from clipper.candidates.lattices.graph import StateGraph
from clipper.errors import InputError


def graph_of(
    start: Hashable,
    step: Step,
    accept: Accept,
    targets: Sequence[Hashable] | Tensor,
    slots: int | Sequence[int],
    kinds: tuple[Kind, ...],
    domains: Sequence[Sequence[int]] | None,
    budget: int,
) -> tuple[StateGraph, Tensor]:
    """The graph of all distinct pairs of length and target, and which of them each sample has, `(n,)`."""
    wanted, lengths = targets_and_lengths(targets, slots)
    check_longest(max(lengths), whole_number(budget, "budget", least=0))
    pairs = list(zip(lengths, wanted, strict=True))
    templates = list(dict.fromkeys(pairs))
    taken = domains_of_slots(domains, max(lengths), kinds[-1].stop)
    graph = expand(start, step, accept, templates, taken, kinds[-1].stop, budget)
    place = {template: i for i, template in enumerate(templates)}
    template = torch.tensor([place[pair] for pair in pairs])
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
            f"{shown(graph.targets[template])}; a slot is read by one classifier: narrow it with domains="
        )
    return highest


def _check_attained(graph: StateGraph, pairs: Sequence[tuple[int, Hashable]], template: Tensor) -> None:
    attained = torch.zeros(len(graph.targets) + 1, dtype=torch.bool)
    for ends in graph.ends:
        attained[ends] = True  # -1 marks the last entry, which nobody asks for
    missing = (~attained[template]).nonzero()
    if len(missing):
        sample = int(missing[0])
        length, target = pairs[sample]
        raise InputError(
            f"sample {sample}: no labels of {length} slots give the target {shown(target)}; "
            "correct the target, or leave the sample out"
        )
