"""The contract of all engines: what they are given, how it is checked, and the entropy that any of them may add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from clipper.arguments import real_number, seed_number
from clipper.candidates import CandidateSet
from clipper.engines.checks import checked
from clipper.engines.entropy import entropy_of
from clipper.errors import InputError

_REMEDY: Mapping[str, str] = MappingProxyType(
    {
        "targets": "give the samples targets, or pass targets= (n,), each sample's place in outputs, in a Context",
        "embeddings": "let the classifier return them or pass embeddings= (n, m, d) in a Context",
        "unpruned": "pass unpruned=, the candidates before pruning, in a Context",
    }
)


@dataclass(frozen=True, eq=False)
class Context:
    """What an engine may be given beside log-probabilities and candidates; each engine takes what it uses.

    Attributes:
        targets: each sample's place among the outputs of the program, `(n,)`.
        embeddings: the encoder's output, `(n, m, d)`; it gets no gradient.
        unpruned: the same samples' candidates before pruning.

    Examples:
        >>> from clipper import Candidates
        >>> from clipper.engines import DolphinLoss
        >>> outputs = Candidates.from_rule(sum, targets=range(19), slots=2, classes=10)
        >>> log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
        >>> DolphinLoss(outputs=outputs)(log_probs, outputs.batch([8, 2]), Context(targets=torch.tensor([8, 2])))
        tensor([3.3489, 4.5114])
    """

    targets: Tensor | None = None
    embeddings: Tensor | None = None
    unpruned: CandidateSet | None = None


def check_needs(engine: torch.nn.Module, context: Context) -> None:
    """Refuse a context that lacks what the engine says it needs.

    Args:
        engine: any module; one without an attribute `needs` needs nothing.
        context: what it is given.

    Raises:
        InputError: a part is missing; the message says where it comes from.
    """
    for part in getattr(engine, "needs", ()):
        if getattr(context, part, None) is None:
            advice = _REMEDY.get(part, "an engine may need targets, embeddings or unpruned candidates")
            raise InputError(f"{type(engine).__name__} needs {part}: {advice}")


class Engine(torch.nn.Module):
    """A loss per sample. A new engine is a subclass with the method `losses`; it works in `train` as it is.

    Attributes:
        needs: names of the fields of `Context` without which the engine cannot work.
        entropy: weight of the posterior's entropy, see `posterior_entropy`.

    Args:
        entropy: weight of the posterior's entropy.
    """

    needs: tuple[str, ...] = ()

    def __init__(self, *, entropy: float = 0.0) -> None:
        super().__init__()
        self.entropy = real_number(entropy, "entropy weight", least=0)

    def forward(self, log_probs: Tensor, candidates: CandidateSet, context: Context | None = None) -> Tensor:
        """The loss of each sample, and the weighted entropy of its posterior over the candidates.

        Args:
            log_probs: the classifier's output, `(n, m, c)`; arrays and lists will do.
            candidates: what the labels of each sample could be, pruned or not.
            context: what else the engine needs.

        Returns:
            The losses, `(n,)`, differentiable in `log_probs`.

        Raises:
            InputError: the log-probabilities are none, do not fit the candidates, or a part that the engine needs is
                missing.
        """
        log_probs = checked(log_probs, candidates)
        context = Context() if context is None else context
        if not isinstance(context, Context):
            raise InputError(f"expected context to be a clipper.engines.Context, got a {type(context).__name__}")
        check_needs(self, context)
        if not candidates.samples:
            return log_probs.sum((1, 2))  # no sample, no loss
        losses = self.losses(log_probs, candidates, context)
        return losses + self.entropy * entropy_of(log_probs, candidates) if self.entropy else losses

    def losses(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """The loss of each sample without the entropy, `(n,)`; what a subclass defines.

        Args:
            log_probs: `(n, m, c)`, single precision or double, checked; there is at least one sample.
            candidates: what the labels of each sample could be.
            context: what else was given; the parts in `needs` are there.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define losses(log_probs, candidates, context)")

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
