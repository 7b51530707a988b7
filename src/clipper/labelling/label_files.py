"""Labels in files: CSV, Parquet or Arrow, a row for each instance or a row for each sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import torch
from torch import Tensor

from clipper.arguments import shown
from clipper.candidates.storage import whole_column
from clipper.errors import FileError, InputError
from clipper.files import checked_path
from clipper.labelling.label import FORMATS

_LONG = ("sample", "slot", "label")
_MOST = 10**9
"""Largest number of instances in a file."""


def read_labels(path: str | Path) -> Tensor:
    """The labels in a file, `(n, m)`; -1 where a label is missing.

    Args:
        path: a `.csv`, `.parquet`, `.arrow` or `.feather` file. Its columns are `sample`, `slot` and `label`, with a
            row for each instance; or `slot_0`, `slot_1` …, with a row for each sample in order. Other columns are
            ignored.

    Raises:
        FileError: the file is missing, damaged or of another format.
        InputError: columns are missing, or contain anything but whole numbers.
    """
    table = _table(checked_path(path))
    names = set(table.column_names)
    if set(_LONG) <= names:
        sample, slot, label = (whole_column(table, name)[0].astype(np.int64) for name in _LONG)
        if not len(label) or min(sample.min(), slot.min()) < 0:
            raise InputError(
                f"expected a sample and a slot from 0 on in every row of {path}, got no row or negative numbers"
            )
        shape = int(sample.max()) + 1, int(slot.max()) + 1
        if shape[0] * shape[1] > _MOST or len(np.unique(sample * shape[1] + slot)) < len(label):
            raise InputError(
                f"expected one row for each sample and slot in {path}, got a sample and slot twice, or ids too large "
                f"for {_MOST:,} instances"
            )
        labels = torch.full(shape, -1)
        labels[sample, slot] = torch.from_numpy(label)
        return labels
    slots = [f"slot_{i}" for i in range(sum(name.startswith("slot_") for name in names))]
    if not slots or not set(slots) <= names:
        raise InputError(
            f"expected the columns sample, slot and label, or slot_0, slot_1, …, in {path}, "
            f"got {shown(table.column_names)}"
        )
    return torch.from_numpy(np.stack([whole_column(table, name)[0] for name in slots], axis=1).astype(np.int64))


def _table(path: Path) -> pa.Table:
    if not path.is_file():
        raise FileError(f"{path} does not exist, or is not a file; expected labels as CSV, Parquet or Arrow")
    try:
        kind = FORMATS.get(path.suffix.lower())
        if kind == "csv":
            return pa.csv.read_csv(path)
        if kind == "parquet":
            return pa.parquet.read_table(path)
        if kind == "arrow":
            return pa.feather.read_table(path)
    except Exception as error:  # Arrow's own errors, invalid UTF-8, sizes beyond the memory
        raise FileError(f"{path} cannot be read ({error}); write it again as CSV, Parquet or Arrow") from error
    raise FileError(f"expected a file of labels that ends in .csv, .parquet, .arrow or .feather, got {path}")
