"""Clips in memory: drawing them, and previews of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.benchmarks.mugen.world import Art, film, own_art, write_script
from clipper.errors import require
from clipper.files import written_whole


@dataclass(frozen=True, eq=False)
class Clips:
    """Videos with the actions that they show in order; the gold labels are for measuring only.

    Attributes:
        frames: `(n, m, 3, height, width)` bytes; black past a clip's end.
        lengths: `(n,)`: frames of each clip.
        texts: the actions of each clip, in order.
        gold: `(n, m)`: the action of each frame, -1 past the end; None if unknown.
    """

    frames: Tensor
    lengths: Tensor
    texts: list[tuple[int, ...]]
    gold: Tensor | None

    def __len__(self) -> int:
        return len(self.texts)


def draw_clips(
    clips: int,
    seed: int = 0,
    *,
    frames: tuple[int, int] = (16, 64),
    actions: tuple[int, int] = (3, 6),
    distractors: float = 2.0,
    noise: float = 0.03,
    art: Art | None = None,
) -> Clips:
    """Draw clips of a character that walks, jumps, falls, climbs, collects, kills and is hit.

    A clip depends only on the seed and its number: the first ten of a hundred clips are the same as ten clips.

    Args:
        clips: how many, `n`.
        seed: of all that is random.
        frames: the fewest and the most frames of a clip.
        actions: the fewest and the most actions of a text.
        distractors: the average number of coins, gems, monsters and ladders per screen that belong to no action.
        noise: deviation of the pixels' noise, as a share of their range.
        art: the pictures to draw with; Clipper's own if not given.

    Examples:
        >>> clips = draw_clips(3, seed=1, frames=(16, 24))
        >>> clips.frames.shape[2:], clips.texts[0]
        (torch.Size([3, 32, 32]), (6, 7, 0, 1, 6))
    """
    art = art or own_art()
    made, scripts = [], []
    for number in range(clips):
        random = np.random.default_rng([seed, number])
        scripts.append(write_script(random, frames, actions))
        made.append(film(scripts[-1], art, random, distractors, noise))
    return pack(made, [script.text for script in scripts], [script.action for script in scripts])


def pack(videos: Sequence[np.ndarray], texts: list[tuple[int, ...]], gold: Sequence[np.ndarray] | None) -> Clips:
    """Clips from videos `(frames, height, width, 3)` bytes of one size, texts, and the gold labels of each frame."""
    lengths = torch.tensor([len(video) for video in videos])
    height, width = videos[0].shape[1:3]
    frames = torch.zeros(len(videos), int(lengths.max()), 3, height, width, dtype=torch.uint8)
    labels = torch.full(frames.shape[:2], -1)
    for i, video in enumerate(videos):
        frames[i, : len(video)] = torch.from_numpy(np.ascontiguousarray(video)).permute(0, 3, 1, 2)
        if gold is not None:
            labels[i, : len(video)] = torch.from_numpy(gold[i].astype(np.int64))
    return Clips(frames, lengths, texts, labels if gold is not None else None)


_ZOOM = 2
MILLISECONDS = 100
"""How long a frame is shown."""
_GAP = 2


def contact_sheet(clips: Clips, path: str | Path, *, rows: int = 8, columns: int = 16) -> None:
    """Write a picture of the first clips, with a row of evenly spaced frames for each."""
    lines = []
    for i in range(min(rows, len(clips))):
        places = torch.linspace(0, int(clips.lengths[i]) - 1, columns).round().long()
        line = _side_by_side(clips.frames[i, places])
        lines.append(torch.nn.functional.pad(line, (0, 0, 0, 0, 0, _GAP), value=255))
    with written_whole(path, replace=True) as temporary:
        _image(torch.cat(lines)).save(temporary, "PNG")


def moving_preview(clips: Clips, path: str | Path, *, columns: int = 6) -> None:
    """Write a GIF of the first clips, playing side by side; a short one waits on its last frame."""
    shown = min(columns, len(clips))
    pictures = []
    for frame in range(int(clips.lengths[:shown].max())):
        now = clips.lengths[:shown].sub(1).clamp(max=frame)
        pictures.append(_image(_side_by_side(clips.frames[torch.arange(shown), now])))
    first, *rest = pictures
    with written_whole(path, replace=True) as temporary:
        first.save(temporary, "GIF", save_all=True, append_images=rest, duration=MILLISECONDS, loop=0)


def _side_by_side(frames: Tensor) -> Tensor:
    """Frames `(k, 3, height, width)` as one picture `(height, width, 3)`."""
    padded = torch.nn.functional.pad(frames, (0, _GAP), value=255)
    return padded.permute(2, 0, 3, 1).flatten(1, 2)


def _image(pixels: Tensor) -> Any:
    image: Any = require("PIL.Image", extra="benchmarks")
    large = pixels.repeat_interleave(_ZOOM, 0).repeat_interleave(_ZOOM, 1)
    return image.fromarray(large.numpy())
