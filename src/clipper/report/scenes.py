"""The inspector of a run on scenes: an object is its box, a relation is two boxes."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.vqar.knowledge import read_knowledge
from clipper.benchmarks.vqar.task import SceneTask, scene_task
from clipper.pruning import Calibration
from clipper.report.inspector import inspect
from clipper.report.page import paragraphs
from clipper.report.replay import replay

SIDE = 28
"""Pixels of a picture's side."""


def scene_inspector(
    config: RunConfig, data_root: str | Path | None = None, samples: int = 100
) -> tuple[str, Calibration | None]:
    """What a run's pruning struck out, judged by features and boxes; and how right it was, where it is joint."""
    task = scene_task(config.data, config.names, config.samples, config.seed, data_root)
    seen = replay(config, task, task.embeddings)
    knowledge = read_knowledge(data_root)
    names = [*knowledge.names[: config.names], *knowledge.relations][: task.candidates.classes]
    told = [sentence.text for sentence in task.told.sentences]
    shown = inspect(pictures(task), task.gold, told, seen.graph, seen.pruning, names=names, samples=samples)
    whose = "These scenes are generated." if task.scenes.generated else "These are VQAR's own scenes."
    idea = (
        "Dark: the object whose name is asked for, or the second object of a relation; grey: the others. Objects "
        "and pairs that lie close should share a label, so each edge contradicts the labels its neighbour cannot have."
    )
    return paragraphs([idea, " ".join([whose, *seen.notes])]) + shown, seen.calibration


def pictures(task: SceneTask) -> Tensor:
    """A drawing of the boxes for each slot, `(n, m, 1, side, side)` in 0 … 1."""
    subject = task.scenes.boxes[task.told.subject][:, None]  # (n, 1, 4)
    others = task.scenes.boxes[task.told.objects.clamp(min=0)]  # (n, m-1, 4)
    there = torch.cat([torch.ones_like(task.told.objects[:, :1]), task.told.objects], 1) >= 0  # (n, m)
    inside = _inside(torch.cat([subject, others], 1), there)  # (n, m boxes, side, side)
    n, m = there.shape
    shade = torch.full((m, m), 0.35).fill_diagonal_(1.0)  # (slot, box)
    drawn = inside[:, None] * shade[None, :, :, None, None]  # (n, slot, box, side, side)
    return drawn.amax(2).view(n, m, 1, SIDE, SIDE)


def _inside(boxes: Tensor, there: Tensor) -> Tensor:
    """Which pixels lie in each box, in a frame that holds all boxes of a sample, `(n, boxes, side, side)` float."""
    low = torch.where(there[..., None], boxes[..., :2], torch.inf).amin(1, keepdim=True)
    high = torch.where(there[..., None], boxes[..., :2] + boxes[..., 2:], -torch.inf).amax(1, keepdim=True)
    size = 1.1 * (high - low).amax(2, keepdim=True)
    corner = (low + high - size) / 2
    centre = (torch.arange(SIDE) + 0.5) / SIDE
    first, last = (boxes[..., :2] - corner) / size, (boxes[..., :2] + boxes[..., 2:] - corner) / size
    across, down = ((centre >= first[..., [i]]) & (centre <= last[..., [i]]) for i in (0, 1))  # (n, boxes, side)
    return ((down[..., None] & across[..., None, :]) & there[..., None, None]).float()
