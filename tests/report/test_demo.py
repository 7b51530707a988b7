from __future__ import annotations

import pytest

from clipper.benchmarks.comparison import METHODS, compare
from clipper.benchmarks.retention import Retention
from clipper.report.demo import comparison_rows, write_demo_report
from clipper.report.verdict import sentence, verdict
from clipper.training import TrainConfig


@pytest.fixture(scope="module")
def comparison():
    return compare(TrainConfig(samples=8, slots=2, epochs=2), 2, lambda *_: None)


def test_every_objective_sees_the_same_seeds(comparison):
    assert set(comparison.records) == set(METHODS)
    for records in comparison.records.values():
        assert [record.config["seed"] for record in records] == [0, 1]


def test_the_random_control_keeps_as_much_as_exact_on_a_frozen_encoder():
    config = TrainConfig(samples=20, slots=2, epochs=2, encoder="pixels")
    frozen = compare(config, 1, lambda *_: None, methods=("exact", "random"))
    assert frozen.retained("random") == frozen.retained("exact")


def test_the_page_holds_the_table_the_curves_and_the_verdict(comparison, tmp_path):
    rows = [Retention("exact", [80.0], [95.0])]
    page = write_demo_report(comparison, rows, tmp_path).read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    for row in comparison_rows(comparison):
        assert row[1] in page
    assert all(line in page for line in verdict(comparison))


def test_the_verdict_admits_that_nothing_can_be_told():
    assert "do not differ" in sentence("exact", "the baseline", [5.0, -4.0, 1.0])


def test_the_verdict_names_the_winner_even_if_it_is_the_baseline():
    assert sentence("exact", "the baseline", [-5.0, -4.0, -6.0]).startswith("The baseline beats exact by 5.0")


def test_one_seed_decides_nothing():
    assert "do not differ as far as 1 seeds" in sentence("exact", "paper", [50.0])
