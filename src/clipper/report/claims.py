"""What runs show, in words: which of the paper's claims reproduce, and which row beats which by how much."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from clipper.benchmarks.statistics import interval
from clipper.benchmarks.tables import Entry, Table, deviations
from clipper.benchmarks.tables.layout import Measure

CLOSE = 3.0
"""Points within which a share that was kept counts as the paper's."""


class Claim(NamedTuple):
    """Something the paper reports, and what came out here.

    Attributes:
        what: the claim.
        paper: the paper's number.
        ours: the number here, with its interval and seeds.
        verdict: whether it reproduces.
    """

    what: str
    paper: str
    ours: str
    verdict: str


CLAIM_COLUMNS = ["claim", "paper", "here", "verdict"]


def claims_of(table: Table, entries: Sequence[Entry]) -> list[Claim]:
    """Gains over the same engine without pruning; where shares are in the table, those too."""
    found = {(entry.place.row.name, entry.place.column.name): entry for entry in entries}
    claims = []
    for entry in entries:
        row = entry.place.row
        base = found.get((row.engine, entry.place.column.name))
        if base is None or base is entry:
            continue
        claims += _gain(entry, base)
        claims += [
            claim for measure in ("retained", "gold") if measure in table.measures for claim in _kept(entry, measure)
        ]
    return claims


def _gain(entry: Entry, base: Entry) -> list[Claim]:
    """What the pruning adds to the engine, seed for seed."""
    paper, without = entry.published.get("accuracy"), base.published.get("accuracy")
    pairs = _paired(entry, base)
    if paper is None or without is None or len(pairs) < 2 or deviations(entry) != deviations(base) + _encoder(entry):
        return []
    published = paper[0] - without[0]
    low, high = interval(pairs)
    mean = statistics.mean(pairs)
    what = f"{entry.place.row.name} over {base.place.row.name}, {entry.place.column.name}"
    ours = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] ({len(pairs)} seeds)"
    return [Claim(what, f"{published:+.1f}", ours, verdict_of(published, low, high))]


def _encoder(entry: Entry) -> str:
    """What a frozen encoder of another name adds to the deviations."""
    asked, done = entry.place.config.encoder, str(entry.records[0].config["encoder"])
    return "" if asked == done else done


def verdict_of(published: float, low: float, high: float) -> str:
    """Whether a published gain is seen here, given the 95 % interval of ours.

    Examples:
        >>> verdict_of(17.0, 3.0, 12.0), verdict_of(17.0, -4.0, 6.0), verdict_of(0.2, -1.0, 1.0)
        ('smaller', 'not seen', 'no difference, there or here')
    """
    if abs(published) < 1:
        return "no difference, there or here" if low <= 0 <= high else "a difference only here"
    if low <= published <= high:
        return "reproduces" if low > 0 or high < 0 else "undecided"
    if low * published > 0 and high * published > 0:
        return "smaller" if abs(published) > max(abs(low), abs(high)) else "larger"
    return "not seen" if low <= 0 <= high else "the opposite"


def _paired(entry: Entry, base: Entry) -> list[float]:
    ours = {record.config["seed"]: record.last.accuracy for record in entry.records}
    theirs = {record.config["seed"]: record.last.accuracy for record in base.records}
    return [100 * (ours[seed] - theirs[seed]) for seed in ours if seed in theirs]  # type: ignore[operator]


def _kept(entry: Entry, measure: Measure) -> list[Claim]:
    paper, values = entry.published.get(measure), entry.values(measure)
    if paper is None or not values:
        return []
    mean = statistics.mean(values)
    what = {"retained": "candidates kept", "gold": "gold kept"}[measure]
    verdict = f"{'within' if abs(mean - paper[0]) <= CLOSE else 'not within'} {CLOSE:g} points"
    name = f"{what} by {entry.place.row.name}, {entry.place.column.name}"
    return [Claim(name, f"{paper[0]:.1f}", f"{mean:.1f} ({len(values)} seeds)", verdict)]


_SPOKEN = {"none": "the baseline", "random": "the random control", "gold": "training on gold labels", "em": "EM"}
_QUESTIONS = (
    ("exact", "none"),
    ("paper", "none"),
    ("exact", "random"),
    ("exact", "paper"),
    ("joint", "exact"),
    ("joint", "em"),
    ("gold", "joint"),
)


def verdict(entries: Sequence[Entry]) -> list[str]:
    """One sentence for each question that the runs can answer, task by task: does this objective beat that one?"""
    found: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        if entry.records:
            found.setdefault((entry.place.column.name, entry.place.config.objective), entry)
    columns = dict.fromkeys(column for column, _ in found)
    sentences = []
    for column in columns:
        for objective, other in _QUESTIONS:
            ours, theirs = found.get((column, objective)), found.get((column, other))
            if ours and theirs and (gains := _paired(ours, theirs)):
                said = sentence(_SPOKEN.get(objective, objective), _SPOKEN.get(other, other), gains)
                sentences.append(said if len(columns) == 1 else f"{column}: {said}")
    return sentences


def sentence(first: str, second: str, gains: Sequence[float]) -> str:
    """Whether the first beats the second, judged by the 95 % interval of the paired differences.

    Examples:
        >>> sentence("exact", "paper", [0.5, -0.5, 0.1])
        'Exact and paper do not differ as far as 3 seeds can tell: +0.0 points, 95 % interval -1.2 to +1.3.'
        >>> sentence("exact", "paper", [-2.0, -3.0, -4.0])
        'Paper beats exact by 3.0 points, 95 % interval 0.5 to 5.5; it is ahead in 3 of 3 seeds.'
    """
    low, high = interval(gains)
    if low <= 0 <= high:
        numbers = f"{statistics.mean(gains):+z.1f} points, 95 % interval {low:+z.1f} to {high:+z.1f}"
        return f"{_capital(first)} and {second} do not differ as far as {len(gains)} seeds can tell: {numbers}."
    if high < 0:
        return sentence(second, first, [-gain for gain in gains])
    won = f"it is ahead in {sum(gain > 0 for gain in gains)} of {len(gains)} seeds"
    numbers = f"{statistics.mean(gains):.1f} points, 95 % interval {low:.1f} to {high:.1f}"
    return f"{_capital(first)} beats {second} by {numbers}; {won}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
