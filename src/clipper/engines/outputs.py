"""Engines that compare all outputs of a program, by binary cross-entropy against the one-hot target."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from clipper.arguments import all_within, whole_numbers
from clipper.candidates import CandidateSet
from clipper.candidates.base import must_be_candidates
from clipper.engines.base import Context, Engine
from clipper.errors import InputError

LOWEST_LOG = -100.0
"""log(1 − P) of a wrong output with P = 1, without gradient, as in PyTorch's cross-entropy."""


class OutputEngine(Engine):
    """Binary cross-entropy against the one-hot target, −log P(target) − Σ_{o ≠ target} log(1 − P(o)).

    A subclass defines P by `log_any` and `output_probabilities`. Without outputs, the loss is only the first term.

    Args:
        outputs: the candidates of every possible output, one "sample" for each; or None.
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Attributes:
        outputs: the candidates of every possible output, on the device of the last log-probabilities; or None.
        needs: `("targets",)` with `outputs`, nothing without.
    """

    def __init__(self, outputs: CandidateSet | None, *, entropy: float) -> None:
        super().__init__(entropy=entropy)
        self.outputs = None if outputs is None else must_be_candidates(outputs, "outputs")
        self.needs = () if outputs is None else ("targets",)

    def log_any(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """The log-probability that one of each sample's candidates holds, `(n,)`. A subclass defines this.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.
            candidates: the possible labels of each sample.
            context: the other arguments of the engine.
        """
        raise NotImplementedError

    def output_probabilities(self, log_probs: Tensor, outputs: CandidateSet) -> Tensor:
        """The probability of every output for every sample, `(n, outputs)`. A subclass defines this.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.
            outputs: the candidates of every possible output.
        """
        raise NotImplementedError

    def losses(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """The loss of each sample, see `Engine.losses`."""
        if self.outputs is None:
            return -self.log_any(log_probs, candidates, context)
        if self.outputs.device != log_probs.device:
            self.outputs = self.outputs.to(log_probs.device)
        targets = _checked_targets(context.targets, candidates, self.outputs)
        own = self.log_any(log_probs, candidates, replace(context, targets=targets))
        return cost_of_others(self.output_probabilities(log_probs, self.outputs), targets) - own


def cost_of_others(probability: Tensor, targets: Tensor) -> Tensor:
    """−Σ_{o ≠ target} log(1 − P(o)), `(n,)`, from the `probability (n, outputs)` of each output.

    Probabilities are clamped to [0, 1]; a clamped entry passes no gradient.
    """
    room = 1 - probability
    certain = room <= 0
    logs = torch.where(certain, LOWEST_LOG, torch.where(certain, 1, room).log())
    others = torch.nn.functional.one_hot(targets, probability.shape[1]) == 0
    return -torch.where(others, logs, 0).sum(1)


def _checked_targets(given: Tensor | None, candidates: CandidateSet, outputs: CandidateSet) -> Tensor:
    """The index of each sample's output in `outputs`, `(n,)`, checked."""
    if outputs.slots != candidates.slots or outputs.classes != candidates.classes:
        raise InputError(
            f"expected outputs of {candidates.slots} slots and {candidates.classes} classes like the candidates, "
            f"got {outputs.slots} and {outputs.classes}"
        )
    targets = whole_numbers(given, "targets").long().to(candidates.device)
    if targets.shape != (candidates.samples,):
        raise InputError(f"expected targets of shape ({candidates.samples},), got {tuple(targets.shape)}")
    if not all_within(targets, 0, outputs.samples - 1):
        raise InputError(f"expected targets in 0 … {outputs.samples - 1}, one per output, got {targets.tolist()[:8]} …")
    return targets
