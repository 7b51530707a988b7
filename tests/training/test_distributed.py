"""Training by two processes: the steps of one process, and an end in words when one of the two is killed."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from clipper import Clipper
from clipper.engines import IsedLoss, SemanticLoss
from clipper.errors import InputError
from clipper.training import train
from tests.launch import ROOT, finished, torchrun
from tests.training.distributed_runs import RUNS, outcome
from tests.training.problems import TinyNet, problem

RANKS = 2
GRADIENT = 1e-6
"""What rounding may change about a gradient."""

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this build of torch has no gloo")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_two_processes_learn_what_one_does_and_a_killed_one_ends_the_job_in_words(tmp_path: Path) -> None:
    module = ("-m", "tests.training.distributed_runs")
    job = torchrun(*module, "compare", tmp_path / "runs")
    expected = {name: [outcome(name, steps) for steps in (1, None)] for name in RUNS}
    code, _, errors = finished(job)
    assert code == 0, errors
    for rank in range(RANKS):
        found = torch.load(tmp_path / f"runs.{rank}")
        for name, (step, run) in expected.items():
            for one, two in zip((step, run), found[name], strict=True):
                assert two["kept"] == pytest.approx(one["kept"], rel=1e-12), name
                assert two["seen"] == one["seen"], name
                assert two["loss"] == pytest.approx(one["loss"], abs=1e-5), name
                for a, b in zip(one["weights"], two["weights"], strict=True):
                    assert float((a - b).abs().max()) < GRADIENT, name

    code, _, errors = finished(torchrun(*module, "train", tmp_path / "killed", tmp_path / "run.pt", "10"))
    assert code != 0
    assert re.search(r"Signal 9 \(SIGKILL\) received", errors), errors
    assert not list(tmp_path.glob("killed.*"))
    shutil.copy(tmp_path / "run.pt", tmp_path / "alone.pt")
    options = {"clip": Clipper(), "bank": 6, "epochs": 6, "batch": 8, "checkpoint": tmp_path / "alone.pt"}
    taken_up = train(TinyNet(), problem(samples=21), IsedLoss(sum, samples=5), **options)
    assert taken_up[0].loss == torch.load(tmp_path / "runs.long.0")["loss"][0], "one process goes on where two were"
    code, _, errors = finished(torchrun(*module, "train", tmp_path / "resumed", tmp_path / "run.pt"))
    assert code == 0, errors
    for rank in range(RANKS):
        whole, resumed = (torch.load(tmp_path / f"{name}.{rank}") for name in ("runs.long", "resumed"))
        assert whole["loss"] == resumed["loss"]
        assert all(torch.equal(whole["weights"][name], resumed["weights"][name]) for name in whole["weights"])


@pytest.mark.slow
def test_the_example_on_the_page_runs_under_torchrun(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "init_process_group" in block]
    assert len(blocks) == 1
    (tmp_path / "parallel.py").write_text(blocks[0])
    code, printed, errors = finished(torchrun("parallel.py", folder=tmp_path))
    assert code == 0, errors
    assert (tmp_path / "parallel.pt").exists()
    assert len(re.findall(r"^\d\.\d+ \d\.\d+$", printed, re.MULTILINE)) == 1, "the first process prints loss and share"


def test_a_group_needs_averaged_gradients(group: dist.ProcessGroup) -> None:
    with pytest.raises(InputError, match=r"expected a classifier in torch\.nn\.parallel\.DistributedDataParallel"):
        train(TinyNet(), problem(), SemanticLoss(), clip=Clipper(), epochs=1, group=group)
