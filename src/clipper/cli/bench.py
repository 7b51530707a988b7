"""`clipper bench`: timings as ratios, measured in one interleaved run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
import typer

from clipper.benchmarks.datasets import digits, mnist
from clipper.benchmarks.speed import growth, race
from clipper.cli import bench_ceiling, bench_inference, bench_training
from clipper.cli.console import output, print_json, progress_bars, table
from clipper.cli.options import MOST, Json

bench = typer.Typer(help="Measure speed; every ratio comes from one interleaved run.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    bench_training.register(bench)
    bench_inference.register(bench)
    bench_ceiling.register(bench)
    app.add_typer(bench, name="bench")


@bench.callback()
def _group() -> None:
    pass


@bench.command(name="prune")
def bench_prune(
    rounds: Annotated[int, typer.Option(min=1, max=MOST, help="Rounds per setting; each runs every method once.")] = 15,
    data: Annotated[Literal["digits", "mnist"], typer.Option(help="The digits are embedded.")] = "digits",
    json: Json = False,
) -> None:
    """Closed forms against HiGHS and CP-SAT on batches of 64, and the growth from 100 to 100,000 samples."""
    images = mnist() if data == "mnist" else digits()
    with progress_bars() as report:
        document = {
            "data": images.name,
            "batch": 64,
            "threads": torch.get_num_threads(),
            "race": race(images, rounds, report),
            "growth": growth(report),
        }
    if json:
        print_json(document)
    else:
        _show(document)


def _show(document: dict[str, Any]) -> None:
    columns = ["task", "k", "objective", "with search", "closed form", "HiGHS", "CP-SAT", "HiGHS ×", "CP-SAT ×"]
    output.print(
        table(
            f"median milliseconds per batch of 64 ({document['data']}, {document['threads']} threads)",
            columns,
            [_race_row(row) for row in document["race"]],
        )
    )
    output.print(
        table(
            "growth (SUM-3, three edges per sample, search left out)",
            ["samples", "objective", "µs per sample"],
            [
                [f"{row['samples']:,}", row["objective"], f"{row['microseconds_per_sample']:.1f}"]
                for row in document["growth"]
            ],
        )
    )


def _race_row(row: dict[str, Any]) -> list[str]:
    spent, slower = row["milliseconds"], row["times_slower_than_closed_form"]
    names = ("search and closed-form", "closed-form", "highs", "cp-sat")
    return [
        row["task"],
        str(row["k"]),
        row["objective"],
        *(f"{spent[name]:.2f}" for name in names),
        *(f"{slower[name]:.0f}" for name in names[2:]),
    ]
