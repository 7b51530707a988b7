"""HWF: handwritten symbols of formulas.

Many of the published test images also occur in training formulas, byte for byte. So the distinct images are split
here. The files are read packed into arrays, or as the authors publish them, a picture per symbol.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clipper.benchmarks.data.images import Images, find_half, from_bytes
from clipper.benchmarks.data.reading import inside, opened_picture, read_json, read_npz
from clipper.benchmarks.data.sources import DataFolder, Form, Source, published
from clipper.errors import FileError

SYMBOLS = "123456789+-*/"
"""A symbol's label is its place here."""
CLASSES = len(SYMBOLS) - 1
"""The paper's benchmark goes without ÷."""
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


def hwf(split: str = "train", root: str | Path | None = None) -> Images:
    """Handwritten digits 1–9 and + − ×, 45 × 45 pixels, from `<data root>/hwf`; no image is in both halves.

    Args:
        split: `"train"`, or `"test"` for every fifth distinct image of each symbol.
        root: the folder with the data sets; see `clipper data` for where else they may lie.
    """
    pixels, labels = _distinct_images(find_half(HWF_FILES, split, root))
    held_out = np.zeros(len(labels), bool)
    for label in range(CLASSES):
        held_out[np.flatnonzero(labels == label)[_EVERY - 1 :: _EVERY]] = True
    half = (labels >= 0) & (labels < CLASSES) & (held_out == (split == "test"))
    return from_bytes("hwf", pixels[half][:, None], labels[half], CLASSES, "123456789+−×")


def _distinct_images(place: DataFolder) -> tuple[np.ndarray, np.ndarray]:
    """Pixels `(images, 45, 45)` and labels `(images,)`; -1 where one image was filed under two symbols."""
    if _PICTURES in place.form.files:
        pixels, names, index = _read_pictures(place.verified(_PICTURES), _picture_names(place))
    else:
        kinds = {"images": ("u", 3), "image_names": ("U", 1), "image_index": ("iu", 1)}
        pixels, *rest = read_npz(place.verified("symbols.npz"), kinds, HWF_FILES.remedy)
        names, index = (array.tolist() for array in rest)
    labels = np.full(len(pixels), -2)
    for name, i in zip(names, index, strict=True):
        label = _label(name)
        labels[i] = label if labels[i] in (-2, label) else -1
    return pixels, labels


def _label(name: str) -> int:
    """The label of an image: its folder is its symbol."""
    folder = name.split("/")[0]
    symbol = _FOLDER_NAMES.get(folder, folder)
    if len(symbol) != 1 or symbol not in SYMBOLS:
        folders = ", ".join([*SYMBOLS.rstrip("*/"), *_FOLDER_NAMES])
        raise FileError(f"expected images of hwf in the folders {folders}, got {ascii(name)[:100]}; {HWF_FILES.remedy}")
    return SYMBOLS.index(symbol)


def _picture_names(place: DataFolder) -> list[str]:
    """The pictures that the formulas of both files use."""
    names: set[str] = set()
    for path in (place.verified("expr_train.json"), place.verified("expr_test.json")):
        entries = read_json(path, HWF_FILES.remedy)
        if not isinstance(entries, list):
            raise FileError(
                f"expected a list of formulas in {path}, got a {type(entries).__name__}; {HWF_FILES.remedy}"
            )
        for number, entry in enumerate(entries):
            paths = entry.get("img_paths") if isinstance(entry, dict) else None
            if not isinstance(paths, list) or not all(isinstance(each, str) for each in paths):
                raise FileError(
                    f'expected a list of names under "img_paths" in formula {number} of {path}; {HWF_FILES.remedy}'
                )
            names.update(paths)
    return sorted(names)


def _read_pictures(folder: Path, names: list[str]) -> tuple[np.ndarray, list[str], list[int]]:
    """Read pictures, and keep the distinct ones."""
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
