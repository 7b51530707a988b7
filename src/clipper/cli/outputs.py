"""Where results go: looked at before the work, so that hours of it are not lost to a wrong name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clipper.errors import ClipperError, FileError


@contextmanager
def writable(*files: Path) -> Iterator[None]:
    """Refuse files that cannot be written, and create their folders; a failed block leaves no empty folder behind.

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
                folder.rmdir()  # refuses if there is something in it
        raise


def _make_ready(file: Path, made: list[Path]) -> None:
    try:
        if file.exists() and not file.is_file():
            kind = "a folder" if file.is_dir() else "no ordinary file"
            raise FileError(f"expected the name of a file to write, got {file}, which is {kind}; choose another name")
        for folder in (*reversed(file.parent.parents), file.parent):
            if not folder.is_dir():
                if folder.exists():
                    raise FileError(f"cannot write {file}: {folder} is a file and no folder; choose another place")
                folder.mkdir()
                made.append(folder)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except ClipperError:
        raise
    except OSError as error:
        raise FileError(f"cannot write {file}: {error.strerror}; choose another place or name") from error
