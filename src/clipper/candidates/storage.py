"""Candidates on disk: Parquet files with one row per candidate, read whole or sample by sample.

Columns: `sample`, then `slot_0` … `slot_{m-1}`, null where a slot is unused. The kinds of label travel in the
schema's metadata, so a file tells everything about itself; files from elsewhere need `classes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.table import Candidates
from clipper.errors import FileError, InputError
from clipper.files import written_whole

_KEY = b"clipper"
ROWS = 1 << 20
"""Candidates per row group, and per piece when a file is streamed."""


def to_arrow(candidates: Candidates, first_sample: int = 0) -> pa.Table:
    """One row per candidate; `first_sample` is added to the sample ids."""
    columns = {"sample": pa.array((candidates.sample + first_sample).cpu().numpy())}
    for slot, column in enumerate(candidates.labels.cpu().unbind(1)):
        columns[f"slot_{slot}"] = pa.array(column.numpy(), mask=(column < 0).numpy())
    classes = {kind.name: kind.stop - kind.start for kind in candidates.kinds}
    return pa.table(columns).replace_schema_metadata({_KEY: json.dumps({"classes": classes})})


def from_arrow(table: pa.Table, classes: Classes | None = None) -> Candidates:
    """Check and pack an Arrow table."""
    labels, sample = _tensors(table)
    return Candidates.from_tensors(labels, sample, classes_in(table.schema, classes))


def write_candidates(candidates: Candidates, path: str | Path, *, replace: bool = False) -> None:
    """Write a Parquet file, whole or not at all."""
    with written_whole(path, replace=replace) as temporary:
        pq.write_table(to_arrow(candidates), temporary, row_group_size=ROWS)


def read_candidates(path: str | Path, classes: Classes | None = None) -> Candidates:
    """Read a Parquet file of candidates."""
    with open_parquet(path) as file:
        return from_arrow(file.read(), classes)


def open_parquet(path: str | Path) -> pq.ParquetFile:
    """Open a Parquet file, or say what is wrong with it."""
    if not Path(path).is_file():
        raise FileError(f"{path} is not there; expected a Parquet file")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise FileError(
            f"{path} cannot be read as Parquet ({error}); it may be half-written or of another format: "
            "write it again with Candidates.write or any Parquet writer"
        ) from error


def stream(path: str | Path, classes: Classes | None = None, rows: int = ROWS) -> Iterator[tuple[int, Candidates]]:
    """Whole samples, about `rows` candidates at a time, each with the id of its first sample."""
    with open_parquet(path) as file:
        sizes = classes_in(file.schema_arrow, classes)
        held: pa.Table | None = None  # the last sample of a piece may go on in the next one
        done = 0
        for batch in file.iter_batches(batch_size=rows):
            table = pa.table(batch) if held is None else pa.concat_tables([held, pa.table(batch)])
            sample = table["sample"].to_numpy()
            cut = int(np.searchsorted(sample, sample[-1]))
            held = table.slice(cut)
            if cut:
                piece = _piece(table.slice(0, cut), sizes, done)
                yield done, piece
                done += piece.samples
        if held is None:
            raise InputError(f"{path} holds no candidates")
        yield done, _piece(held, sizes, done)


def _piece(table: pa.Table, classes: Classes, first_sample: int) -> Candidates:
    labels, sample = _tensors(table)
    if int(sample[0]) != first_sample:
        raise InputError(
            f"expected sample {first_sample} next, got {int(sample[0])}: sample ids must ascend from 0 without gaps "
            "(a sample without candidates cannot be learned from: leave it out and number the rest anew)"
        )
    return Candidates.from_tensors(labels, sample - first_sample, classes)


def classes_in(schema: pa.Schema, given: Classes | None) -> Classes:
    """The kinds of label: as given, or as the file's metadata tells."""
    if given is not None:
        return given
    stored = (schema.metadata or {}).get(_KEY)
    if stored is None:
        raise InputError("this file does not say how many classes there are: pass classes= (--classes)")
    classes: dict[str, int] = json.loads(stored)["classes"]
    kinds_of(classes)
    return classes


def _tensors(table: pa.Table) -> tuple[Tensor, Tensor]:
    """`labels (Ω, m)` and `sample (Ω,)`."""
    slots = [f"slot_{i}" for i in range(table.num_columns - 1)]
    if not slots or set(table.column_names) != {"sample", *slots}:
        raise InputError(f"expected the columns sample, slot_0, slot_1, …, got {table.column_names}")
    if table["sample"].null_count:
        raise InputError("expected a sample id in every row, got nulls")
    labels = [torch.from_numpy(_whole(table, slot)) for slot in slots]
    return torch.stack(labels, dim=1), torch.from_numpy(_whole(table, "sample").astype(np.int64))


def _whole(table: pa.Table, name: str) -> np.ndarray:
    column = table[name]
    if not pa.types.is_integer(column.type):
        raise InputError(f"expected whole numbers in column {name!r}, got {column.type}")
    filled: np.ndarray = column.combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)
    return filled.copy()
