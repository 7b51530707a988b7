"""The demo is a table like the others: the same runs for every row, a verdict in words, a page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.receipts import write_receipts
from clipper.benchmarks.runs import run
from clipper.benchmarks.tables import Ledger, Selection, summarise, table_named
from clipper.report.claims import sentence, verdict
from clipper.report.table_page import write_table_page
from clipper.report.table_text import ours


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    table = Selection(seeds=2, epochs=3, samples=8).of(table_named("demo"))
    ledger = Ledger(tmp_path_factory.mktemp("demo") / "records.jsonl")
    for cell in table.cells():
        ledger.add(run(cell.config))
    return table, summarise(table, ledger)


def test_every_objective_sees_the_same_seeds(demo):
    _, entries = demo
    assert [entry.place.config.objective for entry in entries] == [
        "none", "paper", "exact", "random", "em", "joint", "gold",
    ]  # fmt: skip
    for entry in entries:
        assert [record.config["seed"] for record in entry.records] == [100, 101]


def test_the_random_control_keeps_as_much_as_exact_on_a_frozen_encoder():
    config = RunConfig(samples=20, slots=2, epochs=2, encoder="pixels")
    exact, random = (run(replace(config, objective=objective)) for objective in ("exact", "random"))
    assert random.retained == exact.retained


def test_the_page_holds_the_table_the_curves_and_the_verdict(demo, tmp_path):
    table, entries = demo
    write_table_page(table, entries, tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 3
    for entry in entries:
        assert ours(entry, "accuracy")[0] in page
    assert len(verdict(entries)) == 7
    assert all(line in page for line in verdict(entries))


def test_the_page_begins_with_the_result_in_a_sentence(demo, tmp_path):
    table, entries = demo
    write_table_page(table, entries, tmp_path / "index.html", result="All is well.", links={"Look": "labels.html"})
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h1>All is well.</h1>" in page
    assert '<a href="labels.html">Look</a>' in page


def test_receipts_are_files_that_do_not_tell_the_digits(tmp_path):
    gold = write_receipts(tmp_path, RunConfig(samples=4, seed=10))
    lines = (tmp_path / "receipts.csv").read_text().splitlines()
    assert lines[0] == "digit_1,digit_2,digit_3,target"
    assert [int(line.rpartition(",")[2]) for line in lines[1:]] == gold.sum(1).tolist()
    assert len(list((tmp_path / "scans").iterdir())) == 12


def test_the_verdict_admits_that_nothing_can_be_told():
    assert "do not differ" in sentence("exact", "the baseline", [5.0, -4.0, 1.0])


def test_the_verdict_names_the_winner_even_if_it_is_the_baseline():
    assert sentence("exact", "the baseline", [-5.0, -4.0, -6.0]).startswith("The baseline beats exact by 5.0")


def test_one_seed_decides_nothing():
    assert "do not differ as far as 1 seeds" in sentence("exact", "paper", [50.0])
