"""`clipper train`: one run from the command line, taken up again if it was interrupted."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from clipper.benchmarks.runs import run
from clipper.cli.console import errors, output, print_json, table
from clipper.cli.options import DataRoot
from clipper.cli.outputs import writable
from clipper.errors import InputError, require
from clipper.report.run_page import last_rows, percent, write_run_page
from clipper.training import Callback, EpochMetrics, Progress, Record, TrainConfig, tensorboard
from clipper.training.config import DataSet, EngineName, OptimiserName, Rule, TrainObjective, When
from clipper.training.record import check_record


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="train")(train)


def train(
    rule: Annotated[
        Rule,
        typer.Option(
            help="What is known of a sample: its labels' sum or maximum, a formula's value, a text, a sentence."
        ),
    ] = "sum",
    slots: Annotated[int, typer.Option(help="Images per sample: 3 for SUM-3.")] = 3,
    samples: Annotated[int, typer.Option("--samples", "-n", help="Samples to learn from.")] = 100,
    per_sample: Annotated[int, typer.Option(help="Draw so many candidates of each sample at random; 0 for all.")] = 0,
    data: Annotated[
        DataSet,
        typer.Option(help="The digits are embedded, scenes are generated; the others are looked for in --data-root."),
    ] = "digits",
    names: Annotated[int, typer.Option(help="With the rule vqar: of how many names the objects are.")] = 50,
    network: Annotated[str, typer.Option(help="A class of the benchmarks' networks; auto for what fits.")] = "auto",
    engine: Annotated[EngineName, typer.Option(help="What turns candidates into a loss.")] = "semantic",
    engine_option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the engine; may come twice.")] = None,
    objective: Annotated[
        TrainObjective,
        typer.Option(
            help="exact: Problem 3.6. paper: equation (1) as printed. joint: the whole pool. random: the control. "
            "none: the baseline. gold: the ceiling."
        ),
    ] = "exact",
    k: Annotated[int, typer.Option("-k", help="Neighbours per instance; 1 leaves it to joint.")] = 1,
    encoder: Annotated[
        str,
        typer.Option(help="trainable: the network's own layer. Frozen: pixels, outlines, resnet18, mobilenet-v2 …"),
    ] = "trainable",
    when: Annotated[
        When, typer.Option(help="Prune each batch, or the pool once before training (frozen only).")
    ] = "batch",
    passes: Annotated[int, typer.Option(help="With joint: infer and train so often, at most.")] = 1,
    bank: Annotated[int, typer.Option(help="Find neighbours among the last embeddings of this many samples too.")] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the samples.")] = 50,
    batch: Annotated[int, typer.Option(help="Samples per step.")] = 64,
    optimiser: Annotated[OptimiserName, typer.Option(help="How the weights are updated.")] = "adamw",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    entropy: Annotated[float, typer.Option(help="Weight of the entropy of the posterior over the candidates.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of samples, first weights, order and dropout.")] = 0,
    evaluate_every: Annotated[int, typer.Option(help="Epochs between two measurements of the accuracy.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The record; default runs/<what it is>.json.")] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(min=1, help="Checkpoint every so many steps, not only epochs.")
    ] = None,
    tensorboard_folder: Annotated[Path | None, typer.Option("--tensorboard", help="Write event files there.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page there, PATH.html: curves, configuration, pruning inspector.")
    ] = None,
    data_root: DataRoot = None,
    json: Annotated[bool, typer.Option("--json", help="Print the record as JSON and nothing else.")] = False,
) -> None:
    """Train a classifier on samples of which only a function of the labels, such as their sum, is known.

    An interrupted run goes on when the same command is given again: its checkpoint lies beside the record.
    """
    config = TrainConfig(
        rule=rule, slots=slots, samples=samples, per_sample=per_sample, data=data, names=names, network=network,
        engine=engine, engine_options=_options(engine_option or []), objective=objective, k=k, encoder=encoder,
        when=when, passes=passes, bank=bank, epochs=epochs, batch=batch, optimiser=optimiser, lr=lr, entropy=entropy,
        seed=seed,
        evaluate_every=evaluate_every,
    )  # fmt: skip
    path = out or Path("runs") / f"{_name(config)}.json"
    with writable(*_checked(path, report, tensorboard_folder)):  # before the hours of training, not after them
        record = _run(config, path, checkpoint_steps, tensorboard_folder, data_root)
    written = {"output": str(path)}
    if report is not None:
        with errors.status("writing the report"):
            write_run_page(record, report, data_root=data_root, checkpoint=path.with_suffix(".pt"))
        written["report"] = str(report)
    if json:
        print_json({**written, **record.as_dict()})
    else:
        _show(record, written)


def _run(
    config: TrainConfig, path: Path, checkpoint_steps: int | None, tensorboard_folder: Path | None, root: Path | None
) -> Record:
    check_record(path, config)
    checkpoint = path.with_suffix(".pt")
    with ExitStack() as stack:
        watches = [stack.enter_context(_bar(config.epochs))]
        if tensorboard_folder is not None:
            watches.append(stack.enter_context(tensorboard(tensorboard_folder)))
        try:
            record = run(
                config, data_root=root, checkpoint=checkpoint, checkpoint_steps=checkpoint_steps, watch=_all(watches)
            )
        except KeyboardInterrupt:
            errors.print(f"interrupted; the same command goes on from {checkpoint}", soft_wrap=True)
            raise
    record.write(path)
    return record


def _checked(path: Path, report: Path | None, tensorboard_folder: Path | None) -> list[Path]:
    """The files that the run will write, if they are named as they should be."""
    if path.suffix != ".json":
        raise InputError(f"expected --out to end in .json, got {path}")
    files = [path, path.with_suffix(".pt")]
    if report is not None:
        if report.suffix != ".html":
            raise InputError(f"expected --report to end in .html, got {report}")
        require("matplotlib", extra="report")
        files.append(report)
    if tensorboard_folder is not None:
        files.append(tensorboard_folder / "events")
    return files


def _name(config: TrainConfig) -> str:
    task = f"{config.data}-{config.rule}{config.slots}-n{config.samples}"
    return f"{task}-{config.engine}-{config.objective}-seed{config.seed}"


def _options(pairs: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs; a value is JSON if it can be, else text."""
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


