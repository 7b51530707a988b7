"""The random controls: discard as many candidates as a pruning did, but at random, or forbid labels at random."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clipper.arguments import as_index, shown, widened
from clipper.candidates import Candidates, CandidateSet
from clipper.errors import InputError


def discard_at_random(candidates: Candidates, count: int | None, seed: int) -> Tensor:
    """Discard candidates at random. Every sample that has candidates keeps at least one.

    Args:
        candidates: the candidates.
        count: how many to discard in total.
        seed: the seed of the draws.

    Returns:
        The candidates that are left, `(Ω,)` bool.

    Raises:
        InputError: `count` is not a number of candidates that can be discarded.
    """
    expendable = (candidates.random_ranks(seed) > 0).nonzero().flatten()  # the first of each shuffled sample is safe
    spare = len(expendable)
    number = as_index(count)
    if number is None or not 0 <= number <= spare:
        raise InputError(
            f"expected a count of candidates to discard in 0 … {spare} (each of {candidates.samples} samples keeps "
            f"one), or imitate= with a pruning to copy the numbers from, got {shown(count)}"
        )
    order = torch.randperm(spare, generator=torch.Generator().manual_seed((seed + 1) % 2**63)).to(expendable.device)
    keep = torch.ones(len(candidates), dtype=torch.bool, device=expendable.device)
    keep[expendable[order[:number]]] = False
    return keep


def forbid_at_random(candidates: CandidateSet, least: Sequence[int], generator: torch.Generator) -> Tensor:
    """Forbid labels at random, as many as possible, so that each sample keeps at least a number of candidates.

    This is the control for sets whose candidates are not listed: like a pruning, it only forbids labels. Labels are
    tried in random order, and one is forbidden if enough candidates are left without it.

    Args:
        candidates: the set.
        least: how many candidates each sample keeps at least, `n` integers; no more than it has.
        generator: of the draws: a number in double precision for each label of each instance.

    Returns:
        The labels that are left, `(n*m, c)` bool: those that occur in a candidate that is left.

    Examples:
        >>> from clipper import Lattice
        >>> from clipper.candidates.rules import SUM
        >>> lattice = Lattice.from_rule(*SUM, targets=[8, 9], slots=2, classes=10)
        >>> allowed = forbid_at_random(lattice, [4, 2], torch.Generator().manual_seed(0))
        >>> lattice.restrict(allowed).counts  # of 9 and 10
        [4, 2]
    """
    support = candidates.support.view(candidates.samples, candidates.slots * candidates.classes)  # (n, m*c)
    draws = torch.rand(support.shape, generator=generator, dtype=torch.float64)
    turn = draws.argsort(1).argsort(1).to(support.device)  # (n, m*c): in which order labels are tried
    left, untried = candidates, support
    logs = widened(left.zeros())
    slack = torch.finfo(logs.dtype).eps ** 0.5
    floor = torch.tensor([math.log(count or 1) for count in least], dtype=logs.dtype, device=support.device)
    while bool(untried.any()):
        left, end = _largest_prefix(left, untried, turn, least)
        share = left.marginals(logs).view_as(support)  # of the candidates, those with each label
        at_most = left.log_counts[:, None] + torch.log((1 - share).clamp(min=0) + slack)  # the log of those without
        can = left.support.view_as(support) & (at_most + slack >= floor[:, None])
        untried = untried & can & (turn > end[:, None])
    return left.support


def _largest_prefix(
    candidates: CandidateSet, untried: Tensor, turn: Tensor, least: Sequence[int]
) -> tuple[CandidateSet, Tensor]:
    """Forbid the untried labels before a turn: the latest turn that leaves each sample enough candidates.

    Returns:
        The candidates that are then left, and this turn, `(n,)`.
    """
    low = torch.zeros_like(turn[:, 0])
    high = torch.full_like(low, turn.shape[1])
    for _ in range(turn.shape[1].bit_length()):
        middle = (low + high + 1) // 2
        counts = _without(candidates, untried & (turn < middle[:, None])).counts
        enough = torch.tensor([count >= floor for count, floor in zip(counts, least, strict=True)], device=low.device)
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle - 1)
    return _without(candidates, untried & (turn < low[:, None])), low


def _without(candidates: CandidateSet, forbidden: Tensor) -> CandidateSet:
    """The candidates with none of these labels, `(n, m*c)` bool; a sample may have none."""
    return candidates.narrowed((candidates.support.view_as(forbidden) & ~forbidden).view(-1, candidates.classes))
