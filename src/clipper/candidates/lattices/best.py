"""The k most probable candidates of each sample, exactly: the k best ways behind every state, from the end on."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates.lattices.graph import StateGraph


def best(graph: StateGraph, template: Tensor, logs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The labels of each sample's `k` best candidates, `(n, k, m)`, best first, and which there are, `(n, k)` bool.

    Args:
        graph: the states of the rule.
        template: which target and length each sample has, `(n,)`.
        logs: what each label weighs, `(n, m, c)`; -inf where it is forbidden.
        k: how many.
    """
    scores, choices = _ways(graph, template, logs.permute(1, 2, 0), k)
    found = (scores[0] > -torch.inf).T  # (n, k)
    return _followed(graph, template, choices, found.shape[1]), found


def _ways(graph: StateGraph, template: Tensor, columns: Tensor, k: int) -> tuple[Tensor, list[Tensor]]:
    """The scores of the best ways from the start, `(1, k, n)`, and each state's choices, `(states, k, n)` per slot.

    A choice is a number: the label's place in its layer, times the ways kept behind, plus which of these.
    """
    choices: list[Tensor] = []
    scores = torch.where(graph.ending(graph.slots, template), 0.0, -torch.inf).to(columns)[:, None]  # (states, 1, n)
    for depth in reversed(range(graph.slots)):
        layer = graph.layers[depth]
        padded = torch.nn.functional.pad(scores, (0, 0, 0, 0, 0, 1), value=-torch.inf)
        following = padded.index_select(0, layer.next.view(-1)).view(*layer.next.shape, *scores.shape[1:])
        arcs = following + columns[depth].index_select(0, layer.labels)[:, None]  # (states, a, ways, n)
        scores, choice = arcs.flatten(1, 2).topk(min(k, arcs.shape[1] * arcs.shape[2]), dim=1)
        if depth in graph.depths:
            ending = graph.ending(depth, template)
            scores[:, 0] = torch.where(ending, 0, scores[:, 0])
        choices.insert(0, choice)
    return scores, choices


def _followed(graph: StateGraph, template: Tensor, choices: list[Tensor], k: int) -> Tensor:
    """The labels on the best ways, `(n, k, m)`; -1 in unused slots."""
    samples = len(template)
    column = torch.arange(samples, device=template.device)[:, None]
    state = torch.zeros(samples, k, dtype=torch.long, device=template.device)
    way = torch.arange(k, device=template.device).expand(samples, k)
    length = graph.lengths[template][:, None]
    labels = []
    for depth, layer in enumerate(graph.layers):
        choice = choices[depth][state, way, column]  # (n, k)
        kept = choices[depth + 1].shape[1] if depth + 1 < len(choices) else 1
        arc, way = choice // kept, choice % kept
        labels.append(torch.where(depth < length, layer.labels[arc], -1))
        state = layer.next[state, arc].clamp(max=graph.sizes[depth + 1] - 1)  # past the end, any state will do
    return torch.stack(labels, dim=2)
