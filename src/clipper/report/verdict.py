"""What a comparison shows, in words: who beats whom, by how much, and when nobody does."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from clipper.benchmarks.statistics import interval
from clipper.benchmarks.tables import Entry
from clipper.report.claims import _paired

_SPOKEN = {"none": "the baseline", "random": "the random control", "gold": "the ceiling"}
_QUESTIONS = (("exact", "none"), ("paper", "none"), ("exact", "random"), ("exact", "paper"), ("gold", "exact"))


def verdict(entries: Sequence[Entry]) -> list[str]:
    """One sentence for each question that the runs of a column can answer."""
    found = {entry.place.config.objective: entry for entry in entries if entry.records}
    return [
        sentence(_SPOKEN.get(method, method), _SPOKEN.get(other, other), _paired(found[method], found[other]))
        for method, other in _QUESTIONS
        if {method, other} <= found.keys() and _paired(found[method], found[other])
    ]


def sentence(first: str, second: str, gains: list[float]) -> str:
    """Whether the first beats the second, judged by the 95 % interval of the paired differences.

    Examples:
        >>> sentence("exact", "paper", [0.5, -0.5, 0.1])
        'Exact and paper do not differ as far as 3 seeds can tell: +0.0 points, 95 % interval -1.2 to +1.3.'
        >>> sentence("exact", "paper", [-2.0, -3.0, -4.0])
        'Paper beats exact by 3.0 points, 95 % interval 0.5 to 5.5; it is ahead in 3 of 3 seeds.'
    """
    low, high = interval(gains)
    if low <= 0 <= high:
        numbers = f"{statistics.mean(gains):+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"
        return f"{_capital(first)} and {second} do not differ as far as {len(gains)} seeds can tell: {numbers}."
    if high < 0:
        return sentence(second, first, [-gain for gain in gains])
    won = f"it is ahead in {sum(gain > 0 for gain in gains)} of {len(gains)} seeds"
    numbers = f"{statistics.mean(gains):.1f} points, 95 % interval {low:.1f} to {high:.1f}"
    return f"{_capital(first)} beats {second} by {numbers}; {won}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
