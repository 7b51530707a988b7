"""`clipper bench ceiling`: what the weak labels of a task identify, whatever learns from them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.identifiability import Names, consistent_names, distinct, identified
from clipper.benchmarks.registry import benchmark_named
from clipper.cli.console import output, print_json, table
from clipper.cli.options import LAST_SEED, MOST, DataRoot, Json
from clipper.errors import InputError


def register(bench: typer.Typer) -> None:
    """Add the command."""
    bench.command(name="ceiling")(bench_ceiling)


def bench_ceiling(
    rule: Annotated[str, typer.Option(help="What is known of a sample: sum or max of its labels.")] = "max",
    slots: Annotated[int, typer.Option(min=1, max=MOST, help="Images per sample.")] = 4,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=MOST, help="Samples to learn from.")] = 1_000,
    data: Annotated[str, typer.Option(help="Where the images come from.")] = "mnist",
    seeds: Annotated[int, typer.Option(min=1, max=MOST, help="Draws of the samples.")] = 10,
    first_seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="The first of them.")] = 0,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """How many held-out images belong to a class that the samples identify, if images of a class get one label.

    Two classes that may change names unnoticed are told apart by nobody. Two that may share a name are, by who can see
    that they differ: hence a second figure, for names that are distinct.
    """
    base = RunConfig(rule=rule, slots=slots, samples=samples, data=data, data_root=data_root, per_sample=1)
    images, test = train_and_test(data, data_root)
    share = torch.bincount(test.labels, minlength=images.classes) / len(test.labels)
    rows: list[dict[str, Any]] = []
    for seed in range(first_seed, first_seed + seeds):
        benchmark = benchmark_named(rule)(replace(base, seed=seed))
        if benchmark.rule is None or benchmark.samples.gold is None:
            raise InputError(f"expected a rule on single labels, with gold labels, got {rule!r}")
        names = consistent_names(benchmark.rule, benchmark.samples.gold, images.classes)
        rows.append({"seed": seed, **_left_open(names, share), "distinct": _left_open(distinct(names), share)})
    mean = statistics.mean(row["identified"] for row in rows)
    mean_distinct = statistics.mean(row["distinct"]["identified"] for row in rows)
    if json:
        print_json(
            {"rule": rule, "slots": slots, "samples": samples, "data": data}
            | {"mean": mean, "mean_distinct": mean_distinct, "rows": rows}
        )
        return
    title = (
        f"{rule.upper()}-{slots} on {data}, n={samples:,}: {mean:.1%} of the held-out images identified, "
        f"{mean_distinct:.1%} if names are distinct"
    )
    head = ["seed", "identified", "left open", "if names are distinct", "left open"]
    output.print(table(title, head, [[str(row["seed"]), *_cells(row), *_cells(row["distinct"])] for row in rows]))


def _left_open(names: Sequence[Names], share: Tensor) -> dict[str, Any]:
    known = identified(names)
    return {
        "ways": len(names),
        "open": (~known).nonzero()[:, 0].tolist(),
        "identified": float(share[known].sum()),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [f"{row['identified']:.1%}", ", ".join(map(str, row["open"])) or "–"]
