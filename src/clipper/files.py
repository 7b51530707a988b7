"""Outputs that appear whole or not at all, and files that grow line by line."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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


def append(path: str | Path, line: bytes) -> None:
    """Add a line to a file, on disk before this returns; several processes may do so at once.

    What a killed process wrote of its line stays a line of its own.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "lines"
        ...     _ = path.write_bytes(b"whole\\ncut o")
        ...     append(path, b"new")
        ...     path.read_bytes()
        b'whole\\ncut o\\nnew\\n'
    """
    with open(path, "ab+") as file:
        _lock(file)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        cut_off = file.read(1) not in (b"", b"\n")
        file.write((b"\n" if cut_off else b"") + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _lock(file: BinaryIO) -> None:
    """Wait until no other process writes; the lock goes with the file. Where there is no `flock`, go on without."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def _refuse_existing(path: Path, replace: bool) -> None:
    if path.exists() and not replace:
        raise FileError(f"{path} exists and is not written over; choose another name or remove it first")


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
