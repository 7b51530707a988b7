"""`clipper results`: one document of all that the records hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clipper.benchmarks.tables.ledger import RECORDS
from clipper.cli.console import output
from clipper.cli.options import writable
from clipper.cli.table import opened
from clipper.errors import FileError
from clipper.files import written_whole
from clipper.report.table_text import results_document


def results(
    records: Annotated[Path, typer.Option(help="Folder with the records that `clipper table` wrote.")] = Path(
        "results"
    ),
    to: Annotated[Path, typer.Option(help="The document to write, in Markdown.")] = Path("docs/results.md"),
) -> None:
    """Write a document of all tables that were run, and of which of the paper's claims reproduce."""
    if not (records / RECORDS).exists():
        raise FileError(f"there are no records in {records}; `clipper table NAME --out {records}` makes them")
    ledger = opened(records)
    with writable(to), written_whole(to, replace=True) as temporary:
        temporary.write_text(results_document(ledger), encoding="utf-8")
    output.print(f"{len(ledger):,} runs: {to}", soft_wrap=True)
