"""Figures, drawn with matplotlib and returned as SVG text."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clipper.errors import require

INK, MUTED, ACCENT, PALE = "#1b2733", "#8a97a3", "#0f7b6c", "#dfe6ea"
ORANGE, OCHRE = "#c2703d", "#a8861f"
COLOURS = {"paper": ORANGE, "exact": ACCENT, "random": MUTED, "none": INK, "joint": "#4a6fa5", "gold": "#b8a24a"}


@contextmanager
def plotting() -> Iterator[Any]:
    """matplotlib's `Figure` in the project's style; figures, backend and settings of the caller are left alone."""
    matplotlib: Any = require("matplotlib", extra="report")
    figures: Any = require("matplotlib.figure", extra="report")
    style = {
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": PALE, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
        "axes.spines.right": False, "svg.hashsalt": "clipper", "svg.fonttype": "path",
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
    """The figure as SVG text that can stand inside a page; the same figure gives the same text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
