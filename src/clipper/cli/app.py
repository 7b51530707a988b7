"""The `clipper` command and how it speaks of errors."""

from __future__ import annotations

import sys

import typer

import clipper
from clipper.cli.console import errors
from clipper.errors import ClipperError

app = typer.Typer(
    name="clipper",
    help="Train neural classifiers from logic instead of labels: discard the label combinations that the "
    "representation space contradicts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clipper {clipper.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main() -> None:
    """Run the command line; a ClipperError becomes one message and exit code 1."""
    from clipper.cli import bench, clips, data, demo, prune, results, table, train

    prune.register(app)
    train.register(app)
    bench.register(app)
    table.register(app)
    results.register(app)
    demo.register(app)
    data.register(app)
    clips.register(app)
    try:
        app()
    except ClipperError as error:
        errors.print(f"[bold red]error:[/] {type(error).__name__}: ", end="")
        errors.print(str(error), markup=False, highlight=False)
        sys.exit(1)
