"""The demo is a table like the others: the same runs for every row, a verdict in words, a page with an inspector."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.runs import run
from clipper.benchmarks.tables import Ledger, Selection, summarise, table_named
from clipper.benchmarks.tables.grid import inspections_of, run_cells
from clipper.report.claims import verdict
from clipper.report.table_page import write_table_page
from clipper.report.table_text import ours

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    table = Selection(seeds=2, epochs=3, samples=8).of(table_named("demo"))
    ledger = Ledger(tmp_path_factory.mktemp("demo") / "records.jsonl")
    assert run_cells(table.cells(), ledger, jobs=2) == []
    return table, summarise(table, ledger), ledger.path.parent


@pytest.mark.slow
def test_every_objective_sees_the_same_seeds(demo):
    _, entries, _ = demo
    assert [entry.place.config.objective for entry in entries] == ["none", "paper", "exact", "random", "gold"]
    for entry in entries:
        assert [record.config["seed"] for record in entry.records] == [0, 1]


def test_the_random_control_keeps_as_much_as_exact_on_a_frozen_encoder():
    config = RunConfig(samples=20, slots=2, epochs=2, encoder="pixels")
    exact, random = (run(replace(config, objective=objective)) for objective in ("exact", "random"))
    assert random.retained == exact.retained


@pytest.mark.slow
def test_the_page_holds_the_table_the_curves_the_verdict_and_an_inspector(demo, tmp_path):
    table, entries, folder = demo
    inspections = inspections_of(entries, folder)
    assert list(inspections) == ["semantic + exact, digits SUM-3, n=100, seed 0"]
    write_table_page(table, entries, tmp_path / "index.html", inspections)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 3
    for entry in entries:
        assert ours(entry, "accuracy").partition(" [")[0] in page
    assert len(verdict(entries)) == 5
    assert all(line in page for line in verdict(entries))
    assert 'class="inspector"' in page
