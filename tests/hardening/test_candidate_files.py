"""Parquet files of candidates: damaged, odd or from elsewhere; and places that cannot be written to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from clipper import Candidates
from clipper.errors import ClipperError, FileError, InputError
from tests.hardening.attack import (
    EFFORT,
    Clippers,
    answered,
    check_all_answer,
    damaged,
    files_of_at_most,
    listing,
    refused,
)

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DAMAGED = 250 * EFFORT
PRUNED = 30 * EFFORT
"""Damaged files given to a command, which takes a hundred times as long as reading one."""


def same(some: Candidates, others: Candidates) -> bool:
    return (
        torch.equal(some.labels, others.labels)
        and torch.equal(some.offsets, others.offsets)
        and some.kinds == others.kinds
    )


def written(folder: Path, columns: dict[str, Any], metadata: dict[str, Any] | None = None, **options: Any) -> Path:
    path = folder / "candidates.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, **options)
    return path


@pytest.mark.parametrize("big", [False, True])
def test_damaged_files_are_refused_or_hold_what_was_written(tmp_path: Path, big: bool) -> None:
    classes = {"name": 300, "rel": 4} if big else 10
    one = Candidates.from_rule(sum, list(range(19)) * (20 if big else 1), 2, 10)
    candidates = Candidates.from_tensors(one.labels, one.sample, classes)
    candidates.write(tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    path, refusals = tmp_path / "damaged.parquet", 0
    for i, broken in enumerate(damaged(content, DAMAGED, seed=1 + big)):
        path.write_bytes(broken)
        answer = answered(lambda: Candidates.read(path))
        if isinstance(answer, ClipperError):
            refusals += 1
        else:
            assert same(answer, candidates), f"damage no. {i} went unnoticed"
    assert refusals > DAMAGED // 2


def test_clipper_prune_refuses_damaged_files_and_writes_nothing(tmp_path: Path, clippers: Clippers) -> None:
    candidates = Candidates.from_rule(sum, list(range(19)) * 2, 2, 10)
    candidates.write(tmp_path / "whole.parquet")
    np.save(tmp_path / "e.npy", np.random.default_rng(0).normal(size=(38, 2, 4)).astype(np.float32))
    ran = clippers.run("prune", tmp_path / "whole.parquet", tmp_path / "e.npy", "-o", tmp_path / "right.parquet")
    assert ran.code == 0, ran.err
    expected = (tmp_path / "right.parquet").read_bytes()
    path, out, refusals = tmp_path / "damaged.parquet", tmp_path / "out.parquet", 0
    for i, broken in enumerate(damaged((tmp_path / "whole.parquet").read_bytes(), PRUNED, seed=3)):
        path.write_bytes(broken)
        before = listing(tmp_path)
        ran = clippers.run("prune", path, tmp_path / "e.npy", "-o", out)
        if ran.code == 0:
            assert same(Candidates.read(out), Candidates.read(tmp_path / "right.parquet")), f"damage no. {i}"
            out.unlink()
        else:
            refusals += 1
            ran.check_refused()
            assert listing(tmp_path) == before
    assert refusals > PRUNED // 2
    assert (tmp_path / "right.parquet").read_bytes() == expected


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS], ids=str)
def test_whole_numbers_of_every_type_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    first = pa.array([100, 0, None], pa.int64()).cast(kind)
    second = pa.array([1, 2, 0], pa.int64()).cast(kind)
    sample = pa.array([0, 0, 1], pa.int64()).cast(kind)
    table = pa.table({"sample": sample, "slot_0": second, "slot_1": first})
    with pytest.raises(InputError, match="different kinds"):  # unused in one candidate of sample 0 only
        Candidates.from_arrow(table.take([2, 0, 1]).set_column(0, "sample", [sample.take([0, 0, 2])]), 200)
    pq.write_table(table, tmp_path / "c.parquet")
    for candidates in (Candidates.from_arrow(table, 200), Candidates.read(tmp_path / "c.parquet", 200)):
        assert candidates.labels.tolist() == [[1, 100], [2, 0], [0, -1]]
        assert candidates.counts == [2, 1]
    assert "got 100" in str(refused(lambda: Candidates.from_arrow(table, 100)))
    if kind in INTEGERS:
        encoded = table.set_column(2, "slot_1", table["slot_1"].dictionary_encode())
        assert same(Candidates.from_arrow(encoded, 200), candidates)


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_the_largest_number_of_every_type_is_read_or_refused(kind: pa.DataType) -> None:
    unsigned, bits = str(kind).startswith("u"), int(str(kind).lstrip("uint"))
    largest = 2 ** (bits if unsigned else bits - 1) - 1
    table = pa.table({"sample": [0], "slot_0": pa.array([largest], kind)})
    answer = answered(lambda: Candidates.from_arrow(table, min(largest + 1, 2**24)))
    if largest < 2**24:
        assert answer.labels.tolist() == [[largest]]
    else:
        assert isinstance(answer, InputError)
    refused(lambda: Candidates.from_arrow(table, min(largest, 2**24)))
    ids = pa.table({"sample": pa.array([0, largest], kind), "slot_0": [0, 0]})
    refused(lambda: Candidates.from_arrow(ids, 2))


def test_a_column_of_nulls_alone_is_an_unused_slot() -> None:
    for kind in (pa.null(), pa.int8(), pa.uint64(), pa.float64()):
        table = pa.table({"sample": [0, 1], "slot_0": [1, 0], "slot_1": pa.array([None, None], kind)})
        assert Candidates.from_arrow(table, 2).labels.tolist() == [[1, -1], [0, -1]]
        refused(
            lambda table=table: Candidates.from_arrow(
                table.drop_columns("slot_0").rename_columns(["sample", "slot_0"]), 2
            )
        )


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "no sample column": ({"slot_0": [0], "slot_1": [0]}, "sample"),
    "no slots": ({"sample": [0]}, "slot_0"),
    "nothing": ({}, "columns"),
    "pandas' index": ({"sample": [0], "slot_0": [0], "__index_level_0__": [0]}, "index=False"),
    "another column": ({"sample": [0], "slot_0": [0], "label": [0]}, "columns"),
    "a slot left out": ({"sample": [0], "slot_0": [0], "slot_2": [0]}, "columns"),
    "null samples": ({"sample": [0, None], "slot_0": [0, 0]}, "nulls"),
    "nothing but null samples": ({"sample": [None, None], "slot_0": [0, 0]}, "nulls"),
    "NaN samples": ({"sample": [0.0, float("nan")], "slot_0": [0, 0]}, "nulls"),
    "unsorted samples": ({"sample": [1, 0], "slot_0": [0, 0]}, "ascending"),
    "samples that come again": ({"sample": [0, 1, 0], "slot_0": [0, 0, 0]}, "ascending"),
    "samples from 1": ({"sample": [1, 2], "slot_0": [0, 0]}, "sample 0"),
    "a gap": ({"sample": [0, 2], "slot_0": [0, 0]}, "sample 1"),
    "a sample far off": ({"sample": [0, 2**40], "slot_0": [0, 0]}, "sample 1"),
    "negative samples": ({"sample": [-1, 0], "slot_0": [0, 0]}, "negative"),
    "fractions": ({"sample": [0], "slot_0": [0.5]}, "whole numbers"),
    "infinity": ({"sample": [0], "slot_0": [float("inf")]}, "whole numbers"),
    "fractional samples": ({"sample": [0.5], "slot_0": [0]}, "whole numbers"),
    "huge floats": ({"sample": [0], "slot_0": [1e300]}, "whole numbers"),
    "strings": ({"sample": [0], "slot_0": ["0"]}, "whole numbers"),
    "bools": ({"sample": [0], "slot_0": [True]}, "whole numbers"),
    "dates": ({"sample": [0], "slot_0": pa.array([0], pa.timestamp("s"))}, "whole numbers"),
    "decimals": ({"sample": [0], "slot_0": pa.array([0], pa.decimal128(5, 1))}, "whole numbers"),
    "dictionaries of text": ({"sample": [0], "slot_0": pa.array(["0"]).dictionary_encode()}, "whole numbers"),
    "lists": ({"sample": [0], "slot_0": [[0]]}, "whole numbers"),
    "records": ({"sample": [0], "slot_0": [{"a": 0}]}, "whole numbers"),
    "bytes": ({"sample": [0], "slot_0": [b"0"]}, "whole numbers"),
    "too large a label": ({"sample": [0], "slot_0": [3]}, "got 3"),
    "too small a label": ({"sample": [0], "slot_0": [-2]}, "got -2"),
    "no used slot": ({"sample": [0], "slot_0": pa.array([None], pa.int8())}, "used slot"),
    "no rows": ({"sample": pa.array([], pa.int64()), "slot_0": pa.array([], pa.int64())}, "candidates"),
}


ON_THE_COMMAND_LINE = ["no sample column", "null samples", "samples that come again", "dates", "no rows"]
"""The cases that `make test` tries there, too."""


@pytest.mark.parametrize("case", ODD)
def test_odd_tables_are_refused_by_name(case: str, tmp_path: Path, clippers: Clippers) -> None:
    columns, message = ODD[case]
    error = refused(lambda: Candidates.from_arrow(pa.table(columns), 3))
    assert message in str(error)
    path = written(tmp_path, columns)
    assert message in str(refused(lambda: Candidates.read(path, 3)))
    if EFFORT == 1 and case not in ON_THE_COMMAND_LINE:
        return
    np.save(tmp_path / "e.npy", np.zeros((2, 1, 3), np.float32))
    before = listing(tmp_path)
    ran = clippers.run("prune", path, tmp_path / "e.npy", "-o", tmp_path / "o.parquet", "--classes", 3)
    ran.check_refused()
    assert listing(tmp_path) == before


METADATA: list[bytes | str] = [
    b"", b"{", b"null", b"3", b"[]", b"{}", b'"classes"', b'{"classes": null}', b'{"classes": 3}', b'{"classes": []}',
    b'{"classes": {}}', b'{"classes": {"a": 0}}', b'{"classes": {"a": -1}}', b'{"classes": {"a": 2.5}}',
    b'{"classes": {"a": "3"}}', b'{"classes": {"a": true}}', b'{"classes": {"a": 1e400}}', b'{"classes": {"a": NaN}}',
    b'{"classes": {"a": 9999999999999}}', b'{"classes": {"a": 3}, "check": 5}', b'{"classes": {"a": 3}, "check": "x"}',
    b"\xff\xfe\x00", b"[" * 100_000, b'{"classes": ' + b"[" * 100_000, '{"classes": {"a": 3', b'{"classes": {"a": 3}}}',
]  # fmt: skip


def test_odd_metadata_is_refused_and_classes_help(tmp_path: Path) -> None:
    columns = {"sample": [0, 1], "slot_0": [1, 2]}
    for stored in METADATA:
        path = written(tmp_path, columns, {"clipper": stored})
        refused(lambda path=path: Candidates.read(path))
        assert Candidates.read(path, 3).labels.tolist() == [[1], [2]]
    path = written(tmp_path, columns, {"clipper": json.dumps({"classes": {"a": 3}})})
    assert Candidates.read(path).classes == 3  # as files were written before
    refused(lambda: Candidates.read(written(tmp_path, columns)))


def test_what_is_no_parquet_file_is_refused(tmp_path: Path, clippers: Clippers) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("sample,slot_0\n0,1\n")
    (tmp_path / "magic").write_bytes(b"PAR1PAR1")
    (tmp_path / "longer").write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    names = ["empty", "text", "magic", "longer", "folder", "pipe", "nowhere", "missing", "a" * 300, "empty/below"]
    for name in names:
        assert isinstance(refused(lambda name=name: Candidates.read(tmp_path / name, 3)), FileError)
    for name in ("empty", "longer", "folder", "pipe"):
        clippers.run("prune", tmp_path / name, tmp_path / "e.npy", "-o", tmp_path / "o.parquet").check_refused()
    calls = [
        (str(wrong), lambda wrong=wrong: Candidates.read(wrong))
        for wrong in (None, 3, b"x", "", "a\0b", [], {}, 1.5, object())
    ]
    assert check_all_answer(calls) == (0, len(calls))
    tables = [
        (str(wrong), lambda wrong=wrong: Candidates.from_arrow(wrong))
        for wrong in (None, 3, {}, [], "x", pa.array([1]))
    ]
    assert check_all_answer(tables) == (0, len(tables))


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_row_groups_may_end_within_a_sample(tmp_path: Path, clippers: Clippers, rows: int) -> None:
    candidates = Candidates.from_rule(sum, [8, 3, 16, 0, 9], 2, 10)
    path = tmp_path / "c.parquet"
    pq.write_table(candidates.to_arrow(), path, row_group_size=rows)
    assert same(Candidates.read(path), candidates)
    np.save(tmp_path / "e.npy", np.random.default_rng(1).normal(size=(5, 2, 3)).astype(np.float32))
    kept = []
    for source in (path, tmp_path / "whole.parquet"):
        if source != path:
            candidates.write(source)
        out = tmp_path / f"kept-{source.name}"
        assert clippers.run("prune", source, tmp_path / "e.npy", "-o", out).code == 0
        kept.append(Candidates.read(out))
    assert same(*kept)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    candidates = Candidates.from_rule(sum, list(range(19)) * 50, 2, 10)
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken.parquet").write_bytes(b"precious")
    before = listing(tmp_path)
    places: list[Any] = [
        tmp_path / "folder", tmp_path / "taken.parquet", tmp_path / ("a" * 300), tmp_path / "no" / "such" / "c.parquet",
        tmp_path / "taken.parquet" / "c.parquet", "/proc/c.parquet", None, 3, "", "a\0b", b"x", [],
    ]  # fmt: skip
    for place in places:
        refused(lambda place=place: candidates.write(place))
        assert listing(tmp_path) == before
    for size in (0, 100, 1000):
        with files_of_at_most(size):
            assert isinstance(refused(lambda: candidates.write(tmp_path / "full.parquet")), FileError)
        assert listing(tmp_path) == before
    candidates.write(tmp_path / "fits.parquet")
    assert same(Candidates.read(tmp_path / "fits.parquet"), candidates)


@pytest.mark.parametrize("seed", range(10 * EFFORT))
def test_what_is_written_is_read_again(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = int(rng.choice([1, 2, 127, 128, 129, 300, 32_767, 32_768, 70_000]))
    rows = [
        [tuple(int(v) for v in rng.integers(0, classes, width)) for _ in range(rng.integers(1, 5))]
        for width in rng.integers(1, 4, size=rng.integers(1, 6))
    ]
    candidates = Candidates.from_lists(rows, {"some": classes, "others": 3})
    candidates.write(tmp_path / "c.parquet")
    assert same(Candidates.read(tmp_path / "c.parquet"), candidates)
    assert same(Candidates.from_arrow(candidates.to_arrow()), candidates)
