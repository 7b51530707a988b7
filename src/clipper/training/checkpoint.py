"""Checkpoints: the whole state of a run in one file, written whole or not at all. Knows no training.

A file ends with the SHA-256 sum of what is before it, so that not one bit of it can change unnoticed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from clipper.errors import FileError
from clipper.files import checked_path, sweep, written_whole

FORMAT = 2
"""Raised when old checkpoints can no longer be read; those of format 1 have no checksum."""
_MARK = b"clipper sha256 "
_TAIL = len(_MARK) + 64
"""Bytes at the end of a file: the mark, then the checksum in hexadecimal digits."""
_ANEW = "remove it to start anew"


def save_checkpoint(path: str | Path, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Replace the file by the state; a process that is killed meanwhile leaves the older file as it was.

    Args:
        path: the file.
        state: tensors, numbers, text, and lists and dictionaries of such.
        identity: what a run must have in common with the one that wrote the file to go on from it.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     save_checkpoint(Path(folder) / "run.pt", {"step": 3}, {"seed": 0})
        ...     load_checkpoint(Path(folder) / "run.pt", {"seed": 0})
        {'step': 3}
    """
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "identity": dict(identity), "state": dict(state)}, buffer)
    with written_whole(path, replace=True) as temporary, temporary.open("wb") as file:
        file.write(buffer.getbuffer())
        file.write(_MARK + sha256(buffer.getbuffer()).hexdigest().encode())


def load_checkpoint(path: str | Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state in the file, or None if there is no file; nothing in it is executed."""
    sweep(path)
    check_place(path)
    if not Path(path).exists():
        return None
    try:
        content = torch.load(io.BytesIO(_body(path)), map_location="cpu", weights_only=True)
    except FileError:
        raise
    except Exception as error:  # what was never a checkpoint can make torch raise anything
        raise FileError(f"{path} cannot be read as a checkpoint ({error}); {_ANEW}") from error
    stored, state = (content.get(name) if isinstance(content, dict) else None for name in ("identity", "state"))
    if not isinstance(stored, dict) or not isinstance(state, dict) or content.get("format") != FORMAT:
        raise FileError(f"{path} is not a checkpoint of this version of Clipper; {_ANEW}")
    names = [name for name in {**stored, **identity} if stored.get(name) != identity.get(name)]
    if names:
        differences = ", ".join(f"{name} {stored.get(name)} there and {identity.get(name)} here" for name in names)
        raise FileError(
            f"{path} belongs to another run: {differences}; choose another file, or remove this one to start anew"
        )
    return state


def check_place(path: str | Path) -> None:
    """Refuse a path that no checkpoint can be read from or written to, before the hours of training."""
    place = checked_path(path)
    try:
        unfit, homeless = place.exists() and not place.is_file(), not place.parent.is_dir()
    except OSError as error:
        raise FileError(f"{place} cannot be a checkpoint ({error}); choose another name") from error
    if unfit:
        raise FileError(f"expected the checkpoint {place} to be a file, and it is none; choose another name")
    if homeless:
        raise FileError(f"cannot write {place}: the folder {place.parent} does not exist; create it first")


def check_whole(path: str | Path) -> None:
    """Refuse a checkpoint that is there but damaged, before data is read and samples are drawn."""
    check_place(path)
    if Path(path).exists():
        _body(path)


def _body(path: str | Path) -> memoryview:
    """What torch wrote, if it has the checksum behind it."""
    try:
        stored = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read as a checkpoint ({error}); {_ANEW}") from error
    body, tail = memoryview(stored)[:-_TAIL], stored[-_TAIL:]
    if not tail.startswith(_MARK):
        raise FileError(
            f"{path} is not a complete checkpoint of this version of Clipper: there is no checksum at its end, as "
            f"older versions wrote none; {_ANEW}"
        )
    if tail[len(_MARK) :] != sha256(body).hexdigest().encode():
        raise FileError(f"{path} is damaged: its content does not have the checksum at its end; {_ANEW}")
    return body
