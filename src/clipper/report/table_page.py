"""Writes a table of results: JSON, Markdown, and a page with our figures, the paper's figures, curves and prunings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipper.benchmarks.tables import CellResult, Table, deviations, peculiarity
from clipper.benchmarks.tables.layout import MEANING, Measure
from clipper.benchmarks.tables.summary import NAMES, OF_PRUNING
from clipper.report.claims import CLAIM_COLUMNS, NOTHING, claims_of, verdict
from clipper.report.figures import Records, accuracy_figure, forest_figure, kept_figure, overhead_figure
from clipper.report.inspector import inspector_view
from clipper.report.page import write_page, write_text
from clipper.report.table_text import markdown, ours, papers
from clipper.training.inspection import Inspection

FEWEST = 3
"""The fewest measured epochs for which a curve is drawn."""
_LEAD = (
    "Accuracy is measured on held-out data after the last epoch, and averaged over the seeds. Point at it to see its "
    "deviation, its 95 % interval and the number of seeds. All rows use the same samples and initial weights for each "
    "seed."
)


@dataclass(frozen=True)
class Written:
    """What was written, and where.

    Attributes:
        document: what the JSON file holds.
        paths: the files, by what they are: "JSON", "Markdown", "page".
    """

    document: dict[str, Any]
    paths: dict[str, Path]


def write_table(
    table: Table, entries: Sequence[CellResult], folder: Path, inspections: Mapping[str, Inspection] | None = None
) -> Written:
    """Write `NAME.json`, `NAME.md` and the page `NAME.html` into a folder.

    Args:
        table: the table.
        entries: the results in its cells.
        folder: the folder to write to; older files are replaced.
        inspections: prunings to show in an inspector, by title.

    Returns:
        What was written. A table without a run has no page.

    Raises:
        FileError: if a file cannot be written.
    """
    document = {
        "table": table.name,
        "title": table.title,
        "entries": [entry.as_dict(table.measures) for entry in entries],
    }
    paths = {"JSON": folder / f"{table.name}.json", "Markdown": folder / f"{table.name}.md"}
    write_text(paths["JSON"], json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    write_text(paths["Markdown"], f"# {table.title}\n\n{markdown(table, entries)}")
    if any(entry.records for entry in entries):
        paths["page"] = folder / f"{table.name}.html"
        write_table_page(table, entries, paths["page"], inspections)
    return Written(document, paths)


def write_table_page(
    table: Table,
    entries: Sequence[CellResult],
    path: Path,
    inspections: Mapping[str, Inspection] | None = None,
    *,
    result: str = "",
    links: Mapping[str, str] | None = None,
) -> None:
    """Write the page only. It opens from disk and needs no network.

    Args:
        table: the table.
        entries: the results in its cells.
        path: the file to write; an older page is replaced.
        inspections: prunings to show in an inspector, by title.
        result: the result in one sentence, as the heading of the page; the table's title if not given.
        links: other files, relative to the page, by their titles.
    """
    name = _name if len(table.columns) > 1 else _row_name
    pruned = {name(entry): entry.records for entry in entries if entry.records and entry.values("retained")}
    shown = [measure for measure in table.measures if measure not in OF_PRUNING]
    write_page(
        path,
        "table.html",
        title=result or table.title,
        lead=_LEAD,
        links=links or {},
        results=results_table(table, entries),
        meanings=_meanings(table, entries),
        claim_columns=CLAIM_COLUMNS,
        claims=[claim[: len(CLAIM_COLUMNS)] for claim in claims_of(entries)],
        sentences=[] if table.published else verdict(entries),
        columns=[figures for column in table.columns if (figures := _figures(column.name, entries))],
        kept=kept_figure(pruned) if pruned else None,
        costs=overhead_figure(pruned) if pruned else None,
        inspected=_inspected(inspections or {}),
        seed_columns=["row", "runs", *(f"{NAMES[measure]}, by seed" for measure in shown)],
        seeds=_seeds(entries, shown),
    )


def results_table(table: Table, entries: Sequence[CellResult]) -> dict[str, Any]:
    """The cells that were run or published: `heads`, `rows` of a name and its cells, and `missing` columns."""
    done = [
        column.name
        for column in table.columns
        if any(entry.place.column.name == column.name and entry.records for entry in entries)
    ]
    if len(table.measures) > 1:
        heads = [NAMES[measure] for measure in table.measures]
        several = len(table.columns) > 1
        rows = [
            (_name(entry) if several else entry.place.row.name, [_cell(entry, m) for m in table.measures])
            for entry in entries
            if entry.place.column.name in done and (entry.records or entry.published)
        ]
    else:
        heads, (measure,) = done, table.measures
        at = {(entry.place.row.name, entry.place.column.name): entry for entry in entries}
        cells = {row.name: [_cell(at.get((row.name, column)), measure) for column in done] for row in table.rows}
        rows = [(name, own) for name, own in cells.items() if any(own)]
    nothing = [{"text": NOTHING, "kind": "", "title": ""}]
    return {
        "heads": ["", *(head.replace("-", "\N{NON-BREAKING HYPHEN}") for head in heads)],  # no line break within SUM-3
        "rows": [(name, [cell or nothing for cell in own]) for name, own in rows],
        "missing": [column.name for column in table.columns if column.name not in done],
    }


def _cell(entry: CellResult | None, measure: Measure) -> list[dict[str, str]]:
    """The lines of a cell: our mean, remarks, the paper's figure; none if neither exists.

    The deviation, the interval and the number of seeds are the tooltip of the mean.
    """
    if entry is None:
        return []
    values, lines = entry.values(measure), []
    if values:
        mean = f"{sum(values) / len(values):.1f}"
        lines.append({"text": mean, "kind": "", "title": " ".join(ours(entry, measure))})
        lines += [{"text": note, "kind": "ours"} for note in (entry.mark, peculiarity(entry)) if note]
    if entry.published.get(measure) is not None:
        lines.append({"text": f"paper {papers(entry, measure)}", "kind": "paper"})
    return lines


def _meanings(table: Table, entries: Sequence[CellResult]) -> dict[str, str]:
    meaning = {**MEANING, **table.notes}
    rows = {("gold" if e.place.config.objective == "gold" else e.place.row.variant): e.place.row.title for e in entries}
    return {title or variant: meaning[variant] for variant, title in rows.items() if variant in meaning}


def _figures(column: str, entries: Sequence[CellResult]) -> dict[str, Any] | None:
    """Figures of one task."""
    run = [entry for entry in entries if entry.place.column.name == column and entry.records]
    if not run:
        return None
    published = {e.place.row.name: paper for e in run if (paper := e.published.get("accuracy")) is not None}
    ceiling = [entry for entry in run if entry.place.config.objective == "gold"]
    curves = {}
    for engine in dict.fromkeys(entry.place.row.engine for entry in run if entry not in ceiling):
        own = [entry for entry in run if entry.place.row.engine == engine] + ceiling
        if sum(metrics.accuracy is not None for metrics in own[0].records[0].epochs) >= FEWEST:
            curves[engine] = accuracy_figure(_records(own))
    return {"name": column, "forest": forest_figure(_records(run), published), "curves": curves}


def _inspected(inspections: Mapping[str, Inspection]) -> list[dict[str, Any]]:
    return [
        {"whose": whose, "view": inspector_view(inspection, f"sample{place or ''}")}
        for place, (whose, inspection) in enumerate(inspections.items())
    ]


def _name(entry: CellResult) -> str:
    return f"{entry.place.column.name}: {entry.place.row.name}"


def _row_name(entry: CellResult) -> str:
    return entry.place.row.name


def _records(entries: Sequence[CellResult]) -> Records:
    return {entry.place.row.name: entry.records for entry in entries}


def _seeds(entries: Sequence[CellResult], measures: Sequence[Measure]) -> list[list[str]]:
    return [
        [
            _name(entry),
            f"{len(entry.records)}{f', {deviations(entry)}' if deviations(entry) else ''}",
            *(", ".join(f"{value:.1f}" for value in entry.values(measure)) for measure in measures),
        ]
        for entry in entries
        if entry.records
    ]
