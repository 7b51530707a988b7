"""Checkpoints: the whole state of a run in one file, written whole or not at all. Knows no training."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch

from clipper.errors import FileError
from clipper.files import written_whole

FORMAT = 1
"""Raised when old checkpoints can no longer be read."""


def save_checkpoint(path: str | Path, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Replace the file by the state; whoever is killed meanwhile leaves the older file as it was.

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
    with written_whole(path, replace=True) as temporary:
        torch.save({"format": FORMAT, "identity": dict(identity), "state": dict(state)}, temporary)


def load_checkpoint(path: str | Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state in the file, or None if there is no file; nothing in it is executed."""
    _sweep(Path(path))
    if not Path(path).exists():
        return None
    content = _read(path)
    _check_identity(path, content["identity"], identity)
    state: dict[str, Any] = content["state"]
    return state


def load_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """The classifier's weights in a run's checkpoint, for those who want to look at them."""
    weights: dict[str, torch.Tensor] = _read(path)["state"]["classifier"]
    return weights


def _read(path: str | Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, BadZipFile, pickle.UnpicklingError) as error:
        raise FileError(f"{path} cannot be read as a checkpoint ({error}); remove it to start anew") from error
    fits = isinstance(content, dict) and content.get("format") == FORMAT and {"identity", "state"} <= content.keys()
    if not fits:
        raise FileError(f"{path} is no checkpoint of this version of Clipper; remove it to start anew")
    return dict(content)


def _check_identity(path: str | Path, stored: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = [name for name in {**stored, **expected} if stored.get(name) != expected.get(name)]
    if names:
        differences = ", ".join(f"{name} {stored.get(name)} there and {expected.get(name)} here" for name in names)
        raise FileError(
            f"{path} belongs to another run: {differences}; choose another file, or remove this one to start anew"
        )


def _sweep(path: Path) -> None:
    """Remove what a killed run left half-written."""
    for leftover in path.parent.glob(f".{path.name}.*.part"):
        leftover.unlink(missing_ok=True)
