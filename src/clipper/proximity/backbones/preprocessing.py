"""Preprocessing: brings the caller's images into the form that a backbone was trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from clipper.errors import InputError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean colour of ImageNet, for which most backbones expect images to be normalised."""
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Its standard deviation."""

_TOLERANCE = 0.1
"""How far pixels may lie outside 0 … 1, for example after resampling."""


@dataclass(frozen=True)
class Preprocessing:
    """Undoes the caller's normalisation, resizes, repeats a grey channel and normalises for the backbone.

    Attributes:
        size: height and width that the backbone expects; None leaves them.
        mean: mean of each channel that the backbone expects; empty for no normalisation. Its length fixes the channels.
        std: standard deviation of each channel that the backbone expects.
        input_mean: mean by which the inputs have been normalised: `(0.1307,)` for the usual MNIST; one number, or one
            for each channel.
        input_std: standard deviation by which the inputs have been normalised.

    Examples:
        >>> images = torch.rand(4, 1, 28, 28)
        >>> Preprocessing(size=64, mean=IMAGENET_MEAN, std=IMAGENET_STD)(images).shape
        torch.Size([4, 3, 64, 64])
    """

    size: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    input_mean: tuple[float, ...] = (0.0,)
    input_std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise InputError(f"expected a size of at least one pixel, got {self.size}")
        for mean, std in ((self.mean, self.std), (self.input_mean, self.input_std)):
            if len(mean) != len(std) or not all(deviation > 0 for deviation in std):
                raise InputError(f"expected a mean and a positive standard deviation per channel, got {mean} and {std}")

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, channels, height, width)` to what the backbone expects.

        Raises:
            InputError: the inputs are no images, or have another number of channels or pixels outside 0 … 1.
        """
        if inputs.ndim != 4:
            raise InputError(
                f"expected images of shape (instances, channels, height, width), got {tuple(inputs.shape)}"
            )
        images = inputs * _per_channel(self.input_std, inputs) + _per_channel(self.input_mean, inputs)
        if self.mean:
            _check_range(images)
        images = _resized(images, self.size)
        if not self.mean:
            return images
        images = _with_channels(images, len(self.mean))
        return (images - _per_channel(self.mean, images)) / _per_channel(self.std, images)


def _per_channel(values: tuple[float, ...], images: Tensor) -> Tensor:
    if len(values) not in (1, images.shape[1]):
        raise InputError(f"expected images of {len(values)} channels, as many as {values} has, got {images.shape[1]}")
    return torch.tensor(values, dtype=images.dtype, device=images.device).view(-1, 1, 1)


def _check_range(images: Tensor) -> None:
    if not images.numel():
        return
    low, high = (bound.item() for bound in images.aminmax())
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):
        raise InputError(
            f"expected pixels from 0 to 1, got {low:.4g} to {high:.4g}; divide bytes by 255, or, for images that were "
            "normalised, give the mean and standard deviation that were used as input_mean and input_std"
        )


def _resized(images: Tensor, size: int | None) -> Tensor:
    height, width = images.shape[2:]
    if size is None or (height, width) == (size, size):
        return images
    shrinks = size < min(height, width)
    return functional.interpolate(images, size=(size, size), mode="bilinear", antialias=shrinks)


def _with_channels(images: Tensor, channels: int) -> Tensor:
    if images.shape[1] == 1:
        return images.expand(-1, channels, -1, -1)
    if images.shape[1] != channels:
        raise InputError(f"expected images of 1 or {channels} channels, got {images.shape[1]}")
    return images
