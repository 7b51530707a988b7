"""The page of a table: what came out beside the paper's figures, in a file that a browser shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clipper.benchmarks.runs import run
from clipper.benchmarks.tables import Ledger, Selection, summarise
from clipper.benchmarks.tables.catalogue import SUM_TABLE
from clipper.report import write_table
from clipper.report.claims import verdict
from clipper.report.table_page import results_table
from clipper.report.table_text import NOTHING, rows_of
from tests.report.browser import browser, needs_browser
from tests.report.pruned import pruned_digits

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A small table whose columns carry the paper's names, so that its figures stand beside ours."""
    folder = tmp_path_factory.mktemp("page")
    chosen = Selection(engines=("dolphin",), variants=("none", "trainable"), columns=("SUM-3, n=100",), seeds=2).of(
        SUM_TABLE
    )
    columns = tuple(
        replace(column, base=replace(column.base, data="digits", samples=20, epochs=3, evaluate_every=1))
        for column in chosen.columns
    )
    table = replace(chosen, columns=columns)
    ledger = Ledger(folder / "records.jsonl")
    for cell in table.cells():
        ledger.add(run(cell.config))
    entries = summarise(table, ledger)
    inspections = {"dolphin + trainable": pruned_digits().inspection()}
    return table, entries, write_table(table, entries, folder, inspections)


def test_ours_and_the_papers_stand_side_by_side_in_every_form(written):
    table, entries, files = written
    rows = rows_of(table, entries)
    assert [row[0] for row in rows] == ["dolphin", "dolphin + trainable"]
    assert [row[2] for row in rows] == ["43.3 ± 14.2", "60.5 ± 21.9"]
    page, markdown = (files.paths[form].read_text(encoding="utf-8") for form in ("page", "Markdown"))
    for name, ours, paper in rows:
        assert f"| {name} | {ours} | {paper} |" in markdown
        assert f'<td>{name}</td><td><div><span title="{ours}">{ours.partition(" ±")[0]}</span></div>' in page
        assert f"paper {paper}" in page


def test_the_page_has_curves_what_is_kept_what_it_costs_and_an_inspector(written):
    page = written[2].paths["page"].read_text(encoding="utf-8")
    assert page.count("<svg") == 4  # ours beside the paper's, curves, kept, costs
    assert 'class="inspector"' in page
    assert "Which edges ruled out which candidates: dolphin + trainable" in page
    for entry in written[1]:
        assert ", ".join(f"{value:.1f}" for value in entry.values("accuracy")) in page  # every seed


def test_a_run_that_is_not_what_the_table_asks_for_says_so(written):
    table, entries, _ = written
    longer = replace(table.columns[0], base=replace(table.columns[0].base, epochs=50))
    asked = [replace(entry, place=replace(entry.place, column=longer)) for entry in entries]
    assert "3 epochs" in str(results_table(table, asked)["rows"])
    assert "epochs" not in str(results_table(table, entries))


def test_a_table_without_runs_has_no_page_and_shows_the_papers_figures(tmp_path):
    table = Selection(engines=("dolphin",), columns=("SUM-3, n=100",)).of(SUM_TABLE)
    entries = summarise(table, Ledger(tmp_path / "records.jsonl"))
    assert "page" not in write_table(table, entries, tmp_path).paths
    assert {row[1] for row in rows_of(table, entries)} == {NOTHING}


@pytest.mark.slow
@needs_browser
def test_a_browser_shows_the_page_without_errors(written):
    with browser() as window:
        window.open(written[2].paths["page"].resolve().as_uri())
        assert window.run("return document.querySelector('h1').textContent") == SUM_TABLE.title
        assert window.run("return document.querySelectorAll('.inspector img, .inspector .tile').length") > 0
        assert window.messages() == []


def test_where_the_paper_has_no_figures_the_page_says_who_beats_whom(written, tmp_path):
    table, entries, _ = written
    demo = replace(table, name="demo", title="<i>A demo</i>")
    page = write_table(demo, entries, tmp_path).paths["page"].read_text(encoding="utf-8")
    (said,) = verdict(entries)
    assert f"<p>{said}</p>" in page
    assert "<h1>&lt;i&gt;A demo&lt;/i&gt;</h1>" in page
    assert 'class="inspector"' not in page
