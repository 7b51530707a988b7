"""Sums, maxima and choices over packed candidates: one pass over all rows, no loop over samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clipper.arguments import widened
from clipper.candidates.derivatives import first_derivative

if TYPE_CHECKING:
    from clipper.candidates.table import Candidates

_LONG = 4096
"""From this number of candidates of a sample on, a sum in single precision has less than five correct digits."""


def candidate_log_probs(log_probs: Tensor, candidates: Candidates) -> Tensor:
    """log Π_j p(σ(j)) of each candidate under its own sample's `log_probs (n, m, c)`, `(Ω,)`.

    Half precision is converted to single precision, because in half precision a sum stops growing after some hundred
    candidates.
    """
    table = _table(log_probs, candidates)
    return _GatherSum.apply(table, candidates.cells, _many(candidates))  # type: ignore[no-any-return, no-untyped-call]


def log_probability(log_probs: Tensor, candidates: Candidates) -> Tensor:
    """log Σ_σ Π_j p(σ(j)), `(n,)`; -inf, with zero gradient, where every candidate has probability 0."""
    parts = candidates.cells, candidates.sample, candidates.offsets, _many(candidates)
    return _LogSumProduct.apply(_table(log_probs, candidates), *parts)  # type: ignore[no-any-return, no-untyped-call]


def _table(log_probs: Tensor, candidates: Candidates) -> Tensor:
    """The flat table that `candidates.cells` index: log-probabilities of labels, or of pairs of labels in two slots."""
    table = torch.constant_pad_nd(_at_least_single(log_probs), (1, 0))  # (n, m, c+1); label -1 has log-probability 0
    if len(candidates.cells) < table.shape[1]:
        table = torch.constant_pad_nd(table, (0, 0, 0, 1)) if table.shape[1] % 2 else table
        table = table[:, 0::2, :, None] + table[:, 1::2, None, :]  # (n, m/2, c+1, c+1)
    return table.flatten()


def cross_log_probs(log_probs: Tensor, outputs: Candidates) -> Tensor:
    """log Π_j p(σ(j)) of each candidate under *every* sample's `log_probs (n, m, c)`, `(Ω, n)`."""
    padded = torch.nn.functional.pad(_at_least_single(log_probs), (1, 0)).permute(1, 2, 0)  # (m, c+1, n)
    cells = _cells(outputs.labels, torch.zeros_like(outputs.sample), (1, *padded.shape[:2]))
    return _GatherSum.apply(padded.flatten(0, 1), cells, _many(outputs))  # type: ignore[no-any-return, no-untyped-call]


def segment_logsumexp(values: Tensor, candidates: Candidates) -> Tensor:
    """log Σ exp over each sample's `values (Ω,)`, `(n,)`, without gradient."""
    peak, _, total = _softmax_parts(values.detach(), candidates.sample, candidates.offsets, _many(candidates))
    return (total.log() + peak).to(values.dtype)


def segment_sum(values: Tensor, candidates: Candidates) -> Tensor:
    """The sum of each sample's `values (Ω, …)`, `(n, …)`."""
    terms = widened(values) if _many(candidates) and values.dtype == torch.float32 else values
    total = terms.new_zeros(candidates.samples, *values.shape[1:]).index_add(0, candidates.sample, terms)
    return total.to(values.dtype)


def segment_max(values: Tensor, candidates: Candidates) -> Tensor:
    """The largest of each sample's `values (Ω, …)`, `(n, …)`, without gradient."""
    lowest = -torch.inf if values.is_floating_point() else torch.iinfo(values.dtype).min
    start = torch.full((candidates.samples, *values.shape[1:]), lowest, dtype=values.dtype, device=values.device)
    place = candidates.sample.view(-1, *[1] * (values.ndim - 1)).expand_as(values)
    return start.scatter_reduce_(0, place, values.detach(), "amax")


