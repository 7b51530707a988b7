"""Encoders: callables that turn instances into vectors; here the protocol, and how a pool is embedded.

This file knows nothing of graphs, labels or training.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from clipper.arguments import as_tensor
from clipper.errors import InputError
from clipper.proximity.backbones.preprocessing import Preprocessing
from clipper.proximity.backbones.pretrained import NAMES, pretrained
from clipper.proximity.frozen import Frozen, check_chunk, check_embedding
from clipper.proximity.images import Outlines, Pixels

__all__ = ["Encoder", "Frozen", "Outlines", "Pixels", "Preprocessing", "embed", "pretrained"]


class Encoder(Protocol):
    """Anything that maps a float tensor `(instances, *shape)` to embeddings `(instances, d)`."""

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """Embed the instances."""


def embed(encoder: Encoder, inputs: Tensor, chunk: int = 256) -> Tensor:
    """The embedding of each input of each sample, `(n, m, d)`, without gradients.

    Args:
        encoder: maps `(instances, *shape)` to `(instances, d)`.
        inputs: `(n, m, *shape)`, one input per slot.
        chunk: instances encoded together, so that memory stays bounded.

    Examples:
        >>> embed(Pixels(), torch.rand(5, 2, 1, 28, 28)).shape
        torch.Size([5, 2, 784])
    """
    check_chunk(chunk)
    check_encoder(encoder)
    inputs = as_tensor(inputs, "inputs (samples, slots, *shape)")
    if inputs.ndim < 3:
        raise InputError(
            f"expected inputs of shape (samples, slots, *shape), got {tuple(inputs.shape)}; "
            "a single slot per sample is inputs.unsqueeze(1)"
        )
    samples, slots = inputs.shape[:2]
    if not inputs[:1].numel() and samples:
        raise InputError(f"expected at least one slot and one number per input, got {tuple(inputs.shape)}")
    instances = inputs.reshape(samples * slots, *inputs.shape[2:])  # (n*m, *shape)
    with torch.inference_mode():
        embedding = torch.cat(
            [_encode(encoder, part) for part in torch.split(instances, min(chunk, max(1, len(instances))))]
        )  # (n*m, d)
    # A clone made outside of inference mode may enter a loss; the original may not.
    return embedding.clone().reshape(samples, slots, embedding.shape[1])  # (n, m, d)


def _encode(encoder: Encoder, instances: Tensor) -> Tensor:
    return check_embedding(encoder(instances), len(instances))


def check_encoder(encoder: object) -> None:
    """An encoder is something to call; a name is not."""
    if isinstance(encoder, str):
        names = {"pixels": "Pixels()", "outlines": "Outlines()"}
        call = names.get(encoder.lower(), f'pretrained("{encoder if encoder in NAMES else NAMES[0]}")')
        raise InputError(f"expected an encoder, got the name {encoder!r}; pass clipper.proximity.{call}")
    if isinstance(encoder, type) or not callable(encoder):
        raise InputError(f"expected an encoder that can be called with inputs, got {encoder!r}")
