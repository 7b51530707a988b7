"""Clips in memory, and drawing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clipper.benchmarks.mugen.art import Art, own_art
from clipper.benchmarks.mugen.scene import film
from clipper.benchmarks.mugen.script import write_script


@dataclass(frozen=True, eq=False)
class Clips:
    """Videos with the actions that they show in order; the gold labels are for measuring only."""

    frames: Tensor
    """`(n, m, 3, height, width)` bytes; black past a clip's end."""
    lengths: Tensor
    """`(n,)`: frames of each clip."""
    texts: list[tuple[int, ...]]
    gold: Tensor | None
    """`(n, m)`: the action of each frame, -1 past the end; None where nobody knows."""

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

    Each clip depends on the seed and its number alone: the first ten of a hundred are the ten of ten.

    Args:
        clips: how many, `n`.
        seed: of all that is random.
        frames: the fewest and the most of a clip.
        actions: the fewest and the most of a text.
        distractors: things on a screen's width, on average, that play no part.
        noise: deviation of the pixels' noise, as a share of their range.
        art: what to draw with; Clipper's own if not given.

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
