"""`clipper demo`: the main job on the embedded digits, with a table and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clipper.benchmarks.datasets import digits
from clipper.benchmarks.retention import measure_retention
from clipper.cli.console import errors, output, table
from clipper.report.demo import write_demo_report
from clipper.report.numbers import spread


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="demo")(demo)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report.")] = Path("report"),
    seeds: Annotated[int, typer.Option(help="How often to draw the samples anew.")] = 10,
) -> None:
    """Prune SUM-3 on the embedded digits: 100 samples, nothing but their sums and raw pixels."""
    with errors.status("pruning"):
        rows = measure_retention(digits(), seeds=seeds)
        page = write_demo_report(rows, out)
    output.print(
        table(
            f"100 samples of SUM-3, batches of 64, mean ± deviation of {seeds} draws",
            ["objective", "candidates kept, %", "gold labels kept, %"],
            [[row.method, spread(row.retained), spread(row.gold)] for row in rows],
        )
    )
    output.print(f"report: {page}")
