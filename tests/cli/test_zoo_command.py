"""`clipper bench zoo` as its users meet it: JSON, a page, a pattern that matches nothing."""

from __future__ import annotations

import json
from functools import partial

import pytest
from typer.testing import CliRunner

from clipper.benchmarks import bench_zoo, datasets
from clipper.cli.bench import bench
from clipper.errors import InputError
from tests.launch import printed

TINY = ["zoo", "--line", "xor-3/digits/5", "--line", "sum-3/digits/5", "--seeds", "2", "--workers", "1"]
run = partial(printed, bench)


def test_json_is_one_document_and_the_second_time_nothing_is_run(tmp_path, monkeypatch):
    out = tmp_path / "zoo.jsonl"
    first = run(*TINY, "--out", out, "--json")
    monkeypatch.setattr(bench_zoo, "make_pool", None)
    document = json.loads(run(*TINY, "--out", out, "--json"))
    assert document == json.loads(first)
    assert [line["pools"] for line in document["lines"]] == [2, 2]
    assert len(document["rows"]) == len(out.read_text().splitlines()) == 4
    assert all({"text", "held", "figure"} == promise.keys() for promise in document["promises"])


def test_tables_and_promises_are_printed_and_the_page_opens_with_the_promises(tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "pages" / "zoo.html"
    printed = run(*TINY, "--out", tmp_path / "zoo.jsonl", "--page", page)
    assert "xor-3/digits/5" in printed
    assert "promises" in printed
    html = page.read_text(encoding="utf-8")
    assert html.index("every pool can be run") < html.index("<svg") < html.index("<td>xor-3/digits/5</td>")
    assert 'src="' not in html  # nothing is loaded


def test_lines_without_data_are_skipped_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "find", lambda *_: None)
    arguments = ["zoo", "--line", "sum-3/mnist/100", "--out", tmp_path / "zoo.jsonl", "--json"]
    document = json.loads(run(*arguments))
    assert list(document["skipped"]) == ["sum-3/mnist/100"]
    assert document["rows"] == []


def test_a_failed_pool_ends_with_exit_code_1_after_the_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_zoo, "make_pool", None)
    result = CliRunner().invoke(bench, [*TINY, "--out", str(tmp_path / "zoo.jsonl")])
    assert result.exit_code == 1
    assert "promises" in result.stdout
    assert "failed: xor-3/digits/5, seed 0: TypeError" in result.stderr


def test_a_pattern_that_matches_nothing_is_refused_before_the_work(tmp_path):
    with pytest.raises(InputError, match="product-7"):
        run("zoo", "--line", "product-7*", "--out", tmp_path / "zoo.jsonl")
