"""Which states and labels lie on a way from the start to a sample's end: the lattice trimmed from both sides."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates.lattices.graph import StateGraph


def viable(graph: StateGraph, template: Tensor, columns: Tensor) -> list[Tensor]:
    """The states from which each sample can still end, `(states + 1, n)` bool for each depth; never in a dead end.

    Args:
        graph: the states of the rule.
        template: which target and length each sample has, `(n,)`.
        columns: the labels that each slot may take, `(m, c, n)` bool.
    """
    result = [_padded(graph.ending(graph.slots, template))]
    for depth in reversed(range(graph.slots)):
        states = (_following(graph, depth, result[0]) & _allowed(graph, depth, columns)).any(1)
        if depth in graph.depths:
            states = states | graph.ending(depth, template)
        result.insert(0, _padded(states))
    return result


def support(graph: StateGraph, template: Tensor, columns: Tensor) -> Tensor:
    """The labels that each slot takes in some candidate, `(n, m, c)` bool; arguments as for `viable`."""
    behind = viable(graph, template, columns)
    result = torch.zeros_like(columns)
    reached = behind[0][:1]  # (states, n)
    for depth, (layer, size) in enumerate(zip(graph.layers, graph.sizes[1:], strict=True)):
        arcs = reached[:, None] & _following(graph, depth, behind[depth + 1]) & _allowed(graph, depth, columns)
        result[depth].index_copy_(0, layer.labels, arcs.any(0))
        ways = torch.zeros(size + 1, columns.shape[2], device=columns.device)
        ways.index_add_(0, layer.next.view(-1), arcs.view(-1, columns.shape[2]).to(ways.dtype))
        reached = ways[:size] > 0
    return result.permute(2, 0, 1)


def template_support(graph: StateGraph) -> Tensor:
    """The support of every template where nothing is restricted, `(templates, m, c)` bool."""
    every = torch.arange(len(graph.targets), device=graph.lengths.device)
    columns = torch.ones(graph.slots, graph.classes, len(every), dtype=torch.bool, device=every.device)
    return torch.cat([support(graph, every[part], columns[..., part]) for part in graph.pieces(len(every))])


def _following(graph: StateGraph, depth: int, behind: Tensor) -> Tensor:
    """What `behind (states + 1, n)` says of the state that each arc leads to, `(states, a, n)`."""
    table = graph.layers[depth].next
    return behind.index_select(0, table.view(-1)).view(*table.shape, -1)


def _allowed(graph: StateGraph, depth: int, columns: Tensor) -> Tensor:
    return columns[depth].index_select(0, graph.layers[depth].labels)  # (a, n)


def _padded(states: Tensor) -> Tensor:
    return torch.nn.functional.pad(states, (0, 0, 0, 1))
