"""`clipper label`: label the samples of a table, from files to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clipper.benchmarks.statistics import percent
from clipper.cli.console import errors, output, print_json, progress_bars, table
from clipper.cli.options import Address, ExecutorOption, Json, Workers, with_options_of, writable
from clipper.errors import FileError, InputError
from clipper.executors import executor_named
from clipper.labelling.label import Labels, is_reliable, meaning_of
from clipper.labelling.label_files import format_of, write_labels
from clipper.labelling.label_job import LabelJob, LabelPool
from clipper.report.label_page import write_label_page


def label(
    samples: Annotated[
        Path,
        typer.Argument(help="CSV or Parquet with a column for each slot and a column target; or a file of candidates."),
    ],
    vectors: Annotated[
        Path | None, typer.Argument(metavar="EMBEDDINGS", help="Embeddings (.npy or Parquet) instead of images.")
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .csv, .parquet or .arrow.")],
    report: Annotated[
        Path | None, typer.Option(help="Also write a page, PATH.html, that shows the images of each label.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite an existing file of labels.")] = False,
    engine: ExecutorOption = "single",
    workers: Workers = None,
    address: Address = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Label each image, given a fact about each small group of images: a total, a check digit, a count.

    A group is a row of the table, called a sample. The column target holds
    the fact. Every other column is a slot, with the name of an image or a row
    number of the embeddings, except id and known_SLOT. Columns known_SLOT may
    hold labels that you know.

    Example: clipper label receipts.csv --rule sum --classes 10 --images
    scans/ -o labels.csv --report labels.html

    After Ctrl-C, the same command continues with the images that are not
    encoded yet. With --engine processes or ray, several workers encode images
    and look for neighbours; inference runs in this process.
    """
    if vectors is not None and options["embeddings"] is not None:
        raise InputError("expected embeddings once, as the second file or as --embeddings, got both")
    options["embeddings"] = vectors or options["embeddings"]
    job = LabelJob(samples, out, **options)
    if report is not None and report.suffix != ".html":
        raise InputError(f"expected --report to end in .html, got {report}")
    if out.is_file() and not replace:
        raise FileError(f"{out} exists and is not overwritten; choose another name, or pass --replace")
    with (
        writable(out, *([report] if report else [])),
        executor_named(engine, workers, address) as executor,
        progress_bars() as bars,
    ):
        pool = LabelPool.read(job)
        if pool.impossible:
            errors.print(f"warning: {pool.impossible}", soft_wrap=True)
        try:
            embeddings = pool.embeddings(bars, executor)
        except KeyboardInterrupt:
            errors.print("interrupted; the same command continues and reuses the encoded images", soft_wrap=True)
            raise
        labels = pool.labels(embeddings, bars, executor=executor)
        found = labels.to_arrow()
        write_labels(found, out, replace=replace)
        if report is not None:
            write_label_page(found, report, pool.pictures)
    if json:
        print_json(_summary(labels) | {"output": str(out), "report": None if report is None else str(report)})
    else:
        _show(labels, out, report)


with_options_of(LabelJob, label)


def _summary(labels: Labels) -> dict[str, Any]:
    status = labels.to_arrow()["status"].to_pylist()
    return {
        "verdict": labels.verdict,
        "expected_accuracy": labels.expected_accuracy,
        "samples": labels.posterior.candidates.samples,
        "labels": len(status),
        "namings": len(labels.posterior.namings),
        "verification": {
            name: getattr(labels.posterior.verification, name) for name in ("explained", "leak", "misfit")
        },
        "status": {name: status.count(name) for name in sorted(set(status))},
        "suspicious": len(labels.details["suspicious"]),
        "questions": labels.details["questions"],
    }


def _show(labels: Labels, out: Path, report: Path | None) -> None:
    summary = _summary(labels)
    rows = [
        ["labels", f"{summary['labels']:,}"],
        ["verdict", labels.verdict],
        *([["expected to be right", percent(labels.expected_accuracy)]] if is_reliable(labels.verdict) else []),
        *([["ways to name them", f"{summary['namings']:,}"]] if labels.verdict == "ambiguous" else []),
        *([f"labels with status {name}", f"{number:,}"] for name, number in summary["status"].items()),
    ]
    output.print(table(f"labels of {summary['samples']:,} samples", ["", ""], rows))
    output.print(meaning_of(labels.verdict, labels.details["reason"], summary["samples"]), soft_wrap=True)
    output.print(f"labels: {out}", soft_wrap=True)
    if report is not None:
        output.print(f"report: {report}", soft_wrap=True)
    if summary["questions"] and labels.expected_accuracy < 0.9995:
        stored = out.with_suffix(".parquet") if format_of(out) == "csv" else out
        before = f"write {stored.name} with -o, then " if stored != out else ""
        output.print(f"to answer the questions that would help most: {before}clipper review {stored}", soft_wrap=True)
