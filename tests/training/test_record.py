from __future__ import annotations

import json

import pytest

from clipper.benchmarks.config import RunConfig
from clipper.errors import FileError, InputError
from clipper.training import EpochMetrics, Record

FIGURES = [EpochMetrics(1, 3.0, None, 0.8, None, 0.1, 0.01), EpochMetrics(2, 2.0, 0.5, 0.7, 0.9, 0.0, 0.0)]
RECORD = Record(RunConfig(engine="scallop", engine_options={"k": 5}, seed=7), FIGURES)


def test_a_record_comes_back_as_it_was_written(tmp_path):
    RECORD.write(tmp_path / "run.json")
    assert Record.read(tmp_path / "run.json") == RECORD


def test_a_record_names_configuration_seed_versions_and_every_epoch(tmp_path):
    RECORD.write(tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["config"]["engine_options"] == {"k": 5}
    assert document["seed"] == 7
    assert {"torch", "numpy", "python", "clipper-nesy", "threads"} <= document["versions"].keys()
    assert [epoch["epoch"] for epoch in document["epochs"]] == [1, 2]
    assert document["epochs"][0]["pruning_share"] == pytest.approx(0.1)
    assert document["last"] == document["epochs"][-1]


def test_a_record_of_another_run_is_not_written_over(tmp_path):
    RECORD.write(tmp_path / "run.json")
    RECORD.write(tmp_path / "run.json")
    with pytest.raises(FileError, match="another run"):
        Record(RunConfig(), FIGURES).write(tmp_path / "run.json")


@pytest.mark.parametrize("text", ["", "{}", '{"format": "clipper run 1"}', "[1]"])
def test_what_is_no_record_is_refused(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(FileError):
        Record.read(tmp_path / "run.json")


@pytest.mark.parametrize(
    "wrong", [{"rule": "product"}, {"epochs": 0}, {"lr": 0.0}, {"engine": "magic"}, {"seed": -1}, {"slots": 0}]
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InputError):
        RunConfig(**wrong)


def test_an_unknown_field_is_refused():
    with pytest.raises(InputError, match="colour"):
        RunConfig.from_dict({"colour": "red"})


@pytest.mark.parametrize("config", [{"network": object()}, {"lr": float("nan")}])
def test_a_configuration_that_no_file_can_hold_is_refused(config, tmp_path):
    with pytest.raises(InputError, match="finite numbers and text"):
        Record(config, FIGURES).write(tmp_path / "run.json")
    assert not list(tmp_path.iterdir())
