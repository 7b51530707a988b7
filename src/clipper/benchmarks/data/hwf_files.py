"""The files of HWF: packed into arrays, or as its authors publish them, a picture per symbol."""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.sources import Form, Place, Source
from clipper.errors import FileError, require

_PICTURES = "Handwritten_Math_Symbols"
_FOLDER_NAMES = {"times": "*", "div": "/"}

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
    formulas = {split: _read_json(place, f"expr_{split}.json") for split in ("train", "test")}
    if _PICTURES in place.form.files:
        used = sorted({path for entries in formulas.values() for entry in entries for path in entry["img_paths"]})
        pixels, names, index = _read_pictures(place.verified(_PICTURES), used)
    else:
        pixels, names, index = _read_packed(place)
    labels = np.full(len(pixels), -2)
    for name, i in zip(names, index, strict=True):
        label = alphabet.index(_FOLDER_NAMES.get(name.split("/")[0], name.split("/")[0]))
        labels[i] = label if labels[i] in (-2, label) else -1
    return Symbols(pixels, labels, dict(zip(names, index, strict=True)), formulas)


def _read_json(place: Place, file: str) -> list[dict[str, Any]]:
    path = place.verified(file)
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text())
    except ValueError as error:
        raise FileError(f"{path} is damaged ({error}); {place.again}") from error
    return entries


def _read_packed(place: Place) -> tuple[np.ndarray, list[str], list[int]]:
    path = place.verified("symbols.npz")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["images"], arrays["image_names"].tolist(), arrays["image_index"].tolist()
    except (ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise FileError(f"{path} is damaged ({error}); {place.again}") from error


def _read_pictures(folder: Path, names: list[str]) -> tuple[np.ndarray, list[str], list[int]]:
    """Read every picture that a formula uses, and keep the distinct ones."""
    reader: Any = require("PIL.Image", extra="benchmarks")
    seen: dict[bytes, int] = {}
    index = []
    for name in names:
        try:
            with reader.open(folder / name) as picture:
                content = np.asarray(picture.convert("L"), np.uint8)
        except OSError as error:
            raise FileError(f"{folder / name} cannot be read ({error}); {HWF.remedy}") from error
        if content.shape != (45, 45):
            raise FileError(f"expected 45 × 45 pixels in {folder / name}, got {content.shape}; {HWF.remedy}")
        index.append(seen.setdefault(content.tobytes(), len(seen)))
    pixels = np.frombuffer(b"".join(seen), np.uint8).reshape(-1, 45, 45)
    return pixels, names, index
