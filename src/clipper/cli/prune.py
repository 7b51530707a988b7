"""`clipper prune`: the same job as `clipper.prune`, on files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from clipper.cli.console import output, print_json, progress_bars, table
from clipper.cli.options import Address, Engine, Json, Workers
from clipper.errors import InputError
from clipper.executors import executor_named
from clipper.pruning.streaming import PruneJob, prune_files


def prune(
    candidates: Annotated[Path, typer.Argument(help="Parquet: sample, slot_0, slot_1, … (null: unused); or a folder.")],
    embeddings: Annotated[Path, typer.Argument(help=".npy (n, m, d), or Parquet with a list column 'embedding'.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the surviving candidates go (Parquet).")],
    objective: Annotated[
        Literal["exact", "paper"], typer.Option(help="Problem 3.6, or equation (1) as printed.")
    ] = "exact",
    solver: Annotated[
        Literal["closed-form", "highs", "cp-sat"], typer.Option(help="How to find the optimum.")
    ] = "closed-form",
    k: Annotated[int, typer.Option("-k", help="Neighbours per instance; 0 for all within --radius.")] = 1,
    radius: Annotated[float | None, typer.Option(help="Only neighbours nearer than this.")] = None,
    mutual: Annotated[bool, typer.Option("--mutual", help="Only neighbours that are each other's.")] = False,
    share: Annotated[float | None, typer.Option(help="Only the closest share of the edges, 0.5 for half.")] = None,
    metric: Annotated[Literal["l2", "cosine"], typer.Option(help="How to measure nearness.")] = "l2",
    batch: Annotated[int | None, typer.Option(help="Search among this many samples at a time; default all.")] = None,
    search: Annotated[
        Literal["auto", "exact", "ivf", "hnsw", "nn-descent", "faiss"],
        typer.Option(help="How to find neighbours: by size, or by name; faiss is another name for ivf."),
    ] = "auto",
    index: Annotated[
        Path | None, typer.Option(help="Folder of a saved index: used if there is one, else built and kept there.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes, if the file does not tell.")] = None,
    engine: Engine = "single",
    workers: Workers = None,
    address: Address = None,
    json: Json = False,
) -> None:
    """Discard the candidates in a file that contradict what lies near; no sample loses its last one."""
    if batch is not None and batch < 1:
        raise InputError(f"expected a positive --batch, got {batch}")
    if k < 0:
        raise InputError(f"expected -k of 1 or more, or 0 for all within --radius, got {k}")
    job = PruneJob(
        candidates, embeddings, out, objective, solver, k or None, radius, mutual, share, metric, batch, classes,
        search=search, index=index,
    )  # fmt: skip
    with executor_named(engine, workers, address) as executor, progress_bars() as report:
        summary = prune_files(job, report, executor)
    if json:
        print_json({"output": str(out), **summary.as_dict()})
        return
    rows = [
        ["samples", f"{summary.samples:,}"],
        ["of which pruned", f"{summary.samples_pruned:,}"],
        ["instances", f"{summary.instances:,}"],
        ["candidates before", f"{summary.candidates:,}"],
        ["candidates after", f"{summary.kept:,}"],
        ["retained", f"{summary.kept / summary.candidates:.1%}"],
        ["edges found", f"{summary.edges:,}"],
        ["edges chosen", f"{summary.edges_chosen:,}"],
    ]
    output.print(table(f"survivors in {out}", ["", "number"], rows))
    for found in summary.searches:
        output.print(f"Neighbours by {found}.", soft_wrap=True)
    if summary.reason:
        output.print(f"Nothing was discarded: {summary.reason}.")
