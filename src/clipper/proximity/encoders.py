"""Encoders: callables that turn instances into vectors. `embed` applies one to a pool.

`Pixels` and `Outlines` need no weights; `Frozen` wraps a network; `backbones` has pretrained ones. This file knows
nothing about graphs, labels or training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, pi
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from clipper.arguments import as_tensor, real_number, whole_number, yes_or_no
from clipper.errors import InputError
from clipper.proximity.backbones.preprocessing import Preprocessing


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

    Returns:
        The embeddings, on the device of the inputs.

    Raises:
        InputError: the encoder cannot be called, the inputs have no slots, or the encoder does not return one vector
            for each instance.

    Examples:
        >>> embed(Pixels(), torch.rand(5, 2, 1, 28, 28)).shape
        torch.Size([5, 2, 784])
    """
    whole_number(chunk, "a chunk", 1)
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
            [
                check_embedding(encoder(part), len(part))
                for part in torch.split(instances, min(chunk, max(1, len(instances))))
            ]
        )  # (n*m, d)
    # A clone made outside of inference mode may enter a loss; the original may not.
    return embedding.clone().reshape(samples, slots, embedding.shape[1])  # (n, m, d)


def check_encoder(encoder: object) -> None:
    """Raise an `InputError` unless the encoder can be called; a name cannot."""
    if isinstance(encoder, str):
        from clipper.proximity.backbones.pretrained import NAMES  # it imports this module

        names = {"pixels": "Pixels()", "outlines": "Outlines()"}
        call = names.get(encoder.lower(), f'pretrained("{encoder if encoder in NAMES else NAMES[0]}")')
        raise InputError(f"expected an encoder, got the name {encoder!r}; pass clipper.proximity.{call}")
    if isinstance(encoder, type) or not callable(encoder):
        raise InputError(f"expected an encoder that can be called with inputs, got {encoder!r}")


@dataclass(frozen=True)
class Pixels:
    """The inputs themselves, flattened; optionally blurred, so that small shifts matter less.

    Attributes:
        blur: standard deviation of the Gaussian blur in pixels; 0 for none.

    Examples:
        >>> Pixels()(torch.rand(7, 1, 8, 8)).shape
        torch.Size([7, 64])
        >>> Pixels(blur=1.0)(torch.ones(1, 1, 8, 8)).allclose(torch.ones(1, 64))
        True
    """

    blur: float = 0.0

    def __post_init__(self) -> None:
        real_number(self.blur, "blur", least=0)

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, *shape)` to `(instances, d)`.

        Raises:
            InputError: the inputs are not floating-point numbers, or, with a blur, not images.
        """
        inputs = check_float(inputs)
        if not self.blur:
            return inputs.flatten(1)
        inputs = _checked_images(inputs, "use Pixels(blur=0) for inputs that are no images")
        if self.blur > max(inputs.shape[2:]):
            raise InputError(f"expected a blur within images of {tuple(inputs.shape[2:])} pixels, got {self.blur}")
        return _blurred(inputs, self.blur).flatten(1)


@dataclass(frozen=True)
class Outlines:
    """Histograms of oriented gradients: the strength of edges in each direction, in each cell of a grid.

    As in Dalal and Triggs (2005), with smooth cell borders. The square root is taken, so Euclidean distances between
    embeddings are Hellinger distances. Brightness does not matter, and strokes may shift by half a cell. On
    handwriting, four of five nearest neighbours are of the same class, where blurred pixels give two of three.

    Attributes:
        cells: how many cells the grid has along the shorter side; they are square.
        directions: into how many directions a full turn is divided. Opposite directions differ, so it matters which
            side of an edge is brighter.
        colours: whether each channel has its own histograms, so that it matters which side of an edge has which
            colour.

    Examples:
        >>> encoder = Outlines(cells=4)
        >>> encoder(torch.rand(7, 1, 28, 28)).shape
        torch.Size([7, 128])
        >>> image = torch.rand(1, 3, 28, 28)
        >>> torch.allclose(encoder(image), encoder(image + 1), atol=1e-3)
        True
        >>> Outlines(cells=4, colours=True)(torch.rand(7, 3, 28, 56)).shape
        torch.Size([7, 768])
    """

    cells: int = 7
    directions: int = 8
    colours: bool = False

    def __post_init__(self) -> None:
        whole_number(self.cells, "cells", 1)
        whole_number(self.directions, "directions", 3)
        yes_or_no(self.colours, "colours")

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, channels, height, width)` to `(instances, directions * cells²)`, for square images.

        Raises:
            InputError: the inputs are not images of floating-point numbers.
        """
        inputs = _checked_images(check_float(inputs), "outlines are those of images")
        images = inputs.flatten(0, 1).unsqueeze(1) if self.colours else inputs
        planes = _directed(images, self.directions)  # (images, directions, height, width)
        side = min(inputs.shape[2:]) / self.cells  # of a cell, in pixels
        down, right = (_soft_cells(pixels, side).to(planes) for pixels in inputs.shape[2:])
        outlines = (down @ planes @ right.T).clamp(min=0).sqrt()  # (images, directions, cells, cells)
        channels = inputs.shape[1] if self.colours else 1
        return outlines.reshape(len(inputs), channels * self.directions * len(down) * len(right))


class Frozen:
    """Wraps a network or another callable as an encoder that is never trained.

    During a call, a network is in evaluation mode; afterwards each of its modules is in its own mode again. So you can
    also use the features of a classifier that is being trained. Inputs are moved to the network's device, and
    embeddings back to that of the inputs.

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
        whole_number(chunk, "a chunk", 1)
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
    """Raise an `InputError` unless instances are floating-point numbers."""
    tensor = as_tensor(inputs, "inputs (instances, *shape)")
    if not tensor.is_floating_point():
        raise InputError(
            f"expected floating-point inputs, got {tensor.dtype}; images of bytes become floats by inputs / 255"
        )
    if tensor.ndim < 2 or (len(tensor) and not tensor.numel()):
        raise InputError(f"expected inputs of shape (instances, *shape), got {tuple(tensor.shape)}")
    return tensor


