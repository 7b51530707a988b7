"""A table on disk: JSON, Markdown and a page beside the records they are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipper.benchmarks.tables import Entry, Table
from clipper.files import make_folder, written_whole
from clipper.report.table_page import write_table_page
from clipper.report.table_text import markdown

RECORDS = "records.jsonl"
"""The finished runs of all tables."""


@dataclass(frozen=True)
class Written:
    """What was written, and where."""

    document: dict[str, Any]
    """What the JSON file holds."""
    paths: dict[str, Path]


def write_table(
    table: Table, entries: Sequence[Entry], folder: Path, *, data_root: str | Path | None = None
) -> Written:
    """Write `NAME.json`, `NAME.md` and the page `NAME.html` into the folder, and return what was written."""
    document = {
        "table": table.name,
        "title": table.title,
        "entries": [entry.as_dict(table.measures) for entry in entries],
    }
    paths = {"JSON": folder / f"{table.name}.json", "Markdown": folder / f"{table.name}.md"}
    _write(paths["JSON"], json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    _write(paths["Markdown"], f"# {table.title}\n\n{markdown(table, entries)}")
    if any(entry.records for entry in entries):
        paths["page"] = folder / f"{table.name}.html"
        write_table_page(table, entries, paths["page"], data_root=data_root)
    return Written(document, paths)


def _write(path: Path, text: str) -> None:
    make_folder(path.parent)
    with written_whole(path, replace=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
