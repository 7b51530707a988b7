"""Options that several commands share, and a check of the output files before the work starts."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from clipper.arguments import MOST
from clipper.errors import ClipperError, FileError
from clipper.executors import ExecutorName

LAST_SEED = 2**62
"""The largest seed. Seeds are 64-bit numbers, and some commands also use the seeds after it."""


def counted(text: str, *flags: str, most: int = MOST) -> Any:
    """An option that is a count: a whole number of at least 1.

    Args:
        text: the help text.
        flags: the names of the option; by default the name of the parameter.
        most: the largest value.
    """
    return typer.Option(*flags, min=1, max=most, help=text)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
ExecutorOption = Annotated[
    ExecutorName,
    typer.Option(
        "--engine", "--executor", help="Where to compute: in this process, in several on this machine, or on Ray."
    ),
]
Workers = Annotated[
    int | None, counted("Number of workers with one thread each, with --engine; default: one per core.")
]
Address = Annotated[
    str | None, typer.Option(help="HOST:PORT of a Ray cluster; by default one is started for this machine alone.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", exists=True, file_okay=False, help="Folder of the data sets; default: $CLIPPER_DATA."),
]


def with_options_of(config: type, command: Callable[..., None], types: Mapping[str, Any] | None = None) -> None:
    """Give a command the fields of a configuration as options, in place of its `**options`.

    Args:
        config: a dataclass whose fields have help texts, see `clipper.arguments.option`.
        command: the function that typer runs; its signature is replaced.
        types: other types for some fields, if the command line has another format for them.
    """
    hints = get_type_hints(config) | dict(types or {})
    made = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=[] if each.default is MISSING else each.default,
            annotation=Annotated[
                hints[each.name], typer.Option(*each.metadata.get("flags", ()), help=each.metadata["help"])
            ],
        )
        for each in fields(config)
        if "help" in each.metadata
    ]
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    together = sorted([*made, *own], key=lambda each: each.kind)  # arguments first; sorting keeps the order otherwise
    command.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]


@contextmanager
def writable(*files: Path) -> Iterator[None]:
    """Check that files can be written, and create their folders. If the block fails, new empty folders are removed.

    Args:
        files: the files that the block will write.

    Raises:
        FileError: if a file cannot be written.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with writable(Path(folder) / "runs" / "one.json"):
        ...         (Path(folder) / "runs").is_dir()
        True
    """
    made: list[Path] = []
    try:
        for file in files:
            _make_ready(file, made)
        yield
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()  # fails if the folder is not empty
        raise


def _make_ready(file: Path, made: list[Path]) -> None:
    try:
        if file.exists() and not file.is_file():
            kind = "a folder" if file.is_dir() else "not a regular file"
            raise FileError(f"expected the name of a file to write, got {file}, which is {kind}; choose another name")
        for folder in (*reversed(file.parent.parents), file.parent):
            if not folder.is_dir():
                if folder.exists():
                    raise FileError(f"cannot write {file}: {folder} is a file, not a folder; choose another place")
                folder.mkdir()
                made.append(folder)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except ClipperError:
        raise
    except OSError as error:
        raise FileError(f"cannot write {file}: {error.strerror}; choose another place or name") from error
