"""A table of results as text: ours beside the paper's, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from clipper.benchmarks.statistics import interval, spread
from clipper.benchmarks.tables import Entry, Table
from clipper.benchmarks.tables.layout import Measure
from clipper.benchmarks.tables.summary import NAMES

NOTHING = "–"


def ours(entry: Entry, measure: Measure) -> str:
    """Mean ± deviation, the 95 % interval of the mean, and over how many seeds."""
    values = entry.values(measure)
    if not values:
        return NOTHING
    digits = digits_of(measure)
    if len(values) == 1:
        return f"{values[0]:.{digits}f} (1 seed)"
    low, high = interval(values)
    return f"{spread(values, digits)} [{low:.{digits}f}, {high:.{digits}f}] ({len(values)})"


def digits_of(measure: Measure) -> int:
    """Decimals that say something."""
    return 3 if measure == "pruning_seconds" else 1


def papers(entry: Entry, measure: Measure) -> str:
    """The paper's mean ± deviation."""
    figure = entry.paper(measure)
    return NOTHING if figure is None else f"{figure[0]:.1f} ± {figure[1]:.1f}"


def columns_of(table: Table) -> list[str]:
    """The heads of the columns: of each task, or each measure where there are several, ours and the paper's."""
    if len(table.measures) > 1:
        heads = [NAMES[measure] for measure in table.measures]
        return ["row", *(f"{head}{whose}" for head in heads for whose in ("", " (paper)"))]
    return ["row", *(f"{column.name}{whose}" for column in table.columns for whose in ("", " (paper)"))]


def rows_of(table: Table, entries: Sequence[Entry]) -> list[list[str]]:
    """The cells of the table, row by row, empty rows left out; with several measures a row for each place."""
    if len(table.measures) > 1:
        return [
            [f"{entry.place.column.name}: {entry.place.row.name}", *_pairs([entry], table.measures)]
            for entry in entries
        ]
    by_row: dict[str, dict[str, Entry]] = {row.name: {} for row in table.rows}
    for entry in entries:
        by_row[entry.place.row.name][entry.place.column.name] = entry
    (measure,) = table.measures
    rows = [
        [name, *(text for column in table.columns for text in _pair(found.get(column.name), measure))]
        for name, found in by_row.items()
    ]
    return [row for row in rows if any(text != NOTHING for text in row[1:])]


def markdown(table: Table, entries: Sequence[Entry]) -> str:
    """The table in Markdown."""
    return markdown_table(columns_of(table), rows_of(table, entries))


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Any table in Markdown; the first column is text.

    Examples:
        >>> markdown_table(["a", "b"], [["x", "1"]])
        '| a | b |\\n| --- | ---: |\\n| x | 1 |\\n'
    """
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (head, rule, *rows))


def _pairs(entries: Sequence[Entry], measures: Sequence[Measure]) -> list[str]:
    return [text for entry in entries for measure in measures for text in _pair(entry, measure)]


def _pair(entry: Entry | None, measure: Measure) -> list[str]:
    return [NOTHING, NOTHING] if entry is None else [ours(entry, measure), papers(entry, measure)]
