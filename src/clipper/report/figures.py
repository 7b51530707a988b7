"""Figures, drawn with matplotlib and returned as SVG text: runs by epoch, the rows of a table, and calibration."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from clipper.benchmarks.statistics import deviation, interval
from clipper.errors import InputError, require
from clipper.training import EpochMetrics, Record

INK, MUTED, ACCENT, PALE, PAPER = "#1b2733", "#8a97a3", "#0f7b6c", "#dfe6ea", "#ffffff"
ORANGE, OCHRE, BLUE, VIOLET, GREEN, GOLD = "#c2703d", "#a8861f", "#4a6fa5", "#8a5a9e", "#5b8c3a", "#b8a24a"
COLOURS = {"paper": ORANGE, "exact": ACCENT, "random": MUTED, "none": INK, "joint": BLUE, "em": VIOLET, "gold": GOLD}
"""Colours of the objectives."""
_THEME = {
    "ink": INK, "muted": MUTED, "accent": ACCENT, "pale": PALE, "paper": PAPER, "orange": ORANGE, "ochre": OCHRE,
    "blue": BLUE, "violet": VIOLET, "green": GREEN, "gold": GOLD,
}  # fmt: skip
"""Colours by their names in page.css, which replaces them on dark pages."""
PALETTE = (ACCENT, ORANGE, INK, BLUE, OCHRE, VIOLET, MUTED, GREEN)
"""Colours of other groups of runs, in this order."""
_STYLE = {
    "font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": PALE, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
    "axes.spines.right": False, "svg.hashsalt": "clipper", "svg.fonttype": "path",
    "axes.facecolor": "none", "savefig.facecolor": "none",
}  # fmt: skip
"""Differences from matplotlib's default style."""

Records = Mapping[str, Sequence[Record]]
"""The runs of each row of a table, one for each seed."""


@contextmanager
def plotting(width: float, height: float, grid: tuple[int, int] | None = None) -> Iterator[Any]:
    """Axes of a new figure, `width` × `height` inches, in the project's style regardless of the caller's settings.

    With `grid`, the rows and columns of panels, this gives an array of axes.
    """
    style: Any = require("matplotlib.style", extra="report")
    figures: Any = require("matplotlib.figure", extra="report")
    with style.context(["default", _STYLE]):
        figure = figures.Figure(figsize=(width, height))
        yield figure.subplots() if grid is None else figure.subplots(*grid, squeeze=False)


def as_svg(axes: Any) -> str:
    """The figure as SVG text that takes its colours from the page; the same figure always gives the same text."""
    buffer = io.StringIO()
    axes.figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    for name, colour in _THEME.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    return text[text.index("<svg") :]


def on_paper(svg: str) -> str:
    """A figure as a separate file, on a white background, so that it can be read on a dark page, too."""
    head, rest = svg.split(">", 1)
    return f'{head}>\n <rect width="100%" height="100%" fill="{PAPER}"/>{rest}'


def accuracy_figure(records: Records) -> str:
    """Accuracy by epoch, in per cent, of each group of runs: the mean over the seeds and a band of one deviation.

    Epochs in which a run was not measured are left out.

    Examples:
        >>> runs = [Record({}, [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])]
        >>> accuracy_figure({"exact": runs})[:4]
        '<svg'
    """
    curves = {name: by_epoch(runs, lambda metrics: metrics.accuracy) for name, runs in records.items()}
    if not any(curves.values()):
        raise InputError("expected runs with an accuracy in at least one epoch, got none; give them a held-out set")
    with _epochs(4.2, "accuracy on the held-out set, %") as axes:
        drawn = {
            name: _draw(axes, curve, COLOURS.get(name, PALETTE[i % len(PALETTE)]))
            for i, (name, curve) in enumerate(curves.items())
            if curve
        }
        _name_curves(axes, drawn)
        axes.set_xlim(0, max(epoch for epoch, _, _ in drawn.values()))
        axes.set_ylim(0, 100)
        return as_svg(axes)


def loss_figure(record: Record) -> str:
    """One run's loss by epoch."""
    with _epochs(2.6, "loss") as axes:
        _draw(axes, by_epoch([record], lambda metrics: metrics.loss), INK, 1.0)
        axes.set_xlim(0, record.last.epoch)
        axes.set_ylim(bottom=0)
        return as_svg(axes)


