"""From a lattice to rows of labels and back: listing every candidate, and following given labels."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.reach import viable


def listed(graph: StateGraph, template: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Every candidate: `labels (Ω, m)` in lexicographic order per sample, and `sample (Ω,)`, ascending.

    Args:
        graph: the states of the rule.
        template: which target and length each sample has, `(n,)`.
        columns: the labels that each slot may take, `(m, c, n)` bool.
    """
    behind = viable(graph, template, columns)
    sample = torch.arange(len(template), device=template.device)
    state = torch.zeros_like(sample)
    labels = torch.empty(len(sample), 0, dtype=torch.long, device=sample.device)
    for depth, layer in enumerate(graph.layers):
        following = layer.next.index_select(0, state)  # (rows, a)
        options = behind[depth + 1][following, sample[:, None]]
        options &= columns[depth].index_select(0, layer.labels)[:, sample].T
        used = depth < graph.lengths[template][sample]
        options[:, 0] |= ~used  # a row that has ended goes on as it is
        row, arc = options.nonzero(as_tuple=True)
        label = torch.where(used[row], layer.labels[arc], -1)
        labels = torch.cat([labels.index_select(0, row), label[:, None]], dim=1)
        sample = sample.index_select(0, row)
        state = following[row, arc].clamp(max=graph.sizes[depth + 1] - 1)  # past the end, any state will do
    return labels, sample


def followed(graph: StateGraph, template: Tensor, labels: Tensor) -> Tensor:
    """Whether `labels (n, m)` lead each sample to its end, `(n,)` bool; unused slots are not looked at."""
    state = torch.zeros_like(template)
    ended = torch.zeros_like(template, dtype=torch.bool)
    for depth, layer in enumerate(graph.layers):
        place = torch.full((graph.classes + 1,), -1, device=labels.device)
        place[layer.labels] = torch.arange(len(layer.labels), device=labels.device)
        known = (labels[:, depth] >= 0) & (labels[:, depth] < graph.classes)
        arc = place[torch.where(known, labels[:, depth], graph.classes)]  # -1 where the slot cannot take the label
        dead = graph.sizes[depth + 1]
        table = torch.nn.functional.pad(layer.next, (0, 1, 0, 1), value=dead)  # a dead end leads to a dead end
        state = table[state, arc]
        ends = torch.nn.functional.pad(graph.ends[depth + 1], (0, 1), value=-1)[state]
        ended |= (ends == template) & (graph.lengths[template] == depth + 1)
    return ended
