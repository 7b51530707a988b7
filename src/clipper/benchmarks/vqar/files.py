"""VQAR's own scenes: reads VQAR's pickles without running them, and converts them once to Parquet.

The folder `<data root>/vqar` must hold two files as VQAR publishes them. `gqa_formatted_scene_graph.pkl` has the
boxes, names and relations of the objects in each image. `features.npy` has 2,048 numbers for each object. It contains a
pickle, so it may be replaced by `features.npz`, with the arrays `object (objects,)`, the ids, and
`feature (objects, 2048)`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from clipper.benchmarks.data.pickles import read_arrays
from clipper.benchmarks.data.reading import read_bytes, read_npz
from clipper.benchmarks.data.sources import Form, Source, cache_folder, find, not_found
from clipper.benchmarks.vqar.scenes import Scenes
from clipper.errors import FileError
from clipper.files import written_whole

GRAPHS, FEATURES, PLAIN_FEATURES = "gqa_formatted_scene_graph.pkl", "features.npy", "features.npz"
VQAR_FILES = Source(
    "vqar",
    (
        Form("VQAR's scene graphs and features", {GRAPHS: "", FEATURES: ""}),
        Form("VQAR's scene graphs, features without a pickle", {GRAPHS: "", PLAIN_FEATURES: ""}),
    ),
    'get them from its authors (Huang et al. 2021), or take generated ones: the data set "scenes"',
)
OBJECTS, PAIRS = "vqar-objects.parquet", "vqar-relations.parquet"
_NPY_START = 8
"""Bytes of a .npy file before the length of its header."""
_EVERY = 5
"""Every fifth image is held out for the test."""


def own_folder(root: str | Path | None = None) -> Path | None:
    """The folder with VQAR's own scenes, if there is one."""
    place = find(VQAR_FILES, root)
    return place.folder if place is not None and "missing" not in place.states().values() else None


def read_scenes(root: str | Path | None = None) -> tuple[Scenes, Scenes]:
    """VQAR's scenes for training and for testing."""
    folder = own_folder(root)
    if folder is None:
        raise not_found(VQAR_FILES, root)
    objects, pairs = convert(folder, cache_folder() / "vqar")
    return _scenes(objects, pairs, held_out=False), _scenes(objects, pairs, held_out=True)


def convert(folder: Path, into: Path) -> tuple[Path, Path]:
    """Convert VQAR's files in a folder to two Parquet files, unless that was done before and they have not changed."""
    vectors = folder / FEATURES if (folder / FEATURES).exists() else folder / PLAIN_FEATURES
    state = ";".join(f"{path.stat().st_size}:{path.stat().st_mtime_ns}" for path in (folder / GRAPHS, vectors))
    paths = into / OBJECTS, into / PAIRS
    if all(_state(path) == state for path in paths):
        return paths
    graphs = read_arrays(read_bytes(folder / GRAPHS, VQAR_FILES.remedy), str(folder / GRAPHS))
    features = _features(vectors) if vectors.name == FEATURES else _plain_features(vectors)
    tables = _tables(graphs, features, folder)
    try:
        into.mkdir(parents=True, exist_ok=True)
        for path, table in zip(paths, tables, strict=True):
            with written_whole(path, replace=True) as temporary:
                pq.write_table(table.replace_schema_metadata({"source": state}), temporary)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot write VQAR's scenes into {into} ({error}); change XDG_CACHE_HOME") from error
    return paths


def _state(path: Path) -> str:
    """Which files a Parquet file was made from; empty if it is missing or damaged, and must be written again."""
    try:
        metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    except (OSError, ValueError, pa.ArrowException):
        return ""
    return metadata.get(b"source", b"").decode(errors="replace")


def _features(path: Path) -> Mapping[Any, Any]:
    """The dictionary in a .npy file: after a header, the file holds a pickle of an array with this one object."""
    content = read_bytes(path, VQAR_FILES.remedy)
    lengths = {b"\x93NUMPY\x01": "<H", b"\x93NUMPY\x02": "<I", b"\x93NUMPY\x03": "<I"}
    layout = lengths.get(content[:7])
    if layout is None or len(content) < _NPY_START + struct.calcsize(layout):
        raise FileError(f"{path} is no NumPy file; fetch it again")
    start = _NPY_START + struct.calcsize(layout)
    start += struct.unpack_from(layout, content, _NPY_START)[0]
    held = read_arrays(content[start:], str(path)) if b"'|O'" in content[:start] else None
    if not isinstance(held, dict):
        raise FileError(f"{path} holds no dictionary from object ids to features; fetch it again")
    return held


def _plain_features(path: Path) -> Mapping[Any, Any]:
    ids, vectors = read_npz(path, {"object": ("iu", 1), "feature": ("f", 2)}, VQAR_FILES.remedy)
    if len(ids) != len(vectors):
        raise FileError(f"expected as many features as objects in {path}, got {len(vectors)} and {len(ids)}")
    return dict(zip(ids.tolist(), vectors, strict=True))