def check_embedding(embedding: object, instances: int) -> Tensor:
    """Raise an `InputError` unless an encoder returned one vector per instance."""
    if isinstance(embedding, list | tuple):
        raise InputError(
            f"expected the encoder to return a tensor, got a {type(embedding).__name__} of {len(embedding)}; of a "
            "network that returns log_probs and embeddings, take the latter: lambda x: network(x)[1]"
        )
    if isinstance(embedding, Mapping):  # as the models of transformers return
        fields = (f"{name} {tuple(value.shape)}" for name, value in embedding.items() if isinstance(value, Tensor))
        raise InputError(
            f"expected the encoder to return a tensor, got a {type(embedding).__name__} of {', '.join(fields)}; "
            'take one of them by its name: lambda x: network(x)["name"]'
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
    """Evaluation mode inside the block; afterwards each module's own mode again."""
    training = [part for part in module.modules() if part.training] if isinstance(module, nn.Module) else []
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _checked_images(inputs: Tensor, remedy: str) -> Tensor:
    """Raise an `InputError` unless inputs are images; returns them in single precision at least."""
    if inputs.ndim != 4 or 0 in inputs.shape[1:]:
        raise InputError(
            f"expected images of shape (instances, channels, height, width), got {tuple(inputs.shape)}; {remedy}"
        )
    return inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.float()


def _directed(images: Tensor, directions: int) -> Tensor:
    """The gradient's length, split between its two nearest directions, `(instances, directions, height, width)`."""
    padded = functional.pad(images, (1, 1, 1, 1), mode="replicate")
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    right = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    turn = torch.atan2(down, right) * (directions / (2 * pi))  # in steps from one direction to the next
    away = (turn[:, :, None] - torch.arange(directions, device=images.device).view(-1, 1, 1)) % directions
    share = (1 - torch.minimum(away, directions - away)).clamp(min=0)  # (instances, channels, directions, …)
    return (torch.hypot(down, right)[:, :, None] * share).sum(1)


def _soft_cells(pixels: int, side: float) -> Tensor:
    """The weight of each pixel of a row in each cell of `side` pixels, `(cells, pixels)`, blurred by half a cell."""
    cells = max(1, round(pixels / side))
    row = torch.eye(pixels, dtype=torch.float64).view(pixels, 1, 1, pixels)
    return functional.interpolate(_blurred(row, side / 2), size=(1, cells), mode="bilinear").view(pixels, cells).T


def _blurred(images: Tensor, deviation: float) -> Tensor:
    """Each channel blurred by a Gaussian; at the border, the last pixels are repeated."""
    planes = images.reshape(-1, 1, *images.shape[2:])
    kernel = _gaussian(deviation).to(images)  # (taps,)
    reach = len(kernel) // 2
    planes = functional.pad(planes, (reach, reach, reach, reach), mode="replicate")
    planes = functional.conv2d(functional.conv2d(planes, kernel.view(1, 1, -1, 1)), kernel.view(1, 1, 1, -1))
    return planes.reshape(images.shape)


def _gaussian(deviation: float) -> Tensor:
    """A Gaussian kernel that sums to one, cut at four standard deviations."""
    reach = ceil(4 * deviation)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.float64) / deviation) ** 2)
    return weights / weights.sum()
