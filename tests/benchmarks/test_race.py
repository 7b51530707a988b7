"""The race keeps its rows, goes on when somebody fails, and its summary counts what it should."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from clipper.benchmarks import environments
from clipper.benchmarks.race import run
from clipper.benchmarks.race.contestants import CONTESTANTS, contestants_like
from clipper.benchmarks.race.heat import Heat
from clipper.benchmarks.race.run import jobs_of, make_environments, read_rows, run_race
from clipper.benchmarks.race.summary import standings
from clipper.benchmarks.race.tasks import tasks_like, write_task
from clipper.cli.app import app
from clipper.errors import FileError, InputError
from clipper.report.race_page import entry_cells, write_race_page
from tests.launch import ignored

TASK = tasks_like(["sum-2/digits/100"], "digits")
EXACT, KLAY = contestants_like(["clipper-exact", "klay"])
HERE = {each.name: Path(sys.executable) for each in CONTESTANTS}


def row_of(contestant: str, seed: int = 0, **changed: object) -> dict:
    """A row of a run that ended after two of ten seconds."""
    curve = [[0.0, 0.0, 0.1, 0.0], [0.9, 0.9, 0.4, 500.0], [2.0, 2.0, 0.6, 1000.0]]
    return {
        "task": TASK[0].name, "contestant": contestant, "seed": seed, "settings": {}, "seconds": 10.0, "error": None,
        "curve": curve, "first_step": 0.5, "out_of_time": False, "peak_megabytes": 300.0, "notes": {},
        "commit": "abc123",
    } | changed  # fmt: skip


def test_rows_that_are_there_are_not_run_again_and_failed_ones_are(tmp_path, monkeypatch):
    asked = []

    def result(job, *_):
        asked.append(job.contestant.name)
        if job.contestant is KLAY and len(asked) == 2:
            raise run.ContestantFailedError("exit code 1: no memory")
        return {name: row_of("")[name] for name in ("curve", "out_of_time")} | {"out_of_time": job.contestant is KLAY}

    monkeypatch.setattr(run, "_result", result)
    file = tmp_path / "rows" / "race.jsonl"
    first = run_race(jobs_of(TASK, [EXACT, KLAY], [0], 5), file, HERE, progress=ignored)
    assert [row["error"] for row in first] == [None, "exit code 1: no memory"]
    with file.open("ab") as cut_off:
        cut_off.write(b'{"format": "clipper race 1", "task": "su')
    again = run_race(jobs_of(TASK, [EXACT, KLAY], [0], 5), file, HERE, progress=ignored)
    assert [row["error"] for row in again] == [None, None]
    run_race(jobs_of(TASK, [EXACT, KLAY], [0], 3), file, HERE, progress=ignored)  # shorter: nothing to run
    run_race(jobs_of(TASK, [EXACT, KLAY], [0], 9), file, HERE, progress=ignored)  # longer: only whom the clock ended
    assert asked == ["clipper-exact", "klay", "klay", "klay"]
    assert len(read_rows(file)) == 2


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "race.jsonl").write_text('{"format": "clipper zoo 1"}\n')
    with pytest.raises(FileError, match="line 1"):
        read_rows(tmp_path / "race.jsonl")
    with pytest.raises(InputError, match="klaay"):
        contestants_like(["klaay"])


@pytest.mark.slow
def test_a_contestant_that_crashes_is_named_and_the_race_goes_on(tmp_path):
    crashing = replace(KLAY, function="clipper.benchmarks.race.with_klay:no_such_function", imports=(), packages=())
    jobs = jobs_of(TASK, [crashing, EXACT], [0], 0.5)
    failed, well = run_race(jobs, tmp_path / "race.jsonl", HERE, progress=ignored)
    assert "no_such_function" in failed["error"]
    assert well["error"] is None
    assert well["curve"][0][0] == 0
    assert well["data"] == failed["data"]
    assert [entry.contestant.name for entry in standings([failed, well])[0].entries] == ["clipper-exact"]


def test_whoever_cannot_be_installed_is_skipped_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "cache_folder", lambda: tmp_path)
    monkeypatch.setitem(environments.PACKAGES, "klay", ("--no-index", "no-such-package-of-clipper==1"))
    interpreters, skipped = make_environments([EXACT, KLAY], ignored)
    assert list(interpreters) == ["clipper-exact"]
    assert "no environment for klay can be made here" in skipped["klay"]
    assert list((tmp_path / "peers").iterdir()) == []


def test_everybody_starts_from_the_same_file(tmp_path):
    first, again = (write_task(TASK[0], 3, tmp_path / f"{name}.npz") for name in "ab")
    assert first == again != write_task(TASK[0], 4, tmp_path / "c.npz")
    with np.load(tmp_path / "a.npz") as file:
        assert "gold" not in " ".join(file)
        heat = Heat(dict(file), "DigitsCnn", {"epochs": 2}, seed=0, seconds=60)

    def learns_nothing(heat: Heat) -> None:
        for ids in heat.batches(64):
            heat.step(len(ids))

    heat.run(learns_nothing)
    assert [point[3] for point in (heat.curve[0], heat.curve[-1])] == [0, 200]
    assert len({point[2] for point in heat.curve}) == 1
    assert not heat.out_of_time


def test_the_summary_is_that_of_rows_made_by_hand():
    slow = [[0.0, 0.0, 0.1, 0.0], [4.6, 4.6, 0.8, 50.0], [10.2, 10.2, 1.0, 90.0]]
    rows = [
        row_of("clipper", 0), row_of("clipper", 1, curve=[[0.0, 0.0, 0.1, 0.0], [0.8, 0.8, 0.8, 9.0]]),
        row_of("klay", 0, curve=slow, out_of_time=True), row_of("klay", 1, curve=slow, out_of_time=True),
        row_of("ablkit", 0, error="exit code 1"),
    ]  # fmt: skip
    (standing,) = standings(rows)
    klay, own = standing.entries
    assert (klay.mean, klay.deviation, klay.near, klay.ended) == (1.0, 0.0, [10.0, 10.0], [10.0, 10.0])
    assert own.final == [0.6, 0.8]
    assert own.near_seconds is None
    assert own.accuracy_at(1) == pytest.approx((0.4 + 0.8) / 2)
    first = {at: entry.contestant.name for at, entry in standing.leaders}
    assert first == {1: "clipper", 2: "clipper", 3: "clipper", 5: "klay", 7: "klay", 10: "klay"}
    assert standing.verdict[0].startswith("Clipper: joint inference, then training is first from 1 s to 3 s")
    assert standing.verdict[1].startswith("KLay circuits is first from 5 s to 10 s (100.0 % after 10 s)")
    assert "30.0 points behind: its own 50 epochs were over after 2 s" in standing.verdict[1]
    assert entry_cells(klay)[1:5] == ["100.0 ± 0.0", "10", "0.50", "clock"]


def test_joint_inference_before_the_first_step_is_a_reason_for_not_being_first():
    rows = [row_of("clipper", first_step=1.5, curve=[[0.0, 0.0, 0.1, 0.0], [1.6, 1.6, 0.9, 9.0]]), row_of("klay")]
    (standing,) = standings(rows)
    assert "its first step ends after 1.5 s." in standing.verdict[0]
    assert standing.leaders[-1][1].contestant.name == "clipper"
    (alone,) = standings(rows[:1])
    assert alone.verdict[0] == "A contestant with Clipper is first at every time from 1 s on."


def test_the_page_has_figure_reasons_settings_failures_and_what_was_skipped(tmp_path):
    pytest.importorskip("matplotlib")
    busy = [[0.0, 0.0, 0.1, 0.0], [2.0, 0.5, 0.7, 10.0]]
    rows = [row_of("clipper"), row_of("klay", curve=busy), row_of("ablkit", error="E: 1 < 2")]
    write_race_page(rows, tmp_path / "race.html", skipped={"snorkel": "no network"})
    html = (tmp_path / "race.html").read_text(encoding="utf-8")
    for text in ("<svg", "is first", "E: 1 &lt; 2", "no network", "abc123", "run.py of KLay", "was busy"):
        assert text in html
    assert 'src="' not in html
    write_race_page([], tmp_path / "race.html")
    assert "Nothing was measured" in (tmp_path / "race.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.skipif(os.environ.get("CLIPPER_PEERS") != "1", reason="peers are installed and run by `make check` only")
def test_the_quick_race_is_run_by_everybody(tmp_path):
    rows = tmp_path / "race.jsonl"
    result = CliRunner().invoke(app, ["race", "--quick", "--out", str(rows), "--page", str(tmp_path / "race.html")])
    assert result.exit_code == 0, result.output
    assert {row["contestant"] for row in read_rows(rows).values()} == {each.name for each in CONTESTANTS}
