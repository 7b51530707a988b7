"""The page of a table: ours beside the paper's, how it learned, what was kept, what it cost, and a look inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clipper.benchmarks.tables import Entry, Table, deviations
from clipper.benchmarks.tables.layout import Measure
from clipper.benchmarks.tables.summary import NAMES, OF_PRUNING
from clipper.benchmarks.tables.variants import MEANING
from clipper.errors import ClipperError
from clipper.report.claims import CLAIM_COLUMNS, claims_of
from clipper.report.curves import accuracy_figure
from clipper.report.page import figure, html_table, paragraphs, terms, write_page
from clipper.report.rows import Records, forest_figure, kept_figure, overhead_figure
from clipper.report.run_page import sections_of, settings
from clipper.report.table_html import results_table
from clipper.training.config import config_of

FEWEST = 3
"""Measurements that make a curve."""
_HEADS = ("What struck out what", "How sure it was, and how right")
"""The sections about a pruning."""
_LEAD = (
    "Accuracy is the last epoch's on images that no run has seen: mean ± deviation over the seeds, [95 % interval of "
    "the mean] (seeds). A seed means the same samples and first weights in every row. Nothing was chosen by it."
)


def write_table_page(
    table: Table, entries: Sequence[Entry], path: Path, *, data_root: str | Path | None = None
) -> None:
    """Write the page; it opens from disk, without a network.

    Args:
        table: what was asked for.
        entries: what came out at each place of it.
        path: where to; an older page is replaced.
        data_root: the folder with the data sets, for the images of the inspector.
    """
    sections = [("The table", results_table(table, entries) + _meanings(table, entries))]
    sections += _claims(table, entries)
    for column in table.columns:
        sections += _column(column.name, [entry for entry in entries if entry.place.column == column and entry.records])
    sections += _costs(entries)
    sections += _inspected(entries, data_root)
    shown = [measure for measure in table.measures if measure not in OF_PRUNING]
    heads = ["place", "runs", *(f"{NAMES[measure]}, by seed" for measure in shown)]
    sections.append(("Every seed", html_table(heads, _seeds(entries, shown))))
    write_page(path, table.title, _LEAD, sections)


def _meanings(table: Table, entries: Sequence[Entry]) -> str:
    meaning = {**MEANING, **table.notes}
    variants = dict.fromkeys("gold" if e.place.config.objective == "gold" else e.place.row.variant for e in entries)
    return terms({variant: meaning[variant] for variant in variants if variant in meaning})


def _claims(table: Table, entries: Sequence[Entry]) -> list[tuple[str, str]]:
    claims = claims_of(table, entries)
    return [("What reproduces", html_table(CLAIM_COLUMNS, [claim.as_row() for claim in claims]))] if claims else []


def _column(name: str, entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Figures of one task."""
    if not entries:
        return []
    published = {e.place.row.name: paper for e in entries if (paper := e.paper("accuracy")) is not None}
    rows = _records(entries)
    shown = figure(forest_figure(rows, published), "Each dot is a seed.")
    for engine in dict.fromkeys(entry.place.row.engine for entry in entries):
        shown += _curves(engine, [entry for entry in entries if entry.place.row.engine == engine])
    return [(name, shown)]


def _curves(engine: str, entries: Sequence[Entry]) -> str:
    measured = sum(figures.accuracy is not None for figures in entries[0].records[0].epochs)
    if measured < FEWEST:
        return ""
    return figure(accuracy_figure(_records(entries)), f"{engine}: mean over the seeds, bands of one deviation.")


def _costs(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """What pruning keeps and costs, over all tasks."""
    pruned = {
        f"{entry.place.column.name}: {entry.place.row.name}": entry.records
        for entry in entries
        if entry.records and entry.values("retained")
    }
    if not pruned:
        return []
    caption = "Candidates that stay, and samples whose gold labels stay. The gap is what the neighbours told."
    return [
        ("What pruning keeps", figure(kept_figure(pruned), caption)),
        (
            "What pruning costs",
            figure(overhead_figure(pruned), "Neighbour search and pruning, of the time of all steps."),
        ),
    ]


def _inspected(entries: Sequence[Entry], data_root: str | Path | None) -> list[tuple[str, str]]:
    """A pruning to look into, the first exact one or else the first; and how right the first joint one is."""
    pruned = [entry for entry in entries if entry.records and entry.values("retained")]
    sections: list[tuple[str, str]] = []
    for entry in sorted(pruned, key=lambda entry: entry.place.row.variant != "exact")[:1]:
        settings_of = html_table(["setting", "value"], settings(entry.records[0].config))
        sections += [_section(entry, 0, data_root), (f"Configuration of {_whose(entry)}", settings_of)]
    joint = [entry for entry in pruned if entry.place.config.objective == "joint"]
    return sections + [_section(entry, 1, data_root) for entry in joint[:1]]


def _section(entry: Entry, place: int, data_root: str | Path | None) -> tuple[str, str]:
    """One of the sections about the pruning of an entry's first run."""
    try:
        head, body = list(sections_of(config_of(entry.records[0]), data_root=data_root).items())[place]
    except ClipperError as error:  # the records are here, and the data they were made from may be elsewhere
        head, body = _HEADS[place], paragraphs([f"Not shown: {error}"])
    return f"{head}: {_whose(entry)}", body


def _whose(entry: Entry) -> str:
    return f"{entry.place.row.name}, {entry.place.column.name}, seed {entry.records[0].config['seed']}"


def _records(entries: Sequence[Entry]) -> Records:
    return {entry.place.row.name: entry.records for entry in entries}


def _seeds(entries: Sequence[Entry], measures: Sequence[Measure]) -> list[list[str]]:
    return [
        [
            f"{entry.place.column.name}: {entry.place.row.name}",
            f"{len(entry.records)}{f', {deviations(entry)}' if deviations(entry) else ''}",
            *(", ".join(f"{value:.1f}" for value in entry.values(measure)) for measure in measures),
        ]
        for entry in entries
        if entry.records
    ]
