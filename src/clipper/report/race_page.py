"""A page for the race: accuracy against seconds, who is first, and with which settings each contestant ran."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clipper.benchmarks.race.contestants import CONTESTANTS
from clipper.benchmarks.race.summary import RaceResult, Standing, standings
from clipper.files import Row
from clipper.report import figures
from clipper.report.page import write_page
from clipper.training.environment import UNKNOWN

ENTRY_COLUMNS = ["contestant", "accuracy, %", "s to 95 %", "first step, s", "ended, s", "memory, MB", "seeds"]
_BUSY = 0.9
"""A contestant should have had the processor for at least this share of its seconds."""
_LEAD = (
    "All contestants have the same samples, network, initial weights and held-out images. They run one after the "
    "other on one machine, with one thread. The clock starts with a contestant's own code and stops while its network "
    "is measured."
)
_MEANINGS = {
    "accuracy": "on held-out images, at the end of the run or of the seconds: mean ± deviation over the seeds",
    "s to 95 %": "seconds to 95 % of the best contestant's final accuracy on the task, mean over the seeds; – if not "
    "all of them got there",
    "first step": "seconds until the end of the first step of training; joint inference comes before it",
    "ended": "seconds until it had seen all samples that its source recommends; clock: the time limit ended the run",
    "memory": "the most that the process held, PyTorch and data included",
}


def write_race_page(rows: Sequence[Row], path: str | Path, *, skipped: Mapping[str, str] | None = None) -> None:
    """Write the page of a race's rows; it opens from disk and needs no network.

    Args:
        rows: the rows that `run_race` returns.
        path: the file to write; an older page is replaced.
        skipped: the tasks and contestants that were not run, by name, and why.

    Raises:
        FileError: if the page cannot be written.
    """
    found = standings(rows)
    drawn = [standing for standing in found if standing.entries]
    ran = {row["contestant"] for row in rows}
    write_page(
        path,
        "race.html",
        title="The race: accuracy within the same seconds",
        lead=_LEAD,
        figure_svg=standings_figure(drawn) if drawn else None,
        columns=ENTRY_COLUMNS,
        standings=[(standing, [entry_cells(entry) for entry in standing.entries]) for standing in found],
        settings=[(each.title, _settings(each.settings), each.document) for each in CONTESTANTS if each.name in ran],
        packages=packages_of(rows),
        meanings=_MEANINGS,
        busy=busy_note(rows),
        failed=[
            (f"{row['contestant']} on {row['task']}, seed {row['seed']}", row["error"])
            for row in rows
            if row["error"] is not None
        ],
        skipped=dict(skipped or {}),
        made_by=sorted({row["commit"] for row in rows} - {None, UNKNOWN}),
    )


def standings_figure(found: Sequence[Standing]) -> str:
    """The figure of accuracy against seconds, as SVG: solid lines with Clipper, dashed lines without it."""
    return figures.race_figure(
        {
            standing.title: (
                standing.seconds,
                {
                    entry.contestant.title: figures.RaceLine(
                        entry.contestant.peer or entry.contestant.name, entry.contestant.ours, entry.curves
                    )
                    for entry in _in_order(standing)
                },
            )
            for standing in found
            if standing.entries
        }
    )


def entry_cells(entry: RaceResult) -> list[str]:
    """What a contestant did on a task, as the cells of a table."""
    near, runs = entry.near_seconds, len(entry.seeds)
    reached = sum(seconds is not None for seconds in entry.near)
    return [
        entry.contestant.title,
        f"{100 * entry.mean:.1f} ± {100 * entry.deviation:.1f}",
        f"{near:.3g}" if near is not None else f"– ({reached} of {runs})" if reached else "–",
        f"{statistics.fmean(entry.first_step):.2f}" if entry.first_step else "–",
        "clock" if entry.out_of_time == runs else f"{statistics.fmean(entry.ended):.3g}",
        f"{max(entry.peak_megabytes):.0f}" if entry.peak_megabytes else "–",
        f"{runs}" + (f", {entry.failed} failed" if entry.failed else ""),
    ]


def _in_order(standing: Standing) -> list[RaceResult]:
    """The rows in the order of the contestants, so that each has the same colour in every panel."""
    order = [each.name for each in CONTESTANTS]
    return sorted(standing.entries, key=lambda entry: order.index(entry.contestant.name))


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())


def packages_of(rows: Sequence[Row]) -> str:
    """Versions of the frameworks that took part."""
    found = {f"{name} {version}" for row in rows for name, version in row.get("packages", {}).items()}
    return ", ".join(sorted(found))


def busy_note(rows: Sequence[Row]) -> str | None:
    """A note if other programs kept the machine busy."""
    shares = {
        f"{row['contestant']} on {row['task']}, seed {row['seed']}": row["curve"][-1][1] / row["curve"][-1][0]
        for row in rows
        if row["error"] is None and row["curve"][-1][0] > 0
    }
    slowed = [name for name, share in shares.items() if share < _BUSY]
    if not slowed:
        return None
    worst = min(shares, key=lambda name: shares[name])
    return (
        f"The machine was busy: {len(slowed)} of {len(shares)} runs had the processor for less than {_BUSY:.0%} of "
        f"their seconds, {worst} for {shares[worst]:.0%}. Run these again on a quiet machine."
    )
