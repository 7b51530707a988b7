"""`clipper identify` on rules and on files, as a user runs it."""

from __future__ import annotations

import itertools
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
import typer

from clipper import Candidates, identify, rules
from clipper.cli.identify import identify as command
from clipper.errors import BudgetError, FileError, InputError
from clipper.labelling.label_files import read_label_tensor
from tests.launch import printed

app = typer.Typer()
app.command()(command)
run = partial(printed, app)


def document(*arguments: object) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(run(*arguments, "--json"))
    return read


MINE = """
def distance(labels):
    return abs(labels[0] - labels[1])


same = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_a_rule_of_ones_own(mine: Path) -> None:
    found = document("--rule", f"{mine}:distance", "--classes", 6, "--slots", 2)
    assert found["namings"] == [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]]
    assert (found["order"], found["exhaustive"], found["identified"], found["settle"]) == (2, True, [], [0])
    some = document("--rule", f"{mine}:distance", "--classes", 6, "--slots", 2, "--targets", "5")
    assert some["order"] == 48, "the ends, and what is between them"


def test_it_prints_a_table_and_a_sentence() -> None:
    text = run("--rule", "max", "--classes", 4, "--slots", 3, "--targets", "3,2")
    assert re.search(r"│ 0 +│ +0, 1 │ +about 29% │", text)
    assert "Knowing label 0 would settle it." in text
    assert "identify all 10 labels" in run("--rule", "sum", "--classes", 10, "--slots", 40)
    assert "identify all 12 labels" in run("--rule", "hwf", "--classes", 12, "--slots", 5)


def test_labels_give_the_targets_of_a_rule(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("slot_0,slot_1\n0,2\n1,2\n1,1\n")
    found = document("--rule", "max", "--classes", 3, "--slots", 2, "--labels", tmp_path / "labels.csv")
    assert found["namings"] == [[0, 1, 2], [1, 1, 2], [2, 1, 2]]
    assert (found["instances"], found["instances_not_identified"]) == (6, 1)
    apart = document("--rule", "max", "--classes", 3, "--slots", 2, "--labels", tmp_path / "labels.csv", "--one-to-one")
    assert apart["order"] == 1


@pytest.mark.parametrize(
    ("name", "classes", "slots"),
    [("transcript", 3, 4), ("addition:2", 10, 4), ("proportions", 3, 4), ("proportions", 3, 3), ("sum", 4, 3)],
)
def test_without_targets_every_value_of_the_rule_occurs(name: str, classes: int, slots: int) -> None:
    rule = rules.named(name)
    values = dict.fromkeys(rule.value(row) for row in itertools.product(range(classes), repeat=slots))
    expected = identify(rule.candidates(list(values), slots, classes)).as_dict()
    assert document("--rule", name, "--classes", classes, "--slots", slots) == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    ("name", "slots", "text", "targets"),
    [
        ("transcript", 4, "2,0;2-1-2", [(2, 0), (2, 1, 2)]),
        ("transcript", 4, "2,0", [(2, 0)]),
        ("partial-labels", 2, "1,2|0;0|0 1", [[{1, 2}, {0}], [{0}, {0, 1}]]),
        ("proportions", 4, "0,2,2;4,0,0", [[0, 2, 2], [4, 0, 0]]),
        ("at-least-one:1", 2, "true,no", [True, False]),
        ("sum", 2, "1, 3", [1, 3]),
    ],
)
def test_targets_are_read_as_the_rule_reads_them(name: str, slots: int, text: str, targets: list[Any]) -> None:
    expected = identify(rules.named(name).candidates(targets, slots, 3)).as_dict()
    found = document("--rule", name, "--classes", 3, "--slots", slots, "--targets", text)
    assert found == json.loads(json.dumps(expected))


def test_samples_of_labels_may_have_different_lengths(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("slot_0,slot_1\n0,2\n2,\n1,1\n")
    found = document("--rule", "sum", "--classes", 3, "--slots", 2, "--labels", tmp_path / "labels.csv")
    candidates = Candidates.from_rule(sum, [2, 2, 2], [2, 1, 2], 3)
    expected = identify(candidates, torch.tensor([[0, 2], [2, -1], [1, 1]])).as_dict()
    assert found == json.loads(json.dumps(expected))
    for text, message in (("0,2\n,1\n", "first slots of each sample.*sample 1"), ("0\n", "of 2 slots like --slots")):
        head = "slot_0,slot_1\n" if "," in text else "slot_0\n"
        (tmp_path / "labels.csv").write_text(head + text)
        with pytest.raises(InputError, match=message):
            run("--rule", "sum", "--classes", 3, "--slots", 2, "--labels", tmp_path / "labels.csv")


def test_candidates_and_labels_from_files(tmp_path: Path) -> None:
    gold = torch.randint(0, 5, (30, 3), generator=torch.Generator().manual_seed(0))
    candidates = Candidates.from_rule(max, gold.amax(1), slots=3, classes=5)
    candidates.write(tmp_path / "candidates.parquet")
    without = document(tmp_path / "candidates.parquet")
    assert without == json.loads(json.dumps(identify(candidates).as_dict()))
    rows = [(i, j, int(gold[i, j])) for i in range(30) for j in range(3)][::-1]
    columns = dict(zip(("sample", "slot", "label"), map(list, zip(*rows, strict=True)), strict=True))
    long = pa.table(columns | {"probability": [0.5] * 90})
    pa.csv.write_csv(long, tmp_path / "long.csv")
    pa.csv.write_csv(long, tmp_path / "LONG.CSV")
    pa.parquet.write_table(long, tmp_path / "long.pq")
    pa.parquet.write_table(long, tmp_path / "long.parquet")
    pa.feather.write_feather(long, str(tmp_path / "long.arrow"))
    wide = pa.table({"id": list(range(30)), **{f"slot_{j}": gold[:, j].tolist() for j in range(3)}})
    pa.csv.write_csv(wide, tmp_path / "wide.csv")
    expected = json.loads(json.dumps(identify(candidates, gold).as_dict()))
    for name in ("long.csv", "LONG.CSV", "long.parquet", "long.pq", "long.arrow", "wide.csv"):
        assert torch.equal(read_label_tensor(tmp_path / name), gold)
        assert document(tmp_path / "candidates.parquet", "--labels", tmp_path / name) == expected


def test_unused_slots_have_no_label(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text("sample,slot,label\n0,0,1\n0,1,2\n1,0,2\n")
    (tmp_path / "wide.csv").write_text("slot_0,slot_1\n1,2\n2,\n")
    for name in ("long.csv", "wide.csv"):
        assert read_label_tensor(tmp_path / name).tolist() == [[1, 2], [2, -1]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels.csv", "a,b\n1,2\n", "sample, slot and label"),
        ("labels.csv", "sample,slot,label\n0,0,1\n0,0,2\n", "a sample and slot twice"),
        ("labels.csv", "sample,slot,label\n-1,0,1\n", "from 0 on"),
        ("labels.csv", "sample,slot,label\n", "from 0 on"),
        ("labels.csv", "sample,slot,label\n0,0,x\n", "whole numbers"),
        ("labels.csv", "sample,slot,label\n99999999999,0,1\n", "too large"),
        ("labels.csv", "", "cannot be read"),
        ("labels.parquet", "PAR1", "cannot be read"),
        ("labels.txt", "slot_0\n1\n", "ends in .csv"),
    ],
)
def test_files_that_hold_no_labels_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises((FileError, InputError), match=message):
        read_label_tensor(tmp_path / name)


def test_what_does_not_go_together_is_refused(mine: Path) -> None:
    sizes = ("--classes", 6, "--slots", 2)
    for arguments, message in (
        ((), "a file of candidates, or --rule"),
        (("file.parquet", "--rule", "sum"), "either a file of candidates"),
        (("file.parquet", "--slots", 2), "only with --rule"),
        (("--rule", "sum"), "--classes and --slots"),
        (("--rule", "partial-labels", *sizes), "--targets with the rule partial-labels.*semicolons between targets"),
        (("--rule", "nope", *sizes), "the name of a rule|sum, max, hwf"),
        (("--rule", f"{mine}:other", *sizes), "has no 'other'"),
        (("--rule", f"{mine}:same", *sizes), "to be a function"),
        (("--rule", "nowhere.py:f", *sizes), "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            run(*arguments)
    with pytest.raises(BudgetError, match="--targets"):
        run("--rule", f"{mine}:distance", "--classes", 6, "--slots", 20)
