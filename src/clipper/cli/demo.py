"""`clipper demo`: the main job on the embedded digits, with a table and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clipper.benchmarks.comparison import compare
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.datasets import digits
from clipper.benchmarks.retention import measure_retention
from clipper.cli.console import errors, output, progress_bars, table
from clipper.cli.options import MOST
from clipper.cli.outputs import writable
from clipper.errors import require
from clipper.report.demo import COLUMNS, comparison_rows, write_demo_report
from clipper.report.verdict import verdict


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="demo")(demo)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report.")] = Path("report"),
    seeds: Annotated[
        int, typer.Option(min=1, max=MOST, help="How often to draw the samples and the first weights anew.")
    ] = 10,
    epochs: Annotated[int, typer.Option(min=1, max=MOST, help="Passes over the samples.")] = 50,
) -> None:
    """Learn digits from 100 sums of three: without pruning, with it, with the random control; about a minute."""
    config = RunConfig(epochs=epochs)
    require("matplotlib", extra="report")
    with writable(out / "index.html"):  # before the work, not after it
        with progress_bars() as report:
            comparison = compare(config, seeds, report)
        with errors.status("writing the report"):
            page = write_demo_report(comparison, measure_retention(digits(), seeds=seeds), out)
    title = f"100 samples of SUM-3, {epochs} epochs; last-epoch accuracy, {seeds} seeds"
    output.print(table(title, COLUMNS, comparison_rows(comparison)))
    output.print("\n".join(verdict(comparison)), soft_wrap=True)
    output.print(f"report: {page}", soft_wrap=True)
