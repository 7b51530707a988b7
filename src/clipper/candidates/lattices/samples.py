"""Samples of a state graph: which ways through it are a sample's candidates, before any probability comes in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from clipper.candidates.base import gold_labels, outside_inference_mode
from clipper.candidates.lattices.building import kind_of_slots
from clipper.candidates.lattices.counting import count, whole_numbers, words_for
from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.reach import support, viable
from clipper.candidates.lattices.rows import followed
from clipper.candidates.lattices.trimming import only
from clipper.candidates.template_set import TemplateSet

_LARGE = 1 << 14
"""Arcs in a slot from which on a batch gets a graph of its own: to find its part costs less than to walk the rest."""


@dataclass(frozen=True, eq=False)
class GraphSamples(TemplateSet):
    """What is known of a lattice's samples without a classifier: counts, support, restrictions, batches."""

    graph: StateGraph = field(kw_only=True)
    """The states of the rule, shared by all samples; a template is a target and a length."""

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return self.graph.slots

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that tell this lattice from others."""
        layers = [layer.next for layer in self.graph.layers]
        return self.template, *layers, *self.graph.ends, *(() if self.allowed is None else (self.allowed,))

    @property
    def ragged(self) -> bool:
        """Whether some slots are unused."""
        return self.graph.ragged and super().ragged

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""
        return self.graph.lengths[self.template]

    @property
    def targets(self) -> list[Hashable]:
        """What the rule gives for each sample."""
        return [self.graph.targets[i] for i in self.template.tolist()]

    @cached_property
    def counts(self) -> list[int]:
        """How many candidates each sample has, exactly, however many."""
        if self.allowed is None:
            return whole_numbers(self.graph.counts[self.template])
        return whole_numbers(self.count_words())

    def count_words(self) -> Tensor:
        """As `counts`, in words of 38 bits, the lowest first, `(n, words)`: numbers that tensors can compare."""
        pieces, columns = self.graph.pieces(self.samples, each=words_for(self.graph)), self._columns
        return torch.cat([count(self.graph, self.template[part], columns[..., part]) for part in pieces])

    @cached_property
    @outside_inference_mode
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        if self.allowed is None:
            return self.graph.support.index_select(0, self.template).flatten(0, 1)
        columns = self._columns
        parts = [support(self.graph, self.template[part], columns[..., part]) for part in self._pieces()]
        return torch.cat(parts).flatten(0, 1)

    @cached_property
    @outside_inference_mode
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        return kind_of_slots(self.graph, self.kinds).index_select(0, self.template)

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        gold = gold_labels(gold, self)
        inside = followed(self.graph, self.template, gold)
        if self.allowed is None:
            return inside
        taken = self.allowed.gather(2, gold.clamp(0, self.classes - 1).long()[..., None])[..., 0]
        return inside & (taken | (self.kind < 0)).all(1)

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        columns = self._columns
        return torch.cat([viable(self.graph, self.template[p], columns[..., p])[0][0] for p in self._pieces()])

    def batch(self, samples: Tensor | Sequence[int] | slice) -> Self:
        """The lattice of the given samples: ids in the given order, a mask or a slice; a sample may come twice."""
        return super().batch(samples)._trimmed()

    def _trimmed(self) -> Self:
        """The same samples, on the part of a large graph that leads to their targets."""
        if self.graph.widest < _LARGE or self.graph.ragged:
            return self
        wanted, template = torch.unique(self.template, return_inverse=True)
        if 2 * len(wanted) > len(self.graph.targets):
            return self
        return replace(self, graph=only(self.graph, wanted), template=template)

    def to(self, device: torch.device | str) -> Self:
        """The same lattice on another device."""
        return replace(super().to(device), graph=self.graph.to(device))

    @cached_property
    @outside_inference_mode
    def _mask(self) -> Tensor | None:
        """The labels that each slot may take, `(n, m, c)` bool; None where all samples may take all of them."""
        if not self.graph.ragged:
            return self.allowed
        used = (torch.arange(self.slots, device=self.device) < self.lengths[:, None])[..., None]
        return used.expand(-1, -1, self.classes) if self.allowed is None else used & self.allowed

    @property
    def _columns(self) -> Tensor:
        """As `_mask`, `(m, c, n)`."""
        if self._mask is not None:
            return self._mask.permute(1, 2, 0)
        return torch.ones(self.slots, self.classes, self.samples, dtype=torch.bool, device=self.device)

    def _pieces(self) -> list[slice]:
        return self.graph.pieces(self.samples)
