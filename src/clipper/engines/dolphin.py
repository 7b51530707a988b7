"""Dolphin's losses: a proof is the product of its facts, a disjunction is the sum of its proofs, clamped to [0, 1]."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from clipper.arguments import one_of, whole_number
from clipper.candidates import CandidateSet
from clipper.engines.base import Context
from clipper.engines.outputs import OutputEngine

Provenance = Literal["damp", "dtkp-am"]


class DolphinLoss(OutputEngine):
    """Dolphin's DAMP (all proofs) or DTKP-AM (the `k` most probable): the sum of their products, clamped.

    The loss is the binary cross-entropy against the one-hot target over all outputs,
    −log P(target) − Σ_{o ≠ target} log(1 − P(o)). P(target) comes from the candidates given, pruned or not,
    P(o) from `outputs`. Without `outputs` there is only the first term. A clamped entry passes no gradient. If an
    output other than the target is certain, log(1 − P) is −100, as in PyTorch.

    Args:
        provenance: `"damp"` or `"dtkp-am"`.
        k: how many proofs DTKP-AM keeps.
        outputs: the candidates of every possible output, one "sample" for each.
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Attributes:
        provenance: `"damp"` or `"dtkp-am"`.
        k: how many proofs DTKP-AM keeps.
        outputs: the candidates of every possible output, on the device of the last log-probabilities.
        needs: `("targets",)` with `outputs`, nothing without.

    Raises:
        InputError: an option is out of range.

    Examples:
        >>> import torch
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
        super().__init__(outputs, entropy=entropy)
        one_of(provenance, "provenance", get_args(Provenance))
        self.provenance, self.k = provenance, whole_number(k, "k")

    def log_any(self, log_probs: Tensor, candidates: CandidateSet, _: Context) -> Tensor:
        """The logarithm of the clamped sum, computed in logarithms, so that small probabilities keep their gradient."""
        proofs = candidates if self.provenance == "damp" else candidates.top_k(log_probs, self.k)
        return proofs.log_probability(log_probs).clamp(max=0)

    def output_probabilities(self, log_probs: Tensor, outputs: CandidateSet) -> Tensor:
        """The probability of every output for every sample, `(n, outputs)`."""
        return outputs.output_probabilities(log_probs, None if self.provenance == "damp" else self.k)
