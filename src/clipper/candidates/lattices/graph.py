"""The layered graph of a rule's states: one for all targets, lengths and samples. Knows nothing of probabilities."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

_CELLS = 1 << 23
"""Arcs times samples held at a time."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The arcs of one slot: each leads from a state, by a label, to a state behind the slot."""

    labels: Tensor
    """`(a,)`: the labels that the slot may take, ascending."""
    next: Tensor
    """`(states, a)`: where each label leads; the number of states behind the slot stands for a dead end."""

    def to(self, device: torch.device | str) -> Layer:
        """The same arcs on another device."""
        return Layer(self.labels.to(device), self.next.to(device))


@dataclass(frozen=True, eq=False)
class StateGraph:
    """All states that lead from the start to one of the **templates**, the distinct pairs of length and target."""

    layers: tuple[Layer, ...]
    """One for each of the `m` slots."""
    ends: tuple[Tensor, ...]
    """For each depth 0 … m, `(states,)`: the template that ends in a state; -1 for none."""
    targets: tuple[Hashable, ...]
    """The target of each template."""
    lengths: Tensor
    """`(templates,)`: how many slots each template has."""
    classes: int
    """The length of the label axis, `c`."""

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
        """How many arcs there are in all, dead ends aside."""
        alive = (int((layer.next < size).sum()) for layer, size in zip(self.layers, self.sizes[1:], strict=True))
        return sum(alive)

    @cached_property
    def widest(self) -> int:
        """The largest number of arcs in a layer: what bounds the memory of a pass."""
        return max(layer.next.numel() for layer in self.layers)

    @cached_property
    def support(self) -> Tensor:
        """The labels that each slot of a template takes in some candidate, `(templates, m, c)` bool."""
        from clipper.candidates.lattices.reach import template_support

        return template_support(self)

    @cached_property
    def counts(self) -> Tensor:
        """How many candidates each template has, `(templates, words)`, as `counting` keeps large numbers."""
        from clipper.candidates.lattices.counting import count_templates

        return count_templates(self)

    def ending(self, depth: int, template: Tensor) -> Tensor:
        """The states at a depth in which samples of the given `template (n,)` end, `(states, n)` bool."""
        return self.ends[depth][:, None] == template

    @cached_property
    def following(self) -> tuple[Tensor, ...]:
        """For each layer, `(states * a,)`: where each arc leads, states counted through; `states` for a dead end."""
        result, first = [], 0
        for layer, size, behind in zip(self.layers, self.sizes, self.sizes[1:], strict=False):
            first += size
            result.append(torch.where(layer.next < behind, layer.next + first, self.states).view(-1))
        return tuple(result)

    @cached_property
    def last(self) -> Tensor:
        """`(templates,)`: the state in which each template of full length ends; there is one, as these are merged."""
        result = torch.zeros_like(self.lengths)
        result[self.ends[-1]] = torch.arange(self.sizes[-1], device=result.device)
        return result

    @cached_property
    def ragged(self) -> bool:
        """Whether templates differ in length."""
        return self.depths != (self.slots,)

    def pieces(self, columns: int, each: int = 1) -> list[slice]:
        """Runs of columns that are worked on together, so that memory stays bounded; `each` numbers per column."""
        size = max(1, _CELLS // (self.widest * each))
        return [slice(first, min(first + size, columns)) for first in range(0, max(1, columns), size)]

    def to(self, device: torch.device | str) -> StateGraph:
        """The same graph on another device."""
        return replace(
            self,
            layers=tuple(layer.to(device) for layer in self.layers),
            ends=tuple(ends.to(device) for ends in self.ends),
            lengths=self.lengths.to(device),
        )
