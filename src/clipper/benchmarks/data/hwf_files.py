"""The files of HWF: packed into arrays, or as its authors publish them, a picture per symbol."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.reading import inside, opened_picture, read_json, read_npz
from clipper.benchmarks.data.sources import Form, Place, Source
from clipper.errors import FileError

_PICTURES = "Handwritten_Math_Symbols"
_FOLDER_NAMES = {"times": "*", "div": "/"}
_FORMATS = ("JPEG", "PNG")
_SIDE = 45

HWF = Source(
    "hwf",
    (
        Form(
            "packed symbols",
            {
                "symbols.npz": "d32d21ffe8c70995432b6f212e24c5e920178a88c392c76c558fe6a01f46b4ea",
                "expr_train.json": "b434374f8ca4e7dd34ae5bac3dbf6dd411a92c5efec5839a5a3c398cf7be4240",
                "expr_test.json": "6bbb23b5389466743fc5675b6cb2db5e14fb3a12eb98c973c11f65ad82403035",
            },
        ),
        Form("a picture per symbol", {_PICTURES: "", "expr_train.json": "", "expr_test.json": ""}),
    ),
    remedy="get the HWF data of Li et al. 2020 (Closed Loop Neural-Symbolic Learning; its authors' repository "
    f"liqing-ustc/NGS links it) and put expr_train.json, expr_test.json and {_PICTURES} into a folder hwf of your "
    "data root",
)


@dataclass(frozen=True, eq=False)
class Symbols:
    """The distinct images of symbols, and the formulas that use them."""

    pixels: np.ndarray
    """`(images, 45, 45)` bytes."""
    labels: np.ndarray
    """`(images,)`; -1 where one image was filed under two symbols."""
    index: dict[str, int]
    """From a published path to its image."""
    formulas: dict[str, list[dict[str, Any]]]
    """By split, as published."""


def read_symbols(place: Place, alphabet: str) -> Symbols:
    """Read either form; a label is the symbol's place in the alphabet."""
    formulas = {split: _read_formulas(place, f"expr_{split}.json") for split in ("train", "test")}
    if _PICTURES in place.form.files:
        used = sorted({path for entries in formulas.values() for entry in entries for path in entry["img_paths"]})
        pixels, names, index = _read_pictures(place.verified(_PICTURES), used)
    else:
        pixels, names, index = _read_packed(place)
    labels = np.full(len(pixels), -2)
    for name, i in zip(names, index, strict=True):
        label = _label(name, alphabet)
        labels[i] = label if labels[i] in (-2, label) else -1
    return Symbols(pixels, labels, dict(zip(names, index, strict=True)), formulas)


def _label(name: str, alphabet: str) -> int:
    """The label of an image: its folder is its symbol."""
    folder = name.split("/")[0]
    symbol = _FOLDER_NAMES.get(folder, folder)
    if len(symbol) != 1 or symbol not in alphabet:
        folders = ", ".join([*alphabet.rstrip("*/"), *_FOLDER_NAMES])
        raise FileError(f"expected images of hwf in the folders {folders}, got {ascii(name)[:100]}; {HWF.remedy}")
    return alphabet.index(symbol)


def _read_formulas(place: Place, file: str) -> list[dict[str, Any]]:
    path = place.verified(file)
    entries = read_json(path, place.again)
    if not isinstance(entries, list):
        raise FileError(f"expected a list of formulas in {path}, got a {type(entries).__name__}; {place.again}")
    for number, entry in enumerate(entries):
        paths = entry.get("img_paths") if isinstance(entry, dict) else None
        if not isinstance(paths, list) or not all(isinstance(each, str) for each in paths):
            raise FileError(f'expected a list of names under "img_paths" in formula {number} of {path}; {place.again}')
        if not isinstance(entry.get("expr"), str):
            raise FileError(f'expected a text under "expr" in formula {number} of {path}; {place.again}')
    return entries


def _read_packed(place: Place) -> tuple[np.ndarray, list[str], list[int]]:
    path = place.verified("symbols.npz")
    kinds = {"images": ("u", 3), "image_names": ("U", 1), "image_index": ("iu", 1)}
    images, names, index = read_npz(path, kinds, place.again)
    if len(names) != len(index) or not ((index >= 0) & (index < len(images))).all():
        raise FileError(
            f"expected an image of {len(images):,} for each of {len(names):,} names in {path}; {place.again}"
        )
    return images, names.tolist(), index.tolist()


def _read_pictures(folder: Path, names: list[str]) -> tuple[np.ndarray, list[str], list[int]]:
    """Read every picture that a formula uses, and keep the distinct ones."""
    if not names:
        raise FileError(f"expected formulas over pictures in {folder}, got none; {HWF.remedy}")
    seen: dict[bytes, int] = {}
    index = []
    for name in names:
        path = inside(folder, name, "a formula of hwf")
        with opened_picture(path, _FORMATS, HWF.remedy) as picture:
            if picture.size != (_SIDE, _SIDE):
                raise FileError(f"expected {_SIDE} × {_SIDE} pixels, got {picture.size}")
            content = picture.convert("L").tobytes()
        index.append(seen.setdefault(content, len(seen)))
    pixels = np.frombuffer(b"".join(seen), np.uint8).reshape(-1, _SIDE, _SIDE)
    return pixels, names, index
