"""Reliability: how sure joint inference was of a run's labels, and how often it was right."""

from __future__ import annotations

from clipper.pruning import Calibration
from clipper.report.figures import ACCENT, INK, MUTED, as_svg, plotting
from clipper.report.page import figure, html_table

_CAPTION = (
    "The most probable label of each image, by how sure the posterior is of it: on the line, what is called 90 % "
    "certain is right nine times in ten. Dots grow with the number of images. Gold labels are used for this alone."
)


def reliability(calibration: Calibration) -> str:
    """A section of a page: the figure, and how many gold labels survive at some masses.

    Examples:
        >>> calibration = Calibration(0.9, 0.02, (0.6, 0.95), (0.5, 0.97), (10, 90), {0.95: 0.98})
        >>> reliability(calibration).count("<svg")
        1
    """
    kept = [[f"{mass:g}", f"{100 * share:.1f} %"] for mass, share in calibration.retained.items()]
    summary = [
        ["images whose most probable label is right", f"{100 * calibration.right:.1f} %"],
        ["mean gap between being sure and being right", f"{100 * calibration.error:.1f} points"],
    ]
    return (
        figure(reliability_figure(calibration), _CAPTION)
        + html_table(["", "of all images"], summary)
        + html_table(["mass", "gold labels kept"], kept)
    )


def reliability_figure(calibration: Calibration) -> str:
    """How often labels are right, by how sure the posterior is of them; both in per cent."""
    whole = max(1, sum(calibration.count))
    with plotting() as new_figure:
        drawn = new_figure(figsize=(4.6, 4.2))
        axes = drawn.subplots()
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        sure, right = ([100 * share for share in shares] for shares in (calibration.confidence, calibration.accuracy))
        axes.scatter(sure, right, s=[20 + 600 * n / whole for n in calibration.count], color=ACCENT, alpha=0.75)
        for x, y, count in zip(sure, right, calibration.count, strict=True):
            axes.annotate(f"{count:,}", (x, y), xytext=(10, -10), textcoords="offset points", color=INK, fontsize=8)
        axes.set_xlabel("sure, %")
        axes.set_ylabel("right, %")
        axes.set_xlim(0, 104)
        axes.set_ylim(0, 104)
        return as_svg(drawn)
