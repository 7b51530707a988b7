"""The layered graph of a rule's states: one graph for all targets, lengths and samples."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

BITS = 38
"""Bits of a word in large counts, so that 2^25 words can be added before a carry."""
_CELLS = 1 << 23
"""Largest number of arcs times samples held at a time."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The arcs of one slot: each leads from a state before the slot, by a label, to a state after the slot.

    Attributes:
        labels: `(a,)`: the labels that the slot may take, ascending.
        next: `(states, a)`: the index of the next state; the number of states after the slot marks a dead end.
    """

    labels: Tensor
    next: Tensor


@dataclass(frozen=True, eq=False)
class StateGraph:
    """All states that lead from the start to one of the **templates**, the distinct pairs of length and target.

    Attributes:
        layers: one for each of the `m` slots.
        ends: for each depth 0 … m, `(states,)`: the template that ends in a state; -1 for none.
        targets: the target of each template.
        lengths: `(templates,)`: how many slots each template has.
        classes: the length of the label axis, `c`.
    """

    layers: tuple[Layer, ...]
    ends: tuple[Tensor, ...]
    targets: tuple[Hashable, ...]
    lengths: Tensor
    classes: int

    @property
    def slots(self) -> int:
        """The slots of the longest template, `m`."""
        return len(self.layers)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many states there are at each depth."""
        return tuple(len(ends) for ends in self.ends)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The depths at which some template ends."""
        return tuple(sorted(set(self.lengths.tolist())))

    @cached_property
    def states(self) -> int:
        """How many states there are in all."""
        return sum(self.sizes)

    @property
    def arcs(self) -> int:
        """How many arcs there are in all, without dead ends."""
        alive = [(layer.next < size).sum() for layer, size in zip(self.layers, self.sizes[1:], strict=True)]
        return int(torch.stack(alive).sum())

    @cached_property
    def widest(self) -> int:
        """The largest number of arcs in a layer, which determines the memory of a pass."""
        return max(layer.next.numel() for layer in self.layers)

    @cached_property
    def attained(self) -> Tensor:
        """`(templates,)` bool: whether a template has a candidate."""
        reached = torch.zeros(len(self.targets) + 1, dtype=torch.bool, device=self.lengths.device)
        for ends in self.ends:
            reached[ends] = True  # -1 marks the extra last entry
        return reached[:-1]

    @cached_property
    def complete(self) -> bool:
        """Whether every template has a candidate."""
        return bool(self.attained.all())

    @cached_property
    def support(self) -> Tensor:
        """The labels that each slot of a template takes in some candidate, `(templates, m, c)` bool."""
        every = torch.arange(len(self.targets), device=self.lengths.device)
        columns = torch.ones(self.slots, self.classes, len(every), dtype=torch.bool, device=every.device)
        return torch.cat([supported_labels(self, every[p], columns[..., p]) for p in self.pieces(len(every))])

    @cached_property
    def counts(self) -> Tensor:
        """The number of candidates of each template, `(templates, words)`, in words as from `count_ways`."""
        columns = torch.ones(self.slots, self.classes, 1, dtype=torch.bool, device=self.lengths.device)
        total = self.lengths.new_zeros(len(self.targets) + 1, words_for(self))
        for depth, ways in _ways_to(self, columns):  # one pass is enough for all templates
            total.index_add_(0, self.ends[depth] % len(total), ways[:, 0])  # the last row: states that are no end
        return _carried(total[:-1])

    def ending(self, depth: int, template: Tensor) -> Tensor:
        """The states at a depth in which samples of the given `template (n,)` end, `(states, n)` bool."""
        return self.ends[depth][:, None] == template

    def at_next(self, depth: int, behind: Tensor) -> Tensor:
        """The entries of `behind (states + 1, …)` for the state that each arc at a depth leads to, `(states, a, …)`."""
        table = self.layers[depth].next
        return behind.index_select(0, table.view(-1)).view(*table.shape, *behind.shape[1:])

    def at_labels(self, depth: int, columns: Tensor) -> Tensor:
        """The entries of `columns (m, c, n)` for the labels of the arcs at a depth, `(a, n)`."""
        return columns[depth].index_select(0, self.layers[depth].labels)

    @cached_property
    def following(self) -> tuple[Tensor, ...]:
        """For each layer, `(states * a,)`: the next state of each arc, numbered over all depths; `states` if dead."""
        result, first = [], 0
        for layer, size, behind in zip(self.layers, self.sizes, self.sizes[1:], strict=False):
            first += size
            result.append(torch.where(layer.next < behind, layer.next + first, self.states).view(-1))
        return tuple(result)

    @cached_property
    def last(self) -> Tensor:
        """`(templates,)`: the single state in which each template of full length ends; 0 for one without candidates."""
        result = self.lengths.new_zeros(len(self.lengths) + 1)  # the last entry is for states that are no end, -1
        result[self.ends[-1]] = torch.arange(self.sizes[-1], device=result.device)
        return result[:-1]

    @cached_property
    def ragged(self) -> bool:
        """Whether templates differ in length."""
        return self.depths != (self.slots,)

    def pieces(self, columns: int, each: int = 1) -> list[slice]:
        """Ranges of columns to process together, which bounds the memory; `each` numbers per column."""
        size = max(1, _CELLS // (self.widest * each))
        return [slice(first, min(first + size, columns)) for first in range(0, max(1, columns), size)]

    def to(self, device: torch.device | str) -> StateGraph:
        """The same graph on another device."""
        moved = replace(
            self,
            layers=tuple(Layer(layer.labels.to(device), layer.next.to(device)) for layer in self.layers),
            ends=tuple(ends.to(device) for ends in self.ends),
            lengths=self.lengths.to(device),
        )
        moved.__dict__.update(depths=self.depths, complete=self.complete)
        return moved


def viable(graph: StateGraph, template: Tensor, columns: Tensor) -> list[Tensor]:
    """The states from which each sample can reach its end, `(states + 1, n)` bool for each depth; false for dead ends.

    Args:
        graph: the states of the rule.
        template: the template (target and length) of each sample, `(n,)`.
        columns: the labels that each slot may take, `(m, c, n)` bool.
    """
    result = [pad(graph.ending(graph.slots, template), (0, 0, 0, 1))]
    for depth in reversed(range(graph.slots)):
        states = (graph.at_next(depth, result[0]) & graph.at_labels(depth, columns)).any(1)
        if depth in graph.depths:
            states = states | graph.ending(depth, template)
        result.insert(0, pad(states, (0, 0, 0, 1)))
    return result


def supported_labels(graph: StateGraph, template: Tensor, columns: Tensor) -> Tensor:
    """The labels that each slot takes in some candidate, `(n, m, c)` bool; arguments as for `viable`."""
    behind = viable(graph, template, columns)
    result = torch.zeros_like(columns)
    reached = behind[0][:1]  # (states, n)
    for depth, (layer, size) in enumerate(zip(graph.layers, graph.sizes[1:], strict=True)):
        arcs = reached[:, None] & graph.at_next(depth, behind[depth + 1]) & graph.at_labels(depth, columns)
        result[depth].index_copy_(0, layer.labels, arcs.any(0))
        ways = torch.zeros(size + 1, columns.shape[2], device=columns.device)
        ways.index_add_(0, layer.next.view(-1), arcs.flatten(0, 1).to(ways.dtype))
        reached = ways[:size] > 0
    return result.permute(2, 0, 1)


def weights_of(layers: tuple[Layer, ...], table: Tensor) -> list[Tensor]:
    """The weights of the labels of each layer, `(a, n)` each, from a `table (m, c, n)`."""
    whole = table.shape[1]
    return [
        row if len(layer.labels) == whole else row.index_select(0, layer.labels)
        for row, layer in zip(table.unbind(0), layers, strict=True)
    ]


def count_ways(graph: StateGraph, template: Tensor, columns: Tensor) -> Tensor:
    """The number of candidates of each sample, `(n, words)`, the lowest word first, each word below 2^38.

    Args:
        graph: the states of the rule.
        template: the template (target and length) of each sample, `(n,)`.
        columns: the labels that each slot may take, `(m, c, n)` bool.
    """
    total = torch.zeros(columns.shape[2], words_for(graph), dtype=torch.long, device=columns.device)
    for depth, ways in _ways_to(graph, columns):
        if depth in graph.depths:
            total += (ways * graph.ending(depth, template)[..., None]).sum(0)
    return _carried(total)


def _ways_to(graph: StateGraph, columns: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each depth, and the number of paths to its states, `(states, n, words)`; `columns (m, c, n)` as for `viable`."""
    ways = torch.zeros(1, columns.shape[2], words_for(graph), dtype=torch.long, device=columns.device)
    ways[..., 0] = 1
    weights = weights_of(graph.layers, columns.long())
    for depth, (layer, weight) in enumerate(zip(graph.layers, weights, strict=True), start=1):
        arcs = (ways[:, None] * weight[..., None]).flatten(0, 1)  # (states * a, n, words)
        reached = ways.new_zeros(graph.sizes[depth] + 1, *ways.shape[1:])
        ways = _carried(reached.index_add_(0, layer.next.view(-1), arcs)[:-1])
        yield depth, ways


