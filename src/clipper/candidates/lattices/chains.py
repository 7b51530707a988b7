"""Chains: ways through places 0 … a-1 in order, staying at each for one slot or more. Knows no labels.

All that an alignment asks of its lattice on a hot path, with two arcs a place instead of a table of states: sums in
logarithms, since a long clip's probability underflows; sets of places as bits of one number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

LOW = -1e6
"""Logarithms below this are centred first, because what is added to them would lose its digits."""
MOST_PLACES = 62
"""Places that fit into the bits of a whole number."""


def log_sum(weights: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """log Σ over the ways of the product of their weights, `(n,)`; differentiable in the logarithms `weights`.

    Args:
        weights: what each place weighs in each slot, `(n, m, a)`, in logarithms.
        slots: of each sample, `(n,)`.
        places: through which each sample goes, `(n,)`.
    """
    result: Tensor = _LogSum.apply(weights, slots, places)  # type: ignore[no-untyped-call]
    return result


def possible(allowed: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """Whether there is a way through the `allowed (n, m, a)` places, `(n,)` bool."""
    if allowed.shape[2] > MOST_PLACES:
        return support(allowed, slots, places).flatten(1).any(1)
    return _reached(_bits(allowed), slots, places) != 0


def support(allowed: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """The places that lie on a way in each slot, `(n, m, a)` bool; arguments as for `possible`."""
    if allowed.shape[2] > MOST_PLACES:
        return _support_of_many(allowed, slots, places)
    bits = _bits(allowed)
    before, on_a_way = [bits[0] & 1], torch.zeros_like(bits)
    for own in bits[1:]:
        before.append((before[-1] | before[-1] << 1) & own)
    end, last = 1 << (places - 1), slots - 1
    behind = torch.zeros_like(slots)
    for slot in reversed(range(len(bits))):
        behind = torch.where(last == slot, end, behind | behind >> 1) & before[slot]
        on_a_way[slot] = behind
    number = torch.arange(allowed.shape[2], device=allowed.device)
    return (on_a_way.T[..., None] >> number & 1).bool()


def _support_of_many(allowed: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """As `support`, for more places than a number has bits."""
    result = allowed.clone()  # first the places that can be reached, then those of them that lead to the end
    result[:, 0, 1:] = False
    for slot in range(1, allowed.shape[1]):
        before = result[:, slot - 1]
        result[:, slot] &= before | pad(before, (1, -1))
    number = torch.arange(allowed.shape[2], device=allowed.device)
    behind = torch.zeros_like(result[:, 0])
    for slot in reversed(range(allowed.shape[1])):
        end = (number == places[:, None] - 1) & (slots == slot + 1)[:, None]
        result[:, slot] &= behind | pad(behind, (-1, 1)) | end
        behind = result[:, slot]
    return result


def count(allowed: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """How many ways there are, `(n,)`; the caller makes sure that they are fewer than 2^62, see `countable`."""
    rows = allowed.permute(1, 2, 0).long()  # (m, a, n)
    ways = rows.new_zeros(rows.shape[1] + 1, rows.shape[2])
    ways[1] = rows[0, 0]
    sample = torch.arange(len(slots), device=slots.device)
    result = torch.where(slots == 1, ways[places, sample], 0)
    for slot in range(1, len(rows)):
        ways[1:] = (ways[1:] + ways[:-1]) * rows[slot]
        result = torch.where(slots == slot + 1, ways[places, sample], result)
    return result


def countable(slots: int, places: int) -> bool:
    """Whether the number of ways fits a whole number of 64 bits.

    Examples:
        >>> countable(128, 12), countable(500, 30)
        (True, False)
    """
    return places <= MOST_PLACES and math.comb(slots - 1, min(places, slots) - 1) * 2 < 2**62 and slots * places > 0


def _bits(allowed: Tensor) -> Tensor:
    """The allowed places of each slot as bits, `(m, n)`."""
    weight = 1 << torch.arange(allowed.shape[2], device=allowed.device)
    return (allowed * weight).sum(2).T.contiguous()


def _reached(bits: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """The bit of the last place where it is reached in the last slot, else 0, `(n,)`."""
    reach, result = bits[0] & 1, bits[0] & 1
    for slot in range(1, len(bits)):
        reach = (reach | reach << 1) & bits[slot]
        result = torch.where(slots > slot, reach, result)
    return result & 1 << (places - 1)


class _LogSum(torch.autograd.Function):
    """The gradient is the posterior of each place in each slot, from the last slot back: who came from where."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, slots: Tensor, places: Tensor) -> Tensor:
        rows, shift = _centred(weights.detach().double(), slots, places)
        before = _before(rows.permute(1, 2, 0).contiguous())  # (m, a + 1, n)
        sample = torch.arange(len(slots), device=slots.device)
        total = before[slots - 1, places, sample] + shift
        if ctx.needs_input_grad[0]:
            ctx.kept = before, total, slots, places, weights.dtype
        return total.to(weights.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        before, total, slots, places, dtype = ctx.kept
        seed = torch.where(total == -torch.inf, 0, grad.double())  # a sample without a way teaches nothing
        return _flow(before, slots, places, seed).permute(2, 0, 1).to(dtype), None, None


def _centred(weights: Tensor, slots: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """As `logarithms.centred`, for `weights (n, m, a)`."""
    possible = weights != -torch.inf
    if not bool((weights < LOW).logical_and_(possible).any()):
        return weights, weights.new_zeros(len(weights))
    used = support(possible, slots, places)
    peak = weights.masked_fill(~used, -torch.inf).amax(2)  # (n, m)
    peak = peak.masked_fill(peak == -torch.inf, 0)
    return (weights - peak[..., None]).masked_fill(~used, -torch.inf), peak.sum(1)


def _before(rows: Tensor) -> Tensor:
    """The summed weight up to and with each place, `(m, a + 1, n)`; the first row is a wall."""
    slots, places, samples = rows.shape
    result = rows.new_full((slots, places + 1, samples), -torch.inf)
    result[0, 1] = rows[0, 0]
    for slot in range(1, slots):
        own = torch.logaddexp(result[slot - 1, 1:], result[slot - 1, :-1], out=result[slot, 1:])
        own.add_(rows[slot])
    return result


def _flow(before: Tensor, slots: Tensor, places: Tensor, seed: Tensor) -> Tensor:
    """`seed (n,)` times the share of the ways that are at each place in each slot, `(m, a, n)`.

    Differences of two neighbours only, so that no share passes 1 however low all logarithms are.
    """
    lead = before[:, 1:] - before[:, :-1]  # of having stayed over having gone on, to each place
    stayed, went = (torch.sigmoid(part).nan_to_num_(0.0) for part in (lead, -lead))  # NaN where nobody can be
    result = before.new_zeros(lead.shape)
    result[slots - 1, places - 1, torch.arange(len(seed), device=seed.device)] = seed
    for slot in reversed(range(1, len(result))):
        result[slot - 1].addcmul_(result[slot], stayed[slot - 1])
        result[slot - 1, :-1].addcmul_(result[slot, 1:], went[slot - 1, 1:])
    return result
