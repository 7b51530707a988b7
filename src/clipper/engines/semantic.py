"""Semantic loss: minus the log-probability that the classifier's labels satisfy the formula."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.arguments import whole_number
from clipper.candidates import CandidateSet
from clipper.candidates.base import must_be_candidates
from clipper.engines.base import Context, Engine, RandomEngine


class SemanticLoss(Engine):
    """−log Σ_σ Π_j p(σ(j)): candidates exclude one another, so the sum is the exact probability of the formula.

    A sample whose candidates all have probability 0 has loss inf and gradient 0. Log-probabilities of -1e4 do not
    underflow. The sum is also exact on a `Lattice`, for any number of candidates. A candidate that occurs twice counts
    twice (`Candidates.distinct` removes repetitions).

    Args:
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Raises:
        InputError: the weight is negative or not a number.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
        >>> SemanticLoss()(log_probs, candidates).exp()  # 100 pairs, of which 9 and 3 have the right sum
        tensor([11.1111, 33.3333])
    """

    def losses(self, log_probs: Tensor, candidates: CandidateSet, _: Context) -> Tensor:
        """The loss of each sample, see `Engine.losses`."""
        return -candidates.log_probability(log_probs)


class SampledSemanticLoss(RandomEngine, SemanticLoss):
    """Semantic loss on a few candidates of each sample, drawn again at each call, if there are too many to use all.

    Args:
        per_sample: how many candidates to draw, uniformly and without replacement.
        seed: the seed of the draws; `state_dict` holds the state of the generator.
        entropy: weight of the entropy of the posterior over the drawn candidates.

    Attributes:
        per_sample: how many candidates to draw.

    Raises:
        InputError: an option is out of range.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
        >>> SampledSemanticLoss(per_sample=4)(log_probs, candidates).exp()
        tensor([25.0000, 33.3333])
    """

    def __init__(self, per_sample: int, *, seed: int = 0, entropy: float = 0.0) -> None:
        super().__init__(seed=seed, entropy=entropy)
        self.per_sample = whole_number(per_sample, "per_sample")

    def forward(self, log_probs: Tensor, candidates: CandidateSet, context: Context | None = None) -> Tensor:
        """The loss of each sample on the drawn candidates; arguments as for `Engine.forward`."""
        seed = int(torch.randint(2**62, (), generator=self.generator))
        drawn = must_be_candidates(candidates).draw(self.per_sample, seed)
        return super().forward(log_probs, drawn, context)
