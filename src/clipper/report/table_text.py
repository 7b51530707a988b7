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
    """The paper's mean ± deviation; without one where it ran once."""
    figure = entry.published.get(measure)
    if figure is None:
        return NOTHING
    return f"{figure[0]:.1f} ± {figure[1]:.1f}" if figure[1] else f"{figure[0]:.1f}"


def columns_of(table: Table) -> list[str]:
    """The heads of the columns: of each task, or each measure where there are several, ours and the paper's."""
    if len(table.measures) > 1:
        heads = {measure: NAMES[measure] for measure in table.measures}
        return ["row", *(f"{heads[m]}{whose}" for m in heads for whose in ("", " (paper)")[: 1 + _in_paper(table, m)])]
    whose = ("", " (paper)")
    return ["row", *(f"{c.name}{who}" for c in table.columns for who in whose[: 1 + _published(table, c.name)])]


def rows_of(table: Table, entries: Sequence[Entry]) -> list[list[str]]:
    """The cells of the table, row by row, empty rows left out; with several measures a row for each place."""
    if len(table.measures) > 1:
        rows = [[f"{entry.place.column.name}: {entry.place.row.name}", *_pairs(table, entry)] for entry in entries]
    else:
        rows = [_across(row.name, table, entries) for row in table.rows]
    return [row for row in rows if any(text != NOTHING for text in row[1:])]


def _across(row: str, table: Table, entries: Sequence[Entry]) -> list[str]:
    found = {entry.place.column.name: entry for entry in entries if entry.place.row.name == row}
    (measure,) = table.measures
    pairs = {column.name: _pair(found.get(column.name), measure) for column in table.columns}
    return [row, *(text for name, pair in pairs.items() for text in pair[: 1 + _published(table, name)])]


def by_task(table: Table, entries: Sequence[Entry]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For narrow screens: of each task its name, the heads and the rows; the paper's figure below ours."""
    heads = ["row", *(NAMES[measure] for measure in table.measures)]
    tasks = []
    for column in table.columns:
        found = [entry for entry in entries if entry.place.column == column and (entry.records or entry.published)]
        rows = [[entry.place.row.name, *(_stacked(entry, measure) for measure in table.measures)] for entry in found]
        if any(entry.records for entry in found):
            tasks.append((column.name, heads, rows))
    return tasks


def _stacked(entry: Entry, measure: Measure) -> str:
    lines, paper = ours(entry, measure).replace(" [", "\n["), papers(entry, measure)
    return lines if paper == NOTHING else f"{lines}\npaper {paper}"


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


def _pairs(table: Table, entry: Entry) -> list[str]:
    return [text for m in table.measures for text in _pair(entry, m)[: 1 + _in_paper(table, m)]]


def _in_paper(table: Table, measure: Measure) -> bool:
    return any(measure in figures for figures in table.published.values())


def _published(table: Table, column: str) -> bool:
    return any(name == column for _, name in table.published)


def _pair(entry: Entry | None, measure: Measure) -> list[str]:
    return [NOTHING, NOTHING] if entry is None else [ours(entry, measure), papers(entry, measure)]
