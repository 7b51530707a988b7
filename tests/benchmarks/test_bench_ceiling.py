"""What weak labels identify, against trying every way to name the classes."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from clipper.benchmarks import bench_ceiling
from clipper.benchmarks.bench_ceiling import consistent_names, distinct, identified
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.max import MAX_RULE
from clipper.cli.bench import bench
from clipper.errors import BudgetError


@given(
    st.sampled_from([sum, max]),
    st.integers(2, 4).flatmap(
        lambda classes: st.tuples(
            st.just(classes),
            st.lists(st.lists(st.integers(0, classes - 1), min_size=2, max_size=2), min_size=1, max_size=6),
        )
    ),
)
def test_the_ways_to_name_the_classes_are_those_of_brute_force(rule, pool) -> None:  # type: ignore[no-untyped-def]
    classes, rows = pool
    expected = [
        names
        for names in itertools.product(range(classes), repeat=classes)
        if all(rule([names[i] for i in row]) == rule(row) for row in rows)
    ]
    found = consistent_names(rule, torch.tensor(rows), classes)
    assert found == expected
    assert tuple(range(classes)) in found, "the truth is among them"
    alike = [len({names[i] for names in expected}) == 1 for i in range(classes)]
    assert identified(found).tolist() == alike
    assert distinct(found) == [names for names in itertools.permutations(range(classes)) if names in expected]


def test_too_many_ways_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_ceiling, "MOST", 3)
    with pytest.raises(BudgetError, match="identify little"):
        consistent_names(max, torch.tensor([[2, 2]]), classes=3)


def test_the_command_says_what_is_left_open() -> None:
    command = ["ceiling", "--data", "digits", "--samples", "40", "--slots", "3", "--seeds", "2"]
    result = CliRunner().invoke(bench, [*command, "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    gold = draw(train_and_test("digits")[0], MAX_RULE, 40, 3, seed=1).gold
    assert document["rows"][1]["ways"] == len(consistent_names(max, gold, 10))
    assert 0 < document["mean"] <= document["mean_distinct"]
    assert document["mean"] < 1, "40 maxima do not identify the small digits"
    assert "left open" in CliRunner().invoke(bench, command, catch_exceptions=False).stdout
