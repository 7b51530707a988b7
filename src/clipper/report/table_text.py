"""A table of results as text: ours beside the paper's, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from clipper.benchmarks.statistics import interval, spread
from clipper.benchmarks.tables import Entry, Table
from clipper.benchmarks.tables.layout import Measure
from clipper.benchmarks.tables.summary import NAMES

NOTHING = "–"


def ours(entry: Entry, measure: Measure) -> list[str]:
    """Mean ± deviation; then the 95 % interval of the mean, and over how many seeds. No lines where nothing was run."""
    values, digits = entry.values(measure), digits_of(measure)
    if len(values) < 2:
        return [line for value in values for line in (f"{value:.{digits}f}", "(1 seed)")]
    low, high = interval(values)
    return [spread(values, digits), f"[{low:.{digits}f}, {high:.{digits}f}] ({len(values)})"]


def digits_of(measure: Measure) -> int:
    """Decimals that say something."""
    return 3 if measure == "pruning_seconds" else 1


def papers(entry: Entry, measure: Measure) -> str:
    """The paper's mean ± deviation; without one where it ran once."""
    figure = entry.paper(measure)
    if figure is None:
        return NOTHING
    return f"{figure[0]:.1f} ± {figure[1]:.1f}" if figure[1] else f"{figure[0]:.1f}"


def columns_of(table: Table) -> list[str]:
    """The heads of the columns: of each task, or each measure where there are several, ours and the paper's."""
    return ["row", *(text for head, shown in _heads(table) for text in (head, f"{head} (paper)")[:shown])]


def rows_of(table: Table, entries: Sequence[Entry]) -> list[list[str]]:
    """The cells of the table, row by row, empty rows left out; with several measures a row for each place."""
    cells: dict[str, list[tuple[str, str]]]
    if len(table.measures) > 1:
        cells = {
            f"{entry.place.column.name}: {entry.place.row.name}": [_pair(entry, measure) for measure in table.measures]
            for entry in entries
        }
    else:
        (measure,) = table.measures
        found = {(entry.place.row.name, entry.place.column.name): entry for entry in entries}
        cells = {
            row.name: [_pair(found.get((row.name, column.name)), measure) for column in table.columns]
            for row in table.rows
        }
    shown = [number for _, number in _heads(table)]
    rows = [
        [name, *(text for pair, number in zip(pairs, shown, strict=True) for text in pair[:number])]
        for name, pairs in cells.items()
    ]
    return [row for row in rows if any(text != NOTHING for text in row[1:])]


def _heads(table: Table) -> list[tuple[str, int]]:
    """Each task, or each measure where there are several, and how many columns it has: two if the paper has figures."""
    if len(table.measures) > 1:
        return [(NAMES[m], 1 + any(m in figures for figures in table.published.values())) for m in table.measures]
    return [(c.name, 1 + any(c.name == column for _, column in table.published)) for c in table.columns]


def _pair(entry: Entry | None, measure: Measure) -> tuple[str, str]:
    """Our cell and the paper's."""
    return (NOTHING, NOTHING) if entry is None else (" ".join(ours(entry, measure)) or NOTHING, papers(entry, measure))


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
    lines, paper = ours(entry, measure) or [NOTHING], papers(entry, measure)
    return "\n".join(lines if paper == NOTHING else [*lines, f"paper {paper}"])


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
