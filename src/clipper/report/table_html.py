"""A table of results as HTML: in each cell ours, its interval and seeds, and below it the paper's figure."""

from __future__ import annotations

import html
from collections.abc import Sequence

from clipper.benchmarks.statistics import interval, spread
from clipper.benchmarks.tables import Entry, Table, deviations
from clipper.benchmarks.tables.layout import Measure
from clipper.benchmarks.tables.summary import NAMES
from clipper.report.table_text import NOTHING, digits_of, papers


def results_table(table: Table, entries: Sequence[Entry]) -> str:
    """The places that were run, or that the paper has; columns without a run are named below."""
    done = [column.name for column in table.columns if any(_is_at(e, column.name) and e.records for e in entries)]
    missing = [column.name for column in table.columns if column.name not in done]
    if len(table.measures) > 1:
        heads = [NAMES[measure] for measure in table.measures]
        rows = [
            _row(f"{entry.place.column.name}: {entry.place.row.name}", [_cell(entry, m) for m in table.measures])
            for entry in entries
            if entry.place.column.name in done and (entry.records or entry.published)
        ]
    else:
        heads = done
        rows = [_across(row.name, done, entries, table.measures[0]) for row in table.rows]
    whole = [html.escape(text).replace("-", "&#8209;") for text in ("", *heads)]  # no line ends within SUM-3
    head = "".join(f"<th>{text}</th>" for text in whole)
    note = f"<p>Not run: {html.escape('; '.join(missing))}.</p>" if missing else ""
    return f'<div class="wide"><table class="results"><tr>{head}</tr>{"".join(rows)}</table></div>{note}'


def _across(row: str, columns: Sequence[str], entries: Sequence[Entry], measure: Measure) -> str:
    found = {entry.place.column.name: entry for entry in entries if entry.place.row.name == row}
    cells = [_cell(found[column], measure) if column in found else "" for column in columns]
    return _row(row, cells) if any(cells) else ""


def _row(name: str, cells: Sequence[str]) -> str:
    return f"<tr><td>{html.escape(name)}</td>" + "".join(f"<td>{cell or NOTHING}</td>" for cell in cells) + "</tr>"


def _cell(entry: Entry, measure: Measure) -> str:
    """Empty where neither we nor the paper have a figure."""
    values, digits = entry.values(measure), digits_of(measure)
    lines = []
    if len(values) > 1:
        low, high = interval(values)
        lines = [
            f"{spread(values, digits)}",
            f"<small>[{low:.{digits}f}, {high:.{digits}f}] ({len(values)})</small>",
        ]
    elif values:
        lines = [f"{values[0]:.{digits}f}", "<small>(1)</small>"]
    if values and deviations(entry):
        lines.append(f"<small>{html.escape(deviations(entry))}</small>")
    if entry.paper(measure) is not None:
        lines.append(f'<small class="paper">paper {papers(entry, measure)}</small>')
    return "".join(f"<div>{line}</div>" for line in lines)


def _is_at(entry: Entry, column: str) -> bool:
    return entry.place.column.name == column
