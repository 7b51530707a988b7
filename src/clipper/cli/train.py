"""`clipper train`: one run of a benchmark. The same command continues an interrupted run."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.runs import run
from clipper.benchmarks.statistics import percent
from clipper.cli.console import errors, output, print_json, progress_bars, table
from clipper.cli.options import DataRoot, Json, with_options_of, writable
from clipper.errors import InputError, require
from clipper.report.run_page import last_rows, write_run_page
from clipper.training import Callback, Inspection, Progress, Record, tensorboard
from clipper.training.record import check_record


def train(
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of the record; default: a name in runs/, from the options.")
    ] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(min=1, help="Save a checkpoint after this many steps, too; default: every epoch.")
    ] = None,
    tensorboard_folder: Annotated[
        Path | None, typer.Option("--tensorboard", help="Folder to write TensorBoard event files to.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a page, PATH.html: curves, configuration, pruning inspector.")
    ] = None,
    data_root: DataRoot = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Train a classifier on a benchmark whose samples have a known function of the labels, such as the sum.

    If a run is interrupted, give the same command again: it continues from
    the checkpoint beside the record.
    """
    options["engine_options"] = _engine_options(options["engine_options"])
    config = RunConfig(**options, data_root=data_root)
    path = out or Path("runs") / f"{_name(config)}.json"
    with writable(*_checked(path, report, tensorboard_folder)), ExitStack() as stack:  # before hours of training
        check_record(path, config)
        inspection = path.with_suffix(".inspection.json")
        watch = stack.enter_context(_bar(config.epochs))
        events = [] if tensorboard_folder is None else [stack.enter_context(tensorboard(tensorboard_folder))]
        files = {"checkpoint": path.with_suffix(".pt"), "inspection": inspection if report else None}
        try:
            record = run(config, **files, checkpoint_steps=checkpoint_steps, watch=watch, callbacks=events)
        except KeyboardInterrupt:
            errors.print(f"interrupted; the same command continues from {files['checkpoint']}", soft_wrap=True)
            raise
        record.write(path)
    written = {"output": str(path)}
    if report is not None:
        with errors.status("writing the report"):
            write_run_page(record, report, Inspection.read(inspection) if inspection.exists() else None)
        written["report"] = str(report)
    if json:
        print_json({**written, **record.as_dict()})
    else:
        _show(record, written)


with_options_of(RunConfig, train, {"engine_options": list[str]})


def _checked(path: Path, report: Path | None, tensorboard_folder: Path | None) -> list[Path]:
    """The files that the run will write. Raises an error if a name has the wrong ending."""
    if path.suffix != ".json":
        raise InputError(f"expected --out to end in .json, got {path}")
    files = [path, path.with_suffix(".pt")]
    if report is not None:
        if report.suffix != ".html":
            raise InputError(f"expected --report to end in .html, got {report}")
        require("matplotlib", extra="report")
        files += [report, path.with_suffix(".inspection.json")]
    if tensorboard_folder is not None:
        files.append(tensorboard_folder / "events")
    return files


def _name(config: RunConfig) -> str:
    task = f"{config.data}-{config.rule.rpartition(':')[2]}{config.slots}-n{config.samples}"
    return f"{task}-{config.engine}-{config.objective}-seed{config.seed}"


def _engine_options(pairs: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs as a dictionary; a value that is not valid JSON is text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise InputError(f"expected --engine-option NAME=VALUE, got {pair!r}")
        try:
            options[name] = jsonlib.loads(value)
        except ValueError:
            options[name] = value
    return options


@contextmanager
def _bar(epochs: int) -> Iterator[Callback]:
    """A progress bar on standard error: epoch, loss, accuracy, share of candidates and gold labels kept, time left."""
    accuracy: float | None = None
    with progress_bars() as report:

        def watch(progress: Progress) -> None:
            nonlocal accuracy
            now = progress.metrics
            accuracy = now.accuracy if progress.ended else accuracy
            text = f"epoch {progress.epoch}/{epochs}  loss {now.loss:.3f}  accuracy {percent(accuracy)}  "
            text += f"kept {percent(now.retained)}  gold {percent(now.gold)}"
            steps = progress.steps
            report("training", (progress.epoch - 1) * steps + progress.step, epochs * steps, text)

        yield watch


def _show(record: Record, written: dict[str, str]) -> None:
    output.print(table(f"last of {len(record.epochs)} epochs", ["", "figure"], last_rows(record)))
    if record.config["objective"] not in ("none", "gold", "mixture") and record.last.retained == 1:
        output.print("Pruning discarded nothing: no neighbour contradicts a candidate; try more neighbours (-k).")
    for what, path in written.items():
        output.print(f"{'record' if what == 'output' else what}: {path}", soft_wrap=True)