def _all(watches: list[Callback]) -> Callback:
    def watch(moment: Progress) -> None:
        for each in watches:
            each(moment)

    return watch


@contextmanager
def _bar(epochs: int) -> Iterator[Callback]:
    """A bar on standard error: epoch, loss, accuracy, shares, time left."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[figures]}"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with ProgressBar(*columns, *times, console=errors, transient=True) as progress:
        bar = progress.add_task("training", total=None, figures="")
        accuracy: float | None = None

        def watch(moment: Progress) -> None:
            nonlocal accuracy
            accuracy = moment.metrics.accuracy if moment.ended else accuracy
            progress.update(
                bar,
                description=f"epoch {moment.epoch}/{epochs}",
                completed=(moment.epoch - 1) * moment.steps + moment.step,
                total=epochs * moment.steps,
                figures=_line(moment.metrics, accuracy),
            )

        yield watch


def _line(figures: EpochMetrics, accuracy: float | None) -> str:
    parts = [f"loss {figures.loss:.3f}", f"accuracy {percent(accuracy)}", f"kept {percent(figures.retained)}"]
    return "  ".join([*parts, f"gold {percent(figures.gold)}"])


def _show(record: Record, written: dict[str, str]) -> None:
    output.print(table(f"last of {len(record.epochs)} epochs", ["", "figure"], last_rows(record)))
    if record.config["objective"] not in ("none", "gold") and record.last.retained == 1:
        output.print("Pruning discarded nothing: no neighbour contradicts a candidate; try more neighbours (-k).")
    for what, path in written.items():
        output.print(f"{'record' if what == 'output' else what}: {path}", soft_wrap=True)
