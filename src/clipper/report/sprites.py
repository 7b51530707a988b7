"""Many small images as one: a sprite sheet that a page carries in its own text."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clipper.errors import InputError, require


@dataclass(frozen=True)
class Sheet:
    """Tiles of one size, row by row in one PNG; all numbers but the first two are pixels."""

    columns: int
    rows: int
    width: int
    """Of one tile."""
    height: int
    """Of one tile."""
    uri: str
    """The PNG as a data URI."""


def sheet(images: Tensor, largest: int = 64) -> Sheet:
    """Lay images `(tiles, channels, height, width)` out in a square; larger ones shrink to `largest` pixels a side.

    Three channels are colours; any other number is shown as their mean, dark on light. Values outside 0 … 1, such as
    those of normalised images, are stretched to that range.

    Examples:
        >>> made = sheet(torch.rand(5, 1, 8, 8))
        >>> made.columns, made.rows, made.width, made.uri[:22]
        (3, 2, 8, 'data:image/png;base64,')
    """
    if images.ndim != 4 or not images.numel():
        raise InputError(f"expected images of shape (tiles, channels, height, width), got {tuple(images.shape)}")
    tiles = _fitted(_between_0_and_1(images.detach().cpu().float()), largest)
    if tiles.shape[1] != 3:
        tiles = _on_light(tiles.mean(1, keepdim=True))
    columns = math.ceil(math.sqrt(len(tiles)))
    rows = -(-len(tiles) // columns)
    height, width = tiles.shape[2:]
    return Sheet(columns, rows, width, height, _as_uri(_laid_out(tiles, columns, rows)))


def _between_0_and_1(images: Tensor) -> Tensor:
    low, high = (float(end) for end in images.aminmax())
    return images if low >= 0 and high <= 1 else (images - low) / max(high - low, 1e-12)


def _fitted(images: Tensor, largest: int) -> Tensor:
    height, width = images.shape[2:]
    shrink = largest / max(height, width)
    if shrink >= 1:
        return images
    size = (max(1, round(height * shrink)), max(1, round(width * shrink)))
    return torch.nn.functional.interpolate(images, size=size, mode="area")


def _on_light(images: Tensor) -> Tensor:
    return 1 - images if float(images.mean()) < 0.5 else images


def _laid_out(tiles: Tensor, columns: int, rows: int) -> Tensor:
    """The tiles side by side, `(rows * height, columns * width, channels)` bytes; what is left over stays white."""
    channels, height, width = tiles.shape[1:]
    filled = torch.ones(rows * columns, channels, height, width)
    filled[: len(tiles)] = tiles
    grid = filled.view(rows, columns, channels, height, width).permute(0, 3, 1, 4, 2)
    return grid.reshape(rows * height, columns * width, channels).mul(255).round().to(torch.uint8)


def _as_uri(pixels: Tensor) -> str:
    image: Any = require("PIL.Image", extra="report")  # matplotlib brings it
    buffer = io.BytesIO()
    image.fromarray(pixels.squeeze(2).numpy()).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
