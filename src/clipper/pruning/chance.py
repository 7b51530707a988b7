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
    shuffled = candidates.shuffled(seed)  # grouped by sample
    keep = torch.ones(len(candidates), dtype=torch.bool, device=shuffled.device)
    if per_sample is not None:
        rank = torch.arange(len(candidates), device=shuffled.device) - candidates.offsets[candidates.sample]
        keep[shuffled[rank < per_sample[candidates.sample]]] = False
        return keep
    spare = len(candidates) - candidates.samples
    if count is None or not 0 <= count <= spare:
        raise InputError(
            f"expected a count of candidates to discard in 0 … {spare} (each of {candidates.samples} samples keeps "
            f"one), or imitate= with a pruning to copy the numbers from, got {count}"
        )
    expendable = torch.ones_like(keep)
    expendable[candidates.offsets[:-1]] = False  # the first of each shuffled sample is safe
    rest = shuffled[expendable]
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed)).to(rest.device)
    keep[rest[order[:count]]] = False
    return keep
