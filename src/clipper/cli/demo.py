"""`clipper demo`: the main job on the embedded digits, with a table and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clipper.benchmarks.comparison import compare
from clipper.benchmarks.datasets import digits
from clipper.benchmarks.retention import measure_retention
from clipper.cli.console import errors, output, progress_bars, table
from clipper.errors import InputError
from clipper.report.demo import COLUMNS, comparison_rows, write_demo_report
from clipper.report.verdict import verdict
from clipper.training import TrainConfig


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="demo")(demo)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report.")] = Path("report"),
    seeds: Annotated[int, typer.Option(help="How often to draw the samples and the first weights anew.")] = 10,
    epochs: Annotated[int, typer.Option(help="Passes over the samples.")] = 50,
) -> None:
    """Learn digits from 100 sums of three: without pruning, with it, with the random control; about a minute."""
    if seeds < 1:
        raise InputError(f"expected --seeds of at least 1, got {seeds}")
    with progress_bars() as report:
        comparison = compare(TrainConfig(epochs=epochs), seeds, report)
    with errors.status("writing the report"):
        page = write_demo_report(comparison, measure_retention(digits(), seeds=seeds), out)
    title = f"100 samples of SUM-3, {epochs} epochs; last-epoch accuracy, {seeds} seeds"
    output.print(table(title, COLUMNS, comparison_rows(comparison)))
    output.print("\n".join(verdict(comparison)))
    output.print(f"report: {page}")
