"""The parts of a training, checked before the first step."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from clipper.errors import InputError
from clipper.pruning import Clipper


def check_parts(classifier: Any, engine: Any) -> None:
    """Refuse a classifier or an engine that nothing can be learned with."""
    if not isinstance(classifier, nn.Module):
        raise InputError(f"expected the classifier to be a torch.nn.Module, got {_kind(classifier)}")
    if not isinstance(engine, nn.Module):
        raise InputError(f"expected the engine to be one of clipper.engines or a torch.nn.Module, got {_kind(engine)}")
    weights = list(classifier.parameters())
    if any(isinstance(weight, nn.UninitializedParameter) for weight in weights):
        return  # the first batch shapes them
    if not any(weight.requires_grad for weight in weights):
        raise InputError("expected a classifier with weights to learn, got one without, or with frozen ones alone")
    if any(weight.is_inference() for weight in weights):
        raise InputError(
            "expected a classifier that can learn, got one made in torch.inference_mode(); make it outside"
        )


def check_pruning(clip: Any, once: Any) -> None:
    """Refuse what is no way to prune."""
    if clip is not None and not isinstance(clip, Clipper):
        raise InputError(f"expected clip=Clipper(...) or None, got {_kind(clip)}")
    if not isinstance(once, bool):
        raise InputError(f"expected once to be True or False, got {once!r}")


def check_optimiser(optimiser: Any, classifier: nn.Module) -> None:
    """Refuse an optimiser that does not update the classifier, or that cannot do so step by step."""
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise InputError(f"expected a torch.optim.Optimizer, got {_kind(optimiser)}")
    if isinstance(optimiser, torch.optim.LBFGS):
        raise InputError("expected an optimiser that takes one step per batch, got LBFGS; take AdamW, Adam or SGD")
    own = set(map(id, classifier.parameters()))
    if not any(id(weight) in own for group in optimiser.param_groups for weight in group["params"]):
        raise InputError("expected an optimiser of the classifier's weights, got one of other weights")


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
