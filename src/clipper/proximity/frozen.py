"""Frozen: a network used as an encoder, in evaluation mode, without gradients, a chunk at a time.

This file knows nothing of particular networks or of where weights come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clipper.arguments import as_tensor, whole_number
from clipper.errors import InputError
from clipper.proximity.backbones.preprocessing import Preprocessing


class Frozen:
    """Any network or callable as an encoder that is never trained.

    A network is put into evaluation mode for the call and back into its own mode afterwards, so the features of a
    classifier in training can be frozen for a moment. Inputs travel to the network's device and embeddings back.

    Examples:
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5), nn.Dropout())
        >>> encoder = Frozen(network, Preprocessing(size=16, mean=(0.5,) * 3, std=(0.5,) * 3))
        >>> encoder(torch.rand(7, 1, 28, 28)).shape
        torch.Size([7, 5])
        >>> network.training
        True
    """

    def __init__(
        self,
        module: Callable[[Tensor], Tensor],
        preprocessing: Preprocessing | None = None,
        *,
        chunk: int = 32,
        name: str = "",
    ) -> None:
        """Wrap a module.

        Args:
            module: maps `(instances, *shape)` to `(instances, d)`.
            preprocessing: what to do to the inputs first; nothing by default.
            chunk: instances encoded together, so that memory stays bounded.
            name: what to call the encoder in records; the module's class by default.
        """
        check_chunk(chunk)
        for part in (module, preprocessing):
            if isinstance(part, type) or not (callable(part) or part is preprocessing is None):
                raise InputError(f"expected a network or a function on images, got {part!r}")
        self.module = module
        self.preprocessing = preprocessing
        self.chunk = chunk
        self.name = name or type(module).__name__

    @torch.no_grad()
    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, *shape)` to `(instances, d)`, on the device of the inputs."""
        inputs = check_float(inputs)
        with _evaluating(self.module):
            return torch.cat([self._encode(part) for part in torch.split(inputs, min(self.chunk, max(1, len(inputs))))])

    def to(self, device: torch.device | str) -> Frozen:
        """Move the network to a device."""
        if isinstance(self.module, nn.Module):
            self.module.to(device)
        return self

    def _encode(self, part: Tensor) -> Tensor:
        home = _any_parameter(self.module, default=part)
        images = part.to(home.device)
        if self.preprocessing:
            images = self.preprocessing(images)
        return check_embedding(self.module(images.to(home.dtype)), len(part)).to(part)

    def __repr__(self) -> str:
        return f"Frozen({self.name})"


def check_float(inputs: object) -> Tensor:
    """Encoders take floating-point instances."""
    tensor = as_tensor(inputs, "inputs (instances, *shape)")
    if not tensor.is_floating_point():
        raise InputError(
            f"expected floating-point inputs, got {tensor.dtype}; images of bytes become floats by inputs / 255"
        )
    if tensor.ndim < 2 or (len(tensor) and not tensor.numel()):
        raise InputError(f"expected inputs of shape (instances, *shape), got {tuple(tensor.shape)}")
    return tensor


def check_chunk(chunk: int) -> None:
    """A chunk holds at least one instance."""
    whole_number(chunk, "a chunk", 1)


def check_embedding(embedding: object, instances: int) -> Tensor:
    """What an encoder returned must be one vector per instance."""
    if isinstance(embedding, list | tuple):
        raise InputError(
            f"expected the encoder to return a tensor, got a {type(embedding).__name__} of {len(embedding)}; of a "
            "network that returns log_probs and embeddings, take the latter: lambda x: network(x)[1]"
        )
    tensor = as_tensor(embedding, "what the encoder returns")
    if tensor.ndim != 2 or len(tensor) != instances or not tensor.shape[1]:
        raise InputError(
            f"expected embeddings of shape ({instances}, d), got {tuple(tensor.shape)}; "
            "pool feature maps over height and width, embedding.mean((2, 3)), or flatten them, embedding.flatten(1)"
        )
    return tensor


def _any_parameter(module: object, default: Tensor) -> Tensor:
    return next(module.parameters(), default) if isinstance(module, nn.Module) else default


@contextmanager
def _evaluating(module: object) -> Iterator[None]:
    """Evaluation mode inside the block; each part's own mode after it."""
    training = [part for part in module.modules() if part.training] if isinstance(module, nn.Module) else []
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
