"""Figures show every row and every measured epoch, and take what records really hold: gaps, one seed, no gold."""

from __future__ import annotations

import re

import pytest

from clipper.errors import InputError
from clipper.report.figures import (
    accuracy_figure,
    by_epoch,
    forest_figure,
    kept_figure,
    kept_over_epochs,
    loss_figure,
    overhead_figure,
)
from clipper.training import EpochMetrics, Record

pytest.importorskip("matplotlib")


def a_run(accuracies: list[float | None], gold: float | None = 0.9, seconds: float = 1.0) -> Record:
    epochs = [EpochMetrics(i, 2.0 / i, a, 0.7, gold, seconds, 0.1 * seconds) for i, a in enumerate(accuracies, start=1)]
    return Record({"epochs": len(epochs)}, epochs)


ROWS = {
    "semantic loss": [a_run([0.1, None, 0.5]), a_run([0.2, None, 0.7])],
    "one seed": [a_run([0.4])],
    "no gold": [a_run([0.4, 0.5], gold=None)] * 2,
    "no time": [a_run([0.4], seconds=0.0)],
    "not run yet": [],
}


def texts(svg: str) -> list[str]:
    """matplotlib leaves what it wrote in comments, as the letters themselves are drawn."""
    return re.findall(r"<!-- (.*?) -->", svg)


@pytest.mark.parametrize("draw", [kept_figure, overhead_figure, lambda rows: forest_figure(rows, {})])
def test_each_row_is_named_whatever_its_records_hold(draw):
    assert set(ROWS) <= set(texts(draw(ROWS)))


def test_the_forest_shows_the_papers_figure_even_where_ours_is_not_run():
    plain, beside = forest_figure(ROWS, {}), forest_figure(ROWS, {"not run yet": (40.0, 5.0)})
    assert plain != beside


def test_epochs_that_were_not_measured_are_passed_over():
    assert by_epoch(ROWS["semantic loss"], lambda metrics: metrics.accuracy) == {1: [0.1, 0.2], 3: [0.5, 0.7]}
    named = texts(accuracy_figure(ROWS))
    assert {"semantic loss", "one seed"} <= set(named)
    assert "not run yet" not in named


def test_curves_that_end_at_one_height_keep_their_names_apart():
    svg = accuracy_figure({"first": [a_run([0.5, 0.5])], "second": [a_run([0.5, 0.5])]})
    heights = {
        name: float(re.search(rf"<!-- {name} -->.*?translate\([\d.]+ ([\d.]+)\)", svg, re.DOTALL)[1])
        for name in ("first", "second")
    }
    assert heights["first"] - heights["second"] > 9  # points: the height of a line


def test_the_overhead_is_the_share_of_all_epochs_time():
    assert "10.0" in texts(overhead_figure({"row": [a_run([0.1, 0.2])]}))


def test_the_same_records_give_the_same_figure():
    assert forest_figure(ROWS, {}) == forest_figure(ROWS, {})


@pytest.mark.parametrize("gold", [0.9, None])
def test_one_run_has_curves_of_its_own(gold):
    run = a_run([0.1, 0.5], gold=gold)
    assert "loss" in texts(loss_figure(run))
    assert ("gold labels" in texts(kept_over_epochs(run))) == (gold is not None)


def test_nothing_to_show_is_an_error_that_says_so():
    with pytest.raises(InputError, match="at least one row"):
        kept_figure({})
    with pytest.raises(InputError, match="held-out"):
        accuracy_figure({"row": [a_run([None])]})


def test_figures_take_the_pages_colours_in_the_dark_too():
    svg = forest_figure(ROWS, {"one seed": (40.0, 5.0)})
    assert "var(--accent, #0f7b6c)" in svg
    assert not re.search(r": #(?!000000)[0-9a-f]{6}", svg)
