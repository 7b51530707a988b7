"""Files of labels: the tables that `clipper label` writes, and labels of your own, as CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import torch
from torch import Tensor

from clipper.arguments import one_of, shown
from clipper.candidates.storage import whole_column
from clipper.errors import FileError, InputError
from clipper.files import checked_path, make_folder, written_whole

METADATA = b"clipper.labels"
"""Key of the schema metadata that hold the verdict, the questions and the job, as JSON."""
FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
"""The format of a file of labels, by the ending of its name."""
_LONG = ("sample", "slot", "label")
_MOST = 10**9
"""Largest number of instances in a file."""


def write_labels(table: pa.Table, path: str | Path, *, replace: bool = False, kind: str | None = None) -> None:
    """Write a table of labels as CSV, Parquet or Arrow. A failed write leaves no partial file.

    Args:
        table: from `Labels.to_arrow`.
        path: the file to write; its folder is created if it is missing.
        replace: whether to overwrite an existing file.
        kind: the format: "csv", "parquet" or "arrow"; by default the ending of the name decides.

    Raises:
        FileError: if the file exists or cannot be written.
        InputError: if there is no such format.
    """
    place = checked_path(path)
    kind = kind or format_of(place)
    one_of(kind, "the format", ("csv", "parquet", "arrow"))
    if place.is_file() and not replace:
        raise FileError(f"{place} exists and is not overwritten; choose another name, or pass replace=True")
    make_folder(place.parent)
    try:
        with written_whole(place, replace=replace) as temporary:
            if kind == "csv":
                _write_csv(table, temporary)
            elif kind == "parquet":
                pa.parquet.write_table(table, temporary, write_page_checksum=True)
            else:
                with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)
    except FileError:
        raise
    except (OSError, ValueError) as error:  # a full disk, a name too long
        raise FileError(f"cannot write {place}: {error}; choose another place") from error


def read_labels(path: str | Path) -> tuple[pa.Table, dict[str, Any]]:
    """The table in a Parquet or Arrow file of labels, and its metadata as a dictionary.

    Args:
        path: a file that `clipper label` or `Labels.write` wrote.

    Raises:
        FileError: if the file is missing or damaged, or contains no labels.
        InputError: if it is CSV, which has no metadata.
    """
    place = checked_path(path)
    if (kind := format_of(place)) == "csv":
        raise InputError(
            f"expected labels in .parquet or .arrow, which store where they come from, got {place.name!r}; "
            "run clipper label again with -o labels.parquet"
        )
    if not place.is_file():
        raise FileError(f"cannot read the labels {place}: there is no file; check the path")
    try:
        if kind == "parquet":
            table = pa.parquet.read_table(place)
        else:
            with pa.OSFile(str(place)) as source:
                table = pa.ipc.open_file(source).read_all()
        return table, json.loads((table.schema.metadata or {})[METADATA])
    except KeyError as error:
        raise FileError(f"{place} holds no labels of clipper label; check the path") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FileError(f"{place} cannot be read ({error}); it may be damaged: write it again") from error


def read_label_tensor(path: str | Path) -> Tensor:
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


def format_of(path: Path) -> str:
    """The format of a file of labels by the ending of its name: "csv", "parquet" or "arrow".

    Raises:
        InputError: if the name has another ending.
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"expected a name that ends in .csv, .parquet or .arrow for the labels, got {path.name!r}")
    return kind


def _write_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV: floats with six digits, quotes only around text that needs them."""
    columns = [
        [f"{value:.6g}" for value in column.to_pylist()] if pa.types.is_floating(column.type) else column.to_pylist()
        for column in table.columns
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*columns, strict=True))


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
