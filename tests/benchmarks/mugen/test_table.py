"""The table of clips: every figure with its chance level, the paper's beside it, and old records still readable."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables import Ledger, Selection, summarise, table_named
from clipper.benchmarks.tables.summary import NAMES
from clipper.report.run_page import last_rows
from clipper.report.table_text import markdown
from clipper.training import EpochMetrics, Record

SMALL = Selection(engines=("dolphin",), variants=("none", "trainable"), columns=("n=500",))


def _recorded(folder: Path, vtr: float) -> Ledger:
    table = SMALL.of(table_named("mugen"))
    ledger = Ledger(folder / "records.jsonl")
    for cell in table.cells():
        scores = {"vtr3": vtr + 0.01 * (cell.seed - 100), "tvr3": 0.5, "vtr10": 0.25, "tvr10": 0.125}
        ledger.add(Record(cell.config, [EpochMetrics(1, 2.0, 0.75, 0.3, 0.9, 1.0, 0.1, scores)], {}))
    return Ledger(folder / "records.jsonl")


def test_retrieval_is_noted_and_summarised(tmp_path: Path) -> None:
    ledger, table = _recorded(tmp_path, vtr=0.6), SMALL.of(table_named("mugen"))
    none, trainable = summarise(table, ledger)
    assert none.values("vtr3") == pytest.approx([60, 61, 62])
    assert none.values("retained") == []  # nothing was pruned
    assert trainable.values("retained") == pytest.approx([30, 30, 30])
    assert none.published.get("vtr3") == (33.9, 0.0)


def test_the_chance_level_and_the_paper_stand_beside_the_figures(tmp_path: Path) -> None:
    table = SMALL.of(table_named("mugen"))
    text = markdown(table, summarise(table, _recorded(tmp_path, vtr=0.6)))
    head = text.splitlines()[0]
    for measure, chance in (("vtr3", "33.3"), ("tvr3", "33.3"), ("vtr10", "10"), ("tvr10", "10")):
        assert f"(chance {chance})" in NAMES[measure]
        assert NAMES[measure] in head
    assert "61.0 ± 1.0" in text
    assert "| 33.9 |" in text
    assert f"{NAMES['vtr10']} (paper)" not in head  # the paper has no such figure


def test_a_runs_last_rows_name_the_chance_level() -> None:
    record = Record(RunConfig(), [EpochMetrics(1, 2.0, 0.75, 0.3, 0.9, 1.0, 0.1, {"vtr3": 0.5})], {})
    assert ["video → text of 3, % (chance 33.3)", "50.0 %"] in last_rows(record)


def test_records_without_retrieval_stay_as_they_are(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "records.jsonl")
    record = Record(RunConfig(), [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)], {})
    ledger.add(record)
    assert "scores" not in json.loads((tmp_path / "records.jsonl").read_text())["epochs"]
    assert Ledger(tmp_path / "records.jsonl").find(RunConfig()) == record


def test_every_engine_is_tried_with_every_pruning_and_both_sizes() -> None:
    table = table_named("mugen")
    rows = {(row.engine, row.variant) for row in table.rows}
    assert {(e, v) for e in ("semantic", "dolphin", "scallop") for v in ("none", "trainable", "exact", "joint")} <= rows
    assert {column.base.samples for column in table.columns} == {250, 500}
    config = replace(next(table.places()), seed=2).config
    assert (config.rule, config.data, config.seed) == ("align", "clips", 2)