def words_for(graph: StateGraph) -> int:
    """The number of words that any count of this graph needs."""
    return math.ceil(sum(math.log2(len(layer.labels)) for layer in graph.layers) / BITS) + 1


def integers_of(words: Tensor) -> list[int]:
    """Python's integers from `words (n, words)`.

    Examples:
        >>> integers_of(torch.tensor([[3, 0], [1, 2]])) == [3, 2 * 2**38 + 1]
        True
    """
    return [sum(word << (BITS * i) for i, word in enumerate(row)) for row in words.tolist()]


def _carried(words: Tensor) -> Tensor:
    """The same numbers with every word below 2^38."""
    for i in range(words.shape[-1] - 1):
        words[..., i + 1] += words[..., i] >> BITS
        words[..., i] &= (1 << BITS) - 1
    return words


def trimmed(
    labels: Sequence[Tensor], tables: Sequence[Tensor], ends: Sequence[Tensor]
) -> tuple[list[Layer], list[Tensor]]:
    """The layers and ends of the states that lead to an end. A depth without such a state keeps one dead end.

    Args:
        labels: the labels of each slot, `(a,)`.
        tables: for each slot, the next state of each state and label, `(states, a)`; -1 or the number of next states
            for a dead end.
        ends: for each depth 0 … m, the template that ends in a state, `(states,)`; -1 for none.
    """
    alive = ends[-1] >= 0
    kept, layers = [_chosen_rows(ends[-1], alive, -1)], []
    for table, own_ends, own_labels in zip(reversed(tables), reversed(ends[:-1]), reversed(labels), strict=True):
        nowhere = len(kept[-1])
        number = torch.nn.functional.pad(torch.where(alive, alive.cumsum(0) - 1, nowhere), (0, 1), value=nowhere)
        following = number[table]  # (states, a)
        alive = (own_ends >= 0) | (following < nowhere).any(1)
        layers.append(Layer(own_labels, _chosen_rows(following, alive, nowhere)))
        kept.append(_chosen_rows(own_ends, alive, -1))
    return layers[::-1], kept[::-1]


