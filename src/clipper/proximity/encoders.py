"""Encoders: callables that turn instances into vectors; here the protocol, raw pixels, and how a pool is embedded.

This file knows nothing of graphs, labels or training.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from clipper.errors import InputError
from clipper.proximity.backbones.preprocessing import Preprocessing
from clipper.proximity.backbones.pretrained import pretrained
from clipper.proximity.frozen import Frozen, check_chunk, check_embedding, check_float

__all__ = ["Encoder", "Frozen", "Pixels", "Preprocessing", "embed", "pretrained"]


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


@dataclass(frozen=True)
class Pixels:
    """The inputs themselves, flattened; blurred on request, which forgives small shifts.

    Examples:
        >>> Pixels()(torch.rand(7, 1, 8, 8)).shape
        torch.Size([7, 64])
        >>> Pixels(blur=1.0)(torch.ones(1, 1, 8, 8)).allclose(torch.ones(1, 64))
        True
    """

    blur: float = 0.0
    """Standard deviation of the Gaussian blur in pixels; 0 for none."""

    def __post_init__(self) -> None:
        if not (isfinite(self.blur) and self.blur >= 0):
            raise InputError(f"expected a blur of 0 pixels or more, got {self.blur!r}")

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, *shape)` to `(instances, d)`."""
        check_float(inputs)
        return (self._blurred(inputs) if self.blur else inputs).flatten(1)

    def _blurred(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 4:
            raise InputError(
                f"expected images of shape (instances, channels, height, width) to blur, got {tuple(inputs.shape)}; "
                "use Pixels(blur=0) for inputs that are no images"
            )
        instances, channels, height, width = inputs.shape
        planes = inputs.reshape(instances * channels, 1, height, width)
        kernel = _gaussian(self.blur).to(inputs)  # (taps,)
        reach = len(kernel) // 2
        planes = functional.pad(planes, (reach, reach, reach, reach), mode="replicate")
        planes = functional.conv2d(functional.conv2d(planes, kernel.view(1, 1, -1, 1)), kernel.view(1, 1, 1, -1))
        return planes.reshape(inputs.shape)


def _gaussian(deviation: float) -> Tensor:
    """A bell curve that sums to one, cut at four standard deviations."""
    reach = ceil(4 * deviation)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.float64) / deviation) ** 2)
    return weights / weights.sum()
