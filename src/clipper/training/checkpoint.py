"""Checkpoints: the whole state of a run in one file. A failed write leaves the previous file unchanged.

A file ends with the SHA-256 sum of its content, so any change is detected.
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
"""The version of the format; it is increased when old checkpoints can no longer be read. Format 1 has no checksum."""
_MARK = b"clipper sha256 "
_TAIL = len(_MARK) + 64
"""Bytes at the end of a file: the mark, then the checksum in hexadecimal digits."""
_ANEW = "remove it to start anew"


def save_checkpoint(path: str | Path, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Write a state to a file. If the process is killed meanwhile, the previous file stays unchanged.

    Args:
        path: the file.
        state: tensors, numbers, text, and lists and dictionaries of these.
        identity: the properties that a run must have in order to continue from the file.

    Raises:
        FileError: the file cannot be written.

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
    """The state in a file; None if there is no file. The file's content is not executed.

    Args:
        path: the file.
        identity: the properties of this run, as for `save_checkpoint`.

    Raises:
        FileError: the file is damaged, is not a checkpoint, or belongs to another run.
    """
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
    """Check before training that a checkpoint can be read from and written to a path.

    Raises:
        FileError: it cannot.
    """
    place = checked_path(path)
    try:
        not_a_file, no_folder = place.exists() and not place.is_file(), not place.parent.is_dir()
    except OSError as error:
        raise FileError(f"{place} cannot be a checkpoint ({error}); choose another name") from error
    if not_a_file:
        raise FileError(f"expected the checkpoint {place} to be a file, but it is not; choose another name")
    if no_folder:
        raise FileError(f"cannot write {place}: the folder {place.parent} does not exist; create it first")


def check_whole(path: str | Path) -> None:
    """Check that a checkpoint, if there is one, is not damaged, before data is read and samples are drawn.

    Raises:
        FileError: it is damaged.
    """
    check_place(path)
    if Path(path).exists():
        _body(path)


def _body(path: str | Path) -> memoryview:
    """The content of a checkpoint without its checksum, which is verified."""
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
