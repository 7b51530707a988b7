"""`clipper table` as its users meet it: stopped, started again, asked for JSON, given nonsense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
import typer

from clipper.benchmarks.tables import Ledger
from clipper.cli import results as results_command
from clipper.cli import table as table_command
from clipper.errors import FileError, InputError
from tests.launch import COMMAND, printed

app = typer.Typer()
app.command(name="table")(table_command.table)
app.command(name="results")(results_command.results)
QUICK = ["table", "sum", "--quick", "--engine", "semantic", "--column", "SUM-3, n=100"]
SMALL = [*QUICK, "--variant", "none", "--variant", "exact", "--seeds", "2", "--epochs", "2", "--jobs", "2"]
run = partial(printed, app)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    run(*SMALL, "--out", folder)
    return folder


def test_json_is_one_document_with_every_seed(folder):
    document = json.loads(run(*SMALL, "--out", folder, "--json"))
    assert document == json.loads((folder / "sum.json").read_text())
    assert [entry["row"] for entry in document["entries"]] == ["semantic", "semantic + exact"]
    assert all(len(entry["measures"]["accuracy"]["values"]) == 2 for entry in document["entries"])


def test_the_table_is_printed_and_written_in_markdown(folder):
    printed = run(*SMALL, "--out", folder)
    written = (folder / "sum.md").read_text()
    assert "semantic + exact" in printed
    assert "| semantic + exact |" in written
    assert "(2)" in written  # seeds


def test_show_runs_nothing(tmp_path):
    run(*SMALL, "--out", tmp_path, "--show")
    assert not (tmp_path / "records.jsonl").exists()


def test_results_are_one_document(folder, tmp_path):
    run("results", "--records", folder, "--to", tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert "4 runs" in text
    assert "| dolphin + frozen | not run | 33.2 ± 1.6 |" in text
    assert "Not run: MNIST SUM-3, n=100; " in text  # of which nobody published anything
    with pytest.raises(FileError, match="there are no records in"):
        run("results", "--records", tmp_path, "--to", tmp_path / "results.md")


@pytest.mark.parametrize("wrong", [["--jobs", "0"], ["--seeds", "0"], ["--engine", "magic"], ["--column", "SUM-9"]])
def test_nonsense_is_refused_before_anything_runs(wrong, tmp_path):
    with pytest.raises((InputError, SystemExit), match=r"expected|nothing|2"):
        run("table", "sum", "--quick", *wrong, "--out", tmp_path)
    assert not list(tmp_path.iterdir())


THREE = ["--variant", "none", "--variant", "exact", "--variant", "random"]


def begin(folder: Path) -> subprocess.Popen[bytes]:
    options = ["--seeds", "4", "--epochs", "30", "--jobs", "2", "--out", str(folder)]
    return subprocess.Popen(
        [*COMMAND, *QUICK, *THREE, *options],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell ignores for background jobs
    )


def wait_for_records(folder: Path, count: int) -> None:
    for _ in range(1200):
        path = folder / "records.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no run came to an end in a minute")


def workers_of(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for orphans in /proc, which is not here")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: how.name)
def test_a_stopped_table_leaves_no_process_and_goes_on_where_it_was(how, tmp_path):
    process = begin(tmp_path)
    wait_for_records(tmp_path, 2)
    workers = workers_of(process.pid)
    os.kill(process.pid, how)
    assert process.wait(timeout=60) != 0
    for _ in range(200):
        if not any(map(alive, workers)):
            break
        time.sleep(0.05)
    assert not any(map(alive, workers))
    finished = (tmp_path / "records.jsonl").read_bytes().rpartition(b"\n")[0]
    assert 2 <= len(Ledger(tmp_path / "records.jsonl")) < 12
    assert begin(tmp_path).wait(timeout=300) == 0
    assert (tmp_path / "records.jsonl").read_bytes().startswith(finished)
    assert len(Ledger(tmp_path / "records.jsonl")) == 12