def kept_over_epochs(record: Record) -> str:
    """What one run's pruning kept in each epoch, in per cent: candidates, and gold labels where they are known."""
    gold = by_epoch([record], lambda metrics: metrics.gold)
    with _epochs(3.0, "kept, %") as axes:
        kept = {"candidates": _draw(axes, by_epoch([record], lambda metrics: metrics.retained), ACCENT)}
        if gold:
            kept["gold labels"] = _draw(axes, gold, OCHRE)
        _name_curves(axes, kept)
        axes.set_xlim(0, record.last.epoch)
        axes.set_ylim(0, 102)
        return as_svg(axes)


def by_epoch(records: Sequence[Record], value: Callable[[EpochMetrics], float | None]) -> dict[int, list[float]]:
    """The values of all runs that have one, by epoch, ascending.

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


def forest_figure(records: Records, published: Mapping[str, tuple[float, float]]) -> str:
    """Last-epoch accuracy of each row, in per cent: every seed, mean and 95 % interval, beside the paper's figure.

    Args:
        records: the runs by row; a row without one shows the paper's figure alone.
        published: the paper's mean and deviation by row, in per cent; rows without them are left out.

    Examples:
        >>> runs = [Record({}, [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])]
        >>> forest_figure({"semantic loss": runs}, {"semantic loss": (43.0, 14.0)})[:4]
        '<svg'
    """
    with _rows(records, "last-epoch accuracy, %", height=0.5) as axes:
        for row, (name, runs) in enumerate(records.items()):
            if name in published:
                mean, deviation = published[name]
                _mark(axes, row + 0.24, mean, (mean - deviation, mean + deviation), ORANGE, "s", filled=False)
            ours = _per_seed(runs, lambda record: record.last.accuracy)
            if ours:
                axes.scatter(ours, [row - 0.24] * len(ours), s=13, color=ACCENT, alpha=0.4, linewidth=0)
                _mark(axes, row, statistics.mean(ours), interval(ours), ACCENT, "o")
        legend = {"ours: each seed, mean and 95 % interval": (ACCENT, "o", True)}
        if published:
            legend["the paper: mean ± deviation"] = (ORANGE, "s", False)
        _legend(axes, legend)
        axes.set_xlim(0, 100)
        return as_svg(axes)


def kept_figure(records: Records) -> str:
    """Candidates and gold labels kept in each row, in per cent, with one deviation over the seeds.

    The further the gold labels lie to the right of the candidates, the more information the neighbours give.
    """
    with _rows(records, "kept, mean over the epochs, %") as axes:
        for row, runs in enumerate(records.values()):
            kept = _per_seed(runs, lambda record: record.retained)
            gold = _per_seed(runs, lambda record: record.gold)
            if kept and gold:
                ends = [statistics.mean(kept), statistics.mean(gold)]
                axes.plot(ends, [row, row], color=PALE, linewidth=5, solid_capstyle="butt", zorder=0)
            for values, colour, shape in ((kept, ACCENT, "o"), (gold, OCHRE, "D")):
                if values:
                    _mark(axes, row, statistics.mean(values), _band(values), colour, shape)
        _legend(axes, {"candidates": (ACCENT, "o", True), "gold labels": (OCHRE, "D", True)})
        axes.set_xlim(min(80, axes.get_xlim()[0]), 101)
        return as_svg(axes)


def overhead_figure(records: Records) -> str:
    """Pruning's share of the training time in each row, in per cent, with one deviation over the seeds."""
    with _rows(records, "pruning's share of the training time, %") as axes:
        for row, runs in enumerate(records.values()):
            shares = _per_seed(runs, lambda record: record.pruning_share)
            if not shares:
                continue
            low, high = _band(shares)
            axes.barh(row, statistics.mean(shares), height=0.5, color=ACCENT, alpha=0.8, linewidth=0)
            axes.plot([low, high], [row, row], color=INK, linewidth=1.2)
            where = (max(high, statistics.mean(shares)), row)
            axes.annotate(f"{statistics.mean(shares):.1f}", where, xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=9, color=INK)  # fmt: skip
        axes.set_xlim(left=0)
        axes.margins(x=0.12)
        return as_svg(axes)


