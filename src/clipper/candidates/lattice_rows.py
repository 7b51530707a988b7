"""Rows of labels from a state graph: the best, random ones or all; and whether given rows are candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clipper.arguments import widened
from clipper.candidates.base import check_nonempty
from clipper.candidates.lattice_sums import centred, log_behind
from clipper.candidates.packed import chosen, equal_rows
from clipper.candidates.state_graph import StateGraph, viable

if TYPE_CHECKING:
    from clipper.candidates.lattice import Lattice

_CELLS = 1 << 23
"""Largest number of draws times labels held at a time."""


def best(graph: StateGraph, template: Tensor, logs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The labels of each sample's `k` best candidates, `(rows, m)`, best first, and their samples, `(rows,)`.

    Args:
        graph: the states of the rule.
        template: the template (target and length) of each sample, `(n,)`.
        logs: the logarithm of each label's weight, `(n, m, c)`; -inf where it is forbidden.
        k: how many.
    """
    scores, choices = _ways(graph, template, logs.permute(1, 2, 0), k)
    sample, rank = (scores[0] > -torch.inf).T.nonzero(as_tuple=True)  # of (n, k)
    return _traced(graph, template, choices, scores.shape[1])[sample, rank], sample


def _ways(graph: StateGraph, template: Tensor, columns: Tensor, k: int) -> tuple[Tensor, list[Tensor]]:
    """The scores of the best paths from the start, `(1, k, n)`, and each state's choices, `(states, k, n)` per slot.

    A choice is encoded as a number: the index of the label in its layer, times the number of paths kept at the next
    state, plus the index of the path there.
    """
    choices: list[Tensor] = []
    scores = torch.where(graph.ending(graph.slots, template), 0.0, -torch.inf).to(columns)[:, None]  # (states, 1, n)
    for depth in reversed(range(graph.slots)):
        padded = torch.nn.functional.pad(scores, (0, 0, 0, 0, 0, 1), value=-torch.inf)
        arcs = graph.at_next(depth, padded) + graph.at_labels(depth, columns)[:, None]  # (states, a, ways, n)
        scores, choice = arcs.flatten(1, 2).topk(min(k, arcs.shape[1] * arcs.shape[2]), dim=1)
        if depth in graph.depths:
            ending = graph.ending(depth, template)
            scores[:, 0] = torch.where(ending, 0, scores[:, 0])
        choices.insert(0, choice)
    return scores, choices


def _traced(graph: StateGraph, template: Tensor, choices: list[Tensor], k: int) -> Tensor:
    """The labels on the best paths, `(n, k, m)`; -1 in unused slots."""
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


def draw(
    graph: StateGraph, template: Tensor, logs: Tensor, behind: list[Tensor], column: Tensor, generator: torch.Generator
) -> Tensor:
    """One candidate for each entry of `column (d,)`, with probability ∝ the product of its weights, `(d, m)`.

    Args:
        graph: the states of the rule.
        template: the template (target and length) of each of `n` columns, `(n,)`.
        logs: the logarithm of each label's weight, `(n, m, c)`; every column has a possible candidate.
        behind: the result of `log_behind` for these.
        column: the column of each draw.
        generator: a generator on the CPU, so that a seed gives the same draws on every device.
    """
    state = torch.zeros_like(column)
    length = graph.lengths[template][column]
    noise = torch.rand(graph.slots, len(column), generator=generator, dtype=torch.float64).to(logs)
    labels = []
    for depth, layer in enumerate(graph.layers):
        following = layer.next.index_select(0, state)  # (d, a)
        weight = logs[:, depth].index_select(1, layer.labels).index_select(0, column)  # (d, a)
        share = (weight + behind[depth + 1][following, column[:, None]]).softmax(1)
        arc = chosen(share, noise[depth])[:, None]  # past the end, shares are NaN and the arc does not matter
        labels.append(torch.where(depth < length, layer.labels[arc[:, 0]], -1))
        state = following.gather(1, arc)[:, 0].clamp(max=graph.sizes[depth + 1] - 1)  # past the end, any will do
    return torch.stack(labels, dim=1)


def drawn(lattice: Lattice, draws: int, generator: torch.Generator, logs: Tensor | None) -> tuple[Tensor, Tensor]:
    """Draw `draws` candidates of each sample with replacement, and keep each different one once.

    Args:
        lattice: the candidates.
        draws: how many to draw of each sample.
        generator: the random generator.
        logs: the logarithm of each label's weight, `(n, m, c)`; uniform if None.

    Returns:
        `labels (rows, m)` and `sample (rows,)`, ascending.
    """
    largest = max(1, _CELLS // (draws * lattice.classes))
    parts = []
    for ids in torch.split(torch.arange(lattice.samples, device=lattice.device), largest):
        for part in lattice.graph.pieces(len(ids)):
            labels, sample = _piece(lattice, ids[part], draws, generator, logs)
            keep = equal_rows(labels, sample)[1].sort().values
            parts.append((labels[keep], sample[keep]))
    return torch.cat([labels for labels, _ in parts]), torch.cat([sample for _, sample in parts])


def _piece(
    lattice: Lattice, ids: Tensor, draws: int, generator: torch.Generator, logs: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The draws of the samples `ids (n,)`. If only the template matters, samples with one template share a column."""
    template, column = lattice.template[ids], torch.arange(len(ids), device=ids.device)
    if logs is None and lattice.shared:
        template, column = torch.unique(template, return_inverse=True)
        weights = widened(torch.zeros(len(template), lattice.slots, lattice.graph.classes, device=ids.device))
    else:
        weights = lattice.weights(logs, ids)
    weights, _ = centred(lattice.graph, template, weights)
    behind = log_behind(lattice.graph, template, weights)
    ruled_out = behind[0][0] == -torch.inf
    if logs is not None and bool(ruled_out.any()):  # the classifier rules out all candidates: draw uniformly
        weights[ruled_out] = lattice.weights(None, ids[ruled_out])
        behind = log_behind(lattice.graph, template, weights)
        ruled_out = behind[0][0] == -torch.inf
    check_nonempty((~ruled_out).long())
    labels = draw(lattice.graph, template, weights, behind, column.repeat_interleave(draws), generator)
    sample = ids.repeat_interleave(draws)
    return lattice.outward(labels, sample), sample


def listed(graph: StateGraph, template: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Every candidate: `labels (Ω, m)` in lexicographic order per sample, and `sample (Ω,)`, ascending.

    Args:
        graph: the states of the rule.
        template: the template (target and length) of each sample, `(n,)`.
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
        options[:, 0] |= ~used  # a row past its end is kept as it is
        row, arc = options.nonzero(as_tuple=True)
        label = torch.where(used[row], layer.labels[arc], -1)
        labels = torch.cat([labels.index_select(0, row), label[:, None]], dim=1)
        sample = sample.index_select(0, row)
        state = following[row, arc].clamp(max=graph.sizes[depth + 1] - 1)  # past the end, any state will do
    return labels, sample


def followed(graph: StateGraph, template: Tensor, labels: Tensor) -> Tensor:
    """Whether `labels (n, m)` lead each sample to its end, `(n,)` bool; unused slots are ignored."""
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
