"""Probability on a lattice: a forward pass for the value, a backward pass for the gradient, all samples at once.

Numbers are probabilities in double precision, or in the highest precision of the device. The probabilities of a slot
add up to at most 1, so the loss by underflow is bounded. The few samples near this bound are computed in logarithms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clipper.arguments import widened
from clipper.candidates.derivatives import first_derivative
from clipper.candidates.state_graph import StateGraph, supported_labels, weights_of

LOW = {torch.float64: -1e6, torch.float32: -1e2}
"""Logarithms below this are centred first, because sums with them would lose precision."""
SMALLEST = {torch.float64: 1e-270, torch.float32: 1e-30}
"""Probability below which a sample is computed in logarithms. Above it, underflow loses a negligible part."""
_ONE = 1.001
"""Largest sum of a slot's probabilities that needs no scale: rounding may bring it above 1."""


def log_probability(graph: StateGraph, template: Tensor, log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """log Σ_σ Π_j p(σ(j)) of each sample, `(n,)`; differentiable in `log_probs (n, m, c)`.

    Args:
        graph: the states of the rule.
        template: the template (target and length) of each sample, `(n,)`.
        log_probs: the classifier's output.
        mask: the labels that each slot may take, `(n, m, c)` bool; None for all.
    """
    return _LogProbability.apply(log_probs, graph, template, mask)  # type: ignore[no-any-return, no-untyped-call]


def output_probabilities(graph: StateGraph, log_probs: Tensor) -> Tensor:
    """The probability of every template for every sample, `(n, templates)`; differentiable in `log_probs`."""
    return _OutputProbabilities.apply(log_probs, graph)  # type: ignore[no-any-return, no-untyped-call]


def forward(graph: StateGraph, weights: list[Tensor]) -> list[Tensor]:
    """The summed weight of all paths from the start to each state, `(states, n)` for each depth."""
    all_states, sums, arcs = _buffers(graph, weights[0])
    sums[0].fill_(1)
    all_states.index_add_(0, graph.following[0], weights[0])  # the weight of an arc from the start is that of its label
    for ways, weight, following in zip(sums[1:], weights[1:], graph.following[1:], strict=False):
        used = arcs[: len(following)]
        torch.mul(ways[:, None], weight, out=used.view(len(ways), len(weight), -1))
        all_states.index_add_(0, following, used)  # the last row collects dead ends
    return sums


def backward(graph: StateGraph, weights: list[Tensor], sums: list[Tensor], seeds: dict[int, Tensor]) -> Tensor:
    """The weight that flows through each label of each slot, `(m, c, n)`.

    Args:
        graph: the states of the rule.
        weights: the weights of the labels of each layer, `(a, n)` each.
        sums: the result of `forward`.
        seeds: the gradient of each final state, `(states, n)`, by depth.
    """
    all_states, behind, buffer = _buffers(graph, weights[0])
    flow: list[Tensor] = []
    behind[graph.slots].copy_(seeds[graph.slots])
    for depth in reversed(range(1, graph.slots)):
        weight, following = weights[depth], graph.following[depth]
        arcs = torch.index_select(all_states, 0, following, out=buffer[: len(following)])
        arcs = arcs.view(-1, *weight.shape).mul_(weight)  # (states, a, n)
        torch.sum(arcs, 1, out=behind[depth])
        if depth in seeds:
            behind[depth].add_(seeds[depth])
        flow.append(arcs.mul_(sums[depth][:, None]).sum(0))
    flow.append(all_states.index_select(0, graph.following[0]).mul_(weights[0]))  # the start has a sum of 1
    return torch.stack([_of_all_labels(graph, depth, part) for depth, part in enumerate(reversed(flow))])


def _of_all_labels(graph: StateGraph, depth: int, values: Tensor) -> Tensor:
    """`values (a, n)` of a layer's labels as `(c, n)`; 0 for labels that it does not have."""
    if len(values) == graph.classes:
        return values
    return values.new_zeros(graph.classes, values.shape[1]).index_copy_(0, graph.layers[depth].labels, values)


def _buffers(graph: StateGraph, weight: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    """Zeros for all states and dead ends, `(states + 1, n)`, views of these by depth, and a buffer for a layer's arcs.

    All layers share these blocks, because allocating memory for every layer costs more than the arithmetic.
    """
    columns = weight.shape[1]
    all_states = weight.new_zeros(graph.states + 1, columns)
    *by_depth, _ = torch.split(all_states, [*graph.sizes, 1])
    return all_states, by_depth, weight.new_empty(graph.widest, columns)


def masked(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """`log_probs (n, m, c)` in the highest precision of the device, -inf where the `mask (n, m, c)` is false."""
    logs = widened(log_probs)
    return logs if mask is None else torch.where(mask, logs, -torch.inf)


def scaled(log_probs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
    """Probabilities, `(m, c, n)`, that add up to at most 1 in each slot; the log of their scale, `(n,)`; and the logs.

    Log-probabilities need no scale (None); other numbers are scaled slot by slot.
    """
    logs = masked(log_probs.detach(), mask)
    share = logs.permute(1, 2, 0).contiguous().exp()  # not in place: it may be the caller's tensor
    if not bool(share.sum(1).max() > _ONE):  # NaN is passed on
        return share, None, logs
    scale = logs.logsumexp(2)  # (n, m)
    scale = scale.masked_fill(scale == -torch.inf, 0)  # a slot without a possible label, or an unused one
    return (logs - scale[..., None]).permute(1, 2, 0).contiguous().exp_(), scale.sum(1), logs


def ended(graph: StateGraph, template: Tensor, sums: list[Tensor]) -> Tensor:
    """The summed weight of each sample's candidates, `(n,)`, from the `forward` sums."""
    if not graph.ragged:
        total = sums[-1].gather(0, graph.last[template][None])[0]
        return total if graph.complete else total * graph.attained[template]
    parts = [(sums[depth] * graph.ending(depth, template)).sum(0) for depth in graph.depths]
    return torch.stack(parts).sum(0)


def seeds_of(graph: StateGraph, template: Tensor, seed: Tensor) -> dict[int, Tensor]:
    """The gradient `seed (n,)` of each sample, placed at the states in which it ends, `(states, n)`, by depth."""
    if graph.ragged:
        return {depth: graph.ending(depth, template) * seed for depth in graph.depths}
    ends = seed.new_zeros(graph.sizes[-1], len(seed))
    return {graph.slots: ends.scatter_(0, graph.last[template][None], seed[None])}


class _LogProbability(torch.autograd.Function):
    """The gradient is the posterior of each label: it follows from the forward sums and one backward pass."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, graph: StateGraph, template: Tensor, mask: Tensor | None) -> Tensor:
        share, scale, logs = scaled(log_probs, mask)
        weights = weights_of(graph.layers, share)
        sums = forward(graph, weights)
        total = ended(graph, template, sums)
        result = total.log() if scale is None else total.log() + scale
        ctx.exactly = None
        smallest = SMALLEST[total.dtype]
        if not bool(total.min() > smallest):
            small = (total <= smallest).nonzero()[:, 0]
            result[small], posterior = log_posterior(graph, template[small], logs[small])
            ctx.exactly = small, posterior
        if ctx.needs_input_grad[0]:
            ctx.kept = graph, template, weights, sums, total, log_probs.dtype
        return result.to(log_probs.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        graph, template, weights, sums, total, dtype = ctx.kept
        seed = grad / total
        if ctx.exactly is not None:
            small, posterior = ctx.exactly
            seed[small] = 0
        flow = backward(graph, weights, sums, seeds_of(graph, template, seed)).permute(2, 0, 1)
        if ctx.exactly is not None:
            flow[small] = posterior * grad[small, None, None]
        return flow.to(dtype), None, None, None


class _OutputProbabilities(torch.autograd.Function):
    """The forward sums do not depend on the target, so one pass is enough for all targets."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, graph: StateGraph) -> Tensor:
        weights = weights_of(graph.layers, widened(log_probs).exp().permute(1, 2, 0).contiguous())
        sums = forward(graph, weights)
        result = weights[0].new_zeros(len(graph.targets) + 1, log_probs.shape[0])
        for depth in graph.depths:
            result.index_add_(0, graph.ends[depth] % len(result), sums[depth])  # the last row: states that are no end
        ctx.kept = graph, weights, sums, log_probs.dtype
        return result[:-1].T.to(log_probs.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        graph, weights, sums, dtype = ctx.kept
        padded = torch.nn.functional.pad(grad.T.to(weights[0].dtype), (0, 0, 0, 1))
        seeds = {depth: padded.index_select(0, graph.ends[depth] % len(padded)) for depth in graph.depths}
        return backward(graph, weights, sums, seeds).permute(2, 0, 1).to(dtype), None


def log_behind(graph: StateGraph, template: Tensor, logs: Tensor) -> list[Tensor]:
    """The log of the summed weight of all paths from each state to the end, `(states + 1, n)` for each depth.

    The last row belongs to dead ends. Differentiable in the labels' weights, `logs (n, m, c)`.
    """
    columns = logs.permute(1, 2, 0)  # (m, c, n)
    dead = logs.new_full((1, len(logs)), -torch.inf)
    result = [torch.cat([torch.where(graph.ending(graph.slots, template), 0.0, -torch.inf).to(logs), dead])]
    for depth in reversed(range(graph.slots)):
        values = _log_sum(graph.at_next(depth, result[0]) + graph.at_labels(depth, columns))
        if depth in graph.depths:
            values = torch.where(graph.ending(depth, template), 0, values)
        result.insert(0, torch.cat([values, dead]))
    return result


def centred(graph: StateGraph, template: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """`logs (n, m, c)` shifted so that the best supported label of each slot has 0, and the total shift, `(n,)`.

    The posterior does not change, because all candidates are shifted by the same amount.
    """
    possible = logs.detach() != -torch.inf
    if not bool((logs.detach() < LOW[logs.dtype]).logical_and_(possible).any()):
        return logs, logs.new_zeros(len(logs))
    used = supported_labels(graph, template, possible.permute(1, 2, 0))
    peak = logs.detach().masked_fill(~used, -torch.inf).amax(2)  # (n, m)
    peak = peak.masked_fill(peak == -torch.inf, 0)
    return (logs - peak[..., None]).masked_fill(~used, -torch.inf), peak.sum(1)


def _log_sum(arcs: Tensor) -> Tensor:
    """log Σ exp over dimension 1; -inf, with zero gradient, where all of it is -inf (`logsumexp` gives NaN there)."""
    nothing = (arcs == -torch.inf).all(1)
    return arcs.masked_fill(nothing[:, None], 0).logsumexp(1).masked_fill(nothing, -torch.inf)


def log_posterior(graph: StateGraph, template: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ_σ Π_j p(σ(j)), `(n,)`, and its gradient, the posterior of each label, `(n, m, c)`."""
    with torch.enable_grad():
        logs, shift = centred(graph, template, logs.detach())
        logs.requires_grad_()
        value = log_behind(graph, template, logs)[0][0]
        (posterior,) = torch.autograd.grad(value.sum(), logs)
    return value.detach() + shift, posterior


def log_entropy(graph: StateGraph, template: Tensor, logs: Tensor) -> Tensor:
    """The entropy of the posterior over each sample's candidates, `(n,)`; differentiable in `logs (n, m, c)`.

    It is computed from the end to the start: the entropy at a state is that of the next label, plus the expected
    entropy at the next state.
    """
    logs, _ = centred(graph, template, logs)
    columns = logs.permute(1, 2, 0)
    behind = log_behind(graph, template, logs)
    entropy = logs.new_zeros(graph.sizes[-1] + 1, len(logs))
    for depth in reversed(range(graph.slots)):
        arcs = graph.at_next(depth, behind[depth + 1]) + graph.at_labels(depth, columns)  # (states, a, n)
        never = arcs == -torch.inf
        choice = arcs.masked_fill(never.all(1, keepdim=True), 0).log_softmax(1).masked_fill(never, 0)
        later = graph.at_next(depth, entropy)
        values = (choice.exp() * (later - choice)).masked_fill(never, 0).sum(1)
        if depth in graph.depths:
            values = torch.where(graph.ending(depth, template), 0, values)
        entropy = torch.nn.functional.pad(values, (0, 0, 0, 1))
    return entropy[0]
