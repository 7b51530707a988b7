"""Candidates on disk: whole, or not at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings

from clipper import Candidates, ClipperError
from clipper.candidates.storage import file_slices, stream, to_arrow
from clipper.files import written_whole
from tests.oracles import Problem
from tests.strategies import KINDS, problems


def same(a: Candidates, b: Candidates) -> bool:
    return torch.equal(a.labels, b.labels) and torch.equal(a.offsets, b.offsets) and a.kinds == b.kinds


@settings(max_examples=100)
@given(problem=problems(kinds=True))
def test_arrow_and_back_is_the_same(problem: Problem) -> None:
    candidates = Candidates.from_lists(problem.samples, classes=KINDS)
    assert same(Candidates.from_arrow(candidates.to_arrow()), candidates)


def test_a_data_frame_and_back_is_the_same_but_for_the_classes() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed (extra pandas)")
    scenes = Candidates.from_lists([[(0, 3), (1, 4)], [(2,)], [(1, 4)]], classes={"name": 3, "rel": 2})
    frame = scenes.to_arrow().to_pandas()
    with pytest.raises(ClipperError, match=r"classes=.*kind"):
        Candidates.from_arrow(frame)
    assert same(Candidates.from_arrow(frame, classes={"name": 3, "rel": 2}), scenes)
    fewer = Candidates.from_arrow(frame[frame.slot_0 != 0], classes={"name": 3, "rel": 2})
    assert fewer.labels.tolist() == [[1, 4], [2, -1], [1, 4]]
    frame["words"] = "some"
    with pytest.raises(ClipperError, match="slot_0, slot_1"):
        Candidates.from_arrow(frame, classes=5)
    with pytest.raises(ClipperError, match="Arrow table"):
        Candidates.from_arrow({"sample": [0]}, classes=5)
    mixed = pandas.DataFrame({"sample": [0, 0], "slot_0": [1, {2}]})
    with pytest.raises(ClipperError, match="Arrow cannot hold"):
        Candidates.from_arrow(mixed, classes=5)


@settings(max_examples=20)
@given(problem=problems(kinds=True))
def test_facts_are_what_a_logic_program_reads(problem: Problem) -> None:
    clingo = pytest.importorskip("clingo", reason="clingo is not installed (extra logic)")
    candidates = Candidates.from_lists(problem.samples, classes=KINDS)
    control = clingo.Control(["--warn=none"])
    control.add("base", [], candidates.facts("kept"))
    control.ground([("base", [])])
    read = {tuple(argument.number for argument in atom.symbol.arguments) for atom in control.symbolic_atoms}
    longest = candidates.slots
    assert read == {(i, *row, *[-1] * (longest - len(row))) for i, rows in enumerate(problem.samples) for row in rows}
    written = candidates.facts("kept", "scallop")
    assert written.startswith("rel kept = {")
    assert set(ast.literal_eval(written.removeprefix("rel kept = "))) == read


@pytest.mark.parametrize("name", ["Kept", "", "_kept", "kept one", "behalten.", 3])
def test_a_predicate_that_no_logic_program_would_read_is_refused(name: object) -> None:
    with pytest.raises(ClipperError, match="predicate"):
        Candidates.from_lists([[(0,)]], classes=2).facts(name)  # type: ignore[arg-type]
    with pytest.raises(ClipperError, match="prolog"):
        Candidates.from_lists([[(0,)]], classes=2).facts("kept", "datalog")  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 3, 7, 1000])
def test_a_stream_of_pieces_holds_whole_samples(tmp_path: Path, rows: int) -> None:
    candidates = Candidates.from_rule(sum, targets=[3, 0, 9, 4, 18], slots=2, classes=10)
    candidates.write(tmp_path / "c.parquet")
    seen = 0
    for first, piece in stream(tmp_path / "c.parquet", rows=rows):
        assert first == seen
        assert same(piece, candidates.span(first, first + piece.samples))
        seen += piece.samples
    assert seen == candidates.samples


def test_a_file_from_elsewhere_needs_the_number_of_classes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sample": [0, 0, 1], "slot_0": [1, 2, None]}), tmp_path / "c.parquet")
    with pytest.raises(ClipperError, match="classes"):
        Candidates.read(tmp_path / "c.parquet")
    pq.write_table(pa.table({"sample": [0, 0, 1], "slot_0": [1, 2, 0]}), tmp_path / "d.parquet")
    assert Candidates.read(tmp_path / "d.parquet", classes=3).counts == [2, 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sample": [0], "label": [1]}, "slot_0"),
        ({"sample": [0], "slot_0": [1.5]}, "whole numbers"),
        ({"sample": [None], "slot_0": [1]}, "whole numbers|nulls"),
        ({"sample": [0, 2], "slot_0": [1, 1]}, "sample 1"),
    ],
)
def test_wrong_columns_are_named(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    with pytest.raises(ClipperError, match=message):
        Candidates.read(tmp_path / "c.parquet", classes=3)


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    Candidates.from_rule(sum, [9] * 100, 2, 10).write(tmp_path / "c.parquet")
    content = (tmp_path / "c.parquet").read_bytes()
    (tmp_path / "half.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(ClipperError, match="half-written"):
        Candidates.read(tmp_path / "half.parquet")
    with pytest.raises(ClipperError, match="does not exist"):
        Candidates.read(tmp_path / "none.parquet")


def test_nothing_is_written_over_and_nothing_half_is_left(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(ClipperError, match="not written over"), written_whole(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "old"
    with pytest.raises(OSError, match="none"), written_whole(tmp_path / "fails.txt") as temporary:
        temporary.write_bytes((tmp_path / "none").read_bytes())
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("rows", [1, 7, 50, 1 << 20])
@pytest.mark.parametrize("group", [1, 10, 64, 1000])
def test_slices_of_files_are_the_pieces_of_a_stream(rows: int, group: int, tmp_path: Path) -> None:
    lengths = [1, 3, 9, 1, 30, 2, 2, 17, 5, 40]
    whole = Candidates.from_lists([[(i % 50, 49 - i % 50) for i in range(n)] for n in lengths], classes=50)
    for number, (first, last) in enumerate([(0, 4), (4, 5), (5, 10)]):
        table = to_arrow(whole.span(first, last), first_sample=first)
        pq.write_table(table, tmp_path / f"part-{number}.parquet", row_group_size=group)
    streamed = list(stream(tmp_path, None, rows))
    found = file_slices(tmp_path, None, rows)
    assert [part.first for part in found] == [first for first, _ in streamed]
    for part, (_, piece) in zip(found, streamed, strict=True):
        assert same(part.read(), piece)
        assert (part.samples, part.rows) == (piece.samples, len(piece))
    assert same(Candidates.read(tmp_path), whole)


def test_a_folder_of_shards_is_checked_as_one_file_is(tmp_path: Path) -> None:
    with pytest.raises(ClipperError, match=r"got none whose name ends in \.parquet"):
        file_slices(tmp_path)
    Candidates.from_lists([[(0,), (1,)]], classes=2).write(tmp_path / "a.parquet")
    Candidates.from_lists([[(0,), (1,)]], classes=2).write(tmp_path / "b.parquet")
    for read in (file_slices, lambda path: list(stream(path)), Candidates.read):
        with pytest.raises(ClipperError, match="sample"):  # the second file begins with sample 0 again
            read(tmp_path)
    table = to_arrow(Candidates.from_lists([[(0,), (2,)]], classes=3), first_sample=1)
    pq.write_table(table, tmp_path / "b.parquet")
    for read in (file_slices, lambda path: list(stream(path))):
        with pytest.raises(ClipperError, match="classes"):
            read(tmp_path)
