"""Candidates on disk: Parquet files with one row per candidate, read whole or sample by sample.

Columns: `sample`, then `slot_0` … `slot_{m-1}`, null where a slot is unused. The kinds of label are stored in the
schema's metadata; files from other programs need `classes`. A folder of such files is read as one set, in the order of
their names. All rows of a sample are in one file, and sample ids continue from file to file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from clipper.arguments import shown
from clipper.candidates.base import check_satisfiable
from clipper.candidates.kinds import Classes, kinds_of, sizes_of
from clipper.candidates.table import Candidates
from clipper.errors import ClipperError, FileError, InputError
from clipper.files import checked_path, written_whole

_KEY = b"clipper"
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
Columns = tuple[Tensor, ...]
PARQUET = (".parquet", ".pq")
"""Endings of the names of Parquet files."""
ROWS = 1 << 20
"""Candidates per row group, and per piece when a file is streamed."""


def to_arrow(candidates: Candidates, first_sample: int = 0) -> pa.Table:
    """An Arrow table with a row for each candidate; `first_sample` is added to the sample ids."""
    check_satisfiable(candidates)  # a sample without rows would be missing when the file is read
    columns = {"sample": pa.array((candidates.sample + first_sample).cpu().numpy())}
    for slot, column in enumerate(candidates.labels.cpu().unbind(1)):
        columns[f"slot_{slot}"] = pa.array(column.numpy(), mask=(column < 0).numpy())
    classes = sizes_of(candidates.kinds)
    metadata = {"classes": classes, "check": _check_sum(classes)}
    return pa.table(columns).replace_schema_metadata({_KEY: json.dumps(metadata)})


def from_arrow(table: Any, classes: Classes | None = None) -> Candidates:
    """Candidates from an Arrow table, or from any object with Arrow's stream interface."""
    if not isinstance(table, pa.Table | pa.RecordBatch) and not hasattr(table, "__arrow_c_stream__"):
        raise InputError(
            f"expected an Arrow table, or a data frame of pandas or polars, got {shown(table)}; of a Hugging Face data "
            'set, pass dataset.with_format("arrow")[:]'
        )
    try:
        table = pa.table(table)
    except Exception as error:  # another library may raise anything here
        raise InputError(f"expected columns of numbers, got a table that Arrow cannot hold: {error}") from error
    labels, sample = _tensors(table)
    return Candidates.from_tensors(labels, sample, classes_in(table.schema, classes))


def write_candidates(candidates: Candidates, path: str | Path) -> None:
    """Write a Parquet file. A failed write leaves no partial file."""
    check_satisfiable(candidates)
    try:
        with written_whole(path) as temporary:
            pq.write_table(to_arrow(candidates), temporary, row_group_size=ROWS, write_page_checksum=True)
    except FileError:
        raise
    except (OSError, ValueError) as error:  # a full disk, a name too long, a read-only folder
        raise FileError(f"cannot write {path}: {error}; choose another place") from error


def read_candidates(path: str | Path, classes: Classes | None = None) -> Candidates:
    """Read a Parquet file of candidates, or a folder of them."""
    if os.path.isdir(checked_path(path)):
        first, pieces = zip(*stream(path, classes), strict=True)
        sample = torch.cat([piece.sample + start for start, piece in zip(first, pieces, strict=True)])
        return Candidates.from_tensors(torch.cat([each.labels for each in pieces]), sample, sizes_of(pieces[0].kinds))
    with open_parquet(path) as file, _damage_named(path):
        return from_arrow(file.read(), classes)


def parquet_files(path: str | Path) -> list[Path]:
    """The path itself if it is a file; the Parquet files in it, sorted by name, if it is a folder."""
    if not os.path.isdir(checked_path(path)):
        return [Path(path)]
    found = sorted(part for part in Path(path).iterdir() if part.suffix.lower() in PARQUET)
    if not found:
        raise FileError(f"expected Parquet files in the folder {path}, got none whose name ends in .parquet")
    return found


