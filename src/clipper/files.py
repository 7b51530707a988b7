"""Files that are written atomically or extended line by line, lock files that end with their process, and JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from clipper.errors import ClipperError, FileError, InputError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # on Windows: files are written without locks, and old temporary files stay
    fcntl = None

Row = dict[str, Any]
"""A line of JSON in a file of results: what was run, and what was found."""
LONGEST = 200
"""If a name has more bytes, its temporary file is named by a hash, because file systems allow only 255 bytes."""


@contextmanager
def written_whole(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Write a file atomically: yields a temporary path beside `path`, and moves it there when the block ends.

    If the block fails, the temporary file is removed. Temporary files of killed processes are removed, too.

    Args:
        path: the file to write.
        replace: whether to replace an existing file; else it is an error.

    Raises:
        FileError: if the file cannot be written, whatever the system's reason.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with written_whole(Path(folder) / "answer.txt") as temporary:
        ...         _ = temporary.write_text("42")
        ...     (Path(folder) / "answer.txt").read_text()
        '42'
    """
    final = checked_path(path)
    with _as_file_error(final):
        _refuse_existing(final, replace)
        if not final.parent.is_dir():
            raise FileError(f"cannot write {final}: the folder {final.parent} does not exist; create it first")
        sweep(final)
        handle, temporary = _begun(final)
        try:
            yield temporary
            _flush_to_disk(temporary)
            _refuse_existing(final, replace)
            temporary.chmod(0o644)
            temporary.replace(final)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if handle is not None:
                os.close(handle)


def sweep(path: str | Path) -> None:
    """Remove temporary files of `path` that killed processes left behind; those of running processes stay."""
    final = Path(path)
    if fcntl is None:
        return
    with suppress(OSError):
        for name in os.listdir(final.parent):
            if name.startswith(_prefix(final)) and name.endswith(".part"):
                _remove_unless_locked(final.parent / name)


def append(path: str | Path, line: bytes) -> None:
    """Add a line to a file, on disk before this returns; several processes may do so at once.

    If a killed process left an unfinished line, the new line starts below it. If the new line cannot be written
    completely, its part is removed again.

    Raises:
        FileError: if the line cannot be written, whatever the system's reason.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "lines"
        ...     _ = path.write_bytes(b"whole\\ncut o")
        ...     append(path, b"new")
        ...     path.read_bytes()
        b'whole\\ncut o\\nnew\\n'
    """
    final = checked_path(path)
    with _as_file_error(final), open(final, "ab+", buffering=0) as file:
        _lock(file.fileno(), wait=True)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        cut_off = file.read(1) not in (b"", b"\n")
        rest = memoryview((b"\n" if cut_off else b"") + line + b"\n")
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(size)
            raise


def add_row(path: str | Path, row: Row) -> None:
    """Add a row to a file that `rows_in` reads; the file and its folder are created if needed.

    Raises:
        FileError: if the row cannot be written, whatever the system's reason.
    """
    place = checked_path(path)
    make_folder(place.parent)
    append(place, json.dumps(row, ensure_ascii=False, allow_nan=False).encode())


def rows_in(path: str | Path, kind: str, name: str) -> Iterator[Row]:
    """The JSON objects in a file that `add_row` extends, one per line; unfinished lines are left out.

    Args:
        path: the file; a missing file has no rows.
        kind: the value of `"format"`, with which every row begins.
        name: what such a row is called, for the message.

    Raises:
        FileError: the file cannot be read, or holds other lines.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "lines"
        ...     add_row(path, {"format": "figures 1", "value": 3})
        ...     append(path, b'{"format": "figures 1", "va')
        ...     [row["value"] for row in rows_in(path, "figures 1", "row of figures")]
        [3]
    """
    place = checked_path(path)
    try:
        lines = place.read_bytes().split(b"\n") if place.exists() else []
    except OSError as error:
        raise FileError(f"cannot read the rows in {place} ({error}); choose another file") from error
    start = f'{{"format": "{kind}"'.encode()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line[: len(start)] != start[: len(line)]:
            raise FileError(f"line {number} of {place} is no {name}; choose another file")
        with suppress(ValueError):
            yield parsed_json(line)


