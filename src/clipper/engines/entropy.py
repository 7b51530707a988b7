"""Neurosymbolic entropy: how undecided the classifier still is among the candidates that the formula allows."""

from __future__ import annotations

from torch import Tensor

from clipper.candidates import CandidateSet
from clipper.engines.checks import checked


def posterior_entropy(log_probs: Tensor, candidates: CandidateSet) -> Tensor:
    """The entropy −Σ_σ q(σ) log q(σ) of each sample's candidates, q ∝ Π_j p(σ(j)), `(n,)`, in nats.

    This is the regulariser of Ahmed et al. (2022). A sample whose candidates are all impossible has entropy 0. What is
    added to all labels of a slot changes nothing, so that scores before a softmax will do, too.

    Args:
        log_probs: the classifier's output, `(n, m, c)`.
        candidates: what the labels of each sample could be.

    Examples:
        >>> import torch
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_lists([[(0, 1), (1, 0)]], classes=2)
        >>> posterior_entropy(torch.zeros(1, 2, 2).log_softmax(-1), candidates)
        tensor([0.6931])
    """
    return entropy_of(checked(log_probs, candidates, normalised=False), candidates)


def entropy_of(log_probs: Tensor, candidates: CandidateSet) -> Tensor:
    """As `posterior_entropy`, for log-probabilities that were checked."""
    return candidates.entropy(log_probs)
