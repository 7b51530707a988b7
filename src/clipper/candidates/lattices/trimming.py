"""Trimming: without the states from which no wanted template can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from clipper.candidates.lattices.graph import Layer, StateGraph


def trimmed(
    labels: Sequence[Tensor], tables: Sequence[Tensor], ends: Sequence[Tensor]
) -> tuple[list[Layer], list[Tensor]]:
    """The layers and ends of the states that lead to an end.

    Args:
        labels: those of each slot, `(a,)`.
        tables: for each slot, where each label leads from each state, `(states, a)`; -1 for nowhere.
        ends: for each depth 0 … m, the template that ends in a state, `(states,)`; -1 for none.
    """
    alive = ends[-1] >= 0
    kept, layers = [ends[-1][alive]], []
    for table, own_ends, own_labels in zip(reversed(tables), reversed(ends[:-1]), reversed(labels), strict=True):
        number = torch.where(alive, alive.cumsum(0) - 1, alive.sum())
        number = torch.cat([number, alive.sum()[None]])  # for -1, nowhere
        following = number[table]  # (states, a)
        alive = (own_ends >= 0) | (following < number[-1]).any(1)
        layers.append(Layer(own_labels, following[alive].contiguous()))
        kept.append(own_ends[alive])
    return layers[::-1], kept[::-1]


def only(graph: StateGraph, templates: Tensor) -> StateGraph:
    """The part of a graph that leads to the given templates `(t,)`, which are counted anew.

    Examples:
        >>> from clipper.candidates.lattices.expansion import expand
        >>> graph = expand(0, lambda a, b: a + b, lambda a: a, [(2, 0), (2, 1), (2, 4)], [range(3)] * 2, 3)
        >>> graph.sizes, only(graph, torch.tensor([1])).sizes
        ((1, 3, 3), (1, 2, 1))
    """
    place = torch.full((len(graph.targets) + 1,), -1, device=templates.device)  # the last for -1, none
    place[templates] = torch.arange(len(templates), device=templates.device)
    tables = [
        torch.where(layer.next < behind, layer.next, -1)
        for layer, behind in zip(graph.layers, graph.sizes[1:], strict=True)
    ]
    layers, ends = trimmed([layer.labels for layer in graph.layers], tables, [place[own] for own in graph.ends])
    return replace(
        graph,
        layers=tuple(layers),
        ends=tuple(ends),
        targets=tuple(graph.targets[i] for i in templates.tolist()),
        lengths=graph.lengths[templates],
    )
