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
    "label": "Label each image, given a fact about each small group of images: a total, a check digit, a count.",
    "review": "Answer a few questions about doubtful labels in the browser. Your answers improve the other labels.",
    "prune": "Discard the candidates in a file that contradict nearby instances. Every sample keeps at least one.",
    "identify": "Say which labels a rule or a file of candidates can tell apart. Needs no images and no training.",
    "train": "Train a classifier on a benchmark whose samples have a known function of the labels, such as the sum.",
    "bench": "Measure speed and quality: pruning, losses, joint inference, training, large pools.",
    "race": "Compare Clipper with other frameworks: same data, network and machine, accuracy after equal times.",
    "table": "Run one of the paper's tables, or a part of it, and print the paper's figures beside ours.",
    "results": "Update the figures in Markdown pages from the recorded runs, with the verdicts on the paper's claims.",
    "demo": "Label the digits of 100 receipts from their totals, train on the labels, and write a report; two minutes.",
    "data": "List, fetch and verify data sets. Without a command: list the data sets on this machine and check them.",
    "clips": "Draw clips of a game character and texts about its actions, in the file layout of the data set MUGEN.",
}
"""The commands with their help texts. Each command is a function in a module of the same name, imported on demand."""


class _LazyGroup(TyperGroup):
    """A group that lists its commands without importing them. A command is imported when it is run or completed."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _imported(args[0]), rest


@cache
def _imported(name: str) -> Any:
    """The command with this name, imported from its module."""
    wrapper = typer.Typer()
    wrapper.callback()(lambda: None)  # without a callback, typer turns an app with a single command into that command
    command = getattr(import_module(f"clipper.cli.{name}"), name)
    if isinstance(command, typer.Typer):
        wrapper.add_typer(command, name=name)
    else:
        wrapper.command(name=name)(command)
    group: Any = typer.main.get_command(wrapper)
    return group.commands[name]


app = typer.Typer(
    name="clipper",
    cls=_LazyGroup,
    help="Label inputs from facts about small groups of them, such as totals, and train classifiers on the result.",
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
    """Run the command line. An error that the user can correct prints one message and exits with code 1.

    Any other exception is a bug and shows its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # file names may be undecodable, terminals may lack letters
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
        _fail("MemoryError", "there is not enough memory; use fewer samples or slots, or a smaller batch")


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, as Python or PyTorch reports it."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(each in str(error).lower() for each in words)


def _fail(what: str, message: str) -> None:
    errors.print("error:", style="bold red", end=" ")
    errors.print(f"{what}: {message}", soft_wrap=True)
    sys.exit(1)
