"""HWF: handwritten symbols, and the published formulas over them.

Many of the published test images also occur in training formulas, byte for byte. So the distinct images are split
here, and a formula that uses an image of the other half gets another image of the same symbol instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.benchmarks.data.hwf_files import HWF, Symbols, read_symbols
from clipper.benchmarks.data.images import Images, check_split, from_bytes
from clipper.benchmarks.data.sources import find, not_found
from clipper.errors import FileError

SYMBOLS = "123456789+-*/"
"""A symbol's label is its place here; the paper's benchmark goes without the last."""
_EVERY = 5
"""Of each symbol, every fifth distinct image is held out for the test."""


@dataclass(frozen=True, eq=False)
class Formulas:
    """Published formulas, as images of one half of the data."""

    images: Images
    image: Tensor
    """`(n, m)`: which image is in each slot; -1 in unused slots."""
    text: list[str]
    """Such as `"3*8-1"`."""


def hwf(split: str = "train", root: str | Path | None = None, *, division: bool = False) -> Images:
    """Handwritten digits 1–9 and + − ×, 45 × 45 pixels, from `<data root>/hwf`; no image is in both halves.

    Args:
        split: `"train"`, or `"test"` for every fifth distinct image of each symbol.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
        division: with ÷, which the published formulas have and the paper's benchmark has not.
    """
    check_split(split)
    symbols = _symbols(root)
    return _images(symbols, _half(symbols, split, len(SYMBOLS) if division else len(SYMBOLS) - 1), division)


def formulas(split: str = "train", longest: int = 7, root: str | Path | None = None) -> Formulas:
    """The published formulas of at most `longest` symbols, + − × ÷, as images of one half of the data."""
    check_split(split)
    symbols = _symbols(root)
    half = _half(symbols, split, len(SYMBOLS))
    entries = [entry for entry in symbols.formulas[split] if len(entry["expr"]) <= longest]
    slots = max((len(entry["expr"]) for entry in entries), default=0)
    own = _own_images(symbols.labels, half)
    rows = [_row(entry, symbols, own, slots) for entry in entries]
    return Formulas(_images(symbols, half, True), torch.tensor(rows), [entry["expr"] for entry in entries])


def _symbols(root: str | Path | None) -> Symbols:
    place = find(HWF, root)
    if place is None:
        raise not_found(HWF, root)
    return read_symbols(place, SYMBOLS)


def _images(symbols: Symbols, half: np.ndarray, division: bool) -> Images:
    classes = len(SYMBOLS) if division else len(SYMBOLS) - 1
    return from_bytes("hwf", symbols.pixels[half][:, None], symbols.labels[half], classes, "123456789+−×÷"[:classes])


def _half(symbols: Symbols, split: str, classes: int) -> np.ndarray:
    """The distinct images of one half, `(images,)`, ascending; one that was filed under two symbols is in neither."""
    held_out = np.zeros(len(symbols.labels), bool)
    for label in range(len(SYMBOLS)):
        held_out[np.flatnonzero(symbols.labels == label)[_EVERY - 1 :: _EVERY]] = True
    known = (symbols.labels >= 0) & (symbols.labels < classes)
    return np.flatnonzero(known & (held_out if split == "test" else ~held_out))


def _own_images(labels: np.ndarray, half: np.ndarray) -> list[np.ndarray]:
    """For each label, places in the half of an image for every distinct image: its own where it is in the half."""
    places = []
    for label in range(len(SYMBOLS)):
        pool = np.flatnonzero(labels[half] == label)
        stand_in = np.resize(pool, len(labels)) if len(pool) else pool  # spreads over all images of the symbol
        stand_in[half[pool]] = pool
        places.append(stand_in)
    return places


def _row(entry: dict[str, Any], symbols: Symbols, own: Sequence[np.ndarray], slots: int) -> list[int]:
    try:
        images = [symbols.index[path] for path in entry["img_paths"]]
        row = [int(own[SYMBOLS.index(symbol)][i]) for symbol, i in zip(entry["expr"], images, strict=True)]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise FileError(
            f"formula {entry.get('id')!r} of hwf does not fit its images ({error}); {HWF.remedy}"
        ) from error
    return row + [-1] * (slots - len(row))
