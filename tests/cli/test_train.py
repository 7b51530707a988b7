from __future__ import annotations

import json
from dataclasses import fields
from functools import partial

import pytest
import typer
from typer.testing import CliRunner

from clipper.benchmarks.config import RunConfig
from clipper.cli import train as command
from clipper.errors import ClipperError
from clipper.training import Record
from tests.launch import printed

app = typer.Typer()
app.command()(command.train)
TINY = ["--samples", "12", "--slots", "2", "--epochs", "3", "--batch", "4"]
run = partial(printed, app, *TINY)


def test_json_prints_one_document_that_equals_the_record(tmp_path):
    path = tmp_path / "runs" / "one.json"
    document = json.loads(run("--out", path, "--json"))
    assert document.pop("output") == str(path)
    assert document == json.loads(path.read_text())
    assert len(document["epochs"]) == 3


def test_the_same_command_again_takes_up_the_finished_run(tmp_path):
    path = tmp_path / "one.json"
    first, second = json.loads(run("--out", path, "--json")), json.loads(run("--out", path, "--json"))
    assert first["epochs"] == second["epochs"]


@pytest.mark.parametrize("objective", ["none", "paper", "exact", "joint", "random"])
def test_every_objective_runs_from_the_command_line(objective, tmp_path):
    assert "accuracy" in run("--out", tmp_path / "one.json", "--objective", objective)
    assert Record.read(tmp_path / "one.json").config["objective"] == objective


def test_a_frozen_encoder_may_prune_once(tmp_path):
    run("--out", tmp_path / "one.json", "--encoder", "pixels", "--when", "once", "--rule", "max")
    assert Record.read(tmp_path / "one.json").last.retained < 1


def test_options_reach_the_engine(tmp_path):
    run("--out", tmp_path / "one.json", "--engine", "dolphin", "--engine-option", "provenance=dtkp-am",
        "--engine-option", "k=2", "--bank", "8")  # fmt: skip
    assert Record.read(tmp_path / "one.json").config["engine_options"] == {"provenance": "dtkp-am", "k": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        ("--engine-option", "k"),
        ("--engine-option", "magic=1"),
        ("--network", "Transformer"),
        ("--when", "once"),
        ("--samples", "100000"),
        ("--lr", "-1"),
    ],
)
def test_wrong_options_are_answered_by_an_error_of_ours(wrong, tmp_path):
    with pytest.raises(ClipperError):
        run("--out", tmp_path / "one.json", *wrong)


def test_a_record_must_be_a_json_file(tmp_path):
    with pytest.raises(ClipperError, match=r"\.json"):
        run("--out", tmp_path / "one.txt")


def test_another_run_is_not_written_over(tmp_path):
    run("--out", tmp_path / "one.json")
    with pytest.raises(ClipperError, match="another run"):
        run("--out", tmp_path / "one.json", "--seed", "1")


def test_tensorboard_writes_event_files(tmp_path):
    pytest.importorskip("tensorboard")
    run("--out", tmp_path / "one.json", "--tensorboard", tmp_path / "board")
    assert list((tmp_path / "board").glob("events*"))


def test_a_report_is_written_beside_the_record(tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "pages" / "one.html"
    document = json.loads(run("--out", tmp_path / "one.json", "--report", page, "--json"))
    assert document["report"] == str(page)
    assert "Which edges ruled out which candidates" in page.read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_is_refused_before_training(tmp_path):
    with pytest.raises(ClipperError, match=r"\.html"):
        run("--out", tmp_path / "one.json", "--report", tmp_path / "one.pdf")
    assert not (tmp_path / "one.json").exists()


def test_every_field_of_a_run_has_an_option_and_says_what_it_means():
    told = CliRunner().invoke(app, ["--help"], terminal_width=400).stdout
    for entry in fields(RunConfig):
        if "help" in entry.metadata:
            flags = entry.metadata.get("flags", (f"--{entry.name.replace('_', '-')}",))
            assert all(flag in told for flag in flags), entry.name


def test_a_benchmark_of_ones_own_is_trained_from_its_file(tmp_path):
    (tmp_path / "own.py").write_text(
        "from clipper.benchmarks.registry import benchmark_named\n"
        "from dataclasses import replace\n"
        "def odd(config):\n"
        "    return benchmark_named('sum').build(replace(config, rule='sum', data='digits'))\n"
    )
    run("--rule", f"{tmp_path / 'own.py'}:odd", "--out", tmp_path / "one.json", "--report", tmp_path / "one.html")
    assert Record.read(tmp_path / "one.json").config["rule"].endswith("own.py:odd")
    assert (tmp_path / "one.inspection.json").exists()
