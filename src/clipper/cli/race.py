"""`clipper race`: accuracy of Clipper and other frameworks on the same tasks, after the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from clipper.benchmarks.datasets import missing_data
from clipper.benchmarks.race.contestants import contestants_like
from clipper.benchmarks.race.run import jobs_of, make_environments, run_race
from clipper.benchmarks.race.summary import standings
from clipper.benchmarks.race.tasks import tasks_like
from clipper.cli.console import errors, output, print_json, progress_bars, table
from clipper.cli.options import DataRoot, Json, counted, writable
from clipper.errors import require
from clipper.report.figures import on_paper
from clipper.report.page import write_text
from clipper.report.race_page import ENTRY_COLUMNS, entry_cells, standings_figure, write_race_page

QUICK_SECONDS = 4.0
"""Seconds of each contestant with --quick: nine contestants then take less than two minutes in all."""


def race(
    task: Annotated[
        list[str] | None, typer.Option(help="Only this task: a name, or a pattern such as 'sum-2/*'; repeat.")
    ] = None,
    contestant: Annotated[
        list[str] | None, typer.Option(help="Only this contestant: a name or a pattern; repeat.")
    ] = None,
    data: Annotated[Literal["mnist", "digits"], typer.Option(help="Data set of the tasks.")] = "mnist",
    seeds: Annotated[int | None, counted("Runs of each contestant; default: 3, with --quick 1.", most=1_000)] = None,
    first_seed: Annotated[int, typer.Option(min=0, max=2**19, help="The first seed.")] = 0,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, max=86_400, help="Time of each run; default: 30 to 120, by task.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File of the results, a line of JSON for each run.")] = Path(
        "results/race.jsonl"
    ),
    page: Annotated[Path | None, typer.Option(help="Also write the results as an HTML page.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also write a figure of accuracy over time, SVG.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One small task, one seed, 4 seconds each.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also run what is in the file already.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Compare Clipper with other frameworks: same data, network and machine, accuracy after equal times.

    Each framework runs in its own virtual environment, which the command
    creates in the user's cache. Runs that are in the file are not run again.
    If a contestant fails, the output names it and the race continues. A
    contestant that cannot be installed is skipped and named.
    """
    if page is not None or figure is not None:
        require("matplotlib", extra="report")
    chosen = tasks_like(task or (["sum-2/digits/100"] if quick else []), data)
    skipped = {own.name: reason for own in chosen if (reason := missing_data(own.data, data_root)) is not None}
    tasks = [own for own in chosen if own.name not in skipped]
    racers = contestants_like(contestant or [])
    numbers = range(first_seed, first_seed + (seeds or (1 if quick else 3)))
    jobs = jobs_of(tasks, racers, numbers, seconds or (QUICK_SECONDS if quick else None))
    with writable(out, *filter(None, (page, figure))), progress_bars() as report:
        interpreters, absent = make_environments(racers, report)
        skipped |= absent
        rows = run_race(jobs, out, interpreters, progress=report, data_root=data_root, again=again)
    for name, reason in skipped.items():
        errors.print(f"skipped {name}: {reason}", soft_wrap=True)
    found = standings(rows)
    if page is not None:
        write_race_page(rows, page, skipped=skipped)
    if figure is not None:
        write_text(figure, on_paper(standings_figure(found)))
    if json:
        print_json({"tasks": [standing.as_dict() for standing in found], "skipped": skipped, "rows": rows})
    else:
        for standing in found:
            title = f"{standing.title}, {standing.seconds:g} seconds"
            output.print(table(title, ENTRY_COLUMNS, [entry_cells(entry) for entry in standing.entries]))
            for sentence in standing.verdict:
                output.print(sentence, soft_wrap=True)
    failed = [row for row in rows if row["error"] is not None]
    for row in failed:
        errors.print(
            f"failed: {row['contestant']} on {row['task']}, seed {row['seed']}: {row['error']}", soft_wrap=True
        )
    if failed:
        raise typer.Exit(1)
