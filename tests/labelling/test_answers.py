"""Files of answers and tables are read as they were meant, also where names could be mistaken for numbers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from clipper import Candidates, infer
from clipper.errors import InputError
from clipper.labelling.images import ImageFiles
from clipper.labelling.label_job import LabelJob, LabelPool, label_files
from clipper.labelling.review import Review
from clipper.labelling.sample_table import label_number, mistakable, read_answers
from clipper.proximity import Outlines
from tests.labelling.pools import digits, write_receipts

pytest.importorskip("pyarrow")
DICE = "1,2,3,4,5,6"


def dice(folder: Path, slots: str = "a,b", **options: object) -> tuple[LabelJob, torch.Tensor]:
    """Pairs of dice of which |a − b| is known, as rows of embeddings."""
    gold = torch.randint(0, 6, (120, 2), generator=torch.Generator().manual_seed(0))
    centres = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(120, 2, 8, generator=torch.Generator().manual_seed(2))
    np.save(folder / "e.npy", (centres[gold] + 0.1 * noise).flatten(0, 1).numpy())
    rows = "".join(f"{2 * i},{2 * i + 1},{abs(int(a) - int(b))}\n" for i, (a, b) in enumerate(gold.tolist()))
    (folder / "dice.csv").write_text(f"{slots},target\n{rows}")
    (folder / "rules.py").write_text("def difference(labels):\n    return abs(labels[0] - labels[1])\n")
    job = LabelJob(
        folder / "dice.csv", folder / "labels.parquet", folder / "e.npy", f"{folder / 'rules.py'}:difference",
        classes=6, **options,
    )  # fmt: skip
    return job, gold


@pytest.mark.parametrize(
    ("slots", "names"),
    [
        ("a,b", None),
        ("a,b", DICE),
        ("1,2", None),
        ("2,1", "6,5,4,3,2,1"),
        (
            "a,b",
            'x,"y',
        ),
    ],
)
def test_answers_of_a_review_are_read_as_they_were_given(tmp_path: Path, slots: str, names: str | None) -> None:
    names = 'x,"y,c,d,e,f' if names is not None and names.startswith("x") else names
    job, gold = dice(tmp_path, slots, label_names=names)
    label_files(job).write(job.output)
    review = Review.of(job.output)
    asked = [(0, 0), (0, 1), (3, 1), (7, 0)]
    for sample, slot in asked:
        review.answer(sample, slot, int(gold[sample, slot]))
    review.answer(9, 0, None)
    known = torch.full_like(gold, -1)
    for sample, slot in asked:
        known[sample, slot] = gold[sample, slot]
    again = Review.of(job.output)
    assert torch.equal(again._known, known)
    assert again._wrong.nonzero().flatten().tolist() == [9]
    told = LabelPool.read(replace(job, known=review.answers))
    assert torch.equal(told.known, known)
    assert torch.equal(told.wrong_targets, again._wrong)


def test_labels_of_clipper_are_known_labels_by_number(tmp_path: Path) -> None:
    job, _ = dice(tmp_path, "1,2", label_names="6,5,4,3,2,1")
    found = label_files(job)
    for name in ("known.csv", "known.parquet"):
        found.write(tmp_path / name)
        told = LabelPool.read(replace(job, known=tmp_path / name))
        assert torch.equal(told.known, found.posterior.labels)


def test_names_that_could_be_numbers_are_refused_where_nobody_can_tell(tmp_path: Path) -> None:
    assert mistakable("012") is None
    assert mistakable(["0", "2", "x"]) == "2"
    path = tmp_path / "answers.csv"
    path.write_text("sample,slot,label\n0,a,1\n")
    with pytest.raises(InputError, match="'1' could be the name of one label or the number of another; add a column"):
        read_answers(path, [2], ["a", "b"], 6, DICE.split(","))
    with pytest.raises(InputError, match=r"'1' could be the name of one slot .* rename the columns of the slots"):
        read_answers(path, [2], ["1", "2"], 6, None)
    path.write_text("sample,slot,label,name\n0,1,,3\n")  # the name is enough, and the slot is a number
    assert read_answers(path, [2], ["a", "b"], 6, DICE.split(","))[0].tolist() == [[-1, 2]]
    path.write_text("sample,slot,label,name\n0,1,3,3\n")
    with pytest.raises(
        InputError, match=r"line 2 .*: expected the name of the label, .* got the label '3' with the name"
    ):
        read_answers(path, [2], ["a", "b"], 6, DICE.split(","))
    assert [label_number(text, 6, DICE.split(",")) for text in ("1", "6", "0")] == [0, 5, None]


def test_a_review_adds_to_the_file_of_answers_that_is_there(tmp_path: Path) -> None:
    job, _ = dice(tmp_path, label_names="one,two,three,four,five,six")
    label_files(job).write(job.output)
    place = tmp_path / "mine.csv"
    place.write_text("label;sample;slot;by\nthree;0;a;me\n")
    Review.of(job.output, place).answer(1, 1, 4)
    assert place.read_text() == "label;sample;slot;by\nthree;0;a;me\n4;1;1;\n"
    assert Review.of(job.output, place)._known[:2].tolist() == [[2, -1], [-1, 4]]
    with pytest.raises(InputError, match="expected a CSV file of answers"):
        Review.of(job.output, tmp_path / "mine.parquet")


def test_names_in_a_file_are_found_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "names.txt").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    job, _ = dice(tmp_path, label_names="names.txt")
    job = replace(job, output=tmp_path / "out" / "labels.parquet")
    label_files(job).write(job.output)
    monkeypatch.chdir(tmp_path / "out")
    assert Review.of("labels.parquet").pool.label_names == ("one", "two", "three", "four", "five", "six")


def test_images_of_the_same_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    images, _ = digits(6, 2)
    write_receipts(tmp_path / "x", images, [0] * 6)
    paths = sorted((tmp_path / "x" / "scans").glob("*a.png"))
    others = [tmp_path / "other" / path.name for path in paths]
    (tmp_path / "other").mkdir()
    for path, other, second in zip(paths, others, sorted((tmp_path / "x" / "scans").glob("*b.png")), strict=True):
        size = max(path.stat().st_size, second.stat().st_size)  # PNG readers ignore what follows the image
        for place, source in ((path, path), (other, second)):
            place.write_bytes(source.read_bytes().ljust(size, b"\0"))
            os.utime(place, ns=(10**18, 10**18))
    cache = tmp_path / "labels"
    one = ImageFiles.open([*paths, *others]).embeddings(Outlines(), cache).clone()
    two = ImageFiles.open([*others, *paths]).embeddings(Outlines(), cache)
    assert torch.equal(two, torch.cat([one[6:], one[:6]]))


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__", "ID", "Target", "sample", "Known_a"])
def test_a_column_that_is_no_slot_is_not_taken_for_one(tmp_path: Path, name: str) -> None:
    job, _ = dice(tmp_path, f"{name},b")
    with pytest.raises(InputError, match=r"looks like row numbers, a target or an id, not like a slot.*--slots b"):
        LabelPool.read(job)
    if name:
        assert LabelPool.read(replace(job, slots=f"{name},b")).candidates.slots == 2


def test_a_parquet_table_may_name_its_column_of_targets(tmp_path: Path) -> None:
    job, _ = dice(tmp_path)
    table = pa.table({"a": [0, 2], "b": [1, 3], "total": [1, 2]})
    pq.write_table(table, tmp_path / "t.parquet")
    pool = LabelPool.read(replace(job, samples=tmp_path / "t.parquet", target="total"))
    assert pool.targets == ["1", "2"]
    with pytest.raises(InputError, match="has no column 'target', so it is read as a file of candidates, where --rule"):
        LabelPool.read(replace(job, samples=tmp_path / "t.parquet"))


def test_a_digit_that_is_no_number_is_refused_in_words(tmp_path: Path) -> None:
    job, _ = dice(tmp_path)
    (tmp_path / "dice.csv").write_text("a,b,target\n0,²,1\n")
    with pytest.raises(InputError, match=r"line 2 of .*expected a row of .*got '²'"):
        LabelPool.read(job)


def test_a_target_that_a_person_calls_wrong_is_no_error_where_all_others_are_right(tmp_path: Path) -> None:
    job, _ = dice(tmp_path, wrong=0.0)
    label_files(job).write(job.output)
    review = Review.of(job.output)
    review.answer(0, 0, None)
    review.infer()
    assert review._labels is not None
    assert float(review._labels.posterior.suspicion[0]) == 1
    kept = Candidates.from_rule(sum, [99, 3], slots=2, classes=6, impossible="keep")
    posterior = infer(kept, torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(0)), wrong=0)
    assert posterior.suspicion.tolist() == [1, 0]
    with pytest.raises(InputError, match="expected every sample to have a candidate with its known labels"):
        infer(kept, torch.zeros(2, 2, 4), wrong=0, known=torch.tensor([[-1, -1], [5, -1]]))
