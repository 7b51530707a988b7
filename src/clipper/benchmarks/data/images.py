"""Labelled images, whatever data set they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clipper.errors import InputError


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their gold labels."""

    name: str
    pixels: Tensor
    """`(instances, channels, height, width)` float in [0, 1]."""
    labels: Tensor
    """`(instances,)`"""
    classes: int
    label_names: Sequence[str] | None = None
    """What the labels are called, if not by their numbers."""

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: Tensor) -> Images:
        """The images where `chosen (instances,)` is true, or those that it numbers."""
        return replace(self, pixels=self.pixels[chosen], labels=self.labels[chosen])


def from_bytes(
    name: str, pixels: np.ndarray, labels: np.ndarray, classes: int, label_names: Sequence[str] | None = None
) -> Images:
    """Images from bytes `(instances, channels, height, width)`.

    Examples:
        >>> images = from_bytes("dots", np.full((2, 1, 3, 3), 255, np.uint8), np.array([0, 1]), classes=2)
        >>> images.pixels.shape, float(images.pixels.max())
        (torch.Size([2, 1, 3, 3]), 1.0)
    """
    scaled = torch.from_numpy(np.ascontiguousarray(pixels)).float().div_(255)
    return Images(name, scaled, torch.from_numpy(labels.astype(np.int64)), classes, label_names)


def check_split(split: str) -> None:
    """The published data sets come in two halves."""
    if split not in ("train", "test"):
        raise InputError(f'expected the split "train" or "test", got {split!r}')
