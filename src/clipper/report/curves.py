"""Figures over the epochs: how runs learn, and what pruning keeps meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clipper.errors import InputError
from clipper.report.figures import ACCENT, BLUE, COLOURS, GREEN, INK, MUTED, OCHRE, ORANGE, VIOLET, as_svg, plotting
from clipper.training import EpochMetrics, Record

PALETTE = (ACCENT, ORANGE, INK, BLUE, OCHRE, VIOLET, MUTED, GREEN)


def accuracy_figure(records: Mapping[str, Sequence[Record]]) -> str:
    """Accuracy by epoch, in per cent, of each group of runs: the mean over the seeds and a band of one deviation.

    Epochs in which a run was not measured are passed over.

    Examples:
        >>> runs = [Record({}, [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])]
        >>> accuracy_figure({"exact": runs})[:4]
        '<svg'
    """
    curves = {name: by_epoch(runs, lambda metrics: metrics.accuracy) for name, runs in records.items()}
    if not any(curves.values()):
        raise InputError("expected runs with an accuracy in at least one epoch, got none; give them a held-out set")
    with plotting() as new_figure:
        figure = new_figure(figsize=(7.2, 4.2))
        axes = figure.subplots()
        drawn = {
            name: _draw(axes, curve, colour_of(name, i)) for i, (name, curve) in enumerate(curves.items()) if curve
        }
        _name_curves(axes, drawn)
        _epochs(axes, max(epoch for epoch, _, _ in drawn.values()))
        axes.set_ylabel("accuracy on the held-out set, %")
        axes.set_ylim(0, 100)
        return as_svg(figure)


def loss_figure(record: Record) -> str:
    """One run's loss by epoch."""
    with plotting() as new_figure:
        figure = new_figure(figsize=(7.2, 2.6))
        axes = figure.subplots()
        _draw(axes, {metrics.epoch: [metrics.loss] for metrics in record.epochs}, INK, 1.0)
        _epochs(axes, record.last.epoch)
        axes.set_ylabel("loss")
        axes.set_ylim(bottom=0)
        return as_svg(figure)


def kept_over_epochs(record: Record) -> str:
    """What one run's pruning kept in each epoch, in per cent: candidates, and gold labels where they are known."""
    gold = by_epoch([record], lambda metrics: metrics.gold)
    with plotting() as new_figure:
        figure = new_figure(figsize=(7.2, 3.0))
        axes = figure.subplots()
        kept = {"candidates": _draw(axes, by_epoch([record], lambda metrics: metrics.retained), ACCENT)}
        if gold:
            kept["gold labels"] = _draw(axes, gold, OCHRE)
        _name_curves(axes, kept)
        _epochs(axes, record.last.epoch)
        axes.set_ylabel("kept, %")
        axes.set_ylim(0, 102)
        return as_svg(figure)


def by_epoch(records: Sequence[Record], value: Callable[[EpochMetrics], float | None]) -> dict[int, list[float]]:
    """A value of each run that has it, by epoch, ascending.

    Examples:
        >>> epochs = [EpochMetrics(1, 2.5, None, 0.8, 0.95, 1.0, 0.02), EpochMetrics(2, 2.1, 0.5, 0.8, 0.95, 1.0, 0.02)]
        >>> by_epoch([Record({}, epochs)] * 2, lambda metrics: metrics.accuracy)
        {2: [0.5, 0.5]}
    """
    found: dict[int, list[float]] = {}
    for record in records:
        for metrics in record.epochs:
            number = value(metrics)
            if number is not None:
                found.setdefault(metrics.epoch, []).append(number)
    return dict(sorted(found.items()))


def colour_of(name: str, place: int) -> str:
    """An objective's own colour, else the palette's next."""
    return COLOURS.get(name, PALETTE[place % len(PALETTE)])


def _epochs(axes: Any, last: float) -> None:
    axes.set_xlabel("epoch")
    axes.set_xlim(0, last)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _draw(axes: Any, curve: Mapping[int, Sequence[float]], colour: str, scale: float = 100) -> tuple[float, float, str]:
    """Draw mean and band; where the line ends, and its colour."""
    epochs = list(curve)
    mean = [scale * statistics.mean(values) for values in curve.values()]
    spread = [scale * statistics.stdev(values) if len(values) > 1 else 0.0 for values in curve.values()]
    low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(epochs, low, high, color=colour, alpha=0.13, linewidth=0)
    dots = "o" if len(epochs) <= 12 else None  # few measurements: show where they are
    axes.plot(epochs, mean, color=colour, linewidth=1.8, marker=dots, markersize=3.5, clip_on=False)
    return epochs[-1], mean[-1], colour


def _name_curves(axes: Any, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Write each name where its curve ends, in per cent, moved apart where two ends meet."""
    right = max(x for x, _, _ in ends.values())
    room = 19 / axes.figure.get_figheight()  # a line of text, in per cent of the axis
    height = -float("inf")
    for name, (_, y, colour) in sorted(ends.items(), key=lambda end: end[1][1]):
        height = max(y, height + room)
        place = {"xytext": (8, 0), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(name, (right, height), color=colour, va="center", fontsize=9, **place)
