"""Figures, drawn with matplotlib and returned as SVG text."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from clipper.errors import require

INK, MUTED, ACCENT, PALE, PAPER = "#1b2733", "#8a97a3", "#0f7b6c", "#dfe6ea", "#ffffff"
ORANGE, OCHRE, BLUE, VIOLET, GREEN, GOLD = "#c2703d", "#a8861f", "#4a6fa5", "#8a5a9e", "#5b8c3a", "#b8a24a"
COLOURS = {"paper": ORANGE, "exact": ACCENT, "random": MUTED, "none": INK, "joint": BLUE, "gold": GOLD}
"""Of the objectives."""
_THEME = {
    "ink": INK, "muted": MUTED, "accent": ACCENT, "pale": PALE, "paper": PAPER, "orange": ORANGE, "ochre": OCHRE,
    "blue": BLUE, "violet": VIOLET, "green": GREEN, "gold": GOLD,
}  # fmt: skip
"""The colours of page.css, where each has a darker page's counterpart."""


@contextmanager
def plotting() -> Iterator[Any]:
    """matplotlib's `Figure` in the project's style; figures, backend and settings of the caller are left alone."""
    matplotlib: Any = require("matplotlib", extra="report")
    figures: Any = require("matplotlib.figure", extra="report")
    style = {
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": PALE, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
        "axes.spines.right": False, "svg.hashsalt": "clipper", "svg.fonttype": "path",
        "axes.facecolor": "none", "savefig.facecolor": "none",
    }  # fmt: skip
    with matplotlib.rc_context(_changed(matplotlib) | style):
        yield figures.Figure


def _changed(matplotlib: Any) -> dict[str, Any]:
    """matplotlib's own values of the settings that the caller changed, so that a page looks the same everywhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about old settings
        return {
            name: own
            for name, own in matplotlib.rcParamsDefault.items()
            if not name.startswith(("backend", "interactive")) and matplotlib.rcParams[name] != own
        }


def as_svg(figure: Any) -> str:
    """The figure as SVG text for a page, in the page's colours; the same figure gives the same text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    for name, colour in _THEME.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    return text[text.index("<svg") :]


def reliability_figure(calibration: Mapping[str, Any]) -> str:
    """How often labels are right, by how sure the posterior is of them; both in per cent.

    Args:
        calibration: an inspection's, with `confidence`, `accuracy` and `count` of each bin.
    """
    whole = max(1, sum(calibration["count"]))
    with plotting() as new_figure:
        figure = new_figure(figsize=(4.6, 4.2))
        axes = figure.subplots()
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        sure, right = ([100 * share for share in calibration[name]] for name in ("confidence", "accuracy"))
        axes.scatter(sure, right, s=[20 + 600 * n / whole for n in calibration["count"]], color=ACCENT, alpha=0.75)
        for x, y, count in zip(sure, right, calibration["count"], strict=True):
            axes.annotate(f"{count:,}", (x, y), xytext=(10, -10), textcoords="offset points", color=INK, fontsize=8)
        axes.set_xlabel("sure, %")
        axes.set_ylabel("right, %")
        axes.set_xlim(0, 104)
        axes.set_ylim(0, 104)
        return as_svg(figure)