def _chosen_rows(rows: Tensor, chosen: Tensor, otherwise: int) -> Tensor:
    """The chosen rows; one row filled with `otherwise` if there are none."""
    found = rows[chosen].contiguous()
    return found if len(found) else rows.new_full((1, *rows.shape[1:]), otherwise)


def only(graph: StateGraph, templates: Tensor) -> StateGraph:
    """The part of a graph that leads to the given templates `(t,)`, which are renumbered from 0.

    Examples:
        >>> from clipper.candidates.graph_building import expand
        >>> from clipper.candidates.rules import SUM
        >>> graph = expand(SUM, [(2, 0), (2, 1), (2, 4)], [range(3)] * 2, 3)
        >>> graph.sizes, only(graph, torch.tensor([1])).sizes
        ((1, 3, 3), (1, 2, 1))
    """
    place = torch.full((len(graph.targets) + 1,), -1, device=templates.device)  # the last for -1, none
    place[templates] = torch.arange(len(templates), device=templates.device)
    labels, tables = zip(*((layer.labels, layer.next) for layer in graph.layers), strict=True)
    layers, ends = trimmed(labels, tables, [place[own] for own in graph.ends])
    return replace(
        graph,
        layers=tuple(layers),
        ends=tuple(ends),
        targets=tuple(graph.targets[i] for i in templates.tolist()),
        lengths=graph.lengths[templates],
    )
