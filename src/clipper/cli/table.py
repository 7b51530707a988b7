"""`clipper table`: run the paper's tables and print the results beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Literal

import typer

from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.tables import (
    TABLES,
    CellResult,
    Ledger,
    Selection,
    Table,
    gather,
    summarise,
    table_named,
    table_shown,
)
from clipper.benchmarks.tables.grid import inspections_of, run_cells
from clipper.benchmarks.tables.ledger import RECORDS
from clipper.cli.console import errors, output, print_json, progress_bars
from clipper.cli.console import table as console_table
from clipper.cli.options import Address, DataRoot, Json, counted, writable
from clipper.errors import require
from clipper.executors import ExecutorName, executor_named
from clipper.report.claims import verdict
from clipper.report.table_page import write_table
from clipper.report.table_text import by_task


def table(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(TABLES)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller table on scikit-learn's digits; some minutes.")
    ] = False,
    engine: Annotated[list[str] | None, typer.Option(help="Only this engine; repeat for several.")] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="Only this variant: none, frozen, trainable, exact, …; repeat for several.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Only columns whose name contains this; repeat for several.")
    ] = None,
    seeds: Annotated[int | None, counted("Runs for each cell of the table.")] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**19, help="The first seed; default 100. Use 200 if you have seen results of 100 to 199."
        ),
    ] = None,
    epochs: Annotated[int | None, counted("Epochs of each run; the paper has 50.")] = None,
    samples: Annotated[int | None, counted("Samples of each run; default: the column's own.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Frozen encoder: pixels, outlines, mobilenet-v2, resnet18 …; default mobilenet-v2."),
    ] = None,
    jobs: Annotated[int | None, counted("Number of processes, with one thread each; default: one per core.")] = None,
    executor: Annotated[
        Literal["processes", "ray"], typer.Option(help="Where runs are done: on this machine, or on a Ray cluster.")
    ] = "processes",
    address: Address = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the records and the tables.")] = Path("results"),
    again: Annotated[
        bool,
        typer.Option("--again", help="Also repeat recorded runs. Earlier records stay; the newest is used."),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show the recorded runs.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Run one of the paper's tables, or a part of it, and print the paper's figures beside ours.

    Finished runs are recorded in the folder and not run again (--again runs
    them). So the same command continues an interrupted table, and several
    commands can fill one table.
    """
    selection = Selection(engine or (), variant or (), column or (), seeds, epochs, samples, encoder, quick, first_seed)
    require("matplotlib", extra="report")
    ledger = opened(out)
    chosen = selection.of(table_shown(name, ledger) if show else table_named(name, data_root))
    for place in chosen.places():
        benchmark_named(place.config.rule).check(place.config)
    with writable(*(out / f"{chosen.name}.{ending}" for ending in ("json", "md", "html")), ledger.path):
        failed = [] if show else run_missing(chosen, ledger, jobs, again, executor, address)
        entries = gather(chosen, ledger) if show else summarise(chosen, ledger)
        with errors.status("writing the table"):
            written = write_table(chosen, entries, out, inspections_of(chosen, out))
    if json:
        print_json(written.document)
    else:
        print_table(chosen, entries)
        output.print("\n".join(f"{what}: {path}" for what, path in written.paths.items()), soft_wrap=True)
    report_failed(failed)


def opened(folder: Path) -> Ledger:
    """The ledger of a folder. Prints a warning if some of its lines are incomplete.

    Args:
        folder: the folder of the records.

    Raises:
        MissingExtraError: SciPy is not installed; confidence intervals need it.
    """
    require("scipy.special", extra="benchmarks")
    ledger = Ledger(folder / RECORDS)
    if ledger.cut_off:
        errors.print(f"skipped {ledger.cut_off} incomplete lines of {ledger.path}", soft_wrap=True)
    return ledger


def run_missing(
    chosen: Table,
    ledger: Ledger,
    jobs: int | None = None,
    again: bool = False,
    engine: ExecutorName = "processes",
    address: str | None = None,
) -> list[str]:
    """Run the cells of a table that are not recorded yet, with a progress bar.

    Args:
        chosen: the table.
        ledger: the records; new ones are added to it.
        jobs: the number of processes; by default one for each core.
        again: whether to repeat recorded runs as well.
        engine: where the runs are done.
        address: the address of a Ray cluster.

    Returns:
        A message for each cell that could not be run.
    """
    cells = list(chosen.cells())
    done = count(0 if again else sum(ledger.find(cell.config) is not None for cell in cells))
    with executor_named(engine, jobs, address) as executor, progress_bars() as report:

        def tick() -> None:
            report("runs", next(done), len(cells))

        tick()
        try:
            return run_cells(cells, ledger, tick=tick, inspected=chosen.inspected(), again=again, executor=executor)
        except KeyboardInterrupt:
            errors.print(
                f"interrupted; {len(ledger)} finished runs are in {ledger.path}, the same command continues",
                soft_wrap=True,
            )
            raise


def print_table(chosen: Table, entries: Sequence[CellResult]) -> None:
    """Print a table task by task. If the paper has no such table, also print which variants beat which."""
    output.print(chosen.title, style="bold")
    for task, heads, rows in by_task(chosen, entries):
        output.print(console_table(task, heads, rows))
    if not chosen.published:
        output.print("\n".join(verdict(entries)), soft_wrap=True)


def report_failed(failed: Sequence[str]) -> None:
    """Print the messages of cells that could not be run. If there are any, end the command with exit code 1."""
    for problem in sorted(set(failed)):
        errors.print(f"not run: {problem}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)
