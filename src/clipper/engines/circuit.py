"""Compiled proofs: a sentential decision diagram (PySDD), evaluated for a batch by KLay.

A circuit is compiled once for a set of proofs. Setting the probability of a fact to 0 removes the proofs that need
it, so a pruning never compiles anything again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from clipper.engines.ordering import fact_order
from clipper.errors import BudgetError, require

_CHUNK = 1 << 22
"""Numbers that one layer's evaluation may hold, so that memory stays bounded."""
_UNDERFLOW = 1e-280
_IMPOSSIBLE = -1e30


class ProofCircuit:
    """P(at least one proof holds) as a function of the facts' independent probabilities.

    Args:
        labels: the proofs, `(proofs, m)`, -1 in unused slots.
        budget: the largest diagram to build; a larger one raises `BudgetError`.
    """

    def __init__(self, labels: Tensor, budget: int) -> None:
        labels = labels[:, labels[0] >= 0].long().cpu()
        slots = torch.arange(labels.shape[1]).expand(labels.shape)
        pairs, inverse = torch.unique(torch.stack([slots, labels], 2).flatten(0, 1), dim=0, return_inverse=True)
        proofs = inverse.view(labels.shape)
        place = fact_order(proofs, len(pairs))
        self._facts = pairs[place.argsort()]  # (facts, 2): slot and label, in variable order
        self._circuit = _compile(place[proofs] + 1, len(pairs), budget)
        self._real = self._circuit.to_torch_module(semiring="real", compile=False).double()
        self._log: Any = None
        self._edges = sum(len(layer.ix_in) for layer in self._real.layers)

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log P, `(b,)`, for each row of `log_probs (b, m, c)`; -inf marks a forbidden fact."""
        slot, label = self._facts.to(log_probs.device).unbind(1)
        facts = log_probs[:, slot, label].double()  # (b, facts)
        result: Tensor = _Evaluate.apply(facts, self)  # type: ignore[no-untyped-call]
        return result.to(log_probs.dtype)

    def evaluate(self, facts: Tensor) -> Tensor:
        """log P, `(b,)`, from the log-probability of each fact, `(b, facts)`, by ordinary differentiable steps."""
        probability = facts.exp()
        total = self._real.to(facts.device)(probability, 1 - probability)[:, 0]
        tiny = total < _UNDERFLOW
        result = torch.where(tiny, 1, total).log()
        if bool(tiny.any()):  # rare, and three times slower: only where double precision does not reach
            result = result.index_put((tiny,), self._evaluate_logs(facts[tiny]))
        return result

    def _evaluate_logs(self, facts: Tensor) -> Tensor:
        if self._log is None:
            self._log = self._circuit.to_torch_module(semiring="log", compile=False).double()
        below = torch.where(facts < 0, facts, -1).clamp(min=_IMPOSSIBLE)
        negated = torch.where(facts < 0, torch.log1p(-below.exp()), _IMPOSSIBLE)
        total = self._log.to(facts.device)(facts.clamp(min=_IMPOSSIBLE), negated)[:, 0]
        return torch.where(total > _IMPOSSIBLE / 2, total, -torch.inf)

    @property
    def chunk(self) -> int:
        """How many rows are evaluated together."""
        return max(1, _CHUNK // self._edges)


class _Evaluate(torch.autograd.Function):
    """Rows do not interact: their gradients are taken at once, and the circuit's inner values are not kept."""

    @staticmethod
    def forward(ctx: Any, facts: Tensor, circuit: ProofCircuit) -> Tensor:
        if not ctx.needs_input_grad[0]:
            return torch.cat([circuit.evaluate(part) for part in torch.split(facts, circuit.chunk)])
        values, slopes = [], []
        for part in torch.split(facts, circuit.chunk):
            with torch.enable_grad():
                inputs = part.detach().requires_grad_()
                value = circuit.evaluate(inputs)
                (slope,) = torch.autograd.grad(value[value.isfinite()].sum(), inputs)
            values.append(value.detach())
            slopes.append(slope.nan_to_num_(0.0))
        ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return grad[:, None] * slopes, None


def _compile(proofs: Tensor, facts: int, budget: int) -> Any:
    """A KLay circuit for the disjunction of `proofs (proofs, m)`, rows of variables from 1."""
    sdd, klay = require("pysdd.sdd", extra="circuits"), require("klay", extra="circuits")
    manager = sdd.SddManager.from_vtree(sdd.Vtree(var_count=facts, vtree_type="balanced"))
    whole = manager.false()
    for done, row in enumerate(proofs.tolist(), start=1):
        proof = manager.true()
        for variable in row:
            proof = proof & manager.literal(variable)
        before, whole = whole, whole | proof
        whole.ref()
        before.deref()
        if manager.dead_count() > 2 * manager.live_count():
            manager.garbage_collect()
        if manager.live_size() > budget:
            raise BudgetError(f"a diagram of size {manager.live_size():,} after {done} of {len(proofs)} proofs")
    circuit = klay.Circuit()
    circuit.add_sdd(whole)
    return circuit


class CircuitCache:
    """The circuits compiled so far, by their proofs; the least recently used make room."""

    def __init__(self, budget: int, most: int = 256) -> None:
        self.budget, self._most = budget, most
        self._stored: OrderedDict[tuple[torch.dtype, int, bytes], ProofCircuit | BudgetError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stored)

    def get(self, labels: Tensor) -> ProofCircuit | BudgetError:
        """The circuit of the proofs `labels (proofs, m)`, or why there is none."""
        key = (labels.dtype, labels.shape[1], labels.cpu().numpy().tobytes())
        if key not in self._stored:
            try:
                self._stored[key] = ProofCircuit(labels, self.budget)
            except BudgetError as error:
                self._stored[key] = error.with_traceback(None)  # its frames would keep the diagram alive
            if len(self._stored) > self._most:
                self._stored.popitem(last=False)
        self._stored.move_to_end(key)
        return self._stored[key]
