"""Compiled proofs: a sentential decision diagram (PySDD), evaluated for a batch by KLay.

A circuit is compiled once for a set of proofs. Setting the probability of a fact to 0 removes the proofs that need
it, so a pruning never compiles anything again.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from clipper.engines.layered import LayeredCircuit
from clipper.engines.ordering import fact_order
from clipper.errors import BudgetError, require

_CHUNK = 1 << 22
"""Numbers that one layer's evaluation may hold, so that memory stays bounded."""
_UNDERFLOW = {torch.float32: 1e-20, torch.float64: 1e-280}
"""Probabilities below which too much of a sum may have been lost."""
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
        layers = self._circuit.to_torch_module(semiring="real", compile=False).layers
        self._layered = LayeredCircuit(
            [layer.ix_in for layer in layers], [layer.ix_out for layer in layers], 2 + 2 * len(pairs)
        )
        self._log: Any = None

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log P, `(b,)`, for each row of `log_probs (b, m, c)`; -inf marks a forbidden fact."""
        slot, label = self._facts.to(log_probs.device).unbind(1)
        facts = log_probs[:, slot, label].to(torch.promote_types(log_probs.dtype, torch.float32))  # (b, facts)
        result: Tensor = _Evaluate.apply(facts, self)  # type: ignore[no-untyped-call]
        return result.to(log_probs.dtype)

    def evaluate(self, facts: Tensor) -> tuple[Tensor, Tensor]:
        """log P, `(b,)`, and its gradient, `(b, facts)`, from the log-probability of each fact, `(b, facts)`."""
        probability = facts.exp()
        units = torch.tensor([0.0, 1.0]).to(probability).expand(len(facts), 2)
        literals = torch.stack([probability, -torch.expm1(facts)], 2).flatten(1)
        total, slopes = self._layered.value_and_slopes(torch.cat([units, literals], 1))
        slopes = slopes[:, 2:].reshape(len(facts), -1, 2)  # (b, facts, 2): of each fact and of its negation
        tiny = total < _UNDERFLOW[facts.dtype]
        value = torch.where(tiny, 1, total).log()
        slope = probability * (slopes[..., 0] - slopes[..., 1]) / torch.where(tiny, 1, total)[:, None]
        if bool(tiny.any()):  # rare and slow: double precision where single does not reach, then logarithms
            single = facts.dtype != torch.float64
            exact = self.evaluate(facts[tiny].double()) if single else self._in_logarithms(facts[tiny])
            value[tiny], slope[tiny] = (part.to(facts.dtype) for part in exact)
        return value, slope

    def _in_logarithms(self, facts: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            inputs = facts.detach().requires_grad_()
            value = self._log_value(inputs)
            (slope,) = torch.autograd.grad(value[value.isfinite()].sum(), inputs)
        return value.detach(), slope.nan_to_num_(0.0)

    def _log_value(self, facts: Tensor) -> Tensor:
        if self._log is None:
            self._log = self._circuit.to_torch_module(semiring="log", compile=False).double()
        below = torch.where(facts < 0, facts, -1).clamp(min=_IMPOSSIBLE)
        negated = torch.where(facts < 0, torch.log1p(-below.exp()), _IMPOSSIBLE)
        total = self._log.to(facts.device)(facts.clamp(min=_IMPOSSIBLE), negated)[:, 0]
        return torch.where(total > _IMPOSSIBLE / 2, total, -torch.inf)

    @property
    def chunk(self) -> int:
        """How many rows are evaluated together."""
        return max(1, _CHUNK // self._layered.edges)


class _Evaluate(torch.autograd.Function):
    """Rows do not interact: their gradients are taken at once, and the circuit's inner values are not kept."""

    @staticmethod
    def forward(ctx: Any, facts: Tensor, circuit: ProofCircuit) -> Tensor:
        parts = [circuit.evaluate(part) for part in torch.split(facts.detach(), circuit.chunk)]
        values, slopes = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(slopes)
        return values

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


@lru_cache(maxsize=64)
def _compiled(dtype: torch.dtype, slots: int, proofs: bytes, budget: int) -> ProofCircuit | BudgetError:
    """As `CircuitCache.get`; remembered, because the next engine of this process often asks for the same proofs."""
    try:
        return ProofCircuit(torch.frombuffer(bytearray(proofs), dtype=dtype).view(-1, slots), budget)
    except BudgetError as error:
        return error.with_traceback(None)  # its frames would keep the diagram alive


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
            self._stored[key] = _compiled(*key, self.budget)
            if len(self._stored) > self._most:
                self._stored.popitem(last=False)
        self._stored.move_to_end(key)
        return self._stored[key]
