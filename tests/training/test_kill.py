"""Killing a run with SIGKILL, again and again, changes nothing about how it ends."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
KILLS = 10


def start(word: str, *arguments: Path) -> subprocess.Popen[str]:
    """A run in a process of its own, at the moment when it says the word."""
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'src')]!r}; from tests.training.killed_run import main"
    command = [sys.executable, "-c", f"{code}; main(*sys.argv[1:])", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(line == f"{word}\n" for line in process.stdout)
    return process


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_ten_kills_at_random_moments_leave_the_weights_of_an_uninterrupted_run(tmp_path):
    moments = random.Random(0)
    whole, killed, checkpoint = tmp_path / "whole.pt", tmp_path / "killed.pt", tmp_path / "run.pt"
    with start("imported", whole) as process:
        assert process.wait() == 0
    for kill in range(KILLS):
        word, longest = ("imported", 1.0) if kill % 5 == 0 else ("training", 0.12)  # also while it takes up the run
        with start(word, killed, checkpoint) as process:
            time.sleep(moments.uniform(0, longest))
            process.kill()
            assert process.wait() == -signal.SIGKILL
    assert checkpoint.exists(), "all kills came before the first checkpoint, so nothing was tested"
    assert not killed.exists(), "the run ended before the kills did, so too little was tested"
    with start("imported", killed, checkpoint) as process:
        assert process.wait() == 0
    expected, found = torch.load(whole, weights_only=True), torch.load(killed, weights_only=True)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
