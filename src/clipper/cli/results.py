"""`clipper results`: generate the blocks of Markdown pages that show recorded results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clipper.benchmarks.tables.ledger import RECORDS
from clipper.cli.console import output
from clipper.cli.options import writable
from clipper.cli.table import opened
from clipper.errors import FileError, require
from clipper.report.blocks import Sources, block, has_blocks, pages_of_tables, pictures, refreshed
from clipper.report.page import write_text


def results(
    records: Annotated[Path, typer.Option(help="Folder with the records that `clipper table` wrote.")] = Path(
        "results"
    ),
    to: Annotated[
        list[Path] | None,
        typer.Option(help="A Markdown page; repeat for several. Default: README.md and the pages in docs with blocks."),
    ] = None,
) -> None:
    """Update the figures in Markdown pages from the recorded runs, with the verdicts on the paper's claims.

    Only blocks from <!-- clipper results: NAME --> to <!-- end of NAME --> are changed. A page that does not exist, or
    has no block, becomes a document of all tables. Without --to, a page for each table is also written to docs/results,
    and figures to docs/images.
    """
    if not (records / RECORDS).exists():
        raise FileError(f"there are no records in {records}; `clipper table NAME --out {records}` makes them")
    ledger, sources = opened(records), Sources(records)
    found = {page: text for page in to or _pages() if has_blocks(text := _text(page))}
    pages = dict.fromkeys(to or [], f"# Results\n\n{block('results')}\n") | found
    if not pages:
        raise FileError("no page here has a block of results; `clipper results --to FILE.md` writes one")
    if to is None:
        pages |= {Path("docs/results") / name: text for name, text in pages_of_tables(sources).items()}
    with writable(*pages):
        for page, text in pages.items():
            write_text(page, refreshed(text, sources))
        if to is None:
            require("matplotlib", extra="report")
            for name, picture in pictures(sources).items():
                write_text(Path("docs/images") / name, picture)
    output.print(f"{len(ledger):,} runs: {', '.join(map(str, pages))}", soft_wrap=True)


def _pages() -> list[Path]:
    """The Markdown pages of a checkout."""
    return [Path("README.md"), *sorted(Path("docs").glob("**/*.md"))]


def _text(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return ""
