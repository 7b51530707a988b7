"""From propositions to one circuit for all of them: PySDD compiles, KLay evaluates.

Every slot has exactly one label: each of its labels is a variable, and the circuit says that just one is true. So the
sum over the circuit's models is the sum over the candidates, and a label with weight 0 is a label that is forbidden.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipper.candidates.formulas.writing import Proposition
from clipper.errors import BudgetError, require

IMPOSSIBLE = -1e30
"""Stands for log 0, so that no NaN can come of it."""
_CELLS = 1 << 23
"""Numbers that one layer's evaluation may hold, so that memory stays bounded."""


class Compiled:
    """One circuit with a root for each proposition.

    Args:
        propositions: what the labels satisfy.
        domains: of each proposition, the labels that each of its slots may take.
        budget: the largest diagram to build; a larger one raises `BudgetError`.
    """

    def __init__(
        self, propositions: Sequence[Proposition], domains: Sequence[Sequence[Sequence[int]]], budget: int
    ) -> None:
        sdd, klay = require("pysdd.sdd", extra="circuits"), require("klay", extra="circuits")
        longest = max(domains, key=len)
        every = [sorted(set().union(*(d[slot] for d in domains if slot < len(d)))) for slot in range(len(longest))]
        self._number = {pair: i + 1 for i, pair in enumerate((s, v) for s, labels in enumerate(every) for v in labels)}
        self.pairs = torch.tensor(list(self._number))  # (variables, 2): slot and label
        self._budget = budget
        self._manager = sdd.SddManager.from_vtree(_vtree(sdd, [len(labels) for labels in every]))
        self.nodes = [self._compiled(p, d) for p, d in zip(propositions, domains, strict=True)]
        circuit = klay.Circuit()
        for node in self.nodes:
            circuit.add_sdd(node)
        self._circuit = circuit
        self._modules: dict[str, Any] = {}

    def evaluate(self, weights: Tensor, template: Tensor, semiring: str, *, twice: bool = False) -> Tensor:
        """The value of each sample's own root, `(b,)`; `template (b,)` says which. As `values` otherwise."""
        return self.values(weights, semiring, twice=twice).gather(1, template[:, None])[:, 0]

    def values(self, weights: Tensor, semiring: str, *, twice: bool = False) -> Tensor:
        """The value of every root, `(b, roots)`, from the weight of each label, `(b, m, c)`, in double precision.

        Args:
            weights: logarithms for the semiring "log", numbers for "real" and "mpe".
            semiring: one of KLay's.
            twice: in steps that can be differentiated twice, which KLay's own cannot; for "log" only, and slower.
        """
        module = self._module(semiring).to(weights.device)
        slot, label = self.pairs.to(weights.device).unbind(1)
        parts = []
        for part in torch.split(weights, max(1, _CELLS // self.size)):
            positive = part[:, slot, label]  # (b, variables)
            one = torch.zeros_like(positive) if semiring == "log" else torch.ones_like(positive)
            parts.append(_twice(module, positive, one) if twice else module(positive, one))
        return torch.cat(parts)

    @property
    def size(self) -> int:
        """Numbers that one evaluation holds."""
        return sum(len(layer.ix_in) for layer in self._module("log").layers)

    def count(self, template: int, allowed: Tensor | None) -> int:
        """How many candidates a proposition has with labels in `allowed (m, c)` bool, however many."""
        fine = {i: allowed is None or bool(allowed[pair]) for pair, i in self._number.items()}
        return _count(self.nodes[template], fine, {})

    def _module(self, semiring: str) -> Any:
        if semiring not in self._modules:
            self._modules[semiring] = self._circuit.to_torch_module(semiring=semiring, compile=False).double()
        return self._modules[semiring]

    def _compiled(self, proposition: Proposition, domains: Sequence[Sequence[int]]) -> Any:
        """The diagram of a proposition and of one label for each slot."""
        whole = self._manager.true()
        for slot, labels in enumerate(domains):
            whole = self._kept(whole, whole & self._one_of(slot, labels))
        conjuncts = proposition.parts if proposition.kind == "and" else (proposition,)
        for done, part in enumerate(conjuncts, start=1):
            whole = self._kept(whole, whole & self._diagram(part))
            if self._manager.live_size() > self._budget:
                raise BudgetError(
                    f"a diagram of size {self._manager.live_size():,} after {done} of {len(conjuncts)} parts of a "
                    f"formula, more than the budget of {self._budget:,}; raise budget= if memory and time allow"
                )
        return whole

    def _kept(self, before: Any, after: Any) -> Any:
        """Hold on to a diagram, and let go of the one that it replaces."""
        after.ref()
        before.deref()
        if self._manager.dead_count() > 2 * self._manager.live_count():
            self._manager.garbage_collect()
        return after

    def _one_of(self, slot: int, labels: Sequence[int]) -> Any:
        """Exactly one of these labels, and none of the slot's others."""
        own = [i for (s, _), i in self._number.items() if s == slot]
        some = self._manager.false()
        for chosen in (self._number[slot, label] for label in labels):
            one = self._manager.true()
            for i in own:
                one = one & self._manager.literal(i if i == chosen else -i)
            some = some | one
        return some

    def _diagram(self, proposition: Proposition) -> Any:
        if proposition.kind == "label":
            number = self._number.get((proposition.slot, proposition.value))
            return self._manager.false() if number is None else self._manager.literal(number)
        parts = [self._diagram(part) for part in proposition.parts]
        if proposition.kind == "not":
            return ~parts[0]
        conjunction = proposition.kind == "and"
        whole = self._manager.true() if conjunction else self._manager.false()
        for part in parts:
            whole = whole & part if conjunction else whole | part
        return whole


def _twice(module: Any, positive: Tensor, negative: Tensor) -> Tensor:
    """A circuit's layers, products and sums in turn, in logarithms."""
    values: Tensor = module.encode_input(positive, negative).clamp(min=2 * IMPOSSIBLE)  # (nodes, b)
    for number, layer in enumerate(module.layers):
        arcs, size = values.index_select(0, layer.ix_in), (layer.out_shape[0], values.shape[1])
        if number % 2 == 0:
            values = arcs.new_zeros(size).index_add(0, layer.ix_out, arcs)
        else:
            place = layer.ix_out[:, None].expand_as(arcs)
            top = arcs.new_full(size, -torch.inf).scatter_reduce(0, place, arcs.detach(), "amax")
            scaled = (arcs - top.index_select(0, layer.ix_out)).exp()
            values = arcs.new_zeros(size).index_add(0, layer.ix_out, scaled).log() + top
    return values.mT


def _count(node: Any, fine: dict[int, bool], known: dict[int, int]) -> int:
    """Models of a diagram all of whose models mention all variables, true ones `fine` only."""
    if node.is_false():
        return 0
    if node.is_true():
        return 1
    if node.is_literal():
        return int(node.literal < 0 or fine[node.literal])
    if node.id not in known:
        known[node.id] = sum(_count(p, fine, known) * _count(s, fine, known) for p, s in node.elements())
    return known[node.id]


def _vtree(sdd: Any, sizes: Sequence[int]) -> Any:
    """Slots in a balanced tree, the labels of a slot in a row below it."""
    lines: list[str] = []
    numbers = iter(range(1, sum(sizes) + 1))

    def add(line: str) -> int:
        lines.append(line.format(len(lines)))
        return len(lines) - 1

    def row(leaves: list[int]) -> int:
        return leaves[0] if len(leaves) == 1 else add(f"I {{}} {leaves[0]} {row(leaves[1:])}")

    def balanced(blocks: list[int]) -> int:
        half = len(blocks) // 2
        return blocks[0] if len(blocks) == 1 else add(f"I {{}} {balanced(blocks[:half])} {balanced(blocks[half:])}")

    balanced([row([add(f"L {{}} {next(numbers)}") for _ in range(size)]) for size in sizes])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slots.vtree"
        path.write_text("\n".join([f"vtree {len(lines)}", *lines]) + "\n", encoding="ascii")
        return sdd.Vtree.from_file(str(path).encode())
