"""`clipper label` from files to labels, as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from clipper import Candidates, label
from clipper.cli.app import app
from clipper.cli.console import output
from clipper.cli.console import table as console_table
from clipper.errors import ClipperError, FileError, InputError
from clipper.labelling.images import ImageFiles
from clipper.labelling.label import meaning_of
from clipper.labelling.label_files import read_labels
from clipper.labelling.label_job import LabelJob, LabelPool, label_files
from clipper.proximity import Outlines, embed
from clipper.report.label_page import write_label_page
from tests.labelling.pools import digits, write_receipts
from tests.launch import COMMAND, clipper


@pytest.fixture
def receipts(tmp_path: Path) -> tuple[LabelJob, torch.Tensor, torch.Tensor]:
    images, gold = digits(40, 3)
    path = write_receipts(tmp_path, images, gold.sum(1).tolist(), id=[f"r{i}" for i in range(40)])
    return LabelJob(path, tmp_path / "labels.csv", rule="sum", classes=10, images=tmp_path / "scans"), images, gold


@pytest.mark.slow
def test_files_and_python_give_the_same_labels(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    job, images, gold = receipts
    page = tmp_path / "labels.html"
    run = clipper(
        "label", job.samples, "--rule", "sum", "--classes", 10, "--images", job.images, "-o", job.output,
        "--report", page, "--json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    expected = label(images, Candidates.from_rule(sum, gold.sum(1), slots=3, classes=10))
    with job.output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "sample", "id", "slot", "input", "label", "probability", "second", "suspicion", "status",
    ]  # fmt: skip
    assert [int(row["label"]) for row in rows] == expected.posterior.labels.flatten().tolist()
    assert [row["input"] for row in rows[:3]] == ["000a.png", "000b.png", "000c.png"]
    assert rows[3]["id"] == "r1"
    assert np.allclose(
        [float(row["probability"]) for row in rows], expected.to_arrow()["probability"].to_numpy(), atol=1e-5
    )
    summary = json.loads(run.stdout)
    assert summary["verdict"] == expected.verdict
    assert summary["namings"] == len(expected.posterior.namings)
    assert summary["verification"]["explained"] == pytest.approx(expected.posterior.verification.explained)
    assert summary["labels"] == 120
    text = page.read_text(encoding="utf-8")
    assert expected.verdict in text
    assert "data:image/png;base64" in text
    assert "<script" not in text
    again = clipper("label", job.samples, "--rule", "sum", "--classes", 10, "-o", job.output)
    assert again.returncode == 1
    assert "--replace" in again.stderr


@pytest.mark.slow
def test_candidates_and_embeddings_are_enough(tmp_path: Path) -> None:
    images, gold = digits(30, 2)
    candidates = Candidates.from_rule(sum, gold.sum(1), slots=2, classes=10)
    embeddings = embed(Outlines(), images.float() / 255)
    candidates.write(tmp_path / "candidates.parquet")
    np.save(tmp_path / "embeddings.npy", embeddings.numpy())
    out = tmp_path / "labels.parquet"
    run = clipper("label", tmp_path / "candidates.parquet", tmp_path / "embeddings.npy", "-o", out)
    assert run.returncode == 0, run.stderr
    table, metadata = read_labels(out)
    expected = label(embeddings, candidates)
    assert table["label"].to_pylist() == expected.posterior.labels.flatten().tolist()
    assert metadata["job"]["embeddings"] == "embeddings.npy"


def test_slots_may_be_rows_of_embeddings(tmp_path: Path) -> None:
    images, gold = digits(30, 2)
    embeddings = embed(Outlines(), images.float() / 255)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    np.save(tmp_path / "e.npy", embeddings.flatten(0, 1)[order].numpy())
    place = order.argsort().view(30, 2)
    text = "x,y,target\n" + "".join(
        f"{a},{b},{t}\n" for (a, b), t in zip(place.tolist(), gold.sum(1).tolist(), strict=True)
    )
    (tmp_path / "s.csv").write_text(text)
    job = LabelJob(tmp_path / "s.csv", tmp_path / "o.csv", tmp_path / "e.npy", "sum", classes=10)
    expected = label(embeddings, Candidates.from_rule(sum, gold.sum(1), slots=2, classes=10))
    assert torch.equal(label_files(job).posterior.labels, expected.posterior.labels)


def test_a_table_may_be_parquet_or_a_spreadsheets_csv(receipts: tuple[LabelJob, torch.Tensor, torch.Tensor]) -> None:
    job, *_ = receipts
    with job.samples.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    other = job.samples.with_suffix(".parquet")
    pq.write_table(pa.table({**columns, "target": [float(text) for text in columns["target"]]}), other)
    semicolons = job.samples.with_name("german.csv")
    lines = [";".join(row.values()) for row in rows]
    semicolons.write_text("\ufeff" + ";".join(columns) + "\r\n" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    first = LabelPool.read(job)
    for path in (other, semicolons):
        again = LabelPool.read(replace(job, samples=path))
        assert again.targets == first.targets
        assert torch.equal(again.candidates.to_candidates().labels, first.candidates.to_candidates().labels)


def test_samples_may_leave_their_last_slots_empty(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "i.png")
    (tmp_path / "s.csv").write_text("a,b,target,known_a\ni.png,,3,3\ni.png,i.png,2,\n")
    pool = LabelPool.read(LabelJob(tmp_path / "s.csv", tmp_path / "o.csv", rule="sum", classes=10))
    assert pool.candidates.lengths.tolist() == [1, 2]
    assert pool.known.tolist() == [[3, -1], [-1, -1]]
    assert pool.place.tolist() == [[0, -1], [0, 0]]


def test_a_function_in_a_file_is_a_rule(receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path) -> None:
    job, _, gold = receipts
    (tmp_path / "mine.py").write_text("def parity(labels):\n    return sum(labels) % 2\n")
    lines = [
        "a,b,c,target",
        *(f"{i:03d}a.png,{i:03d}b.png,{i:03d}c.png,{int(t) % 2}" for i, t in enumerate(gold.sum(1))),
    ]
    job.samples.write_text("\n".join(lines))
    pool = LabelPool.read(replace(job, rule=f"{tmp_path / 'mine.py'}:parity"))
    expected = Candidates.from_rule(lambda labels: sum(labels) % 2, gold.sum(1) % 2, slots=3, classes=10)
    assert pool.candidates.counts == expected.counts


def test_a_rule_in_a_file_that_is_no_python_is_refused_with_its_line(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    (tmp_path / "syntax.py").write_text("# my rule\ndef f(labels)\n    return sum(labels)\n")
    with pytest.raises(InputError, match=r"line 2 of .*syntax\.py is no valid Python"):
        LabelPool.read(replace(receipts[0], rule=f"{tmp_path / 'syntax.py'}:f"))


def test_a_rule_in_a_file_takes_one_tuple(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("def two(a, b):\n    return a + b\n")
    with pytest.raises(InputError, match=r"write def rule\(labels\)"):
        LabelPool.read(replace(receipts[0], rule=f"{tmp_path / 'mine.py'}:two"))


def test_a_table_that_is_not_utf_8_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "receipts.csv").write_bytes("größe,target\ni.png,3\n".encode("latin-1"))
    with pytest.raises(FileError, match=r"receipts\.csv is no text in UTF-8.*; save it as UTF-8"):
        LabelPool.read(LabelJob(tmp_path / "receipts.csv", tmp_path / "o.csv", rule="sum", classes=10))


def test_a_logic_program_is_a_rule(tmp_path: Path) -> None:
    pytest.importorskip("clingo")
    np.save(tmp_path / "e.npy", np.zeros((4, 3), np.float32))
    (tmp_path / "t.lp").write_text("total(S) :- S = #sum { D,X : label(X, D) }.")
    (tmp_path / "s.csv").write_text("a,b,target\n0,1,total(8)\n2,3,total(2)\n")
    job = LabelJob(tmp_path / "s.csv", tmp_path / "o.csv", tmp_path / "e.npy", program=tmp_path / "t.lp", classes=10)
    assert LabelPool.read(job).candidates.counts == [9, 3]


def test_answers_of_a_review_are_known_labels(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    job, *_ = receipts
    known = tmp_path / "answers.csv"
    known.write_text("sample,slot,label\n3,b,7\n3,1,4\n0,c,\n5,,wrong target\n6,,wrong target\n6,,\n")
    pool = LabelPool.read(replace(job, known=known))
    assert (pool.known >= 0).nonzero().tolist() == [[3, 1]]
    assert pool.known[3, 1] == 4
    assert pool.wrong_targets.nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("sample", [0, 1, 29])
def test_a_sample_whose_target_is_known_to_be_wrong_keeps_its_rows(tmp_path: Path, ragged: bool, sample: int) -> None:
    generator = np.random.default_rng(0)
    gold = generator.integers(0, 3, (30, 3))
    vectors = 4 * np.eye(3)[gold.flatten()] + 0.1 * generator.normal(size=(90, 3))
    np.save(tmp_path / "e.npy", vectors.astype(np.float32))
    used = [2 if ragged and i % 2 == 0 else 3 for i in range(30)]
    lines = [
        ",".join([*(str(3 * i + j) if j < m else "" for j in range(3)), str(gold[i, :m].sum())])
        for i, m in enumerate(used)
    ]
    (tmp_path / "s.csv").write_text("\n".join(["a,b,c,target", *lines]))
    (tmp_path / "known.csv").write_text(f"sample,slot,label\n{sample},,wrong target\n")
    app(
        ["label", str(tmp_path / "s.csv"), "--rule", "sum", "--classes", "3", "--embeddings", str(tmp_path / "e.npy"),
         "--known", str(tmp_path / "known.csv"), "-o", str(tmp_path / "o.csv")],
        standalone_mode=False,
    )  # fmt: skip
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [sum(row["sample"] == str(i) for row in rows) for i in range(30)] == used
    assert {row["status"] for row in rows if row["sample"] == str(sample)} == {"wrong target"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": "nothing.csv"}, "there is no file"),
        ({"rule": "summ"}, "rules are sum"),
        ({"rule": "count"}, "count needs a label: count:LABEL, got 'count'"),
        ({"rule": "count:x"}, "count needs a label: count:LABEL, got 'count:x'"),
        ({"rule": "sum:3"}, "sum takes no numbers, got 'sum:3'"),
        ({"rule": "checksum:a"}, r"checksum needs weights.*: checksum:WEIGHT,…\[%MODULUS\]"),
        ({"rule": "mine.py"}, "mine.py needs a function: mine.py:FUNCTION"),
        ({"rule": "mine.py:"}, "mine.py needs a function: mine.py:FUNCTION"),
        ({"rule": None}, "expected either --rule"),
        ({"rule": "none.py:f"}, "cannot be read"),
        ({"classes": None}, "--classes"),
        ({"classes": 0}, "--classes"),
        ({"classes": 1}, "no target"),
        ({"slots": "a,z"}, "column 'z'"),
        ({"slots": "target"}, "'target', which holds no slot"),
        ({"target": "z"}, "expected a column 'z' in .*, what is known of each sample, got the columns"),
        ({"target": "id"}, "'id', which has another meaning"),
        ({"target": "known_a"}, "'known_a', which has another meaning"),
        ({"slots": "a,id"}, "'id', which holds no slot"),
        ({"slots": "a,b,a"}, "each column of slots once in --slots, got 'a' twice"),
        ({"images": "elsewhere"}, r"there is no folder .*elsewhere; check --images"),
        ({"images": "."}, "120 of 120 images.*--images"),
        ({"encoder": "alexnet"}, "pixels, blurred, outlines"),
        ({"wrong": 1.5}, "--wrong"),
        ({"deadline": -1.0}, "--deadline"),
        ({"label_names": "a,b"}, "expected 10 --label-names"),
        ({"label_names": "a,a"}, "different names"),
        ({"output": "labels.xlsx"}, r"\.csv, \.parquet or \.arrow"),
        ({"known": "nothing.csv"}, "known labels.*no file"),
        ({"embeddings": "nothing.npy"}, "nothing.npy"),
    ],
)
def test_wrong_jobs_are_refused_in_words(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], change: dict[str, Any], message: str
) -> None:
    job, *_ = receipts
    paths = ("samples", "images", "output", "known", "embeddings")
    values = {name: job.samples.parent / value if name in paths else value for name, value in change.items()}
    with pytest.raises(ClipperError, match=message):
        LabelPool.read(replace(job, **values))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,target\n", "no rows"),
        ("target\n3\n", "a column for each slot"),
        ("a,b\ni.png,3\n", "column 'target'"),
        ("a,Target\ni.png,3\n", "column 'target'.*; rename 'Target' to 'target' or pass --target Target$"),
        ("a,total\ni.png,3\n", "column 'target'.*; rename 'total' to 'target' or pass --target total$"),
        ("a,my_target\ni.png,3\n", "column 'target'.*; rename 'my_target' to 'target' or pass --target my_target$"),
        ("a,target\ni.png,many\n", r"line 2 of .*whole number.*'many'"),
        ("a,target\ni.png,2.5\n", "whole number"),
        ("a,target\ni.png,\n", "line 2 of .*no target"),
        ("a,target\n,3\n", "line 2 of .*no input"),
        ("a,b,target\n,i.png,3\n", "empty slot before"),
        ("a,target\ni.png,3,4\n", "3 cells, but the header has 2"),
        ("a,a,target\ni.png,i.png,4\n", "occurs twice"),
        ("a,target,known_z\ni.png,3,1\n", "'known_z'.*names no slot"),
        ("a,target,known_a\ni.png,3,11\n", r"line 2 of .*0 … 9.*'11'"),
        ("a,target\nnot-there.png,3\n", r"no .*not-there\.png"),
        ("a,day,target\ni.png,May 3,3\n", "no cell of the column day is a file.*'May 3'.*--slots a$"),
        ("a,b,target\n0,1,3\n2,3,4\n", "expected names of image files.*got numbers such as 0;.*--embeddings"),
        ("a,target\nreceipts.csv,3\n", r"cannot read the image .*receipts\.csv"),
        ("a,target\ni.png,77\n", "no target"),
    ],
)
def test_wrong_tables_are_refused_in_words(tmp_path: Path, text: str, message: str) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "i.png")
    (tmp_path / "receipts.csv").write_text(text)
    with pytest.raises(ClipperError, match=message):
        LabelPool.read(LabelJob(tmp_path / "receipts.csv", tmp_path / "o.csv", rule="sum", classes=10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sample,slot\n0,0\n", "label is missing"),
        ("sample,slot,label\n99,a,3\n", r"line 2 of .*sample of 0 … 39"),
        ("sample,slot,label\n0,z,3\n", "one of a, b, c"),
        ("sample,slot,label\n0,a,10\n", "label of 0 … 9"),
    ],
)
def test_wrong_answers_are_refused_in_words(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path, text: str, message: str
) -> None:
    known = tmp_path / "answers.csv"
    known.write_text(text)
    with pytest.raises(InputError, match=message):
        LabelPool.read(replace(receipts[0], known=known))


def test_an_impossible_target_is_refused_where_targets_are_right(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor],
) -> None:
    job, *_ = receipts
    text = job.samples.read_text().splitlines()
    text[3] = "002a.png,002b.png,002c.png,99,r2"
    job.samples.write_text("\n".join(text))
    with pytest.raises(InputError, match=r"99 in line 4 of .*receipts\.csv.*leave out --wrong 0$"):
        LabelPool.read(replace(job, wrong=0.0))
    assert not bool(LabelPool.read(job).candidates.possible()[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [({"images": Path("nowhere")}, "there is no folder nowhere; check --images"), ({"encoder": "alexnet"}, "pixels")],
)
def test_options_of_images_are_checked_where_embeddings_take_their_place(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    np.save(tmp_path / "e.npy", np.eye(4, dtype=np.float32))
    (tmp_path / "s.csv").write_text("a,b,target\n0,1,3\n2,3,4\n")
    job = LabelJob(tmp_path / "s.csv", tmp_path / "o.csv", tmp_path / "e.npy", "sum", classes=10)
    assert LabelPool.read(replace(job, encoder="resnet18")).candidates.samples == 2  # needs no weights
    with pytest.raises(ClipperError, match=message):
        LabelPool.read(replace(job, **change))


def test_a_folder_is_no_file_to_replace(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="which is a folder; choose another name"):
        app(["label", "s.csv", "--rule", "sum", "--classes", "3", "-o", str(tmp_path)], standalone_mode=False)


def test_a_table_without_heads_has_no_empty_first_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.print(console_table("labels", ["", ""], [["verdict", "joint"]]))
    lines = capsys.readouterr().out.splitlines()
    assert "verdict" in lines[2]
    assert len(lines) == 4  # the title, two lines of the frame, and the row


@pytest.mark.parametrize("change", [{"classes": 5}, {"classes": None, "label_names": "a,b,c,d,e"}])
def test_too_few_classes_for_the_targets_are_an_error_and_no_wrong_targets(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], change: dict[str, Any]
) -> None:
    job, _, gold = receipts
    totals = gold.sum(1)
    first = int((totals > 12).nonzero()[0])
    said = (
        rf"{int((totals > 12).sum())} of 40 targets cannot come from 5 labels by the rule sum, the first is "
        rf"{int(totals[first])} in line {first + 2} of .*receipts\.csv; check --rule and --(classes|label-names)\. .*"
        "--wrong"
    )
    with pytest.raises(InputError, match=said):
        LabelPool.read(replace(job, **change))
    assert LabelPool.read(replace(job, **change, wrong=0.9)).impossible  # who says so may have that many wrong targets


def test_the_column_of_targets_may_have_any_name(receipts: tuple[LabelJob, torch.Tensor, torch.Tensor]) -> None:
    job, *_ = receipts
    expected = LabelPool.read(job)
    job.samples.write_text(job.samples.read_text().replace("target", "total in pounds", 1))
    renamed = replace(job, target="total in pounds")
    found = LabelPool.read(renamed)
    assert found.targets == expected.targets
    assert torch.equal(found.candidates.to_candidates().labels, expected.candidates.to_candidates().labels)
    assert LabelJob.from_dict(renamed.as_dict(), job.output).target == "total in pounds"


def test_with_few_samples_the_first_advice_is_to_add_some() -> None:
    for verdict in ("ambiguous", "unsettled", "uninformative"):
        said = meaning_of(verdict, samples=8)
        assert said.endswith(". 8 samples are seldom enough: add samples first.")
        assert said.split(".")[0] in meaning_of(verdict, samples=200)
    assert meaning_of("joint", samples=8) == meaning_of("joint")


def test_a_cell_that_names_a_folder_is_told_apart_from_a_missing_file(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor],
) -> None:
    job, *_ = receipts
    assert job.images is not None
    (Path(job.images) / "000a.png").unlink()
    (Path(job.images) / "000a.png").mkdir()
    with pytest.raises(FileError, match=r"000a\.png is a folder, but a cell names one image"):
        LabelPool.read(job)


def test_an_ambiguous_result_says_how_many_ways_there_are_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, gold = digits(60, 2)
    candidates = Candidates.from_rule(lambda y: abs(y[0] - y[1]), (gold[:, 0] - gold[:, 1]).abs(), slots=2, classes=10)
    candidates.write(tmp_path / "c.parquet")
    np.save(tmp_path / "e.npy", embed(Outlines(), images.float() / 255).numpy())
    app(["label", str(tmp_path / "c.parquet"), str(tmp_path / "e.npy"), "-o", str(tmp_path / "l.csv")],
        standalone_mode=False)  # fmt: skip
    said = capsys.readouterr().out
    assert "ambiguous" in said
    assert "ways to name them" in said
    assert "write l.parquet with -o, then clipper review" in " ".join(said.split())


def test_a_few_targets_that_no_labels_give_are_a_warning_and_the_first_thing_to_check(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    job, *_ = receipts
    text = job.samples.read_text().splitlines()
    text[3] = "002a.png,002b.png,002c.png,99,r2"
    job.samples.write_text("\n".join(text))
    warning = LabelPool.read(job).impossible
    assert warning == (
        "1 of 40 targets cannot come from 10 labels by the rule sum, the first is 99 in line 4 of "
        f"{job.samples}; check --rule and --classes"
    )
    assert meaning_of("unsettled", warning) == f"Do not rely on the labels: {warning}."
    assert "More time, more samples" in meaning_of("unsettled")
    arguments = ["--rule", "sum", "--classes", "10", "--images", str(job.images), "-o", str(job.output), "--json"]
    app(["label", str(job.samples), *arguments], standalone_mode=False)
    out, err = capsys.readouterr()
    assert f"warning: {warning}" in err
    assert json.loads(out)["labels"] == 120


def test_a_job_survives_its_way_through_a_file(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    job = replace(receipts[0], label_names=",".join("abcdefghij"))
    told = json.loads(json.dumps(job.as_dict()))
    assert told["images"] == "scans"
    again = LabelJob.from_dict(told, job.output)
    assert LabelPool.read(again).targets == LabelPool.read(job).targets
    with pytest.raises(FileError, match="does not say how"):
        LabelJob.from_dict({}, tmp_path / "labels.parquet")


def test_images_of_any_size_and_mode_are_brought_into_one(tmp_path: Path) -> None:
    Image.new("L", (20, 10), 255).save(tmp_path / "a.png")
    Image.new("RGBA", (20, 10), (255, 0, 0, 0)).save(tmp_path / "b.png")
    Image.new("RGB", (40, 40), (0, 0, 255)).save(tmp_path / "c.png")
    files = ImageFiles.open(tmp_path / name for name in ("a.png", "b.png", "c.png", "a.png"))
    assert (len(files.paths), files.height, files.width, files.grey) == (3, 10, 20, False)
    images = files.load([0, 1, 2])
    assert images.shape == (3, 3, 10, 20)
    assert torch.equal(images[1], torch.ones(3, 10, 20))  # what is transparent lies on white
    assert images[2, :, 5, 0].tolist() == [0, 0, 1]  # filled up with its own colour
    deep = np.full((4, 4), 65535, np.uint16)
    Image.fromarray(deep).save(tmp_path / "d.png")
    assert torch.equal(ImageFiles.open([tmp_path / "d.png"]).load([0]), torch.ones(1, 1, 4, 4))


def test_images_that_are_encoded_are_not_encoded_again(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, images, _ = receipts
    monkeypatch.setattr("clipper.labelling.images.BATCH", 16)
    pool = LabelPool.read(job)
    assert pool.images is not None

    def interrupted(done: int, total: int) -> None:
        del total
        if done >= 48:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.images.embeddings(Outlines(), job.output.with_suffix(""), interrupted)
    seen: list[tuple[str, int, int]] = []
    found = pool.embeddings(lambda *told: seen.append(told))
    assert seen[0] == ("encoding images", 48, 120)
    assert torch.allclose(found, embed(Outlines(), images.float() / 255), atol=1e-6)
    (kept,) = job.output.parent.glob("labels.embeddings-*.npy")
    os.utime(pool.images.paths[0])  # another file now, as far as one can tell
    LabelPool.read(job).embeddings()
    (other,) = job.output.parent.glob("labels.embeddings-*.npy")
    assert other != kept


@pytest.mark.slow
def test_an_interrupted_command_leaves_no_labels_and_says_how_to_go_on(tmp_path: Path) -> None:
    images, gold = digits(500, 3)
    path = write_receipts(tmp_path, images, gold.sum(1).tolist())
    out = tmp_path / "labels.csv"
    arguments = ["label", path, "--rule", "sum", "--classes", 10, "--images", tmp_path / "scans", "-o", out]
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell ignores for background jobs
    )  # fmt: skip
    while process.poll() is None and not list(tmp_path.glob("labels.embeddings-*")):
        time.sleep(0.005)
    while process.poll() is None:  # as a person does: again, if nothing happens
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=3)
    assert process.returncode == 130
    assert not out.exists()
    assert list(tmp_path.glob("labels.embeddings-*.npy"))


def test_the_page_names_suspicious_samples_and_what_would_satisfy_them(tmp_path: Path) -> None:
    about = {
        "verdict": "ambiguous", "expected_accuracy": 0.5, "classes": 3, "namings": 2, "questions": [[0, 1, "2"]],
        "suspicious": [{"sample": 0, "target": "2<b>", "labels": [1, 0], "satisfied_by": [[1, 1], [0, 2]]}],
    }  # fmt: skip
    table = pa.table(
        {
            "sample": [0, 0], "slot": [0, 1], "label": [1, 0], "probability": [0.8, 0.99], "second": [0, 1],
            "suspicion": [0.9, 0.9], "status": ["wrong target"] * 2,
        }
    ).replace_schema_metadata({b"clipper.labels": json.dumps(about)})  # fmt: skip
    write_label_page(table, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "2 labels, 50.0 % expected to be right" in text
    assert "1 · 1, or 0 · 2" in text
    assert "2&lt;b&gt;" in text
    assert "ways to name the labels" in text
    assert 'title="sample 0, slot 0: 1 with 80.0 %' in text  # slots count from 0, as in the table
    assert "slot 2" not in text


def test_a_target_that_nothing_satisfies_and_one_that_an_answer_calls_wrong_are_both_wrong_targets(
    receipts: tuple[LabelJob, torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    job, _, gold = receipts
    text = job.samples.read_text().splitlines()
    text[3] = "002a.png,002b.png,002c.png,99,r2"
    job.samples.write_text("\n".join(text))
    (tmp_path / "answers.csv").write_text("sample,slot,label\n5,,wrong target\n")
    labels = label_files(replace(job, known=tmp_path / "answers.csv"))
    assert (labels.posterior.suspicion > 1 / 2).nonzero().flatten().tolist() == [2, 5]
    assert (labels.posterior.labels == gold).float().mean() > 0.9
    table = labels.to_arrow()
    status = table["status"].to_pylist()
    assert status[6:9] == status[15:18] == ["wrong target"] * 3
    first, second = sorted(labels.details["suspicious"], key=lambda own: own["sample"])
    assert (first["target"], first["satisfied_by"]) == ("99", [])
    assert all(sum(way) == int(gold[5].sum()) for way in second["satisfied_by"])
    write_label_page(table, tmp_path / "page.html")
    assert "Nothing would satisfy this target." in (tmp_path / "page.html").read_text(encoding="utf-8")
