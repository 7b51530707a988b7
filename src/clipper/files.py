"""Outputs that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clipper.errors import FileError


@contextmanager
def written_whole(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; move it there when the block ends, remove it when the block fails.

    An existing file is left alone unless `replace` is set.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with written_whole(Path(folder) / "answer.txt") as temporary:
        ...         _ = temporary.write_text("42")
        ...     (Path(folder) / "answer.txt").read_text()
        '42'
    """
    final = Path(path)
    _refuse_existing(final, replace)
    if not final.parent.is_dir():
        raise FileError(f"cannot write {final}: the folder {final.parent} does not exist; create it first")
    handle, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=".part", dir=final.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush_to_disk(temporary)
        _refuse_existing(final, replace)
        temporary.chmod(0o644)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_existing(path: Path, replace: bool) -> None:
    if path.exists() and not replace:
        raise FileError(f"{path} exists and is not written over; choose another name or remove it first")


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