def comparison_figure(figures: Mapping[str, tuple[Sequence[float], float | None]], label: str) -> str:
    """In each row the mean and range of our shares beside another method's mean, in per cent.

    Args:
        figures: by row, our share of each seed, and the other method's mean, or None.
        label: what the shares are of.

    Examples:
        >>> comparison_figure({"sum-3": ([0.9, 1.0], 0.7)}, "labels right, %")[:4]
        '<svg'
    """
    with _rows(figures, label, height=0.22) as axes:
        for row, (shares, other) in enumerate(figures.values()):
            if other is not None:
                axes.plot(100 * other, row, "s", color=ORANGE, markersize=5, markerfacecolor=PAPER, zorder=2)
            ends = 100 * min(shares), 100 * max(shares)
            _mark(axes, row, 100 * statistics.mean(shares), ends, ACCENT, "o")
        legend = {"joint: mean, lowest to highest": (ACCENT, "o", True)}
        if any(other is not None for _, other in figures.values()):
            legend["EM: mean"] = (ORANGE, "s", False)
        _legend(axes, legend)
        axes.set_xlim(-1, 101)
        return as_svg(axes)


def encoder_figure(points: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """In each row an encoder, with the share of nearest neighbours of the same class, and the accuracy after training.

    Args:
        points: by objective, the two shares of each encoder.

    Examples:
        >>> encoder_figure({"joint": {"outlines": (0.8, 0.9)}})[:4]
        '<svg'
    """
    near = {encoder: share for of_encoder in points.values() for encoder, (share, _) in of_encoder.items()}
    order = sorted(near, key=lambda encoder: -near[encoder])
    shapes = dict(zip(points, ("s", "D", "o", "^", "v"), strict=False))
    with _rows({f"{encoder}: {100 * near[encoder]:.0f} % near": 0 for encoder in order}, "accuracy, %") as axes:
        for objective, of_encoder in points.items():
            style = {"color": COLOURS.get(objective, MUTED), "marker": shapes[objective], "markersize": 5}
            rows = [row for row, encoder in enumerate(order) if encoder in of_encoder]
            axes.plot([100 * of_encoder[order[row]][1] for row in rows], rows, linewidth=0, **style)
        _legend(axes, {name: (COLOURS.get(name, MUTED), shapes[name], True) for name in points})
        axes.set_xlim(0, 100)
        return as_svg(axes)


def reliability_figure(calibration: Mapping[str, Any]) -> str:
    """How often labels are right, by the probability that the posterior gives them; both in per cent.

    Args:
        calibration: the calibration of an inspection, with `confidence`, `accuracy` and `count` of each bin.
    """
    whole = max(1, sum(calibration["count"]))
    with plotting(4.6, 4.2) as axes:
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        sure, right = ([100 * share for share in calibration[name]] for name in ("confidence", "accuracy"))
        axes.scatter(sure, right, s=[20 + 600 * n / whole for n in calibration["count"]], color=ACCENT, alpha=0.75)
        for x, y, count in zip(sure, right, calibration["count"], strict=True):
            axes.annotate(f"{count:,}", (x, y), xytext=(10, -10), textcoords="offset points", color=INK, fontsize=8)
        axes.set_xlabel("probability of the label, %")
        axes.set_ylabel("labels right, %")
        axes.set_xlim(0, 104)
        axes.set_ylim(0, 104)
        return as_svg(axes)


class RaceLine(NamedTuple):
    """A contestant in the race's figure.

    Attributes:
        group: lines of one group have one colour.
        solid: whether the line is solid, or dashed.
        curves: of each seed, pairs of seconds and accuracy, from 0 seconds on.
    """

    group: str
    solid: bool
    curves: Sequence[Sequence[tuple[float, float]]]


def race_figure(panels: Mapping[str, tuple[float, Mapping[str, RaceLine]]]) -> str:
    """Accuracy against seconds, in per cent: a panel for each task, a line for each contestant.

    A line is the mean over the seeds of the accuracy last measured; faint lines are single seeds. A contestant has the
    same colour and dashes in every panel.

    Args:
        panels: by task, the time limit in seconds, and the contestants by name.

    Examples:
        >>> race_figure({"SUM-2": (10.0, {"Clipper": RaceLine("Clipper", True, [[(0.0, 0.1), (2.0, 0.9)]])})})[:4]
        '<svg'
    """
    if not panels:
        raise InputError("expected the curves of at least one task, got none")
    drawn = {name: each for _, contestants in panels.values() for name, each in contestants.items()}
    groups = list(dict.fromkeys(each.group for each in drawn.values()))
    style = {
        name: (PALETTE[groups.index(each.group) % len(PALETTE)], "-" if each.solid else (0, (3, 1.5)))
        for name, each in drawn.items()
    }
    columns = min(3, len(panels))
    lines = len(panels) // columns + 1  # the legend takes the place of a panel
    with plotting(3.6 * columns + 0.6, 3.1 * lines, (lines, columns)) as grid:
        for axes, (title, (limit, contestants)) in zip(grid.flat, panels.items(), strict=False):
            for name, each in contestants.items():
                _race_line(axes, each.curves, limit, *style[name])
            axes.set_title(title, fontsize=10, loc="left", color=INK)
            axes.set_xscale("symlog", linthresh=1)
            marks = [mark for mark in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if mark < 0.8 * limit]
            axes.set_xticks([*marks, limit], [f"{mark:g}" for mark in (*marks, limit)])
            axes.minorticks_off()
            axes.set_xlim(0, limit)
            axes.set_ylim(0, 100)
            axes.grid(axis="y", color=PALE, linewidth=0.6)
            axes.set_xlabel("seconds, one core")
            axes.set_ylabel("accuracy, %")
        rest = list(grid.flat)[len(panels) :]
        for axes in rest:
            axes.set_axis_off()
        for name, (colour, dashes) in style.items():
            rest[0].plot([], [], color=colour, linestyle=dashes, linewidth=1.8, label=name)
        rest[0].legend(loc="upper left", bbox_to_anchor=(-0.15, 1.0), frameon=False, fontsize=9, handlelength=2.6)
        grid.flat[0].figure.tight_layout()
        return as_svg(grid.flat[0])


def _race_line(
    axes: Any, seeds: Sequence[Sequence[tuple[float, float]]], limit: float, colour: str, dashes: Any
) -> None:
    """Draw every seed faintly, and their mean; both are extended to the time limit."""
    times = sorted({at for curve in seeds for at, _ in curve} | {limit})
    held = [[100 * [value for at, value in curve if at <= time][-1] for time in times] for curve in seeds]
    drawn = {"color": colour, "linestyle": dashes, "drawstyle": "steps-post"}
    if len(seeds) > 1:
        for values in held:
            axes.plot(times, values, alpha=0.25, linewidth=0.8, **drawn)
    axes.plot(times, [statistics.mean(values) for values in zip(*held, strict=True)], linewidth=1.8, **drawn)


@contextmanager
def _epochs(height: float, label: str) -> Iterator[Any]:
    """Axes with the epochs from left to right."""
    with plotting(7.2, height) as axes:
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel(label)
        yield axes


def _draw(axes: Any, curve: Mapping[int, Sequence[float]], colour: str, scale: float = 100) -> tuple[float, float, str]:
    """Draw the mean and a band of one deviation; returns where the line ends, and its colour."""
    epochs = list(curve)
    mean = [scale * statistics.mean(values) for values in curve.values()]
    spread = [scale * deviation(values) for values in curve.values()]
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


@contextmanager
def _rows(records: Mapping[str, object], label: str, height: float = 0.34) -> Iterator[Any]:
    """Axes with a named row for each entry, the first on top."""
    if not records:
        raise InputError("expected at least one row of records, got none")
    with plotting(7.2, 0.9 + height * len(records)) as axes:
        axes.set_yticks(range(len(records)), list(records))
        axes.set_ylim(len(records) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=PALE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(label)
        yield axes


def _per_seed(runs: Sequence[Record], value: Callable[[Record], float | None]) -> list[float]:
    """The values of all runs that have one, in per cent."""
    return [100 * number for record in runs if (number := value(record)) is not None]


def _band(values: Sequence[float]) -> tuple[float, float]:
    mean, reach = statistics.mean(values), deviation(values)
    return mean - reach, mean + reach


def _mark(
    axes: Any, row: float, mean: float, ends: tuple[float, float], colour: str, shape: str, *, filled: bool = True
) -> None:
    if all(map(math.isfinite, ends)):
        axes.plot(ends, [row, row], color=colour, linewidth=1.6, zorder=2)
    axes.plot(mean, row, shape, color=colour, markersize=6, markerfacecolor=colour if filled else PAPER, zorder=3)


def _legend(axes: Any, entries: Mapping[str, tuple[str, str, bool]]) -> None:
    for name, (colour, shape, filled) in entries.items():
        face = colour if filled else PAPER
        axes.plot([], [], color=colour, marker=shape, markersize=6, markerfacecolor=face, linewidth=1.6, label=name)
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": len(entries), "borderaxespad": 0.3}
    axes.legend(frameon=False, fontsize=9, **place)
