"""Augmentation: a data set that changes inputs a little, at random, each time they are loaded."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from clipper.arguments import real_number, whole_number
from clipper.errors import InputError


class RandomAffine(nn.Module):
    """Rotate, shift and scale each image a little, at random. New pixels at the border are 0.

    Random numbers come from torch's global generator. Use it in `Augmented`, or in a data set of your own.

    Args:
        degrees: the largest rotation to either side.
        shift: the largest shift along each axis, as a share of the image's side.
        scale: the largest share by which an image grows or shrinks.

    Examples:
        >>> RandomAffine()(torch.rand(5, 1, 28, 28)).shape
        torch.Size([5, 1, 28, 28])
        >>> image = torch.rand(1, 3, 8, 8)
        >>> bool(torch.allclose(RandomAffine(degrees=0, shift=0, scale=0)(image), image, atol=1e-5))
        True
    """

    def __init__(self, degrees: float = 10.0, shift: float = 0.07, scale: float = 0.1) -> None:
        super().__init__()
        self.degrees = real_number(degrees, "degrees", least=0)
        self.shift = real_number(shift, "shift", least=0)
        self.scale = real_number(scale, "scale", least=0, below=1)

    def forward(self, images: Tensor) -> Tensor:
        """`(instances, channels, height, width)` to the same shape."""
        _check_images(images)
        turn, size, right, down = 2 * torch.rand(4, len(images), device=images.device) - 1
        angle, grown = turn * math.radians(self.degrees), 1 + self.scale * size
        rows, columns = images.shape[-2:]
        cosine, sine = angle.cos() / grown, angle.sin() / grown
        moved = 2 * self.shift * right, 2 * self.shift * down  # an image reaches from -1 to 1
        top = torch.stack([cosine, -sine * rows / columns, moved[0]], -1)
        bottom = torch.stack([sine * columns / rows, cosine, moved[1]], -1)
        map_back = torch.stack([top, bottom], 1).to(images.dtype)  # (instances, 2, 3)
        grid = nn.functional.affine_grid(map_back, list(images.shape), align_corners=False)
        return nn.functional.grid_sample(images, grid, align_corners=False)


class RandomFlipShift(nn.Module):
    """Mirror each photograph with probability one half, and shift it a little; new pixels repeat those at the border.

    Random numbers come from torch's global generator.

    Args:
        pixels: the largest shift along each axis.

    Examples:
        >>> RandomFlipShift()(torch.rand(5, 3, 32, 32)).shape
        torch.Size([5, 3, 32, 32])
    """

    def __init__(self, pixels: int = 4) -> None:
        super().__init__()
        self.pixels = whole_number(pixels, "pixels", least=0)

    def forward(self, images: Tensor) -> Tensor:
        """`(instances, channels, height, width)` to the same shape."""
        _check_images(images)
        count, _, height, width = images.shape
        padded = nn.functional.pad(images, (self.pixels,) * 4, mode="replicate")
        down, right = torch.randint(2 * self.pixels + 1, (2, count, 1), device=images.device)
        rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
        mirrored = torch.rand(count, 1, device=images.device) < 0.5
        columns = torch.where(mirrored, columns.flip(0), columns)  # (instances, width)
        which = torch.arange(count, device=images.device).view(-1, 1, 1)
        moved = padded[which, :, (rows + down)[:, :, None], (columns + right)[:, None]]  # (…, height, width, channels)
        return moved.permute(0, 3, 1, 2)


class Augmented(Dataset[Tensor]):
    """Inputs in memory, changed by a random transform whenever a sample is loaded.

    `train` seeds each batch. So the images do not depend on interruptions or on the number of workers.

    Args:
        inputs: `(n, m, *shape)`.
        transform: from the inputs `(m, *shape)` of one sample to others of that shape.

    Examples:
        >>> from clipper import Candidates
        >>> from clipper.training import Samples
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> samples = Samples(Augmented(torch.rand(2, 2, 1, 8, 8), RandomAffine()), candidates)
        >>> bool((samples[0][0] == samples[0][0]).all())
        False
    """

    def __init__(self, inputs: Tensor, transform: Callable[[Tensor], Tensor]) -> None:
        self.inputs, self.transform = inputs, transform

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, number: int) -> Tensor:
        return self.transform(self.inputs[number])


def _check_images(images: Tensor) -> None:
    """Raise an `InputError` unless these are images."""
    if images.ndim != 4 or not images.is_floating_point():
        raise InputError(
            "expected images of shape (instances, channels, height, width), floating point, "
            f"got {tuple(images.shape)} of {images.dtype}"
        )
