"""What a run learns from: frames with their motion, and all alignments of each clip with its text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.benchmarks.mugen.clips import Clips
from clipper.benchmarks.mugen.world import ACTIONS
from clipper.candidates import Alignments
from clipper.proximity import Outlines


@dataclass(frozen=True, eq=False)
class ClipTask:
    """Clips to learn from. The gold labels are for measuring only."""

    inputs: Tensor
    """`(n, m, 4, height, width)` in [0, 1]: a frame's colours, and how its brightness changed since the last."""
    gold: Tensor | None
    """`(n, m)`: the action of each frame; -1 past a clip's end."""
    candidates: Alignments
    targets: None = None
    """A text's place among all texts would be of no use: no engine goes through all texts."""


def task_of(clips: Clips) -> ClipTask:
    """The clips as samples whose slots are frames.

    Examples:
        >>> from clipper.benchmarks.mugen.clips import draw_clips
        >>> task = task_of(draw_clips(5, frames=(16, 20)))
        >>> task.inputs.shape[2:], bool(task.candidates.contains(task.gold).all())
        (torch.Size([4, 32, 32]), True)
    """
    candidates = Alignments.from_texts(clips.texts, clips.lengths.tolist(), len(ACTIONS))
    return ClipTask(with_motion(clips.frames), clips.gold, candidates)


def with_motion(frames: Tensor) -> Tensor:
    """Frames `(n, m, 3, height, width)` in bytes, to colours and motion `(n, m, 4, height, width)` in [0, 1]."""
    inputs = frames.new_empty(*frames.shape[:2], 4, *frames.shape[3:], dtype=torch.float32)
    torch.div(frames, 255, out=inputs[:, :, :3])
    grey = inputs[:, :, :3].mean(2)
    inputs[:, 0, 3] = 0.5  # nothing is known of what was before
    inputs[:, 1:, 3] = (grey[:, 1:] - grey[:, :-1]) / 2 + 0.5
    return inputs


@dataclass(frozen=True)
class Middle:
    """An encoder that needs no training: the outlines in the middle of a frame, where the camera holds the character.

    Those of each colour and of the motion count on their own: a gem is a coin in red, and a fall a jump backwards.

    Examples:
        >>> Middle()(torch.rand(7, 4, 32, 32)).shape
        torch.Size([7, 4096])
    """

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """`(instances, 4, height, width)` to `(instances, d)`."""
        width = inputs.shape[3]
        return Outlines(cells=8, colours=True)(inputs[..., width // 4 : width - width // 4])
