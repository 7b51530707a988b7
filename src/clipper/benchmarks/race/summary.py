"""Summary of the rows of a race: accuracy within equal seconds, who is first, and why."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clipper.benchmarks.race.contestants import CONTESTANTS, Contestant
from clipper.benchmarks.race.heat import MEASURED_AT
from clipper.benchmarks.race.tasks import TASKS
from clipper.benchmarks.statistics import deviation, percent
from clipper.files import Row

NEAR = 0.95
"""The share of the best final accuracy for which the time to reach it is reported."""
_FIRST_COMPARISON = 1.0
"""The first time, in seconds, at which contestants are compared; earlier, hardly any has begun to train."""


@dataclass(frozen=True)
class RaceResult:
    """What one contestant did on one task, over its seeds.

    Attributes:
        contestant: the contestant.
        seeds: of the runs that did not fail.
        failed: how many runs failed.
        final: the accuracy of each seed, at the end of the run or when the seconds are over.
        near: of each seed, the seconds until 95 % of the task's best mean final accuracy; None if it was never
            reached.
        first_step: of each seed, seconds until the end of the first step.
        peak_megabytes: of each seed.
        ended: of each seed, the seconds at which the run ended.
        out_of_time: how many runs were ended by the time limit.
        curves: of each seed, pairs of seconds and accuracy.
        samples: of each seed, pairs of seconds and samples seen.
        notes: of each seed.
    """

    contestant: Contestant
    seeds: list[int]
    failed: int
    final: list[float]
    near: list[float | None]
    first_step: list[float]
    peak_megabytes: list[float]
    ended: list[float]
    out_of_time: int
    curves: list[list[tuple[float, float]]]
    samples: list[list[tuple[float, float]]]
    notes: list[dict[str, Any]]

    def accuracy_at(self, seconds: float) -> float:
        """The mean over the seeds of the last accuracy measured within a number of seconds."""
        return statistics.fmean(value_at(curve, seconds) for curve in self.curves)

    def deviation_at(self, seconds: float) -> float:
        """The standard deviation over the seeds of what `accuracy_at` averages; 0 for a single seed."""
        return deviation([value_at(curve, seconds) for curve in self.curves])

    @property
    def mean(self) -> float:
        """The mean final accuracy."""
        return statistics.fmean(self.final)

    @property
    def deviation(self) -> float:
        """The standard deviation of the final accuracy over the seeds; 0 for a single one."""
        return deviation(self.final)

    @property
    def near_seconds(self) -> float | None:
        """The mean of `near`; None unless every seed got there."""
        reached = [seconds for seconds in self.near if seconds is not None]
        return statistics.fmean(reached) if reached and len(reached) == len(self.near) else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "contestant": self.contestant.name,
            "seeds": self.seeds,
            "failed": self.failed,
            "final": self.final,
            "mean": self.mean,
            "deviation": self.deviation,
            "seconds_to_95_percent_of_the_best": self.near,
            "first_step": self.first_step,
            "ended": self.ended,
            "out_of_time": self.out_of_time,
            "peak_megabytes": self.peak_megabytes,
        }


@dataclass(frozen=True)
class Standing:
    """The result of a task.

    Attributes:
        task: its name.
        title: its name on pages.
        seconds: the time limit.
        entries: by final accuracy, the best first.
        leaders: pairs of a time in seconds and the contestant that is first at that time.
        verdict: sentences that say who is first when, and why, if the first does not use Clipper.
    """

    task: str
    title: str
    seconds: float
    entries: list[RaceResult]
    leaders: list[tuple[float, RaceResult]] = field(default_factory=list)
    verdict: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "task": self.task,
            "seconds": self.seconds,
            "entries": [entry.as_dict() for entry in self.entries],
            "first": [
                {"within": at, "contestant": entry.contestant.name, "accuracy": entry.accuracy_at(at)}
                for at, entry in self.leaders
            ],
            "verdict": self.verdict,
        }


def value_at(curve: Sequence[tuple[float, float]], seconds: float) -> float:
    """The last value of a curve that was measured within a number of seconds.

    Examples:
        >>> curve = [(0.0, 0.1), (2.0, 0.5), (4.0, 0.7)]
        >>> value_at(curve, 3.9), value_at(curve, 4.0), value_at(curve, 1.0)
        (0.5, 0.7, 0.1)
    """
    return [value for at, value in curve if at <= seconds][-1]


def standings(rows: Sequence[Row]) -> list[Standing]:
    """The result of each task, in the order of `TASKS`.

    If rows have different time limits, the shortest counts: later measurements of longer runs are left out.

    Args:
        rows: the rows that `run_race` returns, or some of them.
    """
    known = {task.name: task for task in TASKS}
    names = [name for name in known if any(row["task"] == name for row in rows)]
    return [_standing(name, known[name].title, [row for row in rows if row["task"] == name]) for name in names]


def _standing(task: str, title: str, rows: Sequence[Row]) -> Standing:
    limit = min(row["seconds"] for row in rows)
    curves = {id(row): _within(row, limit) for row in rows if row["error"] is None}
    by_contestant = {
        each.name: (each, [row for row in rows if row["contestant"] == each.name and row["error"] is None])
        for each in CONTESTANTS
    }
    finals = [statistics.fmean(curves[id(row)][-1][2] for row in own) for _, own in by_contestant.values() if own]
    goal = NEAR * max(finals, default=0.0)
    entries = []
    for each, own in by_contestant.values():
        if own:
            own_curves = [curves[id(row)] for row in own]
            entries.append(
                RaceResult(
                    contestant=each,
                    seeds=[row["seed"] for row in own],
                    failed=sum(row["contestant"] == each.name and row["error"] is not None for row in rows),
                    final=[curve[-1][2] for curve in own_curves],
                    near=[next((point[0] for point in curve if point[2] >= goal), None) for curve in own_curves],
                    first_step=[row["first_step"] for row in own if row["first_step"] is not None],
                    peak_megabytes=[row["peak_megabytes"] for row in own if row["peak_megabytes"] is not None],
                    ended=[curve[-1][0] for curve in own_curves],
                    out_of_time=sum(row["out_of_time"] or row["curve"][-1][0] > limit for row in own),
                    curves=[[(point[0], point[2]) for point in curve] for curve in own_curves],
                    samples=[[(point[0], point[3]) for point in curve] for curve in own_curves],
                    notes=[row["notes"] for row in own],
                )
            )
    entries.sort(key=lambda entry: -entry.mean)
    standing = Standing(task, title, limit, entries)
    if not entries:
        return standing
    times = [float(at) for at in MEASURED_AT if _FIRST_COMPARISON <= at < limit] + [limit]
    for at in times:
        standing.leaders.append((at, max(entries, key=lambda entry: entry.accuracy_at(at))))
    standing.verdict.extend(_verdict(standing))
    return standing


def _within(row: Row, limit: float) -> list[list[float]]:
    """The measurements of a run within a time limit.

    If this is the run's own time limit, its last measurement may be later, because it follows the step during which the
    time ran out. It counts as measured at the limit.
    """
    points = [list(point) for point in row["curve"]]
    if row["seconds"] == limit:
        points[-1][0] = min(points[-1][0], limit)
    return [point for point in points if point[0] <= limit]


def _verdict(standing: Standing) -> list[str]:
    """Sentences that say who is first when, and why, where the first does not use Clipper."""
    spans: list[tuple[float, float, RaceResult]] = []
    for at, leader in standing.leaders:
        if spans and spans[-1][2] is leader:
            spans[-1] = spans[-1][0], at, leader
        else:
            spans.append((at, at, leader))
    ours = [entry for entry in standing.entries if entry.contestant.ours]
    sentences = []
    for start, end, leader in spans:
        when = f"at {_seconds(start)}" if start == end else f"from {_seconds(start)} to {_seconds(end)}"
        best = f"{percent(leader.accuracy_at(end))}{f' after {_seconds(end)}' if end > start else ''}"
        level = [
            entry.contestant.title
            for entry in standing.entries
            if entry is not leader and percent(entry.accuracy_at(end)) == percent(leader.accuracy_at(end))
        ]
        who = f"{' and '.join([leader.contestant.title, *level])} are level and" if level else leader.contestant.title
        sentence = f"{who} {'are' if level else 'is'} first {when} ({best})."
        if ours and not leader.contestant.ours:
            sentence += " " + _why(leader, ours, end)
        sentences.append(sentence)
    if ours and all(leader.contestant.ours for _, leader in standing.leaders):
        sentences.insert(
            0, f"A contestant with Clipper is first at every time from {_seconds(standing.leaders[0][0])} on."
        )
    return sentences


def _why(leader: RaceResult, ours: Sequence[RaceResult], at: float) -> str:
    """Why none of the contestants with Clipper is first at some time, as far as the rows tell."""
    best = max(ours, key=lambda entry: entry.accuracy_at(at))
    lead = leader.accuracy_at(at) - best.accuracy_at(at)
    told = f"The best with Clipper then is {best.contestant.title}, {100 * lead:.1f} points behind:"
    begun = statistics.fmean(best.first_step) if best.first_step else float("inf")
    if at < begun:
        return f"{told} its first step ends after {_seconds(begun)}."
    spread = max(leader.deviation_at(at), best.deviation_at(at))
    if len(best.final) > 1 and lead <= spread:
        return f"{told} no more than the deviation over the seeds, {100 * spread:.1f} points."
    ended = max(best.ended)
    if ended < at and not best.out_of_time:
        return f"{told} its own {_length(best)} were over after {_seconds(ended)}, and the other goes on."
    seen, other = (statistics.fmean(value_at(curve, at) for curve in each.samples) for each in (best, leader))
    if seen < other:
        return f"{told} it has seen {seen:,.0f} samples by then, the other {other:,.0f}."
    expected = [note["expected_accuracy"] for note in best.notes if "expected_accuracy" in note]
    if expected:
        share = percent(statistics.fmean(expected))
        return f"{told} it trains on inferred labels, of which it expects {share} to be right."
    return f"{told} it has seen {seen:,.0f} samples by then, the other {other:,.0f}, and learned less from them."


def _length(entry: RaceResult) -> str:
    settings = entry.contestant.settings
    return f"{settings['epochs']} epochs" if "epochs" in settings else f"{settings['samples_seen']:,} samples"


def _seconds(value: float) -> str:
    return f"{value:.3g} s"
