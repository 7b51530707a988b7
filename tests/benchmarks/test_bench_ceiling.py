"""What a benchmark's samples identify, against trying every way to name the classes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from torch import Tensor
from typer.testing import CliRunner

from clipper.benchmarks.bench_ceiling import measure_ceiling
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.max import MAX_RULE
from clipper.candidates import Lattice
from clipper.cli.bench import bench

Names = tuple[int, ...]


def consistent(gold: Tensor, classes: int = 10) -> Iterator[Names]:
    """Every way to name the classes that gives all samples the maxima that they have, class by class."""
    rows = {tuple(sorted(set(row))) for row in gold.tolist()}

    def longer(names: Names) -> Iterator[Names]:
        if len(names) == classes:
            yield names
            return
        for name in range(classes):
            more = (*names, name)
            if all(max(more[y] for y in row) == row[-1] for row in rows if row[-1] == len(names)):
                yield from longer(more)

    return longer(())


def test_the_ceiling_is_that_of_brute_force() -> None:
    measured = measure_ceiling(RunConfig(rule="max", slots=3, samples=60), seeds=[1, 2])
    _, test = train_and_test("digits")
    for row in measured["rows"]:
        gold = draw(train_and_test("digits")[0], MAX_RULE, 60, 3, seed=row["seed"]).gold
        assert gold is not None
        every = list(consistent(gold))
        apart = [names for names in every if len(set(names)) == 10]
        for found, expected in ((row, every), (row["distinct"], apart)):
            left_open = [y for y in range(10) if any(names[y] != y for names in expected)]
            assert (found["ways"], found["exhaustive"], found["open"]) == (len(expected), True, left_open)
            right = sum(int(y) not in left_open for y in test.labels.tolist()) / len(test.labels)
            assert abs(found["identified"] - right) < 1e-6


def test_wide_samples_need_no_list_of_candidates() -> None:
    images = train_and_test("digits")[0]
    assert isinstance(draw(images, MAX_RULE, 120, 9).candidates, Lattice)
    row = measure_ceiling(RunConfig(rule="max", slots=9, samples=120), seeds=[0])["rows"][0]
    assert row["exhaustive"]
    assert 9 not in row["open"]


def test_the_command_says_what_is_left_open() -> None:
    command = ["ceiling", "--data", "digits", "--samples", "40", "--slots", "3", "--seeds", "2"]
    result = CliRunner().invoke(bench, [*command, "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    gold = draw(train_and_test("digits")[0], MAX_RULE, 40, 3, seed=1).gold
    assert gold is not None
    assert document["rows"][1]["ways"] == sum(1 for _ in itertools.islice(consistent(gold), 1_000_000))
    assert 0 < document["mean"] <= document["mean_distinct"]
    assert document["mean"] < 1, "40 maxima do not identify the small digits"
    assert "left open" in CliRunner().invoke(bench, command, catch_exceptions=False).stdout
