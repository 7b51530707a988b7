"""The `clipper` command, and how errors are shown."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

import clipper
from clipper.cli.console import errors
from clipper.errors import ClipperError

COMMANDS = {
    "label": "Label every image of samples of which only a total, a check digit or another rule's result is known.",
    "review": "Answer a few questions about labels in the browser; each answer is kept, and the labels get better.",
    "prune": "Discard the candidates in a file that contradict what lies near; no sample loses its last one.",
    "identify": "Say which labels the formulas can tell apart at all, before anything is trained.",
    "train": "Train a classifier on samples of which only a function of the labels, such as their sum, is known.",
    "bench": "Measure speed; every ratio comes from one interleaved run.",
    "race": "Race Clipper against other frameworks: same data, network and machine, accuracy in equal seconds.",
    "table": "Run one of the paper's tables, or a part of it, and lay the paper's figures beside what comes out.",
    "results": "Write a document of all tables as far as they were run, and of which of the paper's claims reproduce.",
    "demo": "Read digits from 100 receipts of which only the totals are known: label, look, train; two minutes or so.",
    "data": "List, fetch and verify data sets. Without a command: list which are here, every file checked.",
    "clips": "Draw clips of a character that walks, jumps, climbs, collects and is hit, with texts, in MUGEN's layout.",
}
"""The commands and what they are for. Each is what bears its name in a module of its name, imported when it is run."""


class _ImportedWhenRun(TyperGroup):
    """Lists its commands without importing them; the one that is run, or completed, is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _imported(args[0]), rest


@cache
def _imported(name: str) -> Any:
    """A command as its module declares it."""
    apart = typer.Typer()
    apart.callback()(lambda: None)  # with it, a single command does not become the whole
    command = getattr(import_module(f"clipper.cli.{name}"), name)
    if isinstance(command, typer.Typer):
        apart.add_typer(command, name=name)
    else:
        apart.command(name=name)(command)
    group: Any = typer.main.get_command(apart)
    return group.commands[name]


app = typer.Typer(
    name="clipper",
    cls=_ImportedWhenRun,
    help="Train neural classifiers from logic instead of labels: discard the label combinations that the "
    "representation space contradicts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _help in COMMANDS.items():
    app.command(name=_name, help=_help)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clipper {clipper.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def run() -> None:
    """Run the command line; what the user can put right becomes one message and exit code 1, a bug a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no text, terminals may lack letters
    try:
        app()
    except ClipperError as error:
        _fail(type(error).__name__, str(error))
    except OSError as error:
        if error.errno is None:
            raise
        where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        _fail("FileError", f"the system refused a file or folder ({where or 'unnamed'}): {error.strerror}")
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _fail("MemoryError", "this needs more memory than there is; ask for fewer samples, slots or a smaller batch")


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, by Python's word or by PyTorch's."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(each in str(error).lower() for each in words)


def _fail(what: str, message: str) -> None:
    errors.print("error:", style="bold red", end=" ")
    errors.print(f"{what}: {message}", soft_wrap=True)
    sys.exit(1)
