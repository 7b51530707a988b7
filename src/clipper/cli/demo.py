"""`clipper demo`: the table "demo" on the embedded digits, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clipper.benchmarks.tables import Selection, summarise, table_named
from clipper.benchmarks.tables.grid import inspections_of
from clipper.cli.console import errors, output
from clipper.cli.options import counted, writable
from clipper.cli.table import opened, print_table, report_failed, run_missing
from clipper.errors import require
from clipper.report.table_page import write_table_page


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report.")] = Path("report"),
    seeds: Annotated[int, counted("How often to draw the samples and the first weights anew.")] = 10,
    epochs: Annotated[int, counted("Passes over the samples.")] = 50,
) -> None:
    """Learn digits from 100 sums of three: without pruning, with it, with the random control; about a minute."""
    require("matplotlib", extra="report")
    table = Selection(seeds=seeds, epochs=epochs).of(table_named("demo"))
    page, ledger = out / "index.html", opened(out)
    with writable(page, ledger.path):  # before the work, not after it
        failed = run_missing(table, ledger)
        entries = summarise(table, ledger)
        with errors.status("writing the report"):
            write_table_page(table, entries, page, inspections_of(table, out))
    print_table(table, entries)
    output.print(f"report: {page}", soft_wrap=True)
    report_failed(failed)
