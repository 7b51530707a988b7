"""What an engine is given: candidates, and log-probabilities that are some, checked once at the start of a loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clipper.arguments import as_tensor
from clipper.candidates import CandidateSet, Kind
from clipper.candidates.base import check_log_probs, must_be_candidates
from clipper.errors import InputError

_SLACK = 1e-3
"""By how much the probabilities of a slot may sum to more than 1: rounding, or a small number added before the log."""


def checked(log_probs: Any, candidates: CandidateSet, *, normalised: bool = True) -> Tensor:
    """`log_probs (n, m, c)` as a tensor of single precision at least; arrays and lists will do.

    Only used slots are judged, and of these only the labels of the slot's kind. They may sum to less than 1, where
    labels were masked.

    Args:
        log_probs: the classifier's output.
        candidates: what the labels of each sample could be.
        normalised: whether probabilities that sum to more than 1 are refused, as raw scores are; else only NaN and
            infinity are.
    """
    must_be_candidates(candidates)
    values = as_tensor(log_probs, "log_probs", candidates.device)
    check_log_probs(values, candidates)
    most = 1 + max(_SLACK, 8 * torch.finfo(values.dtype).eps)
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    if values.numel() and not torch.compiler.is_compiling():  # a look at the values would cut a compiled graph
        given = values.detach()
        if normalised and not given.exp().sum(-1).max().item() <= most:  # NaN is not, either
            _look_closely(given, candidates, most)
        if not normalised and not given.max().item() < torch.inf:
            _look_closely(given, candidates, torch.inf)
    return values


def _look_closely(log_probs: Tensor, candidates: CandidateSet, most: float) -> None:
    """Raise an `InputError` that names a used slot with what is wrong in it, if there is one."""
    for number, kind in enumerate(candidates.kinds):
        own = log_probs[..., kind.start : kind.stop]
        used = candidates.kind == number
        broken = used & (own.isnan() | (own == torch.inf)).any(-1)
        if bool(broken.any()):
            sample, slot = broken.nonzero()[0].tolist()
            worst = own[sample, slot]
            found = "NaN" if bool(worst.isnan().any()) else "infinity"
            raise InputError(
                f"expected log-probabilities, got {found} in slot {slot} of sample {sample} of the batch; look at that "
                "sample's input, or lower the learning rate"
            )
        total = own.exp().sum(-1)
        if bool((used & (total > most)).any()):
            raise InputError(_too_much(torch.where(used, total, 0), kind, len(candidates.kinds) > 1))


def _too_much(total: Tensor, kind: Kind, several: bool) -> str:
    sample, slot = divmod(int(total.argmax()), total.shape[1])
    whose = f" over the labels of kind {kind.name!r}" if several else ""
    return (
        f"expected log-probabilities, got values that sum to {float(total.max()):.4g}{whose} in slot {slot} of sample "
        f"{sample} of the batch, where probabilities sum to 1: apply log_softmax(-1) to the classifier's scores"
    )
