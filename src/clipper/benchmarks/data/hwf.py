"""HWF: handwritten symbols, and the published formulas over them.

Many of the published test images also occur in training formulas, byte for byte. So the distinct images are divided
here into two parts, called halves: four fifths for training, one fifth for the test. If a formula uses an image of the
other half, it gets another image of the same symbol instead. The files are arrays, or one picture per symbol as the
authors publish them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.benchmarks.data.images import Images, find_half, from_bytes
from clipper.benchmarks.data.reading import inside, opened_picture, read_json, read_npz
from clipper.benchmarks.data.sources import DataFolder, Form, Source, published
from clipper.errors import FileError

SYMBOLS = "123456789+-*/"
"""The label of a symbol is its index here; the paper's benchmark leaves out the last one, division."""
_EVERY = 5
"""Of each symbol, every fifth distinct image is held out for the test."""
_PICTURES = "Handwritten_Math_Symbols"
_FOLDER_NAMES = {"times": "*", "div": "/"}
_FORMATS = ("JPEG", "PNG")
_SIDE = 45

HWF_FILES = Source(
    "hwf",
    (
        Form("packed symbols", published("hwf", ["symbols.npz", "expr_train.json", "expr_test.json"])),
        Form("a picture per symbol", {_PICTURES: "", "expr_train.json": "", "expr_test.json": ""}),
    ),
    remedy="get the HWF data of Li et al. 2020 (Closed Loop Neural-Symbolic Learning; its authors' repository "
    f"liqing-ustc/NGS links it) and put expr_train.json, expr_test.json and {_PICTURES} into a folder hwf of your "
    "data root",
)


@dataclass(frozen=True, eq=False)
class Symbols:
    """The distinct images of symbols, and the formulas that use them.

    Attributes:
        pixels: `(images, 45, 45)` bytes.
        labels: `(images,)`; -1 if an image is published under two symbols.
        index: from a published path to its image.
        formulas: by split, as published.
    """

    pixels: np.ndarray
    labels: np.ndarray
    index: dict[str, int]
    formulas: dict[str, list[dict[str, Any]]]


def _read_symbols(place: DataFolder) -> Symbols:
    """Read either form."""
    formulas = {split: _read_formulas(place, f"expr_{split}.json") for split in ("train", "test")}
    if _PICTURES in place.form.files:
        used = sorted({path for entries in formulas.values() for entry in entries for path in entry["img_paths"]})
        pixels, names, index = _read_pictures(place.verified(_PICTURES), used)
    else:
        pixels, names, index = _read_packed(place)
    labels = np.full(len(pixels), -2)
    for name, i in zip(names, index, strict=True):
        label = _label(name)
        labels[i] = label if labels[i] in (-2, label) else -1
    return Symbols(pixels, labels, dict(zip(names, index, strict=True)), formulas)


def _label(name: str) -> int:
    """The label of an image: its folder is its symbol."""
    folder = name.split("/")[0]
    symbol = _FOLDER_NAMES.get(folder, folder)
    if len(symbol) != 1 or symbol not in SYMBOLS:
        folders = ", ".join([*SYMBOLS.rstrip("*/"), *_FOLDER_NAMES])
        raise FileError(f"expected images of hwf in the folders {folders}, got {ascii(name)[:100]}; {HWF_FILES.remedy}")
    return SYMBOLS.index(symbol)


def _read_formulas(place: DataFolder, file: str) -> list[dict[str, Any]]:
    path = place.verified(file)
    entries = read_json(path, HWF_FILES.remedy)
    if not isinstance(entries, list):
        raise FileError(f"expected a list of formulas in {path}, got a {type(entries).__name__}; {HWF_FILES.remedy}")
    for number, entry in enumerate(entries):
        paths = entry.get("img_paths") if isinstance(entry, dict) else None
        if not isinstance(paths, list) or not all(isinstance(each, str) for each in paths):
            raise FileError(
                f'expected a list of names under "img_paths" in formula {number} of {path}; {HWF_FILES.remedy}'
            )
        if not isinstance(entry.get("expr"), str):
            raise FileError(f'expected a text under "expr" in formula {number} of {path}; {HWF_FILES.remedy}')
    return entries


def _read_packed(place: DataFolder) -> tuple[np.ndarray, list[str], list[int]]:
    path = place.verified("symbols.npz")
    kinds = {"images": ("u", 3), "image_names": ("U", 1), "image_index": ("iu", 1)}
    images, names, index = read_npz(path, kinds, HWF_FILES.remedy)
    if len(names) != len(index) or not ((index >= 0) & (index < len(images))).all():
        raise FileError(
            f"expected an image of {len(images):,} for each of {len(names):,} names in {path}; {HWF_FILES.remedy}"
        )
    return images, names.tolist(), index.tolist()


