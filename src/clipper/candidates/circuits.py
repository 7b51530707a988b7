"""Propositions compiled into one circuit: PySDD compiles, KLay evaluates.

Every label of a slot is a variable, and the circuit requires that exactly one of them is true. So the sum over the
models of the circuit is the sum over the candidates, and a weight of 0 forbids a label.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import widened
from clipper.candidates.base import outside_inference_mode
from clipper.candidates.derivatives import once
from clipper.candidates.propositions import Proposition
from clipper.errors import BudgetError, require

_Block = TypeVar("_Block")
_CELLS = 1 << 23
"""Largest number of tensor elements that the evaluation of one layer holds."""


class Compiled:
    """One circuit with a root for each proposition.

    Args:
        propositions: the propositions.
        domains: for each proposition, the labels that each of its slots may take.
        budget: the size of the largest diagram to build.

    Raises:
        BudgetError: if a diagram is larger.
        MissingExtraError: PySDD or KLay is not installed.
    """

    def __init__(
        self, propositions: Sequence[Proposition], domains: Sequence[Sequence[Sequence[int]]], budget: int
    ) -> None:
        klay = require("klay", extra="circuits")
        longest = max(domains, key=len)
        every = [sorted(set().union(*(d[slot] for d in domains if slot < len(d)))) for slot in range(len(longest))]
        self.pairs = torch.tensor([(s, v) for s, labels in enumerate(every) for v in labels])  # (variables, 2)
        diagrams = _Diagrams(every, budget)
        circuit = klay.Circuit()
        for proposition, own in zip(propositions, domains, strict=True):
            circuit.add_sdd(diagrams.of(proposition, own))
        self._modules = {name: circuit.to_torch_module(semiring=name, compile=False) for name in ("log", "real")}

    @property
    def size(self) -> int:
        """Numbers that one evaluation holds."""
        return sum(len(layer.ix_in) for layer in self._modules["log"].layers)

    def evaluate(self, weights: Tensor, template: Tensor, semiring: str) -> Tensor:
        """The value of each sample's own root `template (b,)`, `(b,)`; other arguments as for `values`."""
        return self.values(weights, semiring).gather(1, template[:, None])[:, 0]

    def values(self, weights: Tensor, semiring: str) -> Tensor:
        """The value of every root, `(b, roots)`, in the precision of the weights.

        Args:
            weights: the weight of each label, `(b, m, c)`: for the semiring "log" as logarithms, where -inf forbids a
                label; for "real" as numbers.
            semiring: the name of KLay's semiring, "log" or "real".
        """
        module = self._module(semiring, weights.device)
        one = 0.0 if semiring == "log" else 1.0
        return once(torch.cat([module(part, torch.full_like(part, one)) for part in self._split(weights)]))

    def entropy(self, logs: Tensor, template: Tensor) -> Tensor:
        """The entropy of the candidates of each sample's own root, `(b,)`; 0 if none is possible. Differentiable.

        It is computed from the leaves up: the entropy of a sum node is that of the choice of its child, plus the
        expected entropy of the child. So no large numbers cancel.
        """
        parts = [_entropy(self._module("log", logs.device), part) for part in self._split(logs)]
        return torch.cat(parts).gather(1, template[:, None])[:, 0]

    def best(self, logs: Tensor, template: Tensor) -> tuple[Tensor, Tensor]:
        """The best candidate of each sample's own root: its value, `(b,)`, -inf if there is none; its labels, `(b, m)`.

        Args:
            logs: the logarithm of each label's weight, `(b, m, c)`; -inf forbids it.
            template: the root of each sample, `(b,)`.
        """
        taken, value = self._followed(logs, template, every=False)
        return value, taken.int().argmax(2)

    def support(self, allowed: Tensor, template: Tensor) -> Tensor:
        """The labels in some candidate of each sample's own root, `(b, m, c)` bool, among those `allowed (b, m, c)`."""
        return self._followed(widened(torch.where(allowed, 0.0, -torch.inf)), template, every=True)[0]

    def count(self, template: int, allowed: Tensor) -> int:
        """The exact number of candidates of a proposition with labels in `allowed (m, c)` bool, of any size."""
        fine = allowed.cpu()[*self.pairs.cpu().T]
        values = np.ones(2 * len(fine) + 2, dtype=object)
        values[0], values[2::2] = 0, [int(yes) for yes in fine.tolist()]
        for number, layer in enumerate(self._modules["log"].layers):
            gather = np.multiply if number % 2 == 0 else np.add
            values = gather.reduceat(values[layer.ix_in.cpu().numpy()], layer.offsets[:-1].cpu().numpy())
        return int(values[template])

    def weighted_counts(self, weights: Tensor, prime: int) -> Tensor:
        """The sum over each root's candidates of the product of whole `weights (b, m, c)`, modulo a prime.

        Returns:
            `(b, roots)`.
        """
        module = self._module("log", weights.device)
        return torch.cat([_weighted_counts(module, part, prime) for part in self._split(weights)])

    @outside_inference_mode
    def _module(self, semiring: str, device: torch.device) -> Any:
        """KLay's module on a device, moved there outside of inference mode, because later calls share its buffers."""
        return self._modules[semiring].to(device)

    def _split(self, weights: Tensor) -> list[Tensor]:
        """The weight of each variable, `(b, variables)`, in parts that memory can hold."""
        slot, label = self.pairs.to(weights.device).unbind(1)
        return [part[:, slot, label] for part in torch.split(weights, max(1, _CELLS // self.size))]

    def _followed(self, logs: Tensor, template: Tensor, *, every: bool) -> tuple[Tensor, Tensor]:
        """The labels of a best candidate, or of `every` possible one, `(b, m, c)` bool, and the best value, `(b,)`."""
        module, parts = self._module("log", logs.device), self._split(logs)
        roots = torch.split(template, len(parts[0]))
        found = [_followed(module, part, own, every) for part, own in zip(parts, roots, strict=True)]
        slot, label = self.pairs.to(logs.device).unbind(1)
        labels = torch.zeros(logs.shape, dtype=torch.bool, device=logs.device)
        labels[:, slot, label] = torch.cat([variables for variables, _ in found])
        return labels, torch.cat([value for _, value in found])


class _Diagrams:
    """PySDD's diagrams of propositions, over one variable for each of a slot's labels."""

    def __init__(self, labels: Sequence[Sequence[int]], budget: int) -> None:
        sdd = require("pysdd.sdd", extra="circuits")
        numbers = count(1)
        self._number = [{label: next(numbers) for label in own} for own in labels]
        self._manager = sdd.SddManager.from_vtree(_vtree(sdd, [len(own) for own in labels]))
        self._budget = budget

    def of(self, proposition: Proposition, domains: Sequence[Sequence[int]]) -> Any:
        """The diagram of a proposition together with "each slot has exactly one label"."""
        whole = self._manager.true()
        for slot, labels in enumerate(domains):
            whole = kept(self._manager, whole, whole & self._one_of(slot, labels))
        conjuncts = proposition.conjuncts()
        for done, part in enumerate(conjuncts, start=1):
            whole, size = kept(self._manager, whole, whole & self._diagram(part)), self._manager.live_size()
            if size > self._budget:
                raise BudgetError(
                    f"a diagram of size {size:,} after {done} of {len(conjuncts)} parts of a formula, more than the "
                    f"budget of {self._budget:,}; raise budget= if memory and time allow"
                )
        return whole

    def _one_of(self, slot: int, labels: Sequence[int]) -> Any:
        """Exactly one of these labels, and none of the slot's other labels."""
        wanted = set(labels)
        parts = []  # for each label: the diagrams of its absence and of its presence
        for label, number in self._number[slot].items():
            here = self._manager.literal(number) if label in wanted else self._manager.false()
            parts.append((self._manager.literal(-number), here))

        def joined(left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
            return left[0] & right[0], (left[1] & right[0]) | (left[0] & right[1])

        return _balanced(parts, joined)[1]

    def _diagram(self, proposition: Proposition) -> Any:
        found: dict[int, Any] = {}
        for part in proposition.steps():
            inner = [found[id(p)] for p in part.parts]
            if part.kind == "label":
                whole = self._one_of(part.slot, [part.value])  # also excludes the other labels: smaller diagrams
            elif part.kind == "not":
                whole = ~inner[0]
            else:
                whole = self._manager.true() if part.kind == "and" else self._manager.false()
                for other in inner:
                    whole = whole & other if part.kind == "and" else whole | other
            found[id(part)] = whole
        return found[id(proposition)]


def kept(manager: Any, before: Any, after: Any) -> Any:
    """Reference a diagram and dereference the one that it replaces; collect garbage if there is much of it."""
    after.ref()
    before.deref()
    if manager.dead_count() > 2 * manager.live_count():
        manager.garbage_collect()
    return after


def _weighted_counts(module: Any, positive: Tensor, prime: int) -> Tensor:
    """The value of each root modulo a prime, `(b, roots)`, from whole weights of the variables, `(b, variables)`."""
    values = positive.new_ones(2 * positive.shape[1] + 2, len(positive))  # (nodes, b)
    values[0], values[2::2] = 0, positive.T
    for number, layer in enumerate(module.layers):
        arcs, size = values.index_select(0, layer.ix_in), layer.offsets.diff()
        if number % 2:
            values = arcs.new_zeros(len(size), arcs.shape[1]).index_add_(0, layer.ix_out, arcs).remainder_(prime)
            continue
        values = arcs.index_select(0, layer.offsets[:-1])
        for factor in range(1, int(size.max())):  # one at a time, so that no product exceeds 64 bits
            more = (size > factor).nonzero()[:, 0]
            product = values[more].mul_(arcs[layer.offsets[more] + factor]).remainder_(prime)
            values.index_copy_(0, more, product)
    return values.mT


def _entropy(module: Any, positive: Tensor) -> Tensor:
    """The entropy of each root, `(b, roots)`, from the logarithms of the variables, `(b, variables)`."""
    values: Tensor = module.encode_input(positive, torch.zeros_like(positive))  # (nodes, b)
    entropy = torch.where(torch.ones_like(values, dtype=torch.bool), 0, values)  # differentiable without a sum node too
    for number, layer in enumerate(module.layers):
        arcs, open_ = values.index_select(0, layer.ix_in), entropy.index_select(0, layer.ix_in)
        size = (layer.out_shape[0], values.shape[1])
        if number % 2 == 0:
            values = arcs.new_zeros(size).index_add(0, layer.ix_out, arcs)
            entropy = arcs.new_zeros(size).index_add(0, layer.ix_out, open_)
            continue
        possible = arcs != -torch.inf
        top = _largest(layer, arcs.detach())
        fine = torch.where(top == -torch.inf, 0, top)  # avoids -inf - -inf
        highest = fine.index_select(0, layer.ix_out)
        scaled = torch.where(possible, (torch.where(possible, arcs, highest) - highest).exp(), 0)
        total = arcs.new_zeros(size).index_add(0, layer.ix_out, scaled)
        values = torch.where(top == -torch.inf, -torch.inf, torch.where(total == 0, 1, total).log() + fine)
        log_share = torch.where(possible, arcs, 0) - torch.where(possible, values.index_select(0, layer.ix_out), 0)
        share = torch.where(possible, log_share.exp(), 0)
        entropy = arcs.new_zeros(size).index_add(0, layer.ix_out, share * (open_ - log_share))
    return entropy.mT


def _largest(layer: Any, arcs: Tensor) -> Tensor:
    """The largest of each node's arcs, `(nodes, b)`."""
    place = layer.ix_out[:, None].expand_as(arcs)
    return arcs.new_full((layer.out_shape[0], arcs.shape[1]), -torch.inf).scatter_reduce(0, place, arcs, "amax")


def _followed(module: Any, positive: Tensor, template: Tensor, every: bool) -> tuple[Tensor, Tensor]:
    """Maximise from the leaves up, then follow the best arcs from each column's root `template (b,)` down.

    Returns:
        The positive variables that are reached, `(b, variables)` bool, and the best value of each root, `(b,)`.
    """
    values = [module.encode_input(positive, torch.zeros_like(positive))]  # (nodes, b) each
    for number, layer in enumerate(module.layers):
        arcs = values[-1].index_select(0, layer.ix_in)
        if number % 2 == 0:
            values.append(arcs.new_zeros(layer.out_shape[0], arcs.shape[1]).index_add(0, layer.ix_out, arcs))
        else:
            values.append(_largest(layer, arcs))
    value = values[-1].gather(0, template[None])[0]
    met = torch.zeros_like(values[-1], dtype=torch.bool).scatter_(0, template[None], value[None] > -torch.inf)
    for number, layer in reversed(list(enumerate(module.layers))):
        taken = met.index_select(0, layer.ix_out)  # (arcs, b)
        if number % 2:
            arcs = values[number].index_select(0, layer.ix_in)
            if every:
                taken &= arcs > -torch.inf
            else:
                taken &= arcs == values[number + 1].index_select(0, layer.ix_out)
                taken = _first(layer, taken)
        met = torch.zeros(values[number].shape, dtype=torch.int32, device=taken.device)
        met = met.index_add_(0, layer.ix_in, taken.int()) > 0
    return met[2::2].mT, value


def _first(layer: Any, taken: Tensor) -> Tensor:
    """The first of each node's arcs that are `taken (arcs, b)`, which breaks ties between equally good arcs."""
    arcs = len(taken)
    number = torch.arange(arcs, device=taken.device)[:, None].expand_as(taken)
    place = layer.ix_out[:, None].expand_as(taken)
    first = number.new_full((layer.out_shape[0], taken.shape[1]), arcs)
    first = first.scatter_reduce(0, place, torch.where(taken, number, arcs), "amin")
    return first.index_select(0, layer.ix_out) == number


def _balanced(blocks: Sequence[_Block], join: Callable[[_Block, _Block], _Block]) -> _Block:
    """Join all blocks pairwise as a balanced tree. It must not be deep, because PySDD recurses on it."""
    half = len(blocks) // 2
    return join(_balanced(blocks[:half], join), _balanced(blocks[half:], join)) if half else blocks[0]


def _vtree(sdd: Any, sizes: Sequence[int]) -> Any:
    """The vtree: a balanced tree of slots, each with a balanced tree of its labels below it."""
    lines: list[str] = []

    def add(line: str) -> int:
        lines.append(line.format(len(lines)))
        return len(lines) - 1

    def join(left: int, right: int) -> int:
        return add(f"I {{}} {left} {right}")

    numbers = iter(range(1, sum(sizes) + 1))
    _balanced([_balanced([add(f"L {{}} {next(numbers)}") for _ in range(size)], join) for size in sizes], join)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slots.vtree"
        path.write_text("\n".join([f"vtree {len(lines)}", *lines]) + "\n", encoding="ascii")
        return sdd.Vtree.from_file(str(path).encode())
