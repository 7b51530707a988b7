"""The zoo's page shows promises, lines, failures and what was skipped, and escapes what it shows."""

from __future__ import annotations

import pytest

from clipper.report.zoo_page import write_zoo_page
from tests.benchmarks.test_zoo import row_of

pytest.importorskip("matplotlib")


def test_the_page_has_every_line_in_its_group_and_what_went_wrong(tmp_path):
    em = {"labels_right": 0.5, "gold_kept": 0.6, "seconds": 2.0}
    failed = {name: row_of("xor-3/digits/5")[name] for name in ("line", "seed", "settings", "commit")}
    rows = [
        row_of("sum-3/digits/100", em=em, commit="abc123"),
        row_of("difference/digits/100", verdict="ambiguous"),
        row_of("xor-3/noise/20/skewed", verdict="uninformative"),
        failed | {"error": "E: 1 < 2"},
    ]
    write_zoo_page(rows, tmp_path / "zoo.html", skipped={"sum-3/mnist/100": "it is not here"})
    html = (tmp_path / "zoo.html").read_text(encoding="utf-8")
    order = [html.index(f"<h2>{title}") for title in ("Promises", "Labels right", "Lines whose labels are identified<")]
    assert order == sorted(order)
    for text in ("1 ambiguous", "1 uninformative", "50.0 %", "E: 1 &lt; 2", "it is not here", "abc123", "missed"):
        assert text in html


def test_a_page_without_a_pool_says_that_nothing_was_measured(tmp_path):
    write_zoo_page([], tmp_path / "zoo.html")
    assert "not measured" in (tmp_path / "zoo.html").read_text(encoding="utf-8")
