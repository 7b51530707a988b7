"""Binary cross-entropy over all outputs of a program: the right one should be likely, the others should not."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.arguments import as_tensor
from clipper.candidates import CandidateSet
from clipper.candidates.listing import must_be_candidates
from clipper.errors import InputError

_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
LOWEST_LOG = -100.0
"""log(1 − P) of an output that is certain and wrong, without gradient: the convention of PyTorch's cross-entropy."""


def check_outputs(outputs: CandidateSet | None) -> CandidateSet | None:
    """The outputs that an engine is built with, if any."""
    return None if outputs is None else must_be_candidates(outputs, "outputs")


def check_targets(targets: Tensor | None, candidates: CandidateSet, outputs: CandidateSet | None) -> Tensor | None:
    """Which of `outputs` each sample has, `(n,)`; None where the engine was built without outputs."""
    if outputs is None or targets is None:
        return None
    if outputs.slots != candidates.slots or outputs.classes != candidates.classes:
        raise InputError(
            f"expected outputs of {candidates.slots} slots and {candidates.classes} classes like the candidates, "
            f"got {outputs.slots} and {outputs.classes}"
        )
    targets = as_tensor(targets, "targets", candidates.device).to(candidates.device)
    if targets.shape != (candidates.samples,) or targets.dtype not in _WHOLE:
        raise InputError(
            f"expected targets of shape ({candidates.samples},), whole numbers, "
            f"got {tuple(targets.shape)} of {targets.dtype}"
        )
    if len(targets) and (int(targets.min()) < 0 or int(targets.max()) >= outputs.samples):
        raise InputError(f"expected targets in 0 … {outputs.samples - 1}, one per output, got {targets.tolist()[:8]} …")
    return targets.long()


def on_device(outputs: CandidateSet, device: torch.device) -> CandidateSet:
    """The same outputs if they are there already, with what they have cached."""
    return outputs if outputs.device == device else outputs.to(device)


def cost_of_others(probability: Tensor, targets: Tensor) -> Tensor:
    """−Σ_{o ≠ target} log(1 − P(o)), `(n,)`, from the `probability (n, outputs)` that each output gets.

    Probabilities are clamped to [0, 1]; a clamped entry passes no gradient.
    """
    room = 1 - probability
    certain = room <= 0
    logs = torch.where(certain, LOWEST_LOG, torch.where(certain, 1, room).log())
    others = torch.nn.functional.one_hot(targets, probability.shape[1]) == 0
    return -torch.where(others, logs, 0).sum(1)
