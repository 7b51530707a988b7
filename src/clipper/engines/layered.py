"""Layered circuits, evaluated and differentiated for a batch: products and sums of rows, forward and back.

KLay lays a circuit out in layers; a product has two factors at most. The arithmetic is that of its own modules, but on
a CPU several times as fast, because rows are gathered and added up in one step, there and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad


@dataclass(frozen=True, eq=False)
class Bags:
    """Rows to add up: `rows (edges,)`, bag after bag, and where each bag `starts (bags,)`."""

    rows: Tensor
    starts: Tensor

    @classmethod
    def by(cls, bag: Tensor, bags: int) -> Bags:
        """Row `i` goes into `bag[i]`."""
        counts = torch.bincount(bag, minlength=bags)
        return cls(bag.argsort(stable=True), pad(counts.cumsum(0), (1, 0))[:-1])

    def total(self, values: Tensor) -> Tensor:
        """`(bags, b)` from `values (rows, b)`."""
        return embedding_bag(self.rows, values, self.starts, mode="sum")


class Sums:
    """A layer of sums: `children (edges,)`, the sum that each edge belongs to, `parent (edges,)`, ascending."""

    def __init__(self, children: Tensor, parent: Tensor, width: int) -> None:
        counts = torch.bincount(parent)
        self._there = Bags(children, pad(counts.cumsum(0), (1, 0))[:-1])
        back = Bags.by(children, width)
        self._back = Bags(parent[back.rows], back.starts)

    def forward(self, below: Tensor) -> Tensor:
        """`(sums, b)` from `below (width, b)`."""
        return self._there.total(below)

    def backward(self, grad: Tensor, _: Tensor) -> Tensor:
        """The gradient below, `(width, b)`, from the sums' `grad (sums, b)`."""
        return self._back.total(grad)


class Products:
    """A layer of products of one or two factors, given as for `Sums`; the last row below is 1."""

    def __init__(self, children: Tensor, parent: Tensor, width: int) -> None:
        counts = torch.bincount(parent)
        first = counts.cumsum(0) - counts
        self._left = children[first]
        self._right = torch.where(counts == 2, children[(first + 1).clamp(max=len(children) - 1)], width - 1)
        self._back = Bags.by(torch.cat([self._left, self._right]), width)

    def forward(self, below: Tensor) -> Tensor:
        """`(products, b)` from `below (width, b)`."""
        return below.index_select(0, self._left).mul_(below.index_select(0, self._right))

    def backward(self, grad: Tensor, below: Tensor) -> Tensor:
        """The gradient below, `(width, b)`, from the products' `grad (products, b)`."""
        left = below.index_select(0, self._right).mul_(grad)
        right = below.index_select(0, self._left).mul_(grad)
        return self._back.total(torch.cat([left, right]))


class LayeredCircuit:
    """Layers of products and sums in turn, from the literals up to one node.

    Each layer has a node more than it was given, at its end: a 1, for products of a single factor.

    Args:
        children: for each layer, the node below that each edge comes from, `(edges,)`.
        parent: for each layer, the node that each edge leads to, `(edges,)`, ascending.
        width: how many literals there are.
    """

    def __init__(self, children: Sequence[Tensor], parent: Sequence[Tensor], width: int) -> None:
        self.edges = sum(map(len, children))
        self._given = children, parent, width
        self._layers: dict[torch.device, list[Sums | Products]] = {}

    @torch.no_grad()
    def value_and_slopes(self, literals: Tensor) -> tuple[Tensor, Tensor]:
        """The circuit's value, `(b,)`, for `literals (b, width)`, and its gradient in them, `(b, width)`."""
        layers = self._on(literals.device)
        values = [pad(literals.T, (0, 0, 0, 1), value=1.0)]
        for layer in layers:
            values.append(layer.forward(values[-1]))
        grad = torch.zeros_like(values[-1])
        grad[0] = 1
        for layer, below in zip(reversed(layers), reversed(values[:-1]), strict=True):
            grad = layer.backward(grad, below)
        return values[-1][0], grad[:-1].T

    def _on(self, device: torch.device) -> list[Sums | Products]:
        if device not in self._layers:
            self._layers[device] = self._built(device)
        return self._layers[device]

    def _built(self, device: torch.device) -> list[Sums | Products]:
        layers: list[Sums | Products] = []
        children, parents, width = self._given
        for i, (child, parent) in enumerate(zip(children, parents, strict=True)):
            nodes = int(parent[-1]) + 1
            ends = (pad(child, (0, 1), value=width).to(device), pad(parent, (0, 1), value=nodes).to(device))
            layers.append((Sums if i % 2 else Products)(*ends, width + 1))
            width = nodes
        return layers