def _read_pictures(folder: Path, names: list[str]) -> tuple[np.ndarray, list[str], list[int]]:
    """Read every picture that a formula uses, and keep the distinct ones."""
    if not names:
        raise FileError(f"expected formulas over pictures in {folder}, got none; {HWF_FILES.remedy}")
    seen: dict[bytes, int] = {}
    index = []
    for name in names:
        path = inside(folder, name, "a formula of hwf")
        with opened_picture(path, _FORMATS, HWF_FILES.remedy) as picture:
            if picture.size != (_SIDE, _SIDE):
                raise FileError(f"expected {_SIDE} × {_SIDE} pixels, got {picture.size}")
            content = picture.convert("L").tobytes()
        index.append(seen.setdefault(content, len(seen)))
    pixels = np.frombuffer(b"".join(seen), np.uint8).reshape(-1, _SIDE, _SIDE)
    return pixels, names, index


@dataclass(frozen=True, eq=False)
class Formulas:
    """Published formulas, as images of one half of the data.

    Attributes:
        images: of that half.
        image: `(n, m)`: which image is in each slot; -1 in unused slots.
        text: such as `"3*8-1"`.
    """

    images: Images
    image: Tensor
    text: list[str]


def hwf(split: str = "train", root: str | Path | None = None, *, division: bool = False) -> Images:
    """Handwritten digits 1–9 and + − ×, 45 × 45 pixels, from `<data root>/hwf`; no image is in both halves.

    Args:
        split: `"train"`, or `"test"` for every fifth distinct image of each symbol.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
        division: include ÷, which occurs in the published formulas but not in the paper's benchmark.
    """
    symbols = _read_symbols(find_half(HWF_FILES, split, root))
    return _images(symbols, _half(symbols, split, len(SYMBOLS) if division else len(SYMBOLS) - 1), division)


def formulas(
    split: str = "train", longest: int = 7, root: str | Path | None = None, *, distinct: bool = True
) -> Formulas:
    """The published formulas of at most `longest` symbols, + − × ÷, as images of one half of the data.

    Args:
        split: `"train"` or `"test"`.
        longest: the largest number of symbols.
        root: the folder with the data sets.
        distinct: use each image in one half only. If False, use the published images, many of which are in both halves.
    """
    symbols = _read_symbols(find_half(HWF_FILES, split, root))
    half = _half(symbols, split, len(SYMBOLS)) if distinct else np.flatnonzero(symbols.labels >= 0)
    entries = [entry for entry in symbols.formulas[split] if len(entry["expr"]) <= longest]
    slots = max((len(entry["expr"]) for entry in entries), default=0)
    own = _own_images(symbols.labels, half)
    rows = [_row(entry, symbols, own, slots) for entry in entries]
    return Formulas(_images(symbols, half, True), torch.tensor(rows), [entry["expr"] for entry in entries])


def _images(symbols: Symbols, half: np.ndarray, division: bool) -> Images:
    classes = len(SYMBOLS) if division else len(SYMBOLS) - 1
    return from_bytes("hwf", symbols.pixels[half][:, None], symbols.labels[half], classes, "123456789+−×÷"[:classes])


def _half(symbols: Symbols, split: str, classes: int) -> np.ndarray:
    """The distinct images of one half, `(images,)`, ascending; an image published under two symbols is in neither."""
    held_out = np.zeros(len(symbols.labels), bool)
    for label in range(len(SYMBOLS)):
        held_out[np.flatnonzero(symbols.labels == label)[_EVERY - 1 :: _EVERY]] = True
    known = (symbols.labels >= 0) & (symbols.labels < classes)
    return np.flatnonzero(known & (held_out if split == "test" else ~held_out))


def _own_images(labels: np.ndarray, half: np.ndarray) -> list[np.ndarray]:
    """For each label and each distinct image, the index in the half of its replacement: itself, if it is there."""
    places = []
    for label in range(len(SYMBOLS)):
        pool = np.flatnonzero(labels[half] == label)
        replacement = np.resize(pool, len(labels)) if len(pool) else pool  # uses all images of the symbol in turn
        replacement[half[pool]] = pool
        places.append(replacement)
    return places


def _row(entry: dict[str, Any], symbols: Symbols, own: Sequence[np.ndarray], slots: int) -> list[int]:
    try:
        images = [symbols.index[path] for path in entry["img_paths"]]
        row = [int(own[SYMBOLS.index(symbol)][i]) for symbol, i in zip(entry["expr"], images, strict=True)]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise FileError(
            f"formula {entry.get('id')!r} of hwf does not fit its images ({error}); {HWF_FILES.remedy}"
        ) from error
    return row + [-1] * (slots - len(row))
