"""The probability that at least one of a few proofs holds, when their facts are independent: inclusion–exclusion.

This file knows nothing of samples: it takes a batch of `b` small disjunctions.
"""

from __future__ import annotations

import torch
from torch import Tensor

_IMPOSSIBLE = -1e30
"""Stands for log 0 inside the sums, where -inf · 0 would be NaN."""


def log_disjunction(facts: Tensor, labels: Tensor, found: Tensor) -> Tensor:
    """log P(at least one of `k` proofs holds), `(b,)`, in double precision inside; -inf where it is impossible.

    A fact is a slot and a label; proofs with the same label in a slot share that fact. All 2^k sets of proofs are
    visited, `b · 2^k · m` numbers in total.

    Args:
        facts: the log-probability of each proof's facts, `(b, k, m)`.
        labels: the labels that name these facts, `(b, k, m)`.
        found: false where there is no such proof, `(b, k)`.

    Examples:
        >>> half = torch.full((1, 2, 2), 0.5).log()
        >>> found = torch.ones(1, 2, dtype=torch.bool)
        >>> log_disjunction(half, torch.tensor([[[0, 1], [1, 0]]]), found).exp()  # 1 - (1 - 1/4)²
        tensor([0.4375])
        >>> log_disjunction(half, torch.tensor([[[0, 0], [0, 1]]]), found).exp()  # 1/2 · (1 - (1/2)²)
        tensor([0.3750])
    """
    known = found[..., None] & (facts != -torch.inf)
    logs = torch.where(known, facts.double(), _IMPOSSIBLE)
    proof = torch.arange(facts.shape[1], device=facts.device)
    labels = torch.where(found[..., None], labels.long(), -2 - proof[:, None])  # an absent proof shares no fact
    sums, signs = _sums_over_sets(logs, labels)
    peak = logs.detach().sum(2).amax(1)  # no set is more probable than its most probable proof
    total = (signs * (sums - peak[:, None]).exp())[:, 1:].sum(1)
    possible = ~(peak < _IMPOSSIBLE / 2)  # NaN stays NaN, for the caller to find
    return torch.where(possible, torch.where(possible, total, 1).log() + peak, -torch.inf).to(facts.dtype)


def _sums_over_sets(logs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The summed log-probability of the facts in each set of proofs, `(b, 2^k)`, and the set's sign, `(2^k,)`."""
    sums, signs = logs.new_zeros(len(logs), 1), -logs.new_ones(1)
    for i in range(logs.shape[1]):  # each further proof doubles the sets: those without and those with it
        sets = torch.arange(2**i, device=logs.device)[:, None]  # (2^i, 1), the proofs as bits
        bits = (1 << torch.arange(i, device=logs.device))[:, None]  # (i, 1)
        sharing = ((labels[:, i : i + 1] == labels[:, :i]) * bits).sum(1)  # (b, m): who has this fact already
        fresh = (sets & sharing[:, None]) == 0  # (b, 2^i, m)
        sums = torch.cat([sums, sums + torch.where(fresh, logs[:, i, None], 0).sum(2)], dim=1)
        signs = torch.cat([signs, -signs])
    return sums, signs
