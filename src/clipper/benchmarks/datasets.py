"""Labelled images: the embedded digits, and MNIST from its original files, verified by checksum."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.errors import FileError, InputError, require

_MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their gold labels."""

    name: str
    pixels: Tensor
    """`(instances, channels, height, width)` float in [0, 1]."""
    labels: Tensor
    """`(instances,)`"""
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: Tensor) -> Images:
        """The images where `chosen (instances,)` is true."""
        return replace(self, pixels=self.pixels[chosen], labels=self.labels[chosen])


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


def mnist(split: str = "train", root: str | Path | None = None) -> Images:
    """MNIST, `"train"` (60,000) or `"test"` (10,000), from the four original files in `<data root>/mnist`."""
    if split not in ("train", "test"):
        raise InputError(f'expected the split "train" or "test", got {split!r}')
    prefix = "train" if split == "train" else "t10k"
    pixels = _read_idx(f"{prefix}-images-idx3-ubyte.gz", root)
    labels = _read_idx(f"{prefix}-labels-idx1-ubyte.gz", root)
    scaled = torch.from_numpy(pixels).float().div_(255)[:, None]
    return Images("mnist", scaled, torch.from_numpy(labels).long(), classes=10)


def train_and_test(name: str, root: str | Path | None = None) -> tuple[Images, Images]:
    """The images to draw samples from, and those to measure accuracy on; none is in both.

    MNIST has its own halves. Of the embedded digits every third is held out: 1,198 and 599.

    Examples:
        >>> [len(part) for part in train_and_test("digits")]
        [1198, 599]
    """
    if name == "mnist":
        return mnist("train", root), mnist("test", root)
    if name != "digits":
        raise InputError(f'expected the data set "digits" or "mnist", got {name!r}')
    images = digits()
    held_out = torch.arange(len(images)) % 3 == 2
    return images.part(~held_out), images.part(held_out)


def data_folders(name: str, root: str | Path | None = None) -> list[Path]:
    """Where a data set may lie: the given root, `CLIPPER_DATA`, then the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clipper"
    given = [root, os.environ.get("CLIPPER_DATA"), cache]
    return [Path(folder) / name for folder in given if folder]


def _read_idx(name: str, root: str | Path | None) -> np.ndarray:
    path = _find(name, root)
    content = path.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != _MNIST_MD5[name]:
        raise FileError(f"{path} is damaged: its checksum is not the published one; fetch it again")
    try:
        raw = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path} cannot be unpacked ({error}); fetch it again") from error
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", count=dimensions, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()


def _find(name: str, root: str | Path | None) -> Path:
    folders = data_folders("mnist", root)
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    looked = ", ".join(str(folder) for folder in folders)
    raise FileError(
        f"{name} was not found in {looked}; set CLIPPER_DATA (or --data-root) to a folder whose subfolder mnist "
        "holds the four original MNIST files"
    )
