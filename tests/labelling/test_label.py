"""clipper.label: images or embeddings and what is known of their samples, made into a table."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import clipper
from clipper import Candidates, CandidateSet, ProximityGraph, infer, label, rules
from clipper.errors import FileError, InputError
from clipper.labelling import Labels
from clipper.labelling.label_files import FORMATS, read_labels
from clipper.proximity import Outlines, Pixels, embed
from clipper.report.label_page import write_label_page
from tests.labelling.pools import digits

COLUMNS = ["sample", "slot", "label", "probability", "second", "suspicion", "status"]


@pytest.fixture(scope="module")
def pool() -> tuple[torch.Tensor, torch.Tensor, Candidates]:
    images, gold = digits(60, 3)
    return images, gold, Candidates.from_rule(sum, gold.sum(1), slots=3, classes=10)


@pytest.fixture(scope="module")
def labels(pool: tuple[torch.Tensor, torch.Tensor, Candidates]) -> Labels:
    images, _, candidates = pool
    return label(images, candidates)


def test_images_are_encoded_by_their_outlines(
    pool: tuple[torch.Tensor, torch.Tensor, Candidates], labels: Labels
) -> None:
    images, _, candidates = pool
    expected = infer(candidates, embed(Outlines(), images.float() / 255))
    assert torch.equal(labels.posterior.labels, expected.labels)
    assert torch.equal(labels.posterior.marginals, expected.marginals)
    assert labels.verdict == expected.verdict
    assert labels.expected_accuracy == expected.expected_accuracy


def test_totals_alone_label_the_digits(pool: tuple[torch.Tensor, torch.Tensor, Candidates], labels: Labels) -> None:
    assert labels.verdict == "joint"
    assert (labels.posterior.labels == pool[1]).float().mean() > 0.95


def test_embeddings_graphs_encoders_and_images_without_channels_will_do(
    pool: tuple[torch.Tensor, torch.Tensor, Candidates], labels: Labels
) -> None:
    images, _, candidates = pool
    embeddings = embed(Outlines(), images.float() / 255)
    by_graph = label(ProximityGraph.from_embeddings(embeddings, k=8), candidates)
    for other in (label(embeddings, candidates), label(images[:, :, 0].numpy(), candidates), by_graph):
        assert torch.equal(other.posterior.labels, labels.posterior.labels)
    by_pixels = label(images, candidates, encoder=Pixels())
    assert torch.equal(by_pixels.posterior.labels, infer(candidates, images.flatten(2).float() / 255).labels)


def test_known_labels_are_obeyed(pool: tuple[torch.Tensor, torch.Tensor, Candidates]) -> None:
    images, gold, candidates = pool
    known = torch.full_like(gold, -1)
    known[7, 1] = gold[7, 1]
    assert label(images, candidates, known=known).posterior.labels[7, 1] == gold[7, 1]


def test_a_row_for_each_instance_and_no_label_is_missing(labels: Labels) -> None:
    table = labels.to_arrow()
    assert table.column_names == COLUMNS
    assert table.num_rows == 180
    assert all(column.null_count == 0 for column in table.columns)
    assert table["label"].to_pylist() == labels.posterior.labels.flatten().tolist()


def test_labels_that_no_target_confirms_are_not_expected_to_be_right_for_certain(
    pool: tuple[torch.Tensor, torch.Tensor, Candidates],
) -> None:
    images, gold, _ = pool
    too_few = Candidates.from_rule(sum, gold.sum(1), 3, 7, impossible="keep")
    posterior = label(images, too_few).posterior
    sure = posterior.marginals.amax(2)
    assert too_few.impossible is not None
    assert posterior.expected_accuracy < float(sure.mean())
    typing_errors = gold.sum(1).index_fill(0, torch.tensor([3, 30]), 99)
    mistyped = label(images, Candidates.from_rule(sum, typing_errors, 3, 10, impossible="keep")).posterior
    right = float((mistyped.labels == gold).double().mean())
    assert mistyped.expected_accuracy == pytest.approx(right, abs=0.02)


def test_unused_slots_have_no_row() -> None:
    candidates = Candidates.from_rule(sum, [3, 1], slots=[2, 1], classes=3)
    table = label(torch.rand(2, 2, 4), candidates).to_arrow()
    assert list(zip(table["sample"].to_pylist(), table["slot"].to_pylist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]


def test_names_ids_and_files_become_columns() -> None:
    candidates = Candidates.from_rule(sum, [3, 1], slots=[2, 1], classes=3)
    posterior = label(torch.rand(2, 2, 4), candidates).posterior
    labels = Labels(posterior, ["zero", "one", "two"], {"id": ["x", "y"]}, {"input": [["p", "q"], ["r", ""]]})
    table = labels.to_arrow()
    assert table.column_names == [
        "sample", "id", "slot", "input", "label", "name", "probability", "second", "second_name", "suspicion", "status",
    ]  # fmt: skip
    assert table["id"].to_pylist() == ["x", "x", "y"]
    assert table["input"].to_pylist() == ["p", "q", "r"]
    assert table["name"].to_pylist() == [["zero", "one", "two"][i] for i in table["label"].to_pylist()]


def test_the_second_label_is_of_the_kind_of_the_slot_and_missing_where_the_kind_has_no_other(tmp_path: Path) -> None:
    classes = {"name": 3, "rel": 2, "fixed": 1}
    candidates = Candidates.from_lists([[(0, 3, 5), (1, 4, 5)], [(2, 3, 5)], [(1, 3, 5)]], classes)
    found = label(torch.rand(3, 3, 4), candidates, label_names=["cat", "dog", "cow", "on", "under", "there"])
    table = replace(found, details={"classes": 6}).to_arrow()
    rows = table.to_pylist()
    for row, kind in zip(rows, candidates.kind.flatten().tolist(), strict=True):
        others = {y for y in range(6) if (y >= 3) + (y >= 5) == kind} - {row["label"]}
        share = found.posterior.marginals[row["sample"], row["slot"]]
        assert row["second"] == max(others, key=lambda y: float(share[y]), default=None)
    assert [row["second"] is None for row in rows] == [False, False, True] * 3
    assert [row["second_name"] is None for row in rows] == [False, False, True] * 3
    found.to_csv(tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(newline="") as file:
        assert [row["second"] for row in csv.DictReader(file)][2] == ""
    write_label_page(table, tmp_path / "page.html")
    assert "None" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("ending", FORMATS)
def test_files_hold_the_table(labels: Labels, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"labels{ending}"
    labels.write(path)
    expected = labels.to_arrow()
    if ending == ".csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [int(row["label"]) for row in rows] == expected["label"].to_pylist()
        assert np.allclose([float(row["probability"]) for row in rows], expected["probability"].to_numpy(), atol=1e-5)
    else:
        table, metadata = read_labels(path)
        assert table.equals(expected)
        assert metadata["verdict"] == labels.verdict
    with pytest.raises(FileError, match=r"is not overwritten; .*replace=True"):
        labels.write(path)
    labels.write(path, replace=True)


def test_csv_may_have_any_name(labels: Labels, tmp_path: Path) -> None:
    labels.to_csv(tmp_path / "labels.txt")
    assert (tmp_path / "labels.txt").read_text().startswith(",".join(COLUMNS) + "\n0,0,")


@pytest.mark.parametrize(
    ("ending", "writer"), [(".xlsx", "to_excel"), (".parquet", r"Labels\.write"), (".ARROW", r"Labels\.write")]
)
def test_csv_is_not_written_under_the_name_of_another_format(
    labels: Labels, tmp_path: Path, ending: str, writer: str
) -> None:
    with pytest.raises(InputError, match=rf"such as labels\.csv, got 'labels{ending}'; .*{writer}"):
        labels.to_csv(tmp_path / f"labels{ending}")
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_file_of_labels_is_created(labels: Labels, tmp_path: Path) -> None:
    labels.to_csv(tmp_path / "new" / "folder" / "labels.csv")
    labels.write(tmp_path / "other" / "labels.parquet")
    assert (tmp_path / "new" / "folder" / "labels.csv").is_file()
    assert (tmp_path / "other" / "labels.parquet").is_file()


def test_labels_become_a_data_frame(labels: Labels) -> None:
    frame = labels.to_pandas()
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 180


def test_wrong_files_and_names_are_refused_in_words(labels: Labels, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.csv, \.parquet or \.arrow.*'labels\.xlsx'"):
        labels.write(tmp_path / "labels.xlsx")
    with pytest.raises(InputError, match="10 label names"):
        Labels(labels.posterior, ["a"])
    with pytest.raises(InputError, match=r"-o labels\.parquet"):
        read_labels(tmp_path / "labels.csv")
    with pytest.raises(FileError, match="no file"):
        read_labels(tmp_path / "labels.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "labels.parquet")
    with pytest.raises(FileError, match="no labels"):
        read_labels(tmp_path / "labels.parquet")
    (tmp_path / "labels.arrow").write_bytes(b"ARROW1 half")
    with pytest.raises(FileError, match="cannot be read"):
        read_labels(tmp_path / "labels.arrow")


@pytest.mark.parametrize("shape", [(60, 3), (60, 2, 8), (3, 60, 1, 8, 8)])
def test_inputs_that_do_not_fit_are_refused_in_words(
    pool: tuple[torch.Tensor, torch.Tensor, Candidates], shape: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match=r"\(60, 3, channels, height, width\) or embeddings \(60, 3, d\)"):
        label(torch.zeros(shape), pool[2])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (3, "as a list, one for each label in order"),
        ({"a", "b", "c"}, "as a list, one for each label in order"),
        ("abc", "as a list"),
        ({"a": 0, "b": 1, "c": 2}, "as a list"),
        (iter(["a", "b", "c"]), "as a list"),
        (["a", "b"], "expected 3 label names, one for each label, got 2"),
        (["a", "b", "a"], "a different name for each label, got 'a' twice"),
    ],
)
def test_names_of_labels_are_checked_before_the_work_begins(names: Any, message: str) -> None:
    candidates = Candidates.from_rule(sum, [3, 1], 2, 3)
    with pytest.raises(InputError, match=message):
        label(torch.rand(2, 2, 4), candidates, label_names=names, progress=lambda _: pytest.fail("the work began"))
    with pytest.raises(InputError, match=message):
        Labels(label(torch.rand(2, 2, 4), candidates).posterior, names)
    named = label(torch.rand(2, 2, 4), candidates, label_names=np.array(["a", "b", "c"])).to_arrow()  # type: ignore[arg-type]
    assert named["name"].to_pylist() == ["abc"[y] for y in named["label"].to_pylist()]


@pytest.mark.parametrize("lattice", [False, True])
def test_pools_from_which_nothing_can_be_inferred_are_refused_in_words(lattice: bool) -> None:
    def of(targets: list[int]) -> CandidateSet:
        if lattice:
            return rules.total().lattice(targets, 2, 10, impossible="keep")
        return Candidates.from_rule(sum, targets, 2, 10, impossible="keep")

    with pytest.raises(InputError, match="no labels satisfy any of 3 formulas; check that rule, targets and classes"):
        label(torch.rand(3, 2, 4), of([99, 98, -1]))
    with pytest.raises(InputError, match="at least one sample, got none"):
        label(torch.rand(0, 2, 4), of([3]).batch([]))
    assert label(torch.rand(3, 2, 4), of([99, 3, -1])).to_arrow().num_rows == 6


def test_the_room_and_the_function_have_two_names() -> None:
    code = "import clipper, sys; assert 'torch' not in sys.modules; print(callable(clipper.label), clipper.labelling)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("True <module 'clipper.labelling'")
    assert clipper.label is label
