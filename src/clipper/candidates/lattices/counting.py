"""Exact numbers of candidates, however large: whole numbers kept as a few words of 38 bits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.sums import weights_of

BITS = 38
"""Per word; so 2^25 of them can be added before a carry."""


def count(graph: StateGraph, template: Tensor, columns: Tensor) -> Tensor:
    """How many candidates each sample has, `(n, words)`, the lowest word first, no word above 2^38.

    Args:
        graph: the states of the rule.
        template: which target and length each sample has, `(n,)`.
        columns: the labels that each slot may take, `(m, c, n)` bool.
    """
    words = words_for(graph)
    samples = columns.shape[2]
    ways = torch.zeros(1, samples, words, dtype=torch.long, device=columns.device)
    ways[..., 0] = 1
    total = torch.zeros(samples, words, dtype=torch.long, device=columns.device)
    weights = weights_of(graph.layers, columns.long())
    for depth, (layer, weight) in enumerate(zip(graph.layers, weights, strict=True), start=1):
        arcs = (ways[:, None] * weight[..., None]).flatten(0, 1)  # (states * a, n, words)
        reached = ways.new_zeros(graph.sizes[depth] + 1, samples, words)
        ways = _carried(reached.index_add_(0, layer.next.view(-1), arcs)[:-1])
        if depth in graph.depths:
            total += (ways * graph.ending(depth, template)[..., None]).sum(0)
    return _carried(total)


def count_templates(graph: StateGraph) -> Tensor:
    """How many candidates each template has without any restriction, `(templates, words)`, as from `count`."""
    words = words_for(graph)
    ways = torch.zeros(1, words, dtype=torch.long, device=graph.lengths.device)
    ways[:, 0] = 1
    total = ways.new_zeros(len(graph.targets) + 1, words)
    for depth, layer in enumerate(graph.layers, start=1):
        reached = ways.new_zeros(graph.sizes[depth] + 1, words)
        arcs = ways.repeat_interleave(layer.next.shape[1], 0)
        ways = _carried(reached.index_add_(0, layer.next.view(-1), arcs)[:-1])
        total.index_add_(0, graph.ends[depth] % len(total), ways)  # what ends nowhere goes last
    return _carried(total[:-1])


def words_for(graph: StateGraph) -> int:
    """Words that hold any count of this graph."""
    return math.ceil(sum(math.log2(len(layer.labels)) for layer in graph.layers) / BITS) + 1


def whole_numbers(words: Tensor) -> list[int]:
    """Python's integers from `words (n, words)`.

    Examples:
        >>> whole_numbers(torch.tensor([[3, 0], [1, 2]])) == [3, 2 * 2**38 + 1]
        True
    """
    return [sum(word << (BITS * i) for i, word in enumerate(row)) for row in words.tolist()]


def _carried(words: Tensor) -> Tensor:
    """The same numbers with every word below 2^38."""
    for i in range(words.shape[-1] - 1):
        words[..., i + 1] += words[..., i] >> BITS
        words[..., i] &= (1 << BITS) - 1
    return words
