"""What engines ask of candidates, listed or as a lattice: the one place that tells the two apart."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.packed import candidate_log_probs, cross_log_probs, segment_sum, segment_top


def log_evidence(log_probs: Tensor, candidates: CandidateSet) -> Tensor:
    """log Σ_σ Π_j p(σ(j)) of each sample, `(n,)`; -inf, with zero gradient, where every candidate is impossible.

    Examples:
        >>> from clipper import Lattice
        >>> from clipper.candidates.rules import SUM
        >>> log_probs = torch.zeros(1, 2, 10).log_softmax(-1)
        >>> log_evidence(log_probs, Candidates.from_rule(sum, [8], 2, 10)).exp()
        tensor([0.0900])
        >>> log_evidence(log_probs, Lattice.from_rule(*SUM, [8], 2, 10)).exp()
        tensor([0.0900])
    """
    return candidates.log_probability(log_probs)


def output_sums(log_probs: Tensor, outputs: CandidateSet, k: int | None = None) -> Tensor:
    """Σ_σ Π_j p(σ(j)) of every output for every sample, `(n, outputs)`; of the `k` most probable σ, if given."""
    if k is None:
        return outputs.output_probabilities(log_probs)
    if not isinstance(outputs, Candidates):
        return _best_of_outputs(log_probs, outputs, k)
    products = cross_log_probs(log_probs, outputs).exp()  # (Ω, n)
    rows, found = segment_top(products, outputs, k)  # (k, outputs, n)
    return torch.where(found, products.gather(0, rows.flatten(0, 1)).view_as(found), 0).sum(0).T


def _best_of_outputs(log_probs: Tensor, outputs: CandidateSet, k: int) -> Tensor:
    pairs, repeated = paired(log_probs, outputs)
    best = with_the_best(repeated, pairs, k)
    return segment_sum(candidate_log_probs(repeated, best).exp(), best).view(len(log_probs), -1)


def paired(log_probs: Tensor, outputs: CandidateSet) -> tuple[CandidateSet, Tensor]:
    """Every sample with every output: what belongs to each pair, `(n*outputs)` of them."""
    every = torch.arange(outputs.samples, device=log_probs.device).repeat(len(log_probs))
    return outputs.batch(every), log_probs.repeat_interleave(outputs.samples, 0)


def with_the_best(log_probs: Tensor, candidates: CandidateSet, k: int) -> Candidates:
    """Listed candidates that hold the `k` most probable ones of each sample: all of them, or a lattice's `k` best."""
    return candidates if isinstance(candidates, Candidates) else candidates.top_k(log_probs.detach(), k)
