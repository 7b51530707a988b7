"""`clipper bench infer`: what joint inference over a pool costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
import typer

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.inference import measure_inference
from clipper.benchmarks.registry import benchmark_named
from clipper.cli.console import output, print_json, progress_bars, table
from clipper.cli.options import LAST_SEED, MOST, DataRoot, Json

COSTS = ["pool", "candidates", "graph", "inference", "peak", "right", "gold kept"]
RACE = ["pool", "list, ms", "lattice, ms", "list ÷ lattice"]


def register(bench: typer.Typer) -> None:
    """Add the command."""
    bench.command(name="infer")(bench_infer)


def bench_infer(
    rule: Annotated[str, typer.Option(help="What is known of a sample: sum or max of its labels.")] = "sum",
    slots: Annotated[int, typer.Option(min=1, max=MOST, help="Images per sample.")] = 4,
    samples: Annotated[
        list[int] | None,
        typer.Option("--samples", "-n", min=1, max=MOST, help="Samples in the pool, 1,000 by default; repeat it."),
    ] = None,
    data: Annotated[str, typer.Option(help="Where the images come from; the digits are embedded.")] = "mnist",
    rounds: Annotated[int, typer.Option(min=1, max=MOST, help="Rounds of list against lattice.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Of the draws.")] = 0,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Joint inference with automatic settings: seconds, memory, labels right; and a round by list and by lattice."""
    base = RunConfig(rule=rule, slots=slots, data=data, seed=seed, data_root=data_root)
    with progress_bars() as report:
        rows = [
            measure_inference(
                benchmark_named(rule)(replace(base, samples=n)).samples, f"{rule.upper()}-{slots}", rounds, report, seed
            )
            for n in samples or [1_000]
        ]
    document = {"data": data, "threads": torch.get_num_threads(), "rows": rows}
    if json:
        print_json(document)
        return
    title = f"joint inference on {data}, eight neighbours by outlines ({document['threads']} threads)"
    output.print(table(title, COSTS, [_costs(row) for row in rows]))
    output.print(table("what the formulas say in a round of four starts", RACE, [_race(row) for row in rows]))


def _pool(row: dict[str, Any]) -> str:
    return f"{row['task']}, n={row['samples']:,}"


def _costs(row: dict[str, Any]) -> list[str]:
    peak = row["peak_gigabytes"]
    return [
        _pool(row),
        f"{row['candidates']:,}",
        f"{row['neighbours_seconds']:.1f} s",
        f"{row['inference_seconds']:.1f} s",
        "–" if peak is None else f"{peak:.1f} GB",
        f"{row['right']:.1%}",
        f"{row['gold_kept']:.1%}",
    ]


def _race(row: dict[str, Any]) -> list[str]:
    race = row["round"]
    times = f"{race['times']:.1f}"
    return [_pool(row), f"{race['list_milliseconds']:.1f}", f"{race['lattice_milliseconds']:.1f}", times]
