"""Encoders: callables that turn instances into vectors; here the protocol, and how a pool is embedded.

This file knows nothing of graphs, labels or training.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from clipper.errors import InputError
from clipper.proximity.backbones.preprocessing import Preprocessing
from clipper.proximity.backbones.pretrained import pretrained
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
    if inputs.ndim < 3:
        raise InputError(
            f"expected inputs of shape (samples, slots, *shape), got {tuple(inputs.shape)}; "
            "a single slot per sample is inputs.unsqueeze(1)"
        )
    samples, slots = inputs.shape[:2]
    instances = inputs.reshape(samples * slots, *inputs.shape[2:])  # (n*m, *shape)
    with torch.inference_mode():
        embedding = torch.cat([_encode(encoder, part) for part in torch.split(instances, chunk)])  # (n*m, d)
    # A clone made outside of inference mode may enter a loss; the original may not.
    return embedding.clone().reshape(samples, slots, embedding.shape[1])  # (n, m, d)


def _encode(encoder: Encoder, instances: Tensor) -> Tensor:
    return check_embedding(encoder(instances), len(instances))
