"""A look at clips: a contact sheet, a clip a row, and a GIF in which they play side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.mugen.clips import Clips
from clipper.errors import require
from clipper.files import written_whole

_ZOOM = 2
_MILLISECONDS = 100
_GAP = 2


def contact_sheet(clips: Clips, path: str | Path, *, rows: int = 8, columns: int = 16) -> None:
    """Write a picture of the first clips, a row each, with frames at equal distances."""
    lines = []
    for i in range(min(rows, len(clips))):
        places = torch.linspace(0, int(clips.lengths[i]) - 1, columns).round().long()
        lines.append(_side_by_side(clips.frames[i, places]))
    with written_whole(path, replace=True) as temporary:
        _image(_stacked(lines)).save(temporary, "PNG")


def moving_preview(clips: Clips, path: str | Path, *, columns: int = 6) -> None:
    """Write a GIF of the first clips, playing side by side; a short one waits on its last frame."""
    shown = min(columns, len(clips))
    pictures = []
    for frame in range(int(clips.lengths[:shown].max())):
        now = clips.lengths[:shown].sub(1).clamp(max=frame)
        pictures.append(_image(_side_by_side(clips.frames[torch.arange(shown), now])))
    first, *rest = pictures
    with written_whole(path, replace=True) as temporary:
        first.save(temporary, "GIF", save_all=True, append_images=rest, duration=_MILLISECONDS, loop=0)


def _side_by_side(frames: Tensor) -> Tensor:
    """Frames `(k, 3, height, width)` as one picture `(height, width, 3)`."""
    padded = torch.nn.functional.pad(frames, (0, _GAP), value=255)
    return padded.permute(2, 0, 3, 1).flatten(1, 2)


def _stacked(lines: list[Tensor]) -> Tensor:
    return torch.cat([torch.nn.functional.pad(line, (0, 0, 0, 0, 0, _GAP), value=255) for line in lines])


def _image(pixels: Tensor) -> Any:
    image: Any = require("PIL.Image", extra="benchmarks")
    large = pixels.repeat_interleave(_ZOOM, 0).repeat_interleave(_ZOOM, 1)
    return image.fromarray(large.numpy())
