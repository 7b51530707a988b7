"""Outputs that cannot be written: refused in words, nothing left behind, and what was there before stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import clipper
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables import Ledger
from clipper.engines import SemanticLoss
from clipper.errors import FileError
from clipper.training import EpochMetrics, Record, train
from tests.hardening.attack import Clippers, files_of_at_most, listing, refused

LONG = "x" * 300
RECORD = Record(RunConfig(), [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])


def learn(path: Path) -> Any:
    candidates = clipper.Candidates.from_rule(sum, targets=[3, 1], slots=2, classes=3)
    network = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(-1))
    return train(network, (torch.ones(2, 2, 5), candidates), SemanticLoss(), epochs=1, checkpoint=path)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "record": RECORD.write,
    "checkpoint": learn,
    "ledger": lambda path: Ledger(path).add(RECORD),
    "candidates": lambda path: clipper.Candidates.from_lists([[(0, 1)]], classes=3).write(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_place_where_nothing_can_be_written_is_refused(name, tmp_path):
    write = WRITERS[name]
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("a file")
    before = listing(tmp_path)
    places: list[Any] = [tmp_path / "folder", tmp_path / LONG, tmp_path / "file" / "run", Path("/proc/no-such")]
    places += [tmp_path / "a\0b", Path("/dev/full") / "run", tmp_path / ("é" * 200)]
    for place in places:
        error = refused(lambda p=place: write(p))
        assert str(error)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_is_full_leaves_what_was_there(name, tmp_path, monkeypatch):
    write, path = WRITERS[name], tmp_path / "out"
    for size in (0, 10, 100):
        with files_of_at_most(size):
            assert isinstance(refused(lambda: write(path)), FileError)
        assert all(not content for content in listing(tmp_path).values())
        path.unlink(missing_ok=True)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert isinstance(refused(lambda: write(path)), FileError)
    assert all(not content for content in listing(tmp_path).values())


def test_a_ledger_that_cannot_grow_keeps_its_lines(tmp_path):
    path = tmp_path / "records.jsonl"
    Ledger(path).add(RECORD)
    content = path.read_bytes()
    more = replace(RECORD, config=RunConfig(seed=1))  # as long a line: a record made now has another load
    for room in (1, 50, len(content) - 1):
        with files_of_at_most(len(content) + room):
            assert isinstance(refused(lambda: Ledger(path).add(more)), FileError)
        assert path.read_bytes() == content
    Ledger(path).add(more)
    assert len(Ledger(path)) == 2


def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path):
    path = tmp_path / "run.pt"
    learn(path)
    content = path.read_bytes()
    candidates = clipper.Candidates.from_rule(sum, targets=[3, 1], slots=2, classes=3)
    network = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(-1))
    with files_of_at_most(len(content) // 2):
        error = refused(
            lambda: train(network, (torch.ones(2, 2, 5), candidates), SemanticLoss(), epochs=2, checkpoint=path)
        )
    assert isinstance(error, FileError)
    assert listing(tmp_path) == {"run.pt": content}


def test_names_as_long_as_the_system_allows_are_written(tmp_path):
    path = tmp_path / ("x" * 250 + ".json")
    RECORD.write(path)
    assert Record.read(path) == RECORD
    assert len(list(tmp_path.iterdir())) == 1


def test_commands_refuse_places_where_nothing_can_be_written(clippers: Clippers, tmp_path):
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder.json").mkdir()
    Ledger(tmp_path / "records" / "records.jsonl").add(RECORD)
    before = listing(tmp_path)
    tiny = ("train", "--samples", 4, "--slots", 2, "--epochs", 1)
    for command in [
        (*tiny, "-o", tmp_path / "folder.json"),
        (*tiny, "-o", tmp_path / "file" / "run.json"),
        (*tiny, "-o", tmp_path / f"{LONG}.json"),
        (*tiny, "-o", "/proc/no-such/run.json"),
        ("table", "hwf", "--show", "-o", tmp_path / "file"),
        ("table", "hwf", "--show", "-o", "/proc/no-such"),
        ("results", "--records", tmp_path / "records", "--to", tmp_path / "folder.json"),
        ("results", "--records", tmp_path / "records", "--to", tmp_path / f"{LONG}.md"),
        ("results", "--records", tmp_path / "file", "--to", tmp_path / "results.md"),
    ]:
        clippers.run(*command).check_refused()
    assert listing(tmp_path) == before


WRITER = """
import sys, time
from pathlib import Path
from clipper.benchmarks.config import RunConfig
from clipper.training import EpochMetrics, Record
from clipper.files import written_whole
with written_whole(sys.argv[1], replace=True) as temporary:
    temporary.write_text("half")
    print("half", flush=True)
    sys.stdin.read()
    temporary.write_text("whole")
"""


@pytest.mark.slow
def test_what_a_killed_process_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path):
    path = tmp_path / "run[1].json"  # a name that is a pattern, too
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    killed, living = (subprocess.Popen([sys.executable, "-c", WRITER, str(path)], **pipes) for _ in range(2))
    for process in (killed, living):
        assert process.stdout.readline() == b"half\n"
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.iterdir())) == 2
    RECORD.write(path)
    assert len(list(tmp_path.iterdir())) == 2, "the file, and what the living process is writing"
    living.communicate(b"")
    assert living.returncode == 0
    assert listing(tmp_path) == {path.name: b"whole"}
