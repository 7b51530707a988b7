"""`clipper label`: the main job in one command, from files to labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clipper.cli.console import errors, output, print_json, progress_bars, table
from clipper.cli.options import Address, Engine, Json, Workers, with_options_of, writable
from clipper.errors import FileError, InputError
from clipper.executors import executor_named
from clipper.labelling.files import LabelJob, LabelPool
from clipper.labelling.label import VERDICTS, Labels, write_labels
from clipper.report.label_page import write_label_page
from clipper.report.run_page import percent


def label(
    samples: Annotated[Path, typer.Argument(help="CSV or Parquet: a column per slot, and target; or candidates.")],
    vectors: Annotated[
        Path | None, typer.Argument(metavar="EMBEDDINGS", help="Embeddings, in place of images.")
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the labels go: .csv, .parquet or .arrow.")],
    report: Annotated[Path | None, typer.Option(help="Write a page there, PATH.html, to look at the labels.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over an older file of labels.")] = False,
    engine: Engine = "single",
    workers: Workers = None,
    address: Address = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Label every image of samples of which only a total, a check digit or another rule's result is known.

    The table has a column for each slot, with the name of an image or a row of the embeddings, and a column target.
    Columns known_SLOT may hold labels that are known. Ctrl-C keeps the images that are encoded. Other --engines encode
    images and search neighbours in several processes; the labels are found by this one.
    """
    if vectors is not None and options["embeddings"] is not None:
        raise InputError("expected embeddings once, as the second file or as --embeddings, got both")
    options["embeddings"] = vectors or options["embeddings"]
    job = LabelJob(samples, out, **options)
    if report is not None and report.suffix != ".html":
        raise InputError(f"expected --report to end in .html, got {report}")
    if out.exists() and not replace:
        raise FileError(f"{out} exists and is not written over; choose another name, or pass --replace")
    with (
        writable(out, *([report] if report else [])),
        executor_named(engine, workers, address) as executor,
        progress_bars() as bars,
    ):
        pool = LabelPool.read(job)
        try:
            embeddings = pool.embeddings(bars, executor)
        except KeyboardInterrupt:
            errors.print("interrupted; the same command goes on with the images that are encoded", soft_wrap=True)
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
        "status": {name: status.count(name) for name in sorted(set(status))},
        "suspicious": len(labels.details["suspicious"]),
        "questions": labels.details["questions"],
    }


def _show(labels: Labels, out: Path, report: Path | None) -> None:
    summary = _summary(labels)
    rows = [
        ["labels", f"{summary['labels']:,}"],
        ["verdict", labels.verdict],
        ["expected to be right", percent(labels.expected_accuracy)],
        *([f"status {name}", f"{number:,}"] for name, number in summary["status"].items()),
    ]
    output.print(table(f"labels of {summary['samples']:,} samples", ["", ""], rows))
    output.print(VERDICTS[labels.verdict], soft_wrap=True)
    output.print(f"labels: {out}", soft_wrap=True)
    if report is not None:
        output.print(f"report: {report}", soft_wrap=True)
    if summary["questions"] and labels.expected_accuracy < 1 and out.suffix != ".csv":
        output.print(f"to answer the questions that would tell most: clipper review {out}", soft_wrap=True)
