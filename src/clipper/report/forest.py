"""Figures with a row for each row of a table: ours beside the paper's, what is kept, what it costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from clipper.benchmarks.statistics import interval
from clipper.errors import InputError
from clipper.report.figures import ACCENT, INK, OCHRE, ORANGE, PALE, PAPER, as_svg, plotting
from clipper.training import Record

Records = Mapping[str, Sequence[Record]]
"""The runs of each row of a table, one for each seed."""


def forest_figure(records: Records, published: Mapping[str, tuple[float, float]]) -> str:
    """Last-epoch accuracy of each row, in per cent: every seed, mean and 95 % interval, beside the paper's figure.

    Args:
        records: the runs by row; a row without one shows the paper's figure alone.
        published: the paper's mean and deviation by row, in per cent, as far as it has them.

    Examples:
        >>> from clipper.training import EpochMetrics
        >>> runs = [Record({}, [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])]
        >>> forest_figure({"semantic loss": runs}, {"semantic loss": (43.0, 14.0)})[:4]
        '<svg'
    """
    with _rows(records, "last-epoch accuracy, %", height=0.5) as (figure, axes):
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
        return as_svg(figure)


def kept_figure(records: Records) -> str:
    """Candidates and gold labels kept in each row, in per cent, with one deviation over the seeds.

    The further the gold labels lie to the right of the candidates, the more the neighbours knew.
    """
    with _rows(records, "kept, mean over the epochs, %") as (figure, axes):
        for row, runs in enumerate(records.values()):
            kept = _per_seed(runs, lambda record: record.retained)
            gold = _per_seed(runs, lambda record: record.gold)
            if kept and gold:
                ends = [statistics.mean(kept), statistics.mean(gold)]
                axes.plot(ends, [row, row], color=PALE, linewidth=5, solid_capstyle="butt", zorder=0)
            for values, colour, shape in ((kept, ACCENT, "o"), (gold, OCHRE, "D")):
                if values:
                    _mark(axes, row, statistics.mean(values), _deviation(values), colour, shape)
        _legend(axes, {"candidates": (ACCENT, "o", True), "gold labels": (OCHRE, "D", True)})
        axes.set_xlim(min(80, axes.get_xlim()[0]), 101)
        return as_svg(figure)


def overhead_figure(records: Records) -> str:
    """Pruning's share of the training time in each row, in per cent, with one deviation over the seeds."""
    with _rows(records, "pruning's share of the training time, %") as (figure, axes):
        for row, runs in enumerate(records.values()):
            shares = _per_seed(runs, lambda record: record.pruning_share)
            if not shares:
                continue
            low, high = _deviation(shares)
            axes.barh(row, statistics.mean(shares), height=0.5, color=ACCENT, alpha=0.8, linewidth=0)
            axes.plot([low, high], [row, row], color=INK, linewidth=1.2)
            where = (max(high, statistics.mean(shares)), row)
            axes.annotate(f"{statistics.mean(shares):.1f}", where, xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=9, color=INK)  # fmt: skip
        axes.set_xlim(left=0)
        axes.margins(x=0.12)
        return as_svg(figure)


def _per_seed(runs: Sequence[Record], value: Callable[[Record], float | None]) -> list[float]:
    """In per cent, where there is a value."""
    return [100 * number for record in runs if (number := value(record)) is not None]


def _deviation(values: Sequence[float]) -> tuple[float, float]:
    mean, deviation = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    return mean - deviation, mean + deviation


@contextmanager
def _rows(records: Records, label: str, height: float = 0.34) -> Iterator[tuple[Any, Any]]:
    """Axes with a named line for each row, the first on top."""
    if not records:
        raise InputError("expected at least one row of records, got none")
    with plotting() as new_figure:
        figure = new_figure(figsize=(7.2, 0.9 + height * len(records)))
        axes = figure.subplots()
        axes.set_yticks(range(len(records)), list(records))
        axes.set_ylim(len(records) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=PALE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(label)
        yield figure, axes


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