def segment_top(values: Tensor, candidates: Candidates, k: int) -> tuple[Tensor, Tensor]:
    """The rows of the `k` largest of each sample's `values (Ω, …)`; equal values in the order of the rows.

    Returns:
        `rows (k, n, …)` and `found (k, n, …)`: false where a sample has fewer than `k`.
    """
    left = torch.where(values.isnan(), torch.inf, values.detach())  # NaN counts as largest, so that it is noticed
    before = -torch.arange(len(left), device=left.device).view(-1, *[1] * (left.ndim - 1)).expand_as(left)
    rows, found = [], []
    for rank in range(min(k, candidates.most)):
        peak = segment_max(left, candidates)  # (n, …)
        best = left == peak.index_select(0, candidates.sample)  # (Ω, …)
        rows.append(-segment_max(torch.where(best, before, -len(left)), candidates))
        found.append(peak > -torch.inf if rank else torch.ones_like(peak, dtype=torch.bool))
        left.scatter_(0, rows[-1], -torch.inf)
    if not rows:  # no sample has a candidate
        none = torch.zeros(0, candidates.samples, *left.shape[1:], dtype=torch.long, device=left.device)
        return none, none.bool()
    return torch.stack(rows), torch.stack(found)


def segment_entropy(values: Tensor, candidates: Candidates) -> Tensor:
    """−Σ q log q over each sample's candidates, `(n,)`, for q ∝ exp of `values (Ω,)`; 0 where all of them are -inf."""
    parts = candidates.sample, candidates.offsets, _many(candidates)
    return _SegmentEntropy.apply(values, *parts)  # type: ignore[no-any-return, no-untyped-call]


def ranked(log_probs: Tensor) -> Tensor:
    """`log_probs (n, m, c)` in the highest precision of the device, with a very low finite number in place of -inf.

    So a candidate that the classifier rules out comes last, but is still chosen if there is no better one.
    """
    slots, logs = log_probs.shape[1], widened(log_probs.detach())
    lowest = torch.finfo(logs.dtype).min / (2 * slots)  # all slots together are still finite
    return torch.where(logs == -torch.inf, lowest, logs.clamp(min=lowest / (2 * slots)))


def chosen(share: Tensor, noise: Tensor) -> Tensor:
    """Draw an index from each row of weights, `(d,)`: where the cumulative share exceeds `noise (d,)`, from 0 to 1."""
    steps = share.cumsum(1)
    below = (steps <= noise[:, None] * steps[:, -1:]).sum(1)
    last = share.shape[1] - 1 - (share > 0).flip(1).long().argmax(1)  # rounding must not choose a weight of 0
    return torch.minimum(below, last)