def _tables(graphs: Any, features: Mapping[Any, Any], folder: Path) -> tuple[pa.Table, pa.Table]:
    """All objects that have features, and all relations between them."""
    objects: dict[str, list[Any]] = {name: [] for name in ("image", "object", "name", "box", "feature")}
    pairs: dict[str, list[Any]] = {name: [] for name in ("subject", "object", "relation")}
    try:
        numbered = all(type(image) is int for image in graphs)
        named = ((image if numbered else str(image), graph) for image, graph in graphs.items())
        for image, graph in sorted(named, key=lambda pair: pair[0]):
            if not all(isinstance(graph[part], dict) for part in ("names", "bboxes", "relations")):
                raise TypeError(f"image {image} has no dictionaries of names, bboxes and relations")
            found = {key: vector for key in graph["names"] if (vector := _found(features, key)) is not None}
            for key, vector in found.items():
                row = image, int(key), _index(graph["names"][key]), _box(graph["bboxes"][key]), vector
                for column, value in zip(objects.values(), row, strict=True):
                    column.append(value)
            for key in found:
                for other, relation in graph["relations"].get(key, {}).items():
                    if relation >= 0 and other in found:
                        for column, value in zip(pairs.values(), (int(key), int(other), _index(relation)), strict=True):
                            column.append(value)
        _check(objects)
        flat = pa.array(np.concatenate(objects.pop("feature")), pa.float32())
        width = len(flat) // len(objects["object"])
        table = pa.table(objects).append_column("feature", pa.FixedSizeListArray.from_arrays(flat, width))
        return table, pa.table({name: pa.array(column, pa.int64()) for name, column in pairs.items()})
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise FileError(
            f"{folder / GRAPHS} and the features beside it do not hold VQAR's scenes "
            f"({type(error).__name__}: {str(error)[:200]}); fetch them again"
        ) from error


def _index(number: Any) -> int:
    """An index into a vocabulary."""
    if isinstance(number, float) or not 0 <= int(number) < 2**31:
        raise ValueError(f"expected an index into the vocabulary, got {str(number)[:40]}")
    return int(number)


def _box(box: Any) -> list[float]:
    """Left, top, width and height."""
    numbers = [float(number) for number in box]
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)) or min(numbers[2:]) < 0:
        raise ValueError(f"expected a box of left, top, width and height, got {numbers[:8]}")
    return numbers


def _check(objects: Mapping[str, list[Any]]) -> None:
    if len(set(objects["image"])) < _EVERY:
        raise ValueError(f"expected at least {_EVERY} images with features, got {len(set(objects['image']))}")
    if len(set(objects["object"])) < len(objects["object"]):
        raise ValueError("an object is in two images")
    widths = {len(feature) for feature in objects["feature"]}
    if len(widths) > 1 or widths == {0}:
        raise ValueError(f"expected the same number of features for every object, got {sorted(widths)[:5]}")
    if not all(np.isfinite(feature).all() for feature in objects["feature"]):
        raise ValueError("a feature is not a finite number")


def _found(features: Mapping[Any, Any], key: Any) -> Any:
    """The features of an object; None if there are none. An id may be a number in one file and text in the other."""
    found = features.get(key)
    found = features.get(str(key)) if found is None else found
    found = features.get(int(key)) if found is None else found
    return None if found is None else np.asarray(found, np.float32).ravel()


def _scenes(objects: Path, pairs: Path, *, held_out: bool) -> Scenes:
    """The scenes of every fifth image, or of the others."""
    try:
        table, relations = pq.read_table(objects), pq.read_table(pairs)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FileError(f"{objects} or {pairs} is damaged ({error}); remove both, then they are made again") from error
    image, scene = np.unique(table["image"].to_numpy(), return_inverse=True)
    mine = (np.arange(len(image))[scene] % _EVERY == _EVERY - 1) == held_out
    table, scene = table.filter(pa.array(mine)), scene[mine]
    place = {one: i for i, one in enumerate(table["object"].to_pylist())}
    rows = [
        (place[a], place[b], r)
        for a, b, r in zip(*(relations[name].to_pylist() for name in relations.column_names), strict=True)
        if a in place and b in place
    ]
    subject, other, relation = torch.tensor(sorted(rows), dtype=torch.long).view(-1, 3).unbind(1)
    feature = table["feature"].combine_chunks()
    return Scenes(
        torch.from_numpy(feature.flatten().to_numpy().copy()).view(len(table), -1),
        torch.tensor(table["box"].to_pylist()),
        torch.from_numpy(table["name"].to_numpy().copy()),
        torch.from_numpy(np.unique(scene, return_inverse=True)[1].copy()),
        subject,
        other,
        relation,
        generated=False,
    )
