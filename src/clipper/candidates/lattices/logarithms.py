"""Probability on a lattice in logarithms: slower, and exact where a product of probabilities would underflow."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.reach import support

LOW = -1e6
"""Logarithms below this are centred first, because what is added to them would lose its digits."""


def log_behind(graph: StateGraph, template: Tensor, logs: Tensor) -> list[Tensor]:
    """The log of the summed weight of all ways from each state to the end, `(states + 1, n)` for each depth.

    The last row belongs to dead ends. Differentiable in the labels' weights, `logs (n, m, c)`.
    """
    columns = logs.permute(1, 2, 0)  # (m, c, n)
    dead = logs.new_full((1, len(logs)), -torch.inf)
    result = [torch.cat([torch.where(graph.ending(graph.slots, template), 0.0, -torch.inf).to(logs), dead])]
    for depth in reversed(range(graph.slots)):
        values = _log_sum(arcs_of(graph, depth, columns, result[0]))
        if depth in graph.depths:
            values = torch.where(graph.ending(depth, template), 0, values)
        result.insert(0, torch.cat([values, dead]))
    return result


def centred(graph: StateGraph, template: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """`logs (n, m, c)` with 0 as the best of each slot's labels that lie on a way, and what was taken off, `(n,)`.

    The posterior does not change: every candidate loses as much in a slot.
    """
    possible = logs.detach() != -torch.inf
    if not bool((logs.detach() < LOW).logical_and_(possible).any()):
        return logs, logs.new_zeros(len(logs))
    used = support(graph, template, possible.permute(1, 2, 0))
    peak = logs.detach().masked_fill(~used, -torch.inf).amax(2)  # (n, m)
    peak = peak.masked_fill(peak == -torch.inf, 0)
    return (logs - peak[..., None]).masked_fill(~used, -torch.inf), peak.sum(1)


def arcs_of(graph: StateGraph, depth: int, columns: Tensor, behind: Tensor) -> Tensor:
    """What each arc weighs with all that follows it, `(states, a, n)`, from `columns (m, c, n)`."""
    layer = graph.layers[depth]
    following = behind.index_select(0, layer.next.view(-1)).view(*layer.next.shape, -1)
    return following + columns[depth].index_select(0, layer.labels)


def _log_sum(arcs: Tensor) -> Tensor:
    """log Σ exp over dimension 1; -inf, with zero gradient, where all of it is -inf (`logsumexp` gives NaN there)."""
    nothing = (arcs == -torch.inf).all(1)
    return arcs.masked_fill(nothing[:, None], 0).logsumexp(1).masked_fill(nothing, -torch.inf)


def log_posterior(graph: StateGraph, template: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ_σ Π_j p(σ(j)), `(n,)`, and its gradient, the posterior of each label, `(n, m, c)`."""
    with torch.enable_grad():
        logs, shift = centred(graph, template, logs.detach())
        logs.requires_grad_()
        value = log_behind(graph, template, logs)[0][0]
        (posterior,) = torch.autograd.grad(value.sum(), logs)
    return value.detach() + shift, posterior


def log_entropy(graph: StateGraph, template: Tensor, logs: Tensor) -> Tensor:
    """The entropy of the posterior over each sample's candidates, `(n,)`; differentiable in `logs (n, m, c)`.

    From the end to the start: the entropy behind a state is that of its next label and what is left behind that.
    """
    logs, _ = centred(graph, template, logs)
    columns = logs.permute(1, 2, 0)
    behind = log_behind(graph, template, logs)
    entropy = logs.new_zeros(graph.sizes[-1] + 1, len(logs))
    for depth in reversed(range(graph.slots)):
        arcs = arcs_of(graph, depth, columns, behind[depth + 1])  # (states, a, n)
        never = arcs == -torch.inf
        choice = arcs.masked_fill(never.all(1, keepdim=True), 0).log_softmax(1).masked_fill(never, 0)
        later = entropy.index_select(0, graph.layers[depth].next.view(-1)).view_as(choice)
        values = (choice.exp() * (later - choice)).masked_fill(never, 0).sum(1)
        if depth in graph.depths:
            values = torch.where(graph.ending(depth, template), 0, values)
        entropy = torch.nn.functional.pad(values, (0, 0, 0, 1))
    return entropy[0]