def open_parquet(path: str | Path) -> pq.ParquetFile:
    """Open a Parquet file.

    Raises:
        FileError: if it does not exist or cannot be read.
    """
    if not os.path.isfile(checked_path(path)):  # unlike Path.is_file, this does not fail if the name is too long
        raise FileError(f"{path} does not exist, or is not a file; expected a Parquet file")
    with _damage_named(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


@contextmanager
def _damage_named(path: str | Path) -> Iterator[None]:
    """Convert any exception that a reader raises on a damaged file into a `FileError`."""
    try:
        yield
    except ClipperError:
        raise
    except Exception as error:  # Arrow's own errors, invalid UTF-8, sizes beyond the memory
        raise FileError(
            f"{path} cannot be read as Parquet ({error}); it may be half-written, damaged or of another format: "
            "write it again with Candidates.write or any Parquet writer"
        ) from error


def stream(path: str | Path, classes: Classes | None = None, rows: int = ROWS) -> Iterator[tuple[int, Candidates]]:
    """Read whole samples, about `rows` candidates at a time.

    Args:
        path: a file, or a folder of files.
        classes: the number of labels, if the files do not store it.
        rows: the approximate number of candidates to read at a time.

    Yields:
        The id of the first sample, and the candidates.

    Raises:
        FileError: if a file is missing or damaged.
        InputError: if a file contains anything but candidates, or sample ids have gaps.
    """
    done, sizes = 0, None
    for part in parquet_files(path):
        with open_parquet(part) as file:
            sizes = _same(classes_in(file.schema_arrow, classes), sizes, part)
            for labels, sample in _whole_samples(_batches(file, part, rows, _tensors)):
                piece = _piece(labels, sample, sizes, done)
                yield done, piece
                done += piece.samples
    if not done:
        raise InputError(f"{path} holds no candidates")


@dataclass(frozen=True)
class FileSlice:
    """Some whole samples in a file of candidates.

    Attributes:
        path: the file.
        row: the number of their first row in it.
        rows: the number of their candidates.
        first: the id of the first sample.
        samples: the number of samples.
    """

    path: Path
    row: int
    rows: int
    first: int
    samples: int

    def read(self, classes: Classes | None = None) -> Candidates:
        """Read the candidates of these samples, only from the row groups that contain them."""
        with open_parquet(self.path) as file:
            sizes = classes_in(file.schema_arrow, classes)
            groups, before, end = [], 0, 0
            for number in range(file.num_row_groups):
                start, end = end, end + file.metadata.row_group(number).num_rows
                if end <= self.row:
                    before = end
                elif start < self.row + self.rows:
                    groups.append(number)
            parts, place = [], before
            for batch in _batches(file, self.path, ROWS, _tensors, row_groups=groups):
                inside = slice(max(self.row - place, 0), max(self.row + self.rows - place, 0))
                parts.append(tuple(column[inside] for column in batch))
                place += len(batch[-1])
            labels, sample = (torch.cat(column) for column in zip(*parts, strict=True))
            return _piece(labels, sample, sizes, self.first)


def file_slices(path: str | Path, classes: Classes | None = None, rows: int = ROWS) -> list[FileSlice]:
    """The pieces that `stream` would yield. Reads only the column `sample`; arguments as for `stream`."""
    found: list[FileSlice] = []
    done, sizes = 0, None
    for part in parquet_files(path):
        with open_parquet(part) as file:
            _check_columns(file.schema_arrow.names)
            sizes = _same(classes_in(file.schema_arrow, classes), sizes, part)
            row = 0
            for (sample,) in _whole_samples(_batches(file, part, rows, lambda t: (_samples(t),), columns=["sample"])):
                _check_next(int(sample[0]), done)
                samples = int(sample[-1]) + 1 - done
                found.append(FileSlice(part.absolute(), row, len(sample), done, samples))
                row, done = row + len(sample), done + samples
    if not done:
        raise InputError(f"{path} holds no candidates")
    return found


def _whole_samples(parts: Iterable[Columns]) -> Iterator[Columns]:
    """Regroup columns, of which the last is `sample (rows,)`, so that all rows of a sample are in one part."""
    held: Columns | None = None  # the last sample of a part may continue in the next one
    for part in parts:
        columns = part if held is None else tuple(torch.cat(both) for both in zip(held, part, strict=True))
        sample = columns[-1]
        cut = int((sample == sample[-1]).int().argmax())
        held = tuple(column[cut:] for column in columns)
        if cut:
            yield tuple(column[:cut] for column in columns)
    if held is not None:
        yield held


def _batches(
    file: pq.ParquetFile, path: str | Path, rows: int, columns_of: Callable[[pa.Table], Columns], **options: Any
) -> Iterator[Columns]:
    """Columns of a file, some rows at a time."""
    with _damage_named(path):
        for batch in file.iter_batches(batch_size=rows, **options):
            if batch.num_rows:
                yield columns_of(pa.table(batch))


def _same(sizes: Classes, before: Classes | None, path: Path) -> Classes:
    """The classes of a file. Raises an error if an earlier file has other classes."""
    if before is not None and sizes != before:
        raise InputError(f"expected the classes {before} in every file of the folder, got {sizes} in {path}")
    return sizes


def _piece(labels: Tensor, sample: Tensor, classes: Classes, first_sample: int) -> Candidates:
    _check_next(int(sample[0]), first_sample)
    return Candidates.from_tensors(labels, sample - first_sample, classes)


def _check_next(sample: int, expected: int) -> None:
    if sample != expected:
        raise InputError(
            f"expected sample {expected} next, got {sample}: sample ids must ascend from 0 without gaps "
            "(nothing can be learned from a sample without candidates: leave it out and renumber the rest)"
        )


def classes_in(schema: pa.Schema, given: Classes | None) -> Classes:
    """The number of labels of each kind: as given, else from the file's metadata."""
    if given is not None:
        return given
    stored = (schema.metadata or {}).get(_KEY)
    if stored is None:
        raise InputError(
            "expected the number of labels, which this table does not store: pass classes= (--classes), the number of "
            "labels, or a mapping from each kind of label to its number; pandas, polars and Hugging Face data sets "
            "drop this information"
        )
    try:
        metadata = json.loads(stored)
        classes: dict[str, int] = metadata["classes"]
        whole = metadata.get("check", _check_sum(classes)) == _check_sum(classes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        whole = False
    if not whole or not isinstance(classes, dict):
        raise FileError(
            "the metadata of this file about its classes are damaged; pass classes= (--classes) if you know them, "
            "or write it again with Candidates.write"
        )
    kinds_of(classes)
    return classes


def _check_sum(classes: Mapping[str, int]) -> int:
    """A checksum of the metadata, which Parquet's page checksums do not cover."""
    return zlib.crc32(json.dumps(classes).encode())


def _tensors(table: pa.Table) -> tuple[Tensor, Tensor]:
    """`labels (Ω, m)` and `sample (Ω,)`."""
    slots = _check_columns(table.column_names)
    labels = np.stack([whole_column(table, slot)[0] for slot in slots], axis=1)
    return torch.from_numpy(labels), _samples(table)


def _samples(table: pa.Table) -> Tensor:
    """`sample (Ω,)`."""
    sample, missing = whole_column(table, "sample")
    if missing:
        raise InputError("expected a sample id in every row, got nulls")
    return torch.from_numpy(sample.astype(np.int64))


def _check_columns(names: list[str]) -> list[str]:
    """The columns of the slots, if the names are those of candidates."""
    slots = [f"slot_{i}" for i in range(len(names) - 1)]
    if not slots or sorted(names) != sorted(["sample", *slots]):
        index = any(name.startswith("__index_level_") for name in names)
        raise InputError(
            f"expected the columns sample, slot_0, slot_1, … and no others, got {shown(names)}"
            + (
                "; pandas wrote its index as well: drop it, with reset_index(drop=True) or to_parquet(…, index=False)"
                if index
                else ""
            )
        )
    return slots


def whole_column(table: pa.Table, name: str) -> tuple[np.ndarray, int]:
    """A column of whole numbers of a signed type, -1 for nulls, and how many nulls there are."""
    column = table[name]
    if pa.types.is_dictionary(column.type):  # dictionary-encoded numbers
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), -1, np.int8), len(column)
    if pa.types.is_floating(kind):
        return _from_floats(column.to_numpy(), name)
    if not pa.types.is_integer(kind):
        raise InputError(f"expected whole numbers in column {name!r}, got {kind}")
    try:
        signed = column.cast(_SIGNED.get(kind, kind))
    except pa.ArrowInvalid as error:
        raise InputError(f"expected numbers below 2^63 in column {name!r}: {error}") from error
    return signed.fill_null(-1).to_numpy(), column.null_count


def _from_floats(values: np.ndarray, name: str) -> tuple[np.ndarray, int]:
    """Whole numbers that came as floating point, as pandas writes those of a column with gaps."""
    missing = np.isnan(values)
    filled = np.where(missing, -1, values).astype(np.float64)
    if not (np.abs(filled) < 2**53).all() or (filled != np.floor(filled)).any():
        raise InputError(f"expected whole numbers in column {name!r}, got floating point with fractions or too large")
    return filled.astype(np.int64), int(missing.sum())
