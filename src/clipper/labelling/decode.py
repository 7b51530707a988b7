"""decode: from a classifier's output and a fact about each sample to the most probable labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clipper.arguments import as_tensor, real_number, widened
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import check_choosable, check_log_probs, must_be_candidates
from clipper.candidates.packed import candidate_log_probs
from clipper.errors import InputError
from clipper.pruning.objectives import listed_only

_SLACK = 1e-3
"""Rounding error: the probabilities of all outputs may add up to 1 plus this."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """The most probable labels of some samples, with probabilities. `decode` returns it.

    Attributes:
        labels: `(n, m)`: the most probable labels that satisfy the target; -1 in unused slots, and in all slots of a
            sample without candidates.
        probability: `(n,)`: their probability, given the target; 0 if the classifier rules out all candidates.
        runner_up: `(n, m)`: the second most probable labels; -1 if there is only one candidate.
        runner_up_probability: `(n,)`: their probability; 0 if there are none.
        abstained: `(n,)` bool: samples with a probability below the threshold, and samples without candidates. Check
            these by hand.
        output: `(n,)`: the most probable output, to which `labels` belong, if targets are not known; else None.
        output_probability: `(n, outputs)`: the probability of each output, if targets are not known; else None.
    """

    labels: Tensor
    probability: Tensor
    runner_up: Tensor
    runner_up_probability: Tensor
    abstained: Tensor
    output: Tensor | None = None
    output_probability: Tensor | None = None


@torch.no_grad()
def decode(
    log_probs: Tensor,
    candidates: CandidateSet | None = None,
    *,
    outputs: CandidateSet | None = None,
    threshold: float = 0.0,
) -> Decoded:
    """The most probable labels of each sample that satisfy its target.

    Args:
        log_probs: the classifier's output, `(n, m, c)`; a tensor, an array or lists.
        candidates: the possible labels of each sample, in any form.
        outputs: instead of `candidates`, if the targets are not known: the candidates of every possible output, one
            "sample" for each output. `decode` then finds the most probable output and its most probable labels.
        threshold: abstain if the labels (without targets: the output) are less probable than this.

    Returns:
        Labels, probabilities and runners-up, `(n, …)` each.

    Raises:
        InputError: the log-probabilities do not fit the candidates, or are NaN or infinite.

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[3], slots=2, classes=3)  # 1 + 2 or 2 + 1
        >>> log_probs = torch.tensor([[[0.6, 0.3, 0.1], [0.2, 0.4, 0.4]]]).log()
        >>> decoded = decode(log_probs, candidates, threshold=0.9)
        >>> decoded.labels.tolist(), decoded.probability, decoded.abstained  # 0.3 · 0.4 of 0.3 · 0.4 + 0.1 · 0.4
        ([[1, 2]], tensor([0.7500]), tensor([True]))
        >>> sums = Candidates.from_rule(sum, targets=range(5), slots=2, classes=3)
        >>> decoded = decode(log_probs, outputs=sums)
        >>> decoded.output, decoded.output_probability
        (tensor([2]), tensor([[0.1200, 0.3000, 0.3800, 0.1600, 0.0400]]))
    """
    limit = real_number(threshold, "threshold", least=0, most=1)
    if (candidates is None) == (outputs is None):
        raise InputError(
            "expected either candidates, the possible labels of each sample, or outputs=, the candidates of every "
            "possible output"
        )
    if candidates is not None:
        values = as_tensor(log_probs, "log_probs", must_be_candidates(candidates).device)
        return _decoded(values, candidates, limit)
    every = must_be_candidates(outputs, "outputs")
    values = as_tensor(log_probs, "log_probs", every.device)
    if not every.samples:
        raise InputError("expected the candidates of at least one output, got none")
    check_log_probs(values, every, any_samples=True)
    check_choosable(values, (every.kind[:1] < 0)[..., None])
    share = every.output_probabilities(values)  # (n, outputs)
    if share.numel() and float(share.sum(1).max()) > 1 + _SLACK:
        raise InputError(
            f"expected log-probabilities, got values for which the probabilities of all outputs add up to "
            f"{float(share.sum(1).max()):.4g}; apply log_softmax(-1) to the classifier's scores"
        )
    probability, output = share.max(1)
    found = _decoded(values, every.select(output), 0.0)
    return replace(found, abstained=probability < limit, output=output, output_probability=share)


def _decoded(log_probs: Tensor, candidates: CandidateSet, threshold: float) -> Decoded:
    listed = listed_only(candidates)
    if listed is not None and len(different := listed.distinct()) < len(listed):
        candidates = different  # the same labels twice are not twice as probable
    best = candidates.top_k(log_probs, 2)
    exact = widened(log_probs)
    whole = candidates.log_probability(exact)
    share = (candidate_log_probs(exact, best) - whole[best.sample]).exp().nan_to_num(0.0)  # NaN: all are ruled out
    (labels, probability), (runner_up, second) = (_of_rank(best, share, rank) for rank in range(2))
    abstained = (probability < threshold) | (best.offsets.diff() == 0)
    kind = log_probs.dtype
    return Decoded(labels, probability.to(kind), runner_up, second.to(kind), abstained)


def _of_rank(best: Candidates, share: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The labels `(n, m)` and the probability `(n,)` of the row with this rank in each sample; -1 and 0 if none."""
    there = best.offsets.diff() > rank
    if not len(best):
        return best.offsets.new_full((best.samples, best.slots), -1), share.new_zeros(best.samples)
    row = (best.offsets[:-1] + rank).clamp(max=len(best) - 1)
    return torch.where(there[:, None], best.labels[row].long(), -1), torch.where(there, share[row], 0)
