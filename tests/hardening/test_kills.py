"""Commands killed at random moments: nothing is lost, nothing is half-written, and runs end as if never stopped.

The commands run in children of a process that has everything imported, since starting each anew costs seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clipper
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables import Ledger
from clipper.training import EpochMetrics, Record
from tests.hardening.attack import EFFORT, ROOT, listing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks the commands that it kills"),
]
TRAIN = ("train", "--samples", 12, "--slots", 2, "--batch", 4, "--epochs", 8, "--checkpoint-steps", 1)
PASSES = ("train", "--samples", 30, "--slots", 2, "--objective", "joint", "--passes", 2, "--epochs", 3)
CLIPS = ("clips", "--train", 3, "--test", 3, "--frames", "8-12", "--actions", "2-3")
NURSERY = """
import json, os, signal, sys
from clipper.cli import main

def run(argv):
    sys.argv = ["clipper", *argv]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0

answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork() if job["fork"] else 0
    if pid == 0:
        out = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if job["fork"]:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not job["fork"]:
            answers.write("0\\n")
            answers.flush()
        code = run(job["argv"])
        sys.stdout.flush()
        sys.stderr.flush()
        if job["fork"]:
            os._exit(code)
        sys.stdin.readline()
        answers.write("%d\\n" % code)
    else:
        answers.write("%d\\n" % pid)
        answers.flush()
        sys.stdin.readline()  # until then the child's number is nobody else's
        answers.write("%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    answers.flush()
"""


class Nursery:
    """A process that forks a child for each command."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *arguments: object, fork: bool = True) -> int:
        assert self.process.stdin is not None
        job = {"argv": [str(a) for a in arguments], "log": str(self.log), "fork": fork}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        pid = self._number()
        assert pid > 1 or not fork, "no child, and nothing else may be killed"
        return pid

    def end(self) -> int:
        """The exit code of the command under way."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._number()

    def run(self, *arguments: object, fork: bool = True) -> float:
        """Run a command to its end; how many seconds it took."""
        start = time.perf_counter()
        self.start(*arguments, fork=fork)
        assert self.end() == 0, self.log.read_text()
        return time.perf_counter() - start

    def _number(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("nursery")
    nursery = Nursery(folder)
    nursery.run(*TRAIN[:5], "--epochs", 1, "-o", folder / "warm.json", fork=False)  # imports what a run needs
    yield nursery
    nursery.process.kill()
    nursery.process.communicate()


def killed(
    nursery: Nursery, kills: int, seconds: float, command: tuple[object, ...], check: Callable[[], Any], seed: int
) -> None:
    """Start the command until it was killed so often, each time at a random moment; check what it left each time."""
    moments, done = random.Random(seed), 0
    for _ in range(20 * kills):
        pid = nursery.start(*command)
        time.sleep(moments.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
        code = nursery.end()
        assert code in (0, -signal.SIGKILL), nursery.log.read_text()
        done += code != 0
        check()
        if done == kills:
            break
    assert done == kills, "the command ended before the kills did, so too little was tested"
    nursery.run(*command)


def weights(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state"]["classifier"]
    return found


@pytest.mark.parametrize(("command", "kills"), [(TRAIN, 3), (PASSES, 1)], ids=["train", "passes"])
def test_a_killed_training_ends_with_the_same_weights(nursery, command, kills, tmp_path):
    whole, path = tmp_path / "whole.json", tmp_path / "killed" / "run.json"
    path.parent.mkdir()
    seconds = nursery.run(*command, "-o", whole)
    expected = weights(whole.with_suffix(".pt"))

    def check() -> None:
        if path.exists():  # it ended in spite of all: from the beginning
            assert len(json.loads(path.read_text())["epochs"]) == len(json.loads(whole.read_text())["epochs"])
            for place in path.parent.iterdir():
                place.unlink()

    killed(nursery, kills * EFFORT, seconds, (*command, "-o", path), check, seed=1)
    found = weights(path.with_suffix(".pt"))
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    losses = [[epoch["loss"] for epoch in json.loads(place.read_text())["epochs"]] for place in (whole, path)]
    assert losses[0] == losses[1]
    assert sorted(place.name for place in path.parent.iterdir()) == ["run.json", "run.pt"]


def test_a_killed_pruning_writes_all_or_nothing(nursery, tmp_path):
    targets = torch.randint(0, 28, (300,), generator=torch.Generator().manual_seed(0))
    clipper.Candidates.from_rule(sum, targets, slots=3, classes=10).write(tmp_path / "candidates.parquet")
    np.save(tmp_path / "embeddings.npy", torch.rand(300, 3, 16, generator=torch.Generator().manual_seed(0)).numpy())
    command = ("prune", tmp_path / "candidates.parquet", tmp_path / "embeddings.npy", "-o")
    seconds = nursery.run(*command, tmp_path / "whole.parquet")
    expected, path = (tmp_path / "whole.parquet").read_bytes(), tmp_path / "killed.parquet"

    def check() -> None:
        if path.exists():
            assert path.read_bytes() == expected
            path.unlink()

    killed(nursery, 2 * EFFORT, seconds, (*command, path), check, seed=2)
    assert path.read_bytes() == expected
    assert not [name for name in listing(tmp_path) if name.endswith(".part")]


def test_a_killed_drawing_of_clips_leaves_whole_files(nursery, tmp_path):
    seconds = nursery.run(CLIPS[0], tmp_path / "whole", *CLIPS[1:])
    expected, folder = listing(tmp_path / "whole"), tmp_path / "killed"
    expected = {name: content.replace(b"/whole", b"/killed") for name, content in expected.items()}  # a file names them

    def check() -> None:
        found = {name: content for name, content in listing(folder).items() if not name.endswith(".part")}
        assert all(expected[name] == content for name, content in found.items())

    killed(nursery, 1 * EFFORT, seconds, (CLIPS[0], folder, *CLIPS[1:]), check, seed=3)
    assert listing(folder) == expected


def test_a_killed_report_is_the_older_one_or_the_new_one(nursery, tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    for seed in range(10):
        epochs = [EpochMetrics(i + 1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02) for i in range(50)]
        ledger.add(Record(RunConfig(data="mnist", seed=seed, evaluate_every=25), epochs, {"torch": "2"}))
    command, path = ("results", "--records", tmp_path, "--to"), tmp_path / "results.md"
    seconds = nursery.run(*command, tmp_path / "whole.md")
    expected = (tmp_path / "whole.md").read_bytes()
    path.write_bytes(b"older")
    killed(nursery, 1 * EFFORT, seconds, (*command, path), lambda: _one_of(path, b"older", expected), seed=4)
    assert path.read_bytes() == expected
    page = tmp_path / "page.html"
    train = (*TRAIN, "--epochs", 1, "-o", tmp_path / "run.json", "--report", page)
    seconds = nursery.run(*train)

    def whole() -> None:
        assert page.read_text(encoding="utf-8").endswith("</html>")

    killed(nursery, 1 * EFFORT, seconds, train, whole, seed=5)
    assert not [name for name in listing(tmp_path) if name.endswith(".part")]


def _one_of(path: Path, *contents: bytes) -> None:
    assert path.read_bytes() in contents


def test_a_killed_table_loses_no_finished_run(nursery, tmp_path):
    table = ("table", "sum", "--quick", "--engine", "semantic", "--column", "SUM-3, n=100", "--variant", "none")
    command = (*table, "--seeds", 3, "--epochs", 2, "--jobs", 1, "-o", tmp_path)
    path, seen = tmp_path / "records.jsonl", [b""]

    def check() -> None:
        content = path.read_bytes() if path.exists() else b""
        assert content.startswith(seen[0].rpartition(b"\n")[0]), "a finished run was lost"
        Ledger(path)
        seen[0] = content
        if len(Ledger(path)) == 3:
            path.unlink()
            seen[0] = b""

    killed(nursery, 1 * EFFORT, 4.0, command, check, seed=6)
    assert sorted(record.config["seed"] for record in Ledger(path).records()) == [100, 101, 102]
    assert path.read_bytes().count(b"\n") == 3
    assert json.loads((tmp_path / "sum.json").read_text())["entries"][0]["seeds"] == [100, 101, 102]
    assert not [name for name in listing(tmp_path) if name.endswith((".part", ".claim"))]


def test_ctrl_c_leaves_a_checkpoint_and_one_line(nursery, tmp_path):
    whole, path = tmp_path / "whole.json", tmp_path / "stopped.json"
    nursery.run(*TRAIN, "--epochs", 30, "-o", whole)
    pid = nursery.start(*TRAIN, "--epochs", 30, "-o", path)
    while not path.with_suffix(".pt").exists():
        time.sleep(0.002)
    os.kill(pid, signal.SIGINT)
    assert nursery.end() == 130
    told = nursery.log.read_text()
    assert "Traceback" not in told
    assert "continues from" in told
    nursery.run(*TRAIN, "--epochs", 30, "-o", path)
    expected, found = weights(whole.with_suffix(".pt")), weights(path.with_suffix(".pt"))
    assert all(torch.equal(expected[name], found[name]) for name in expected)