def equal_rows(labels: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """Group equal rows of `labels (rows, m)` with equal `sample (rows,)`; rows are compared by a 64-bit hash.

    Returns:
        The group of each row, `(rows,)`, and the first row of each group, `(groups,)`.
    """
    generator = torch.Generator().manual_seed(0)
    factor = torch.randint(-(2**62), 2**62, (labels.shape[1] + 1,), generator=generator) * 2 + 1
    codes = (torch.cat([labels, sample[:, None]], dim=1) * factor.to(labels.device)).sum(1)  # modulo 2^64
    distinct, group = torch.unique(codes, return_inverse=True)
    row = torch.arange(len(codes), device=codes.device)
    return group, torch.full_like(distinct, len(row)).scatter_reduce_(0, group, row, "amin")


def occurrences(numbers: Tensor, size: int) -> Tensor:
    """How often each of the numbers 0 … size - 1 occurs in `numbers (rows,)`, `(size,)`.

    Examples:
        >>> occurrences(torch.tensor([0, 2, 2]), size=4)
        tensor([1, 0, 2, 0])
    """
    if numbers.device.type == "cpu":
        return torch.bincount(numbers, minlength=size)
    # bincount would read the largest number from the device first, which blocks
    counts = torch.zeros(size, dtype=torch.long, device=numbers.device)
    return counts.index_add_(0, numbers, torch.ones_like(numbers, dtype=torch.long))


def _at_least_single(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _many(candidates: Candidates) -> bool:
    """Whether some sample has so many candidates that sums over them need the highest precision."""
    return len(candidates) > _LONG and candidates.most > _LONG


def table_cells(candidates: Candidates) -> Tensor:
    """Where the labels lie in the flat table of `candidate_log_probs`: `(m, Ω)`, or `(m/2, Ω)` for pairs of slots.

    Two slots are looked up together if the table of their pairs is smaller than the number of candidates.
    """
    labels, samples, slots, width = candidates.labels, candidates.samples, candidates.slots, candidates.classes + 1
    if slots == 1 or samples * (slots + 1) // 2 * width**2 >= len(labels):
        return _cells(labels, candidates.sample, (samples, slots, width))
    labels = (torch.constant_pad_nd(labels, (0, 1), -1) if slots % 2 else labels).to(torch.int32)
    pairs = torch.add(labels[:, 1::2], labels[:, 0::2], alpha=width).add_(width)  # -1 and -1 are column 0
    return _cells(pairs, candidates.sample, (samples, pairs.shape[1], width**2))


def _cells(labels: Tensor, sample: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Where `labels (Ω, m)` lie in a flat table of `shape` (n, m, c+1), slot by slot, `(m, Ω)`; -1 is column 0."""
    _, slots, width = shape
    kind = torch.int32 if math.prod(shape) < 2**31 else torch.int64
    start = torch.arange(1, slots * width + 1, width, dtype=kind, device=labels.device)  # label 0 of each slot
    return (sample.to(kind) * (slots * width) + start[:, None]).add_(labels.T)


def _gathered(table: Tensor, index: Tensor) -> Tensor:
    """Σ_j table[index[j]], `(Ω, …)`, from `table (cells, …)` and `index (m, Ω)`."""
    if table.ndim == 2:
        return torch.nn.functional.embedding_bag(index.T, table, mode="sum")
    first, *others = index.unbind()
    result = table.index_select(0, first)
    for column in others:
        result += table.index_select(0, column)
    return result


def _scattered(values: Tensor, index: Tensor, shape: torch.Size) -> Tensor:
    """The gradient of `_gathered` in its table of that shape, from the `values (Ω, …)` of its result's gradient."""
    result = values.new_zeros(shape)
    for column in index.unbind():  # one pass per slot, which needs no copies of the gradient
        result.index_add_(0, column, values)
    return result


class _GatherSum(torch.autograd.Function):
    """Entries (or rows) of a table, summed in groups without storing them one by one: `_gathered`."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, many: bool) -> Tensor:  # (cells, …), (m, Ω) -> (Ω, …)
        ctx.save_for_backward(index)
        ctx.shape, ctx.many = table.shape, many
        return _gathered(table, index)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        values = widened(grad) if ctx.many else grad
        (index,) = ctx.saved_tensors
        return _scattered(values, index, ctx.shape).to(grad.dtype), None, None


def _softmax_parts(values: Tensor, sample: Tensor, offsets: Tensor, many: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Each sample's largest value, `(n,)`, exp of the distances to it, `(Ω,)`, and the sums of these, `(n,)`."""
    peak = values.new_full((len(offsets) - 1,), -torch.inf).scatter_reduce_(0, sample, values, "amax")
    peak = peak.clamp_(min=torch.finfo(peak.dtype).min)  # -inf - -inf would be NaN
    weight = (values - peak.index_select(0, sample)).exp_()
    weight = widened(weight) if many else weight
    return peak, weight, torch.segment_reduce(weight, "sum", offsets=offsets, unsafe=True)


class _LogSumProduct(torch.autograd.Function):
    """log Σ exp over each sample of `_gathered`, in one step: softmax weights serve the value and the gradient."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, sample: Tensor, offsets: Tensor, many: bool) -> Tensor:
        peak, weight, total = _softmax_parts(_gathered(table, index), sample, offsets, many)
        ctx.save_for_backward(weight, total, sample, index)
        ctx.shape = table.shape
        return (total.log() + peak).to(table.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        weight, total, sample, index = ctx.saved_tensors
        share = grad / total.clamp(min=1)  # the total is 0 for an impossible sample, which has no gradient
        values = share.index_select(0, sample).mul_(weight)
        return _scattered(values, index, ctx.shape).to(grad.dtype), None, None, None, None


class _SegmentEntropy(torch.autograd.Function):
    """The entropy as log T - Σ w log w / T, with softmax weights w and their sum T, so that no large numbers cancel."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, sample: Tensor, offsets: Tensor, many: bool) -> Tensor:
        _, weight, total = _softmax_parts(values, sample, offsets, many)
        total.clamp_(min=1)  # below 1 only where a sample is impossible: its entropy is 0
        spread = torch.special.entr(weight)  # -w log w
        mean = torch.segment_reduce(spread, "sum", offsets=offsets, unsafe=True).div_(total)
        ctx.save_for_backward(weight, spread, total, mean, sample)
        return (total.log() + mean).to(values.dtype)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        weight, spread, total, mean, sample = ctx.saved_tensors
        slope = torch.addcmul(spread, weight, mean.index_select(0, sample), value=-1)
        return slope.mul_((grad / total).index_select(0, sample)).to(grad.dtype), None, None, None
