"""The random control: discard as many candidates as a pruning did, but blindly. Knows no edge."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError


def discard_at_random(candidates: Candidates, count: int | None, per_sample: Tensor | None, seed: int) -> Tensor:
    """Which candidates survive when `count` of them, or `per_sample (n,)` of each sample, go at random; `(Ω,)` bool.

    Every sample keeps at least one.
    """
    rank = candidates.random_ranks(seed)
    if per_sample is not None:
        return rank >= per_sample[candidates.sample]
    spare = len(candidates) - candidates.samples
    if count is None or not 0 <= count <= spare:
        raise InputError(
            f"expected a count of candidates to discard in 0 … {spare} (each of {candidates.samples} samples keeps "
            f"one), or imitate= with a pruning to copy the numbers from, got {count}"
        )
    expendable = (rank > 0).nonzero().flatten()  # the first of each shuffled sample is safe
    order = torch.randperm(spare, generator=torch.Generator().manual_seed(seed + 1)).to(rank.device)
    keep = torch.ones_like(rank, dtype=torch.bool)
    keep[expendable[order[:count]]] = False
    return keep
