"""What all engines share: the entropy option, and a random state that a checkpoint keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.arguments import real_number, seed_number
from clipper.candidates import CandidateSet
from clipper.engines.entropy import entropy_of


class Engine(torch.nn.Module):
    """A loss per sample from `log_probs (n, m, c)` and candidates; subclasses say which."""

    def __init__(self, *, entropy: float = 0.0) -> None:
        super().__init__()
        self.entropy = real_number(entropy, "entropy weight", least=0)

    def regularised(self, losses: Tensor, log_probs: Tensor, candidates: CandidateSet) -> Tensor:
        """`losses (n,)` plus the weighted entropy of the posterior over the candidates."""
        return losses + self.entropy * entropy_of(log_probs, candidates) if self.entropy else losses

    def extra_repr(self) -> str:
        """The options that differ from their defaults, for `print`."""
        return f"entropy={self.entropy}" if self.entropy else ""


class RandomEngine(Engine):
    """An engine that draws random numbers; `state_dict` holds the generator, so a resumed run goes on identically.

    The generator lives on the CPU whatever the device, so that a seed gives the same draws everywhere.
    """

    def __init__(self, *, seed: int = 0, entropy: float = 0.0) -> None:
        super().__init__(entropy=entropy)
        self.generator = torch.Generator().manual_seed(seed_number(seed))

    def get_extra_state(self) -> Tensor:
        """The generator's state, a byte tensor."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Continue from a state that `get_extra_state` gave."""
        self.generator.set_state(state.cpu())
