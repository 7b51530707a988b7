"""VQAR's own scenes: its pickles are read without running them, and converted once to Parquet.

Expected in `<data root>/vqar`, as they come from VQAR: `gqa_formatted_scene_graph.pkl`, by image id the boxes, names
and relations of its objects, and `features.npy`, by object id 2,048 numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from clipper.benchmarks.data.pickles import read_arrays
from clipper.benchmarks.data.sources import Form, Source, cache_folder, find, not_found
from clipper.benchmarks.vqar.scenes import Scenes
from clipper.errors import FileError
from clipper.files import written_whole

GRAPHS, FEATURES = "gqa_formatted_scene_graph.pkl", "features.npy"
VQAR = Source(
    "vqar",
    (Form("VQAR's scene graphs and features", {GRAPHS: "", FEATURES: ""}),),
    'get them from its authors (Huang et al. 2021), or take generated ones: the data set "scenes"',
)
OBJECTS, PAIRS = "vqar-objects.parquet", "vqar-relations.parquet"
_EVERY = 5
"""Every fifth image is held out for the test."""


def own_folder(root: str | Path | None = None) -> Path | None:
    """The folder with VQAR's own scenes, if there is one."""
    place = find(VQAR, root)
    return place.folder if place is not None and "missing" not in place.states().values() else None


def read_scenes(root: str | Path | None = None) -> tuple[Scenes, Scenes]:
    """VQAR's scenes to learn from and to be measured on."""
    folder = own_folder(root)
    if folder is None:
        raise not_found(VQAR, root)
    objects, pairs = convert(folder, cache_folder() / "vqar")
    return _scenes(objects, pairs, held_out=False), _scenes(objects, pairs, held_out=True)


def convert(folder: Path, into: Path) -> tuple[Path, Path]:
    """The two Parquet files made of VQAR's files in a folder; written anew only if those have changed."""
    state = ";".join(
        f"{(folder / name).stat().st_size}:{(folder / name).stat().st_mtime_ns}" for name in (GRAPHS, FEATURES)
    )
    paths = into / OBJECTS, into / PAIRS
    if all(path.exists() and _state(path) == state for path in paths):
        return paths
    into.mkdir(parents=True, exist_ok=True)
    graphs = read_arrays((folder / GRAPHS).read_bytes(), str(folder / GRAPHS))
    features = _features(folder / FEATURES)
    for path, table in zip(paths, _tables(graphs, features, folder), strict=True):
        marked = table.replace_schema_metadata({"source": state})
        with written_whole(path, replace=True) as temporary:
            pq.write_table(marked, temporary)
    return paths


def _state(path: Path) -> str:
    metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    return metadata.get(b"source", b"").decode()


def _features(path: Path) -> Mapping[Any, Any]:
    """The dictionary in a .npy file that holds one Python object: a header, then a pickle of an array of it."""
    with path.open("rb") as file:
        try:
            major = np.lib.format.read_magic(file)[0]
            read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            _, _, dtype = read(file)
        except ValueError as error:
            raise FileError(f"{path} is no NumPy file ({error}); fetch it again") from error
        content = read_arrays(file.read(), str(path)) if dtype.hasobject else None
    held = content.item() if isinstance(content, np.ndarray) and content.ndim == 0 else content
    if not isinstance(held, Mapping):
        raise FileError(f"{path} holds no dictionary from object ids to features; fetch it again")
    return held


def _tables(graphs: Any, features: Mapping[Any, Any], folder: Path) -> tuple[pa.Table, pa.Table]:
    """All objects that have features, and all relations between them."""
    objects: dict[str, list[Any]] = {name: [] for name in ("image", "object", "name", "box", "feature")}
    pairs: dict[str, list[Any]] = {name: [] for name in ("subject", "object", "relation")}
    try:
        for image, graph in sorted(graphs.items()):
            known = [one for one in graph["names"] if _found(features, one) is not None]
            for one in known:
                row = image, int(one), int(graph["names"][one]), [float(x) for x in graph["bboxes"][one]]
                for column, value in zip(objects.values(), (*row, _found(features, one)), strict=True):
                    column.append(value)
            for one in known:
                for other, relation in graph["relations"].get(one, {}).items():
                    if relation >= 0 and other in known:
                        for column, value in zip(pairs.values(), (int(one), int(other), int(relation)), strict=True):
                            column.append(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{folder / GRAPHS} does not hold VQAR's scene graphs ({error!r}); fetch it again") from error
    width = len(objects["feature"][0]) if objects["feature"] else 0
    flat = pa.array(np.concatenate(objects.pop("feature")) if width else [], pa.float32())
    table = pa.table(objects).append_column("feature", pa.FixedSizeListArray.from_arrays(flat, max(1, width)))
    return table, pa.table(pairs)


def _found(features: Mapping[Any, Any], one: Any) -> Any:
    """The features of an object; ids are numbers in one file and text in another."""
    found = features.get(one)
    found = features.get(str(one)) if found is None else found
    found = features.get(int(one)) if found is None else found
    return None if found is None else np.asarray(found, np.float32).ravel()


def _scenes(objects: Path, pairs: Path, *, held_out: bool) -> Scenes:
    """The scenes of every fifth image, or of the others."""
    table, relations = pq.read_table(objects), pq.read_table(pairs)
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
