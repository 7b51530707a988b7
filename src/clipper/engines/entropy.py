"""Neurosymbolic entropy: how undecided the classifier still is among the candidates that the formula allows."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet, Implicit
from clipper.engines.checks import checked
from clipper.engines.packed import candidate_log_probs, segment_logsumexp, segment_max, segment_sum
from clipper.errors import InputError


def posterior_entropy(log_probs: Tensor, candidates: CandidateSet) -> Tensor:
    """The entropy −Σ_σ q(σ) log q(σ) of each sample's candidates, q ∝ Π_j p(σ(j)), `(n,)`, in nats.

    This is the regulariser of Ahmed et al. (2022). A sample whose candidates are all impossible has entropy 0. What is
    added to all labels of a slot changes nothing, so that scores before a softmax will do, too.

    Args:
        log_probs: the classifier's output, `(n, m, c)`.
        candidates: what the labels of each sample could be.

    Examples:
        >>> candidates = Candidates.from_lists([[(0, 1), (1, 0)]], classes=2)
        >>> posterior_entropy(torch.zeros(1, 2, 2).log_softmax(-1), candidates)
        tensor([0.6931])
    """
    return entropy_of(checked(log_probs, candidates, normalised=False), candidates)


def entropy_of(log_probs: Tensor, candidates: CandidateSet) -> Tensor:
    """As `posterior_entropy`, for log-probabilities that were checked."""
    if isinstance(candidates, Implicit):
        if log_probs.requires_grad and candidates.template.is_inference():
            raise InputError(
                "expected candidates made outside of torch.inference_mode(), which forbids gradients later on; "
                "make them under torch.no_grad() instead"
            )
        return candidates.entropy(log_probs)
    return entropy_of_rows(candidate_log_probs(log_probs, candidates), candidates)


def entropy_of_rows(values: Tensor, candidates: Candidates) -> Tensor:
    """As `posterior_entropy`, from the log-probability of each candidate, `values (Ω,)`."""
    never = values == -torch.inf
    peak = segment_max(values, candidates)
    values = values - peak.masked_fill(peak == -torch.inf, 0).index_select(0, candidates.sample)  # low ones lose digits
    log_total = segment_logsumexp(values, candidates).index_select(0, candidates.sample)
    log_posterior = (values - log_total).masked_fill(never, 0)  # (Ω,); 0 · -inf would be NaN
    return -segment_sum((log_posterior.exp() * log_posterior).masked_fill(never, 0), candidates)
