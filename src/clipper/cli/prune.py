"""`clipper prune`: the function `clipper.prune` for files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from clipper.cli.console import output, print_json, progress_bars, table
from clipper.cli.options import Address, ExecutorOption, Json, Workers
from clipper.errors import InputError
from clipper.executors import executor_named
from clipper.pruning.streaming import PruneJob, prune_files


def prune(
    candidates: Annotated[
        Path,
        typer.Argument(help="Parquet, a row per candidate: sample, slot_0, … (null if unused); or a folder of files."),
    ],
    embeddings: Annotated[
        Path, typer.Argument(help=".npy (samples, slots, d), or Parquet with a list column 'embedding'.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the remaining candidates to (Parquet).")],
    objective: Annotated[
        Literal["exact", "paper"],
        typer.Option(help="exact: discard as many as possible. paper: equation (1) of the paper as printed."),
    ] = "exact",
    solver: Annotated[
        Literal["closed-form", "highs", "cp-sat"], typer.Option(help="How to find the optimum.")
    ] = "closed-form",
    k: Annotated[int, typer.Option("-k", help="Neighbours per instance; 0 for all within --radius.")] = 1,
    radius: Annotated[float | None, typer.Option(help="Only neighbours closer than this.")] = None,
    mutual: Annotated[
        bool, typer.Option("--mutual", help="Only pairs that are neighbours in both directions.")
    ] = False,
    share: Annotated[float | None, typer.Option(help="Only the closest share of the edges, 0.5 for half.")] = None,
    metric: Annotated[Literal["l2", "cosine"], typer.Option(help="The distance between embeddings.")] = "l2",
    batch: Annotated[
        int | None, typer.Option(help="Look for neighbours within batches of this many samples; default: all.")
    ] = None,
    search: Annotated[
        Literal["auto", "exact", "ivf", "hnsw", "nn-descent", "faiss"],
        typer.Option(help="How to find neighbours; auto chooses by the size of the pool, faiss is the same as ivf."),
    ] = "auto",
    index: Annotated[
        Path | None, typer.Option(help="Folder of a saved index; it is built and saved there if it does not exist.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes, if the file does not store it.")] = None,
    engine: ExecutorOption = "single",
    workers: Workers = None,
    address: Address = None,
    json: Json = False,
) -> None:
    """Discard the candidates in a file that contradict nearby instances. Every sample keeps at least one."""
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
    output.print(table(f"remaining candidates: {out}", ["", "number"], rows))
    for found in summary.searches:
        output.print(f"Neighbour search: {found}.", soft_wrap=True)
    if summary.reason:
        output.print(f"Nothing was discarded: {summary.reason}.")
