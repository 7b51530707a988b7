"""Dolphin's losses: proofs multiply, alternatives add up and are clamped to [0, 1]."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from clipper.arguments import one_of, whole_number
from clipper.candidates import CandidateSet
from clipper.engines.base import Context, Engine
from clipper.engines.evidence import log_evidence, output_sums, with_the_best
from clipper.engines.outputs import check_outputs, check_targets, cost_of_others, on_device
from clipper.engines.packed import candidate_log_probs, segment_logsumexp, segment_top

Provenance = Literal["damp", "dtkp-am"]


class DolphinLoss(Engine):
    """Dolphin's DAMP (all proofs) or DTKP-AM (the `k` most probable): the sum of their products, clamped.

    The loss is the binary cross-entropy against the one-hot target over all outputs,
    −log P(target) − Σ_{o ≠ target} log(1 − P(o)). P(target) comes from the candidates given, pruned or not,
    P(o) from `outputs`. Without `outputs` only the first term is there. A clamped entry passes no gradient; where
    an output other than the target is certain, log(1 − P) is −100, as in PyTorch.

    Args:
        provenance: `"damp"` or `"dtkp-am"`.
        k: how many proofs DTKP-AM keeps.
        outputs: the candidates of every value that the program can give, one "sample" each.
        entropy: weight of the posterior's entropy, see `posterior_entropy`.

    Examples:
        >>> from clipper import Candidates
        >>> outputs = Candidates.from_rule(sum, targets=range(19), slots=2, classes=10)
        >>> candidates = outputs.batch([8, 2])
        >>> log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
        >>> DolphinLoss()(log_probs, candidates).exp()
        tensor([11.1111, 33.3333])
        >>> DolphinLoss(outputs=outputs)(log_probs, candidates, Context(targets=torch.tensor([8, 2])))
        tensor([3.3489, 4.5114])
    """

    def __init__(
        self,
        provenance: Provenance = "damp",
        *,
        k: int = 3,
        outputs: CandidateSet | None = None,
        entropy: float = 0.0,
    ) -> None:
        super().__init__(entropy=entropy)
        one_of(provenance, "provenance", get_args(Provenance))
        self.provenance, self.k, self.outputs = provenance, whole_number(k, "k"), check_outputs(outputs)
        self.needs = () if outputs is None else ("targets",)

    def losses(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """As in `Engine.losses`."""
        targets = check_targets(context.targets, candidates, self.outputs)
        losses = -self._log_target(log_probs, candidates)
        if self.outputs is not None and targets is not None:
            self.outputs = on_device(self.outputs, log_probs.device)
            losses = losses + cost_of_others(self._probability(log_probs, self.outputs), targets)
        return losses

    def _log_target(self, log_probs: Tensor, candidates: CandidateSet) -> Tensor:
        """log P(target), `(n,)`, in logarithms throughout: small probabilities keep their gradient."""
        if self.provenance == "damp":
            return log_evidence(log_probs, candidates).clamp(max=0)
        listed = with_the_best(log_probs, candidates, self.k)
        values = candidate_log_probs(log_probs, listed)  # (Ω,)
        rows, found = segment_top(values, listed, self.k)  # (k, n)
        chosen = torch.zeros(len(values), dtype=torch.bool, device=values.device).index_fill_(0, rows[found], True)
        return segment_logsumexp(torch.where(chosen, values, -torch.inf), listed).clamp(max=0)

    def _probability(self, log_probs: Tensor, outputs: CandidateSet) -> Tensor:
        """The unclamped sum of each output's proofs for each sample, `(n, outputs)`."""
        return output_sums(log_probs, outputs, None if self.provenance == "damp" else self.k)
