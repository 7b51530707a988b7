"""`clipper demo`: label the digits of receipts with known totals, train on the labels, and write a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.receipts import SCANS, TABLE, write_receipts
from clipper.benchmarks.tables import CellResult, Selection, summarise, table_named
from clipper.benchmarks.tables.grid import inspections_of
from clipper.cli.console import errors, output, progress_bars
from clipper.cli.options import counted, writable
from clipper.cli.table import opened, print_table, report_failed, run_missing
from clipper.errors import require
from clipper.labelling.label_files import write_labels
from clipper.labelling.label_job import LabelJob, LabelPool
from clipper.report.label_page import write_label_page
from clipper.report.table_page import write_table_page


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the receipts and the report.")] = Path("report"),
    seeds: Annotated[int, counted("Number of runs, each with other samples and initial weights.")] = 10,
    epochs: Annotated[int, counted("Passes over the samples.")] = 50,
) -> None:
    """Label the digits of 100 receipts from their totals, train on the labels, and write a report; two minutes."""
    require("matplotlib", extra="report")
    table = Selection(seeds=seeds, epochs=epochs).of(table_named("demo"))
    page, ledger, receipts = out / "index.html", opened(out), out / "receipts"
    labels, label_page = receipts / "labels.csv", out / "labels.html"
    with writable(page, ledger.path, labels, label_page):
        right = _label(receipts, next(table.cells()).config, labels, label_page)
        failed = run_missing(table, ledger)
        entries = summarise(table, ledger)
        with errors.status("writing the report"):
            result = _result(entries, right)
            links = {"Look at the labels": label_page.name, "Labels as a table": f"{receipts.name}/{labels.name}"}
            links["The receipts"] = f"{receipts.name}/{TABLE}"
            write_table_page(table, entries, page, inspections_of(table, out), result=result, links=links)
    print_table(table, entries)
    output.print(result, style="bold", soft_wrap=True)
    output.print(f"report: {page}\nlabels: {labels}\nlook at them: {label_page}", soft_wrap=True)
    report_failed(failed)


def _label(folder: Path, config: RunConfig, labels: Path, label_page: Path) -> str:
    """Write receipts and label their digits from the files; return the number of right labels as text."""
    gold = write_receipts(folder, config)
    job = LabelJob(folder / TABLE, labels, rule="sum", classes=10, images=folder / SCANS)
    with progress_bars() as bars:
        pool = LabelPool.read(job)
        found = pool.labels(pool.embeddings(bars), bars)
    write_labels(found.to_arrow(), labels, replace=True)
    write_label_page(found.to_arrow(), label_page, pool.pictures)
    return f"{int((found.posterior.labels == gold).sum()):,} of {gold.numel():,} digits"


def _result(entries: Sequence[CellResult], right: str) -> str:
    """The result in one sentence."""
    by_objective = {entry.place.config.objective: entry.values("accuracy") for entry in entries}
    labelled = f"From 100 totals alone, {right} are labelled right"
    if not (by_objective.get("joint") and by_objective.get("gold")):
        return f"{labelled}."
    joint, gold, alone = (mean(by_objective[name]) for name in ("joint", "gold", "none"))
    return (
        f"{labelled}, and a network trained on them reads {joint:.1f} % of unseen digits; "
        f"hand-made labels give {gold:.1f} %, totals alone {alone:.1f} %."
    )
