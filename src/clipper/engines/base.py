"""The base class of all engines: their arguments, how these are checked, and the entropy term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import as_tensor, real_number, seed_number
from clipper.candidates import CandidateSet
from clipper.candidates.base import check_log_probs, check_satisfiable, must_be_candidates
from clipper.errors import InputError

_SLACK = 1e-3
"""The probabilities of a slot may add up to 1 plus this: rounding, or a small number added before the logarithm."""
_ADVICE = {
    "targets": "give the samples targets, or pass targets= (n,), each sample's place in outputs, in a Context",
    "embeddings": "let the classifier return them or pass embeddings= (n, m, d) in a Context",
    "unpruned": "pass unpruned=, the candidates before pruning, in a Context",
}
"""For each field of a `Context`, how to provide it."""


@dataclass(frozen=True, eq=False)
class Context:
    """More arguments of an engine, besides log-probabilities and candidates. Each engine uses what it needs.

    Attributes:
        targets: the number of each sample's output, `(n,)`.
        embeddings: the encoder's output, `(n, m, d)`; no gradient flows to it.
        unpruned: the candidates of the same samples before pruning.

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
    """Check that a context has all fields in the engine's `needs`.

    Args:
        engine: any module; without an attribute `needs`, it needs no fields.
        context: the context that the engine would get.

    Raises:
        InputError: a field is missing; the message says how to provide it.
    """
    for part in getattr(engine, "needs", ()):
        if getattr(context, part, None) is None:
            advice = _ADVICE.get(part, "an engine may need targets, embeddings or unpruned candidates")
            raise InputError(f"{type(engine).__name__} needs {part}: {advice}")


class Engine(torch.nn.Module):
    """A loss for each sample. For your own engine, write a subclass that defines `losses`.

    Args:
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Attributes:
        entropy: the weight of the entropy.
        needs: the names of the `Context` fields that the engine requires.

    Raises:
        InputError: the weight is negative or not a number.

    Examples:
        >>> from clipper import Candidates
        >>> class MostProbable(Engine):
        ...     def losses(self, log_probs, candidates, context):
        ...         return -candidates.top_k(log_probs, 1).log_probability(log_probs)
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> MostProbable()(torch.zeros(2, 2, 10).log_softmax(-1), candidates)
        tensor([4.6052, 4.6052])
    """

    needs: tuple[str, ...] = ()

    def __init__(self, *, entropy: float = 0.0) -> None:
        super().__init__()
        self.entropy = real_number(entropy, "entropy weight", least=0)

    def forward(self, log_probs: Tensor, candidates: CandidateSet, context: Context | None = None) -> Tensor:
        """The loss of each sample, plus the weighted entropy of its posterior over the candidates.

        Args:
            log_probs: the classifier's output, `(n, m, c)`; a tensor, an array or lists.
            candidates: the possible labels of each sample, pruned or not.
            context: the other arguments of the engine.

        Returns:
            The losses, `(n,)`, differentiable in `log_probs`.

        Raises:
            InputError: the values are not log-probabilities or do not fit the candidates, a sample has no candidates,
                or a required field of the context is missing.
        """
        log_probs = checked_log_probs(log_probs, candidates)
        context = Context() if context is None else context
        if not isinstance(context, Context):
            raise InputError(f"expected context to be a clipper.engines.Context, got a {type(context).__name__}")
        check_needs(self, context)
        check_satisfiable(candidates)
        if not candidates.samples:
            return log_probs.sum((1, 2))  # no sample, no loss
        losses = self.losses(log_probs, candidates, context)
        return losses + self.entropy * candidates.entropy(log_probs) if self.entropy else losses

    def losses(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """The loss of each sample without the entropy, `(n,)`; a subclass defines this.

        Args:
            log_probs: `(n, m, c)`, in single or double precision, checked; there is at least one sample.
            candidates: the possible labels of each sample.
            context: the other arguments; the fields in `needs` are not None.

        Returns:
            The losses, differentiable in `log_probs`.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define losses(log_probs, candidates, context)")

    def extra_repr(self) -> str:
        """The options that differ from their defaults, for `print`."""
        return f"entropy={self.entropy}" if self.entropy else ""


class RandomEngine(Engine):
    """An engine that draws random numbers; `state_dict` holds the generator, so a resumed run continues identically.

    The generator is always on the CPU, so that a seed gives the same draws on every device.

    Args:
        seed: the seed of the draws.
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Attributes:
        generator: the generator of all random numbers.
    """

    def __init__(self, *, seed: int = 0, entropy: float = 0.0) -> None:
        super().__init__(entropy=entropy)
        self.generator = torch.Generator().manual_seed(seed_number(seed))

    def get_extra_state(self) -> Tensor:
        """The generator's state, a byte tensor."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Continue from a state that `get_extra_state` returned.

        Args:
            state: the state of the generator.
        """
        self.generator.set_state(state.cpu())


def checked_log_probs(log_probs: Any, candidates: CandidateSet) -> Tensor:
    """Check `log_probs (n, m, c)`, a tensor, an array or lists, and convert it to single precision at least.

    Only used slots are checked, and of these only the labels of the slot's kind. Their probabilities may add up to less
    than 1, because labels may be masked.

    Args:
        log_probs: the classifier's output.
        candidates: the possible labels of each sample.

    Raises:
        InputError: a slot holds NaN or infinity, or its probabilities add up to more than 1, as those of raw scores do.
    """
    must_be_candidates(candidates)
    values = as_tensor(log_probs, "log_probs", candidates.device)
    check_log_probs(values, candidates)
    most = 1 + max(_SLACK, 8 * torch.finfo(values.dtype).eps)
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    if values.numel() and not torch.compiler.is_compiling():  # reading values would break a compiled graph
        given = values.detach()
        if not given.exp().sum(-1).max().item() <= most:  # also true for NaN
            _check_used_slots(given, candidates, most)
    return values


def _check_used_slots(log_probs: Tensor, candidates: CandidateSet, most: float) -> None:
    """Raise an `InputError` that names a used slot with NaN, infinity or a sum above `most`, if there is one."""
    for number, kind in enumerate(candidates.kinds):
        own = log_probs[..., kind.start : kind.stop]
        used = candidates.kind == number
        broken = used & (own.isnan() | (own == torch.inf)).any(-1)
        if bool(broken.any()):
            sample, slot = broken.nonzero()[0].tolist()
            found = "NaN" if bool(own[sample, slot].isnan().any()) else "infinity"
            raise InputError(
                f"expected log-probabilities, got {found} in slot {slot} of sample {sample} of the batch; check the "
                "input of that sample, or lower the learning rate"
            )
        total = torch.where(used, own.exp().sum(-1), 0)
        if bool((total > most).any()):
            sample, slot = divmod(int(total.argmax()), total.shape[1])
            whose = f" over the labels of kind {kind.name!r}" if len(candidates.kinds) > 1 else ""
            raise InputError(
                f"expected log-probabilities, got values that sum to {float(total.max()):.4g}{whose} in slot {slot} of "
                f"sample {sample} of the batch, where probabilities sum to 1: apply log_softmax(-1) to the "
                "classifier's scores"
            )
