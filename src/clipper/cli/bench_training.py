"""`clipper bench train`, `clipper bench loss` and `clipper bench align`: what pruning and the loss cost in training."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer

from clipper.benchmarks.alignment_loss import race_alignments
from clipper.benchmarks.config import EngineName, RunConfig
from clipper.benchmarks.drawing import MOST_SLOTS
from clipper.benchmarks.loss import SLOTS, growth, race_losses
from clipper.benchmarks.overhead import measure_overhead
from clipper.cli.console import output, print_json, progress_bars, table
from clipper.cli.options import MOST, DataRoot, Json

METHODS = {"lattice": "lattice", "candidates": "candidates", "circuit, log": "KLay, log", "circuit, real": "KLay, real"}
"""Contestants of `bench loss`, and what they are called in the table."""


def register(bench: typer.Typer) -> None:
    """Add the commands."""
    bench.command(name="train")(bench_train)
    bench.command(name="loss")(bench_loss)
    bench.command(name="align")(bench_align)


def bench_train(
    rounds: Annotated[int, typer.Option(min=1, max=MOST, help="Rounds; each trains two epochs of every setting.")] = 5,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=MOST, help="Samples per epoch.")] = 320,
    data: Annotated[str, typer.Option(help="mnist with the paper's network; the digits are embedded.")] = "mnist",
    engine: Annotated[EngineName, typer.Option(help="What turns candidates into a loss.")] = "semantic",
    k: Annotated[int, typer.Option("-k", min=1, max=MOST, help="Neighbours per instance.")] = 1,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """What pruning costs: its share of the training time on SUM-3, batches of 64, for trained and frozen encoders."""
    base = RunConfig(data=data, samples=samples, engine=engine, k=k, objective="none", data_root=data_root)
    with progress_bars() as report:
        rows = measure_overhead(base, rounds, report)
    document = {"data": data, "engine": engine, "k": k, "batch": 64, "threads": torch.get_num_threads(), "rows": rows}
    if json:
        print_json(document)
    else:
        _show_overhead(document)


def bench_loss(
    rounds: Annotated[
        int,
        typer.Option(min=1, max=MOST, help="Rounds per task, a tenth of it past SUM-4; each runs every method once."),
    ] = 200,
    slots: Annotated[
        list[int] | None,
        typer.Option(min=1, max=MOST_SLOTS, help="Digits per sum; repeat it for several tasks."),
    ] = None,
    json: Json = False,
) -> None:
    """Loss and gradient of a batch of 64: semantic loss on a lattice and on candidates, against KLay circuits."""
    with progress_bars() as report:
        rows = race_losses(rounds, report, slots=tuple(slots or SLOTS))
    document = {"batch": 64, "threads": torch.get_num_threads(), "rows": rows, "lattice_growth": growth(rows)}
    if json:
        print_json(document)
    else:
        _show_losses(document)


def bench_align(
    rounds: Annotated[int, typer.Option(min=1, max=MOST, help="Rounds; each runs every method once.")] = 20,
    clips: Annotated[int, typer.Option(min=1, max=MOST, help="Clips in a batch.")] = 64,
    frames: Annotated[int, typer.Option(min=1, max=MOST, help="Frames of a clip.")] = 128,
    actions: Annotated[int, typer.Option(min=1, max=MOST, help="Actions of a text.")] = 12,
    json: Json = False,
) -> None:
    """Loss and gradient of a batch of clips: alignments against a state machine's lattice and PyTorch's CTC."""
    with progress_bars() as report:
        document = race_alignments(rounds, report, clips, frames, actions)
    document |= {"threads": torch.get_num_threads()}
    if json:
        print_json(document)
        return
    ratios = document["times_slower_than_alignments"]
    rows = [[name, f"{value:.1f}", _two_digits(ratios.get(name))] for name, value in document["milliseconds"].items()]
    title = f"{clips} clips of {frames} frames, {actions} actions: loss and gradient ({document['threads']} threads)"
    output.print(table(title, ["", "median ms", "÷ alignments"], rows))


def _show_overhead(document: dict[str, Any]) -> None:
    columns = ["objective", "encoder", "ms per batch", "of which pruning", "ms before training", "share", "highest"]
    rows = [
        [
            row["objective"],
            "–" if row["objective"] == "none" else row["encoder"],
            f"{row['milliseconds_per_batch']:.1f}",
            f"{row['pruning_milliseconds_per_batch']:.2f}",
            f"{row['pruning_milliseconds_before_training']:.1f}",
            f"{row['pruning_share']:.2%}",
            f"{row['pruning_share_highest']:.2%}",
        ]
        for row in document["rows"]
    ]
    title = f"SUM-3 on {document['data']}, batches of 64, medians ({document['threads']} threads)"
    output.print(table(title, columns, rows))


def _show_losses(document: dict[str, Any]) -> None:
    circuits = [name for name in METHODS if name.startswith("circuit")]
    columns = ["task", *METHODS.values(), *(f"{METHODS[name]} ÷ lattice" for name in circuits)]
    rows = [
        [
            row["task"],
            *(_two_digits(row["milliseconds"].get(name)) for name in METHODS),
            *(_two_digits(row["times_slower_than_lattice"][name]) for name in circuits),
        ]
        for row in document["rows"]
    ]
    title = f"loss and gradient, batches of 64, median milliseconds ({document['threads']} threads)"
    output.print(table(title, columns, rows))
    grown = document["lattice_growth"]
    if grown is not None:
        output.print(
            f"the lattice takes {grown['times']:.0f} times as long on {grown['to']} digits as on {grown['from']}; "
            f"the square of the digits grows {grown['square']:.0f} times"
        )


def _two_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
