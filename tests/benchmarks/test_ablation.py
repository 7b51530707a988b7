"""The ablation changes one thing at a time, and everything once; asked labels are measured beside random ones."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clipper.benchmarks import bench_ablation, bench_zoo
from clipper.benchmarks.bench_ablation import changed, changes, run_ablation
from clipper.benchmarks.bench_ask import measure_asking
from clipper.benchmarks.config import RunConfig
from clipper.cli.bench import bench
from clipper.errors import InputError
from clipper.pruning.joint import InferenceSettings, search
from clipper.pruning.joint.naming import NamingSearch
from tests.launch import ignored


def test_every_constant_is_changed_and_nothing_else_with_it() -> None:
    before, seen = asdict(InferenceSettings()), set()
    for name in changes()[1:]:
        after = asdict(changed(name)[0])
        different = {key for key in before if before[key] != after[key]}
        assert different == ({name.partition("=")[0]} if "=" in name else set())
        seen |= different
    assert seen == {field.name for field in fields(InferenceSettings)}


def test_a_mechanism_is_switched_off_for_as_long_as_it_runs() -> None:
    def parts() -> tuple[object, ...]:
        return search.islands, search._Search.named, NamingSearch.everywhere, bench_zoo.infer

    whole = parts()
    for name in bench_ablation.MECHANISMS:
        with changed(name)[1]:
            assert parts() != whole
        assert parts() == whole


def test_an_ablation_has_a_row_for_each_change_and_runs_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_ablation, "LINES", ("xor-3/digits/5", "sum-3/digits/5"))
    monkeypatch.setattr(bench_ablation, "TROUBLED", ("sum-3/digits/5",))
    names = ["as released", "walkers=2", *bench_ablation.MECHANISMS]
    file = tmp_path / "ablation.jsonl"
    rows = run_ablation(names, [0], file, workers=1, progress=ignored)
    assert [row["change"] for row in rows] == names
    assert {(row["pools"], row["troubled"], row["failed"]) for row in rows} == {(1, 1, 0)}
    assert len(file.read_text().splitlines()) == 2 * len(names)
    monkeypatch.setattr(bench_zoo, "make_pool", None)
    assert run_ablation(names, [0], file, workers=1, progress=ignored) == rows


def test_an_unknown_change_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="got 'walkers=3'"):
        CliRunner().invoke(bench, ["ablation", "--change", "walkers=3"], catch_exceptions=False)


@pytest.mark.slow
def test_asked_and_random_labels_are_measured_on_the_same_pools() -> None:
    arguments = ["ask", "--rule", "sum", "--slots", "2", "-n", "10", "--seeds", "2", "--labels", "20", "--json"]
    document = json.loads(CliRunner().invoke(bench, arguments, catch_exceptions=False).stdout)
    assert [row["seed"] for row in document["rows"]] == [0, 1]
    assert document["asked"] == document["random"] == 1, "all 20 labels are known"
    base = RunConfig(rule="sum", slots=2, samples=10)
    assert measure_asking(base, [1], 20, ignored)["rows"] == document["rows"][1:]
