"""Small problems for the tests of training: a few samples of two vectors each, of which only the sum is known."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clipper import Candidates
from clipper.training import Samples


class TinyNet(nn.Module):
    """Log-probabilities and the embedding of one pass, with dropout, so that random numbers matter."""

    def __init__(self, seed: int = 0, classes: int = 4) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.features = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
            self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, classes))
        self.passes = 0

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        self.passes += 1
        embedding = self.features(inputs)
        return self.head(embedding).log_softmax(-1), embedding


def problem(samples: int = 20, seed: int = 0, classes: int = 4) -> Samples:
    """Samples of two noisy class prototypes; the target is the sum of the classes."""
    generator = torch.Generator().manual_seed(seed)
    prototypes = 3 * torch.randn(classes, 6, generator=generator)
    gold = torch.randint(0, classes, (samples, 2), generator=generator)
    inputs = prototypes[gold] + 0.3 * torch.randn(samples, 2, 6, generator=generator)
    targets = gold.sum(1)
    return Samples(inputs, Candidates.from_rule(sum, targets, 2, classes), gold, targets)


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