@contextmanager
def claimed(path: str | Path) -> Iterator[bool]:
    """Claim a lock file; yields whether this process got it. The claim ends with the block or with the process.

    On a system without file locks, every process gets every claim.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder, claimed(Path(folder) / "run.lock") as first:
        ...     with claimed(Path(folder) / "run.lock") as second:
        ...         first, second
        (True, False)
    """
    final = checked_path(path)
    with _as_file_error(final):
        make_folder(final.parent)
        handle = os.open(final, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # if the file is gone, another process has just ended its claim and removed it: this attempt fails
        mine = _lock(handle) is not False and (fcntl is None or os.fstat(handle).st_nlink > 0)
        try:
            yield mine
        finally:
            if mine:
                with suppress(OSError):
                    final.unlink(missing_ok=True)  # removed while locked, so that no other process can hold it
    finally:
        os.close(handle)


def make_folder(folder: str | Path) -> None:
    """Create a folder and its missing parent folders."""
    place = checked_path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot create the folder {place} ({error}); choose another place") from error


def checked_path(path: str | Path) -> Path:
    """The path as a `Path`; raises an `InputError` if no file can have it."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected the path of a file, got a value of type {type(path).__name__}")
    if "\0" in str(path) or not str(path):
        raise InputError(f"expected the path of a file, got {str(path)!r}, which no file can have")
    return Path(path)


def parsed_json(text: bytes) -> Any:
    """Parse strict JSON: no repeated names, no NaN, no extreme nesting.

    Raises:
        ValueError: if it is anything else.
    """
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"a name comes twice among {[name for name, _ in pairs]}")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


@contextmanager
def _as_file_error(path: Path) -> Iterator[None]:
    """Convert an error of the operating system about a file into a `FileError`."""
    try:
        yield
    except ClipperError:
        raise
    except OSError as error:
        raise FileError(
            f"cannot write {path} ({error}); nothing was changed: check the free space, the permissions and the name, "
            "or choose another place"
        ) from error


def _begun(final: Path) -> tuple[int | None, Path]:
    """A temporary file beside the final one, locked while its handle is open, so that `sweep` does not remove it."""
    while True:
        handle, name = tempfile.mkstemp(prefix=_prefix(final), suffix=".part", dir=final.parent)
        if fcntl is None:  # Windows cannot rename an open file
            os.close(handle)
            return None, Path(name)
        _lock(handle, wait=True)
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # swept between its creation and the lock


def _prefix(final: Path) -> str:
    """How the names of a file's temporary files begin."""
    name = os.fsencode(final.name)
    return f".{final.name}." if len(name) <= LONGEST else f".{blake2b(name, digest_size=16).hexdigest()}."


def _remove_unless_locked(path: Path) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _lock(handle):
                path.unlink()
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Whether the file is now locked for this process; None where files cannot be locked at all."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _refuse_existing(path: Path, replace: bool) -> None:
    if path.is_dir():
        raise FileError(f"cannot write {path}: it is a folder; choose the name of a file")
    if path.exists() and not replace:
        raise FileError(f"{path} exists and is not written over; choose another name or remove it first")


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def read_text(path: Path, what: str) -> str:
    """The text in a file; `what` names it in errors."""
    if not path.is_file():
        raise FileError(f"cannot read {what} {path}: there is no file; check the path")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{what} {path} is no text in UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise FileError(f"cannot read {what} {path} ({error.strerror})") from error


def read_from_file(name: str, expected: str) -> Any:
    """The object that `FILE.py:NAME` names. The file is run once, and again only after a change.

    Args:
        name: the path of the file, a colon and a name in it.
        expected: what it should be, for errors.

    Raises:
        InputError: the file cannot be read or run, or has nothing of that name.
    """
    place, _, attribute = name.rpartition(":")
    path = Path(place)
    try:
        module = _module(str(path.resolve()), path.stat().st_mtime_ns)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); expected a file with {expected}") from error
    found = getattr(module, attribute, None)
    if found is None:
        raise InputError(f"{path} has no {attribute!r}; expected {expected}")
    return found


@lru_cache(maxsize=16)
def _module(path: str, changed: int) -> ModuleType:
    """A Python file of the user, run as a module. `changed` is part of the cache key: a changed file runs again."""
    del changed
    name = f"clipper_user_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError:
        raise
    except SyntaxError as error:
        place = f"line {error.lineno} of {error.filename}" if error.lineno else path
        raise InputError(f"{place} is no valid Python ({error.msg}); correct it") from error
    except Exception as error:  # the user's file fails in any way it likes
        raise InputError(f"{path} cannot be run ({type(error).__name__}: {error})") from error
    return module
