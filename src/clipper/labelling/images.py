"""ImageFiles: image files, read and encoded in batches. An interrupted run keeps the embeddings of finished batches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import CountProgress
from clipper.errors import FileError, InputError, require
from clipper.executors import Executor, in_order
from clipper.files import written_whole
from clipper.proximity import Encoder, embed

LARGEST = 224
"""Pixels of the longer side to which larger images shrink before they are encoded."""
BATCH = 256
"""Images that are read and encoded at a time."""
_THUMBNAIL = 48
"""Pixels of the longer side of a thumbnail."""
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "F")
"""Pillow's modes of grey images."""


@dataclass(frozen=True)
class ImageFiles:
    """Image files, read at one size: other images are scaled to fit and padded with the median colour of their corners.

    Attributes:
        paths: the paths of the files, each once.
        height: the height of every image after reading, in pixels.
        width: the width of every image after reading, in pixels.
        grey: whether all images are grey; else they are read with three channels.
    """

    paths: tuple[Path, ...]
    height: int
    width: int
    grey: bool

    @classmethod
    def open(cls, paths: Iterable[Path]) -> ImageFiles:
        """Read the header of every file, so that missing and damaged files are reported before the work starts.

        Args:
            paths: of the files; repetitions are ignored.

        Raises:
            FileError: if files are missing or are not images.
            MissingExtraError: Pillow is not installed.
        """
        pillow: Any = require("PIL.Image", extra="images")
        found = tuple(dict.fromkeys(paths))
        missing = [str(path) for path in found if not path.is_file()]
        if missing:
            more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
            if Path(missing[0]).is_dir():
                raise FileError(f"{missing[0]} is a folder, but a cell names one image; give each image a cell")
            raise FileError(
                f"cannot read {len(missing):,} of {len(found):,} images: there is no {', '.join(missing[:3])}{more}; "
                "check --images, the folder that their names are relative to"
            )
        sizes, grey = list[tuple[int, int]](), True
        for path in found:
            try:
                with pillow.open(path) as image:
                    sizes.append((image.height, image.width))
                    grey = grey and image.mode in _GREY
            except Exception as error:  # Pillow raises many kinds on damaged files
                raise FileError(f"cannot read the image {path} ({error}); write it again") from error
        height, width = (round(median(side)) for side in zip(*sizes, strict=True))
        shrink = min(1, LARGEST / max(height, width))
        return cls(found, max(1, round(height * shrink)), max(1, round(width * shrink)), grey)

    def load(self, numbers: Sequence[int]) -> Tensor:
        """The images with these numbers, `(k, channels, height, width)`, values from 0 to 1."""
        return torch.stack([self._pixels(self.paths[i], (self.height, self.width)) for i in numbers])

    def thumbnails(self, numbers: Sequence[int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Thumbnails of the images with these numbers, `(k, height, width)` or `(k, height, width, 3)`, uint8."""
        shrink = min(1, _THUMBNAIL / max(self.height, self.width))
        size = max(1, round(self.height * shrink)), max(1, round(self.width * shrink))
        small = torch.stack([self._pixels(self.paths[i], size) for i in numbers]).mul(255).round().to(torch.uint8)
        pixels: np.ndarray[Any, np.dtype[np.uint8]] = small.permute(0, 2, 3, 1).numpy()
        return pixels[..., 0] if self.grey else pixels

    def embeddings(
        self, encoder: Encoder, cache: Path, report: CountProgress = lambda *_: None, executor: Executor | None = None
    ) -> Tensor:
        """The embedding of each image, `(images, d)`, memory-mapped from a cache file.

        The name of the cache file contains a hash of the images and the encoder. After an interrupted run, the file
        contains the embeddings of finished batches, and the next run continues from there. Cache files of other images
        or encoders with the same prefix are removed.

        Args:
            encoder: from `(k, channels, height, width)` to `(k, d)`.
            cache: the path of the cache file without the ending.
            report: called after each batch with the number done and the total.
            executor: its processes read and encode the images; if None, this process does.

        Raises:
            FileError: if an image cannot be read.
            InputError: if the encoder returns NaN or infinity.
        """
        place = cache.with_name(f"{cache.name}.embeddings-{self._key(encoder)}.npy")
        stored = _opened(place, len(self.paths))
        _remove_others(place, cache.name)
        done = 0 if stored is None else _rows_done(stored)
        report(done, len(self.paths))
        batches = [range(first, min(first + BATCH, len(self.paths))) for first in range(done, len(self.paths), BATCH)]
        jobs = ((replace(self, paths=self.paths[each.start : each.stop]), encoder) for each in batches)
        found = map(_encoded, jobs) if executor is None else in_order(executor, _encoded, jobs)
        for numbers, vectors in zip(batches, found, strict=True):
            if not bool(vectors.isfinite().all()):
                raise InputError(
                    f"the encoder {encoder!r} gave NaN or infinity for images near {self.paths[numbers.start]}"
                )
            if stored is None:
                stored = _created(place, len(self.paths), vectors.shape[1])
            stored[numbers.start : numbers.stop] = vectors.float().numpy()
            report(numbers.stop, len(self.paths))
        assert stored is not None
        stored.flush()
        return torch.from_numpy(np.load(place, mmap_mode="c"))

    def _key(self, encoder: Encoder) -> str:
        """A hash of the encoder and of the paths, sizes and modification times of the files."""
        states = [
            (str(path.resolve()), state.st_size, state.st_mtime_ns) for path in self.paths for state in [path.stat()]
        ]
        text = json.dumps([repr(encoder), self.height, self.width, self.grey, states])
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def _pixels(self, path: Path, size: tuple[int, int]) -> Tensor:
        """One image, `(channels, height, width)`, values from 0 to 1."""
        pillow: Any = require("PIL.Image", extra="images")
        operations: Any = require("PIL.ImageOps", extra="images")
        try:
            with pillow.open(path) as opened:
                image = operations.exif_transpose(opened)
                if image.mode in ("I", "I;16", "I;16B", "F"):  # 16 bits, which convert() would cut off
                    values = np.asarray(image).astype(np.float32)
                    top = 65535 if image.mode.startswith("I") and values.max() > 255 else max(255, values.max())
                    image = pillow.fromarray((values * (255 / top)).clip(0, 255).astype(np.uint8))
                if "A" in image.mode or "transparency" in image.info:
                    shown = image.convert("RGBA")
                    image = pillow.alpha_composite(pillow.new("RGBA", shown.size, "white"), shown)
                image = image.convert("L" if self.grey else "RGB")
                if (image.height, image.width) != size:
                    corners = [image.getpixel((x, y)) for x in (0, image.width - 1) for y in (0, image.height - 1)]
                    colour = tuple(np.median(np.array(corners).reshape(4, -1), axis=0).astype(int).tolist())
                    way = pillow.Resampling.LANCZOS
                    image = operations.pad(image, size[::-1], way, color=colour if len(colour) > 1 else colour[0])
                pixels = np.array(image)
        except Exception as error:  # Pillow raises many kinds on damaged files
            raise FileError(f"cannot read the image {path} ({error}); write it again") from error
        return torch.from_numpy(pixels.reshape(*size, -1)).permute(2, 0, 1).float() / 255


def _encoded(job: tuple[ImageFiles, Encoder]) -> Tensor:
    """The embeddings of a batch of images, `(k, d)`."""
    images, encoder = job
    return embed(encoder, images.load(range(len(images.paths))).unsqueeze(1), chunk=BATCH)[:, 0]


def _created(path: Path, rows: int, columns: int) -> np.memmap[Any, np.dtype[np.float32]]:
    """A new file of embeddings. Every number is NaN, which means "not computed yet"."""
    with written_whole(path, replace=True) as temporary:
        empty = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=(rows, columns))
        for first in range(0, rows, 1 << 16):
            empty[first : first + (1 << 16)] = np.nan
        empty.flush()
    return np.load(path, mmap_mode="r+")  # type: ignore[no-any-return]


def _opened(path: Path, rows: int) -> np.memmap[Any, np.dtype[np.float32]] | None:
    """The embeddings of an earlier run; None if there are none."""
    try:
        found = np.load(path, mmap_mode="r+", allow_pickle=False)
    except (OSError, ValueError):
        return None
    right = isinstance(found, np.memmap) and found.ndim == 2 and len(found) == rows and found.dtype == np.float32
    return found if right else None


def _rows_done(stored: np.memmap[Any, np.dtype[np.float32]]) -> int:
    """The number of rows before the first that is not computed yet."""
    missing = np.isnan(stored).any(1)
    return int(missing.argmax()) if missing.any() else len(stored)


def _remove_others(place: Path, name: str) -> None:
    """Remove the cache files of other images or encoders that belong to the same output."""
    pattern = re.compile(re.escape(name) + r"\.embeddings-[0-9a-f]{16}\.npy")
    with suppress(OSError):
        for path in place.parent.iterdir():
            if path != place and pattern.fullmatch(path.name):
                path.unlink()
