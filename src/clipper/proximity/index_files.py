"""An index in a folder: its files, the manifest that lists them, and checks that they are whole."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import real_number, whole_number
from clipper.errors import ClipperError, FileError
from clipper.files import checked_path, claimed, make_folder, parsed_json, written_whole
from clipper.proximity.approximate import FaissStructure, faiss_method
from clipper.proximity.neighbours import Vectors

if TYPE_CHECKING:
    from clipper.proximity.index import Index

MANIFEST = "index.json"
"""The file that lists the files of an index; it is written last."""

_CLAIM = "index.lock"
"""The lock of the process that writes the index."""

_OURS = re.compile(r"(vectors|groups|structure)-[0-9a-f]{16}(\.npy)?")
"""Names of an index's other files."""

_VERSION = 1
TYPES = (torch.float32, torch.float64)
"""The types of numbers that vectors may hold."""


def write_index(index: Index, path: str | Path) -> None:
    """As `Index.save`."""
    folder = checked_path(path)
    check_folder(folder)
    make_folder(folder)
    with _writing(folder), claimed(folder / _CLAIM) as mine:
        if not mine:
            raise FileError(f"another process is writing an index into {folder}; wait for it, or choose another one")
        token = secrets.token_hex(8)
        files = {"vectors": _stored(folder, f"vectors-{token}.npy", index.vectors.values.cpu())}
        if not index.vectors.group_size:
            files["groups"] = _stored(folder, f"groups-{token}.npy", index.vectors.group.cpu())
        if index.structure is not None:
            files["structure"] = _stored(folder, f"structure-{token}", index.structure)
        manifest = {
            "version": _VERSION, "method": index.method, "reason": index.reason, "effort": index.effort,
            "scale": index.scale, "group_size": index.vectors.group_size, "files": files,
        }  # fmt: skip
        with written_whole(folder / MANIFEST, replace=True) as temporary:
            temporary.write_text(json.dumps({"index": manifest, "check": _check_sum(manifest)}), encoding="utf-8")
        for place in folder.iterdir():  # files of an older index or of a killed process
            if _OURS.fullmatch(place.name) and token not in place.name:
                place.unlink(missing_ok=True)


def read_index(path: str | Path, check: bool) -> tuple[Vectors, str, str, int, FaissStructure | None, float]:
    """The fields of the index in a folder, as `Index.load`."""
    folder = checked_path(path)
    manifest = _manifest(folder)
    try:
        files = {name: _intact(folder, check, file) for name, file in manifest["files"].items()}
        values = _mapped(files["vectors"])
        size = whole_number(manifest["group_size"], "size of a group", 0)
        vectors = Vectors(values, None if size else _mapped(files["groups"]), size)
        fits = values.ndim == 2 and values.dtype in TYPES and vectors.group.shape == values.shape[:1]
        method, reason, scale = (
            str(manifest["method"]),
            str(manifest["reason"]),
            real_number(manifest["scale"], "scale"),
        )
        effort = whole_number(manifest["effort"], "effort", 0)
        structure = None if method == "exact" else FaissStructure.read(files["structure"], faiss_method(method))
    except (LookupError, TypeError, ValueError) as error:
        raise FileError(f"the index in {folder} is damaged ({error}); build it again") from error
    if not fits:
        raise FileError(f"the index in {folder} is damaged (its vectors and groups do not fit); build it again")
    return vectors, method, reason, effort, structure, scale


def check_folder(folder: Path) -> None:
    """Refuse a folder with anything else than an index in it."""
    if folder.exists() and not folder.is_dir():
        raise FileError(f"cannot write an index into {folder}: it is a file and no folder; choose another name")
    foreign = [name for name in _names(folder) if name not in (MANIFEST, _CLAIM) and not _OURS.fullmatch(name)]
    foreign = [name for name in foreign if not name.endswith(".part")]
    if foreign:
        raise FileError(
            f"cannot write an index into {folder}: it holds {foreign[0]!r}, which is no part of an index; choose a "
            "folder of its own"
        )


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn an `OSError` into a `FileError`."""
    try:
        yield
    except ClipperError:
        raise
    except (OSError, RuntimeError) as error:  # FAISS has errors of its own
        raise FileError(f"cannot write an index into {folder}: {error}; choose another place") from error


def _stored(folder: Path, name: str, content: Tensor | FaissStructure) -> dict[str, Any]:
    """Write a file to disk, and return its entry in the manifest."""
    path = folder / name
    if isinstance(content, Tensor):
        np.save(path, content.numpy())
    else:
        content.write(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return {"name": name, "size": path.stat().st_size, "check": _digest_of(path)}


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the index in a folder."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FileError(f"expected the folder of an index, got {folder}, which has none; build(pool).save(…) makes one")
    try:
        document = parsed_json(path.read_bytes())
        manifest = document["index"]
        if document["check"] != _check_sum(manifest) or manifest["version"] != _VERSION:
            raise ValueError(f"its manifest has changed, or is of another version than {_VERSION}")
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise FileError(f"the index in {folder} cannot be read ({error}); build it again") from error
    if not isinstance(manifest, dict):
        raise FileError(f"the index in {folder} cannot be read (its manifest is no mapping); build it again")
    return manifest


def _intact(folder: Path, check: bool, entry: dict[str, Any]) -> Path:
    """The path of a file of an index, checked against its `entry` in the manifest."""
    name = str(entry["name"])
    path = folder / name
    if not _OURS.fullmatch(name):
        raise ValueError(f"{name!r} is no file of an index")
    whole = path.is_file() and path.stat().st_size == entry["size"]
    if not whole or (check and _digest_of(path) != entry["check"]):
        raise FileError(f"the index in {folder} is damaged ({name} is missing or has changed); build it again")
    return path


def _mapped(path: Path) -> Tensor:
    """An array, mapped into memory."""
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def _check_sum(manifest: object) -> str:
    return blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=16).hexdigest()


def _digest_of(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()
