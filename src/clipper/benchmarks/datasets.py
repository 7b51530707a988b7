"""Data sets by name: which there are, which are on this machine, and their training and test images."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from clipper.benchmarks.data.hwf import HWF_FILES, hwf
from clipper.benchmarks.data.images import CIFAR10_FILES, MNIST_FILES, Images, cifar10, digits, mnist
from clipper.benchmarks.data.sources import Source, State, find
from clipper.benchmarks.mugen.files import MUGEN_FILES
from clipper.benchmarks.vqar.files import VQAR_FILES
from clipper.errors import FileError, InputError

SOURCES: dict[str, Source] = {
    source.name: source for source in (MNIST_FILES, CIFAR10_FILES, HWF_FILES, MUGEN_FILES, VQAR_FILES)
}
"""The data sets that lie in files."""
NAMES = ("digits", *SOURCES)
_HALVES: dict[str, Callable[[str, str | Path | None], Images]] = {"mnist": mnist, "cifar10": cifar10, "hwf": hwf}


@dataclass(frozen=True)
class Inventory:
    """What is on this machine of a data set.

    Attributes:
        name: of the data set.
        folder: where it is; None if it was not found.
        form: the form in which it is published.
        files: the state of each file.
    """

    name: str
    folder: str | None
    form: str
    files: dict[str, State]

    @property
    def summary(self) -> str:
        """The state in one word: absent, embedded, verified, unverified, incomplete or damaged."""
        if not self.files:
            return "embedded" if self.folder else "absent"
        states = set(self.files.values())
        return next((word for state, word in _WORST_FIRST.items() if state in states), "verified")


_WORST_FIRST: dict[State, str] = {"damaged": "damaged", "missing": "incomplete", "unverified": "unverified"}


def inventory(name: str, root: str | Path | None = None) -> Inventory:
    """What is on this machine of a data set; every file is compared with its published checksum.

    Examples:
        >>> inventory("digits").summary
        'embedded'
    """
    if name == "digits":
        there = importlib.util.find_spec("sklearn") is not None
        return Inventory(name, "scikit-learn" if there else None, "embedded", {})
    place = find(source_of(name), root)
    if place is None:
        return Inventory(name, None, "", {})
    return Inventory(name, str(place.folder), place.form.name, place.states())


def source_of(name: str) -> Source:
    """The files of a data set."""
    if name == "digits":
        raise FileError("the digits come with scikit-learn: pip install 'clipper-nesy[benchmarks]'")
    if name not in SOURCES:
        raise InputError(f"expected one of the data sets {', '.join(NAMES)}, got {name!r}")
    return SOURCES[name]


def missing_data(name: str, root: str | Path | None = None) -> str | None:
    """Why the zoo or a race cannot use a data set here; None if it can. Only their MNIST lies in files."""
    if name == "mnist" and find(source_of(name), root) is None:
        return "MNIST is not here; clipper data fetch mnist brings it, or set CLIPPER_DATA to the folder above mnist"
    return None


def train_and_test(name: str, root: str | Path | None = None) -> tuple[Images, Images]:
    """The images to draw samples from, and those to measure accuracy on; none is in both.

    MNIST and CIFAR-10 have published splits. Of scikit-learn's digits every third is held out (1,198 and 599), of
    HWF's distinct images every fifth. Missing data sets are downloaded if possible.

    Examples:
        >>> [len(part) for part in train_and_test("digits")]
        [1198, 599]
    """
    if name == "digits":
        images = digits()
        held_out = torch.arange(len(images)) % 3 == 2
        return images.part(~held_out), images.part(held_out)
    load = _HALVES.get(name)
    if load is None:
        raise InputError(f"expected a data set of single images, digits or {', '.join(_HALVES)}, got {name!r}")
    return load("train", root), load("test", root)
