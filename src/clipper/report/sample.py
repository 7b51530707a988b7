"""A picture of one pruned sample: its images, their neighbours, and each candidate kept or struck out."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clipper.benchmarks.tasks import Task
from clipper.candidates import Candidates
from clipper.proximity import ProximityGraph
from clipper.pruning import Pruning
from clipper.report.figures import ACCENT, INK, MUTED, as_svg, plotting


def sample_figure(
    task: Task, graph: ProximityGraph, pruning: Pruning[Candidates], sample: int, columns: int = 9
) -> str:
    """Draw a sample of a task with the rule `sum`, one neighbour per image."""
    with plotting() as new_figure:
        slots = task.gold.shape[1]
        rows = -(-int(pruning.original.counts[sample]) // columns)
        figure = new_figure(figsize=(1.05 * columns, 3.6 + 0.3 * rows))
        grid = figure.add_gridspec(4, slots, height_ratios=[1.2, 1.2, 0.55, 0.3 * rows], hspace=0.15)
        for slot in range(slots):
            _draw_slot(figure, grid, task, graph, pruning, sample, slot)
        _draw_candidates(figure.add_subplot(grid[3, :]), task, pruning, sample, columns)
        return as_svg(figure)


def _draw_slot(
    figure: Any, grid: Any, task: Task, graph: ProximityGraph, pruning: Pruning[Candidates], sample: int, slot: int
) -> None:
    slots = task.gold.shape[1]
    own = figure.add_subplot(grid[0, slot])
    _image(own, task.inputs[sample, slot])
    own.set_title(f"$x_{slot + 1}$", color=INK)
    edges = (graph.source == sample * slots + slot).nonzero().flatten().tolist()
    if not edges:
        return
    edge = edges[0]
    other, place = divmod(int(graph.target[edge]), slots)
    near = figure.add_subplot(grid[1, slot])
    _image(near, task.inputs[other, place])
    could = _ranges(pruning.original.support[other * slots + place])
    chosen = bool(pruning.edges[edge])
    note = f"nearest, in a sample that sums to {int(task.targets[other])}\nso it is one of {could}"
    near.set_xlabel(
        note + ("" if chosen else "\n(dropped: contradicts the others)"), fontsize=8, color=INK if chosen else MUTED
    )


def _image(axes: Any, pixels: Tensor) -> None:
    axes.imshow(pixels[0].cpu().numpy(), cmap="gray_r")
    axes.set_xticks([])
    axes.set_yticks([])


def _ranges(allowed: Tensor) -> str:
    labels = allowed.nonzero().flatten().tolist()
    if len(labels) > 2 and labels == list(range(labels[0], labels[-1] + 1)):
        return f"{labels[0]}…{labels[-1]}"
    return ", ".join(map(str, labels))


def _draw_candidates(axes: Any, task: Task, pruning: Pruning[Candidates], sample: int, columns: int) -> None:
    candidates = pruning.original
    begin, end = candidates.offsets[sample : sample + 2].tolist()
    gold = tuple(task.gold[sample].tolist())
    rows = -(-(end - begin) // columns)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.axis("off")
    kept = int(pruning.keep[begin:end].sum())
    axes.set_title(
        f"sum {int(task.targets[sample])}: {kept} of {end - begin} candidates stay", fontsize=11, loc="left", pad=10
    )
    for i in range(end - begin):
        labels = tuple(candidates.labels[begin + i].tolist())
        x, y = i % columns + 0.5, i // columns + 0.5
        stays = bool(pruning.keep[begin + i])
        text = " + ".join(map(str, labels))
        weight = "bold" if labels == gold else "normal"
        axes.text(x, y, text, ha="center", va="center", fontsize=9, color=ACCENT if stays else MUTED, weight=weight)
        if not stays:
            axes.plot([x - 0.36, x + 0.36], [y, y], color=MUTED, linewidth=1)
