"""Compiled proofs: a sentential decision diagram (PySDD), arranged in layers by KLay and evaluated for a batch.

A circuit is compiled once for a set of proofs. If the probability of a fact is 0, the proofs that need it do not count.
So pruning needs no new compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from clipper.arguments import widened, widest_float
from clipper.candidates.circuits import kept
from clipper.candidates.derivatives import first_derivative
from clipper.errors import BudgetError, require

_CHUNK = 1 << 22
"""Largest number of tensor elements that the evaluation of one layer holds."""
_UNDERFLOW = {torch.float32: 1e-20, torch.float64: 1e-280}
"""Probabilities below which a sum may have lost too much by underflow."""
_IMPOSSIBLE = -1e30
"""Used in place of log 0, because -inf - -inf would be NaN."""
_ROUNDS = 40
"""Iterations of FORCE from each start."""
_STARTS = 4
"""Initial variable orders of FORCE."""


@lru_cache(maxsize=256)
def compiled(proofs: bytes, dtype: torch.dtype, slots: int, budget: int) -> ProofCircuit | BudgetError:
    """The circuit of some proofs, or the error if it is too large. Cached, because most batches have the same proofs.

    Args:
        proofs: the bytes of a tensor of labels, `(proofs, m)`.
        dtype: the type of its labels.
        slots: the number of slots, `m`.
        budget: the size of the largest diagram to build.
    """
    try:
        return ProofCircuit(torch.frombuffer(bytearray(proofs), dtype=dtype).view(-1, slots), budget)
    except BudgetError as error:
        return error.with_traceback(None)  # the frames of the traceback would keep the diagram in memory


class ProofCircuit:
    """P(at least one proof holds) as a function of the facts' independent probabilities.

    Args:
        labels: the proofs, `(proofs, m)`, -1 in unused slots.
        budget: the size of the largest diagram to build.

    Raises:
        BudgetError: the diagram is larger.
        MissingExtraError: PySDD or KLay is not installed.
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
        if bool(tiny.any()):  # rare and slow: first double precision, then logarithms
            single = facts.dtype != widest_float(facts.device)
            exact = self.evaluate(widened(facts[tiny])) if single else self._in_logarithms(facts[tiny])
            value[tiny], slope[tiny] = (part.to(facts.dtype) for part in exact)
        return value, slope

    def _in_logarithms(self, facts: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            inputs = facts.detach().requires_grad_()
            below = torch.where(inputs < 0, inputs, -1).clamp(min=_IMPOSSIBLE)
            negated = torch.where(inputs < 0, torch.log1p(-below.exp()), _IMPOSSIBLE)
            total = self._log.to(inputs.device)(inputs.clamp(min=_IMPOSSIBLE), negated)[:, 0]
            value = torch.where(total > _IMPOSSIBLE / 2, total, -torch.inf)
            (slope,) = torch.autograd.grad(value[value.isfinite()].sum(), inputs)
        return value.detach(), slope.nan_to_num_(0.0)

    @cached_property
    def _log(self) -> Any:
        return self._circuit.to_torch_module(semiring="log", compile=False)

    @property
    def chunk(self) -> int:
        """How many rows are evaluated together."""
        return max(1, _CHUNK // self._layered.edges)


class _Evaluate(torch.autograd.Function):
    """Rows are independent: gradients are computed with the values, so the inner values need not be kept."""

    @staticmethod
    def forward(ctx: Any, facts: Tensor, circuit: ProofCircuit) -> Tensor:
        parts = [circuit.evaluate(part) for part in torch.split(facts.detach(), circuit.chunk)]
        values, slopes = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(slopes)
        return values

    @staticmethod
    @first_derivative
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
        whole = kept(manager, whole, whole | proof)
        if manager.live_size() > budget:
            raise BudgetError(f"a diagram of size {manager.live_size():,} after {done} of {len(proofs)} proofs")
    circuit = klay.Circuit()
    circuit.add_sdd(whole)
    return circuit


def fact_order(proofs: Tensor, facts: int) -> Tensor:
    """The position of each fact in a good variable order, `(facts,)`, from `proofs (proofs, m)` of fact numbers.

    This is FORCE (Aloul, Markov and Sakallah 2003): every fact moves to the centre of gravity of its proofs, round
    after round. There are a few fixed starts, because a symmetric start does not move. The result is the order with the
    shortest proofs.

    Examples:
        >>> place = fact_order(torch.tensor([[0, 5], [1, 4], [2, 3]]), facts=6)
        >>> (place[[0, 1, 2]] - place[[5, 4, 3]]).abs().tolist()
        [1, 1, 1]
    """
    generator = torch.Generator().manual_seed(0)
    starts = [torch.arange(facts), *(torch.randperm(facts, generator=generator) for _ in range(_STARTS - 1))]
    orders = [_force(start, proofs) for start in starts]
    return min(orders, key=lambda place: _length(place, proofs))


def _force(place: Tensor, proofs: Tensor) -> Tensor:
    """The best order in some rounds of FORCE from the order `place`."""
    best = place
    occurrences = torch.bincount(proofs.flatten(), minlength=len(place))
    for _ in range(_ROUNDS):
        centre = place[proofs].double().mean(1, keepdim=True).expand(proofs.shape)
        pull = torch.bincount(proofs.flatten(), centre.flatten(), minlength=len(place)) / occurrences
        place = pull.argsort(stable=True).argsort()
        best = min(best, place, key=lambda p: _length(p, proofs))
    return best


def _length(place: Tensor, proofs: Tensor) -> int:
    """The sum over all proofs of the distance between the first and the last fact."""
    places = place[proofs]
    return int((places.amax(1) - places.amin(1)).sum())


@dataclass(frozen=True, eq=False)
class Bags:
    """Sums over groups of rows, as `embedding_bag` takes them.

    Attributes:
        rows: the rows of all bags, bag by bag, `(edges,)`.
        starts: the position in `rows` at which each bag starts, `(bags,)`.
    """

    rows: Tensor
    starts: Tensor

    @classmethod
    def by(cls, bag: Tensor, bags: int) -> Bags:
        """The bags in which row `i` belongs to `bag[i]`."""
        counts = torch.bincount(bag, minlength=bags)
        return cls(bag.argsort(stable=True), pad(counts.cumsum(0), (1, 0))[:-1])

    def to(self, device: torch.device) -> Bags:
        """The same bags on another device."""
        return Bags(self.rows.to(device), self.starts.to(device))

    def total(self, values: Tensor) -> Tensor:
        """The sum of each bag, `(bags, b)`, from `values (rows, b)`."""
        return embedding_bag(self.rows, values, self.starts, mode="sum")


class Sums:
    """A layer of sums. It is prepared on the CPU and then moved to a device.

    Args:
        children: the node below that each edge comes from, `(edges,)`.
        parent: the sum that each edge belongs to, `(edges,)`, ascending.
        width: the number of nodes below.
        device: the device to move to.
    """

    def __init__(self, children: Tensor, parent: Tensor, width: int, device: torch.device) -> None:
        counts = torch.bincount(parent)
        self._there = Bags(children, pad(counts.cumsum(0), (1, 0))[:-1]).to(device)
        back = Bags.by(children, width)
        self._back = Bags(parent[back.rows], back.starts).to(device)

    def forward(self, below: Tensor) -> Tensor:
        """The sums, `(sums, b)`, from the values `below (width, b)`."""
        return self._there.total(below)

    def backward(self, grad: Tensor, _: Tensor) -> Tensor:
        """The gradient below, `(width, b)`, from the sums' `grad (sums, b)`."""
        return self._back.total(grad)


class Products:
    """A layer of products of one or two factors; arguments as for `Sums`. The last row of the values below is 1."""

    def __init__(self, children: Tensor, parent: Tensor, width: int, device: torch.device) -> None:
        counts = torch.bincount(parent)
        first = counts.cumsum(0) - counts
        left = children[first]
        right = torch.where(counts == 2, children[(first + 1).clamp(max=len(children) - 1)], width - 1)
        self._left, self._right = left.to(device), right.to(device)
        self._back = Bags.by(torch.cat([left, right]), width).to(device)

    def forward(self, below: Tensor) -> Tensor:
        """The products, `(products, b)`, from the values `below (width, b)`."""
        return below.index_select(0, self._left).mul_(below.index_select(0, self._right))

    def backward(self, grad: Tensor, below: Tensor) -> Tensor:
        """The gradient below, `(width, b)`, from the products' `grad (products, b)`."""
        left = below.index_select(0, self._right).mul_(grad)
        right = below.index_select(0, self._left).mul_(grad)
        return self._back.total(torch.cat([left, right]))


class LayeredCircuit:
    """Alternating layers of products and sums, from the literals up to one node.

    The arithmetic is the same as in KLay's own modules, but several times as fast on a CPU, because rows are gathered
    and added in one step, in both passes. A product has at most two factors. Each layer gets an additional last node
    with the value 1, for products of a single factor.

    Args:
        children: for each layer, the node below that each edge comes from, `(edges,)`.
        parent: for each layer, the node that each edge leads to, `(edges,)`, ascending.
        width: the number of literals.
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
        if device in self._layers:
            return self._layers[device]
        layers = self._layers[device] = []
        children, parents, width = self._given
        for i, (child, parent) in enumerate(zip(children, parents, strict=True)):
            nodes = int(parent[-1]) + 1
            ends = pad(child, (0, 1), value=width), pad(parent, (0, 1), value=nodes)
            layers.append((Sums if i % 2 else Products)(*ends, width + 1, device))
            width = nodes
        return layers
