"""Reads untrusted files: bytes, JSON, arrays and pictures; and checks that file names stay in their folder.

If anything is wrong with a file, a `FileError` names it and says what to do.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clipper.errors import FileError, require

MOST_PIXELS = 1 << 24
"""The most pixels of a picture: 4,096 × 4,096."""
_MOST_PACKED = 200
"""The highest compression ratio of an archive; for real features and images it is below ten."""


def read_bytes(path: Path, remedy: str) -> bytes:
    """The content of a file."""
    try:
        return path.read_bytes()
    except (OSError, MemoryError) as error:
        raise FileError(f"{path} cannot be read ({error}); {remedy}") from error


def read_json(path: Path, remedy: str) -> Any:
    """The document in a JSON file."""
    try:
        return json.loads(read_bytes(path, remedy))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is no JSON file ({type(error).__name__}: {error}); {remedy}") from error


def read_npz(path: Path, kinds: Mapping[str, tuple[str, int]], remedy: str) -> list[np.ndarray]:
    """Arrays of an `.npz` file; `kinds` gives, by name, the letters that `dtype.kind` may be, and the dimensions."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = sum(member.file_size for member in archive.infolist())
        if content > _MOST_PACKED * path.stat().st_size:
            raise ValueError(f"{content:,} bytes are packed into {path.stat().st_size:,}")
        with np.load(path, allow_pickle=False) as arrays:
            found = [arrays[name] for name in kinds]
    except Exception as error:  # damaged archives and headers raise all kinds of errors
        raise FileError(f"{path} is damaged ({type(error).__name__}: {error}); {remedy}") from error
    for array, (name, (kind, dimensions)) in zip(found, kinds.items(), strict=True):
        if array.dtype.kind not in kind or array.ndim != dimensions:
            raise FileError(
                f"expected {name} in {path} to have {dimensions} dimensions and a type of the kinds {kind}, got "
                f"{array.ndim} and {array.dtype}; {remedy}"
            )
    return found


@contextmanager
def opened_picture(path: Path, formats: tuple[str, ...], remedy: str) -> Iterator[Any]:
    """Open a picture with Pillow, if it is not too large; errors in the block become a `FileError`."""
    image: Any = require("PIL.Image", extra="benchmarks")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with image.open(path, formats=formats) as picture:
                width, height = picture.size
                if width * height > MOST_PIXELS:
                    raise FileError(f"expected at most {MOST_PIXELS:,} pixels, got {width:,} × {height:,}")
                yield picture
    except Exception as error:  # damaged pictures raise all kinds of errors
        raise FileError(f"{path} cannot be read ({error or type(error).__name__}); {remedy}") from error


def inside(folder: Path, name: Any, what: str) -> Path:
    """The path of a file that a data set names; it must be inside the folder, even after links are resolved.

    Examples:
        >>> inside(Path("/data/hwf"), "+/1.jpg", "expr.json").as_posix()
        '/data/hwf/+/1.jpg'
        >>> inside(Path("/data/hwf"), "../secret", "expr.json")
        Traceback (most recent call last):
        ...
        clipper.errors.FileError: expr.json names the file '../secret', which lies outside /data/hwf; ...
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise FileError(f"expected the name of a file in {what}, got {ascii(name)[:100]}; fetch it again")
    path = folder / name
    try:
        leaves = Path(name).is_absolute() or ".." in Path(name).parts
        leaves = leaves or not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, names that no file can have
        raise FileError(f"{what} names the file {ascii(name)[:200]}, which is not a possible path ({error})") from error
    if leaves:
        raise FileError(
            f"{what} names the file {ascii(name)[:200]}, which lies outside {folder}; put the file itself there, and "
            "name it by a relative path without .."
        )
    return path
