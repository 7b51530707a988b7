"""Encoders of images that need no weights: their pixels, or the directions of their outlines."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, pi

import torch
from torch import Tensor
from torch.nn import functional

from clipper.arguments import real_number, whole_number, yes_or_no
from clipper.errors import InputError
from clipper.proximity.frozen import check_float


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
        real_number(self.blur, "blur", least=0)

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, *shape)` to `(instances, d)`."""
        inputs = check_float(inputs)
        if not self.blur:
            return inputs.flatten(1)
        inputs = _checked_images(inputs, "use Pixels(blur=0) for inputs that are no images")
        if self.blur > max(inputs.shape[2:]):
            raise InputError(f"expected a blur within images of {tuple(inputs.shape[2:])} pixels, got {self.blur}")
        return _blurred(inputs, self.blur).flatten(1)


@dataclass(frozen=True)
class Outlines:
    """How much outline runs in each direction, in each cell of a grid laid over the image.

    Histograms of oriented gradients (Dalal and Triggs, 2005), with soft cells; under their square roots, Euclidean
    distances are Hellinger's. Brightness is of no matter, and strokes may shift by half a cell: on handwriting, four of
    five near neighbours are of one class where blurred pixels give two of three.

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
    """Of the grid, along the shorter side; they are square."""
    directions: int = 8
    """Of a full turn: light on the left is not light on the right."""
    colours: bool = False
    """Whether each channel has outlines of its own, so that red before blue is not blue before red."""

    def __post_init__(self) -> None:
        whole_number(self.cells, "cells", 1)
        whole_number(self.directions, "directions", 3)
        yes_or_no(self.colours, "colours")

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, channels, height, width)` to `(instances, directions * cells²)`, for square images."""
        inputs = _checked_images(check_float(inputs), "outlines are those of images")
        images = inputs.flatten(0, 1).unsqueeze(1) if self.colours else inputs
        planes = _directed(images, self.directions)  # (images, directions, height, width)
        side = min(inputs.shape[2:]) / self.cells  # of a cell, in pixels
        down, right = (_soft_cells(pixels, side).to(planes) for pixels in inputs.shape[2:])
        outlines = (down @ planes @ right.T).clamp(min=0).sqrt()  # (images, directions, cells, cells)
        channels = inputs.shape[1] if self.colours else 1
        return outlines.reshape(len(inputs), channels * self.directions * len(down) * len(right))


def _checked_images(inputs: Tensor, remedy: str) -> Tensor:
    """Images of at least one pixel, in single precision at least, which convolutions need."""
    if inputs.ndim != 4 or 0 in inputs.shape[1:]:
        raise InputError(
            f"expected images of shape (instances, channels, height, width), got {tuple(inputs.shape)}; {remedy}"
        )
    return inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.float()


def _directed(images: Tensor, directions: int) -> Tensor:
    """The gradient's length, shared by the two directions it lies between, `(instances, directions, height, width)`."""
    padded = functional.pad(images, (1, 1, 1, 1), mode="replicate")
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    right = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    turn = torch.atan2(down, right) * (directions / (2 * pi))  # in steps from one direction to the next
    away = (turn[:, :, None] - torch.arange(directions, device=images.device).view(-1, 1, 1)) % directions
    share = (1 - torch.minimum(away, directions - away)).clamp(min=0)  # (instances, channels, directions, …)
    return (torch.hypot(down, right)[:, :, None] * share).sum(1)


def _soft_cells(pixels: int, side: float) -> Tensor:
    """How much of each pixel of a row a cell of `side` pixels takes, `(cells, pixels)`, blurred by half a cell."""
    cells = max(1, round(pixels / side))
    row = torch.eye(pixels, dtype=torch.float64).view(pixels, 1, 1, pixels)
    return functional.interpolate(_blurred(row, side / 2), size=(1, cells), mode="bilinear").view(pixels, cells).T


def _blurred(images: Tensor, deviation: float) -> Tensor:
    """Each channel under a Gaussian of so many pixels; at the border, the image goes on as it ends."""
    planes = images.reshape(-1, 1, *images.shape[2:])
    kernel = _gaussian(deviation).to(images)  # (taps,)
    reach = len(kernel) // 2
    planes = functional.pad(planes, (reach, reach, reach, reach), mode="replicate")
    planes = functional.conv2d(functional.conv2d(planes, kernel.view(1, 1, -1, 1)), kernel.view(1, 1, 1, -1))
    return planes.reshape(images.shape)


def _gaussian(deviation: float) -> Tensor:
    """A bell curve that sums to one, cut at four standard deviations."""
    reach = ceil(4 * deviation)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.float64) / deviation) ** 2)
    return weights / weights.sum()
