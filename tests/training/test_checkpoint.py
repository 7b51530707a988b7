from __future__ import annotations

import pickle
from pathlib import Path
from shutil import copyfile

import pytest
import torch

from clipper import Clipper
from clipper.engines import IsedLoss, SampledSemanticLoss, SemanticLoss
from clipper.errors import FileError
from clipper.proximity import ExactSearch, Pixels
from clipper.training import Progress, train
from clipper.training.checkpoint import load_checkpoint, save_checkpoint
from clipper.training.schedule import options_of
from tests.training.problems import TinyNet, problem, same_weights


class PullThePlugError(Exception):
    pass


def interrupted_at(epoch: int, step: int):
    def watch(moment: Progress) -> None:
        if (moment.epoch, moment.step) == (epoch, step) and not moment.ended:
            raise PullThePlugError

    return watch


SETTINGS = {
    "frozen": {"make_engine": SemanticLoss, "clip": Clipper(objective="random", encoder=Pixels())},
    "baseline": {"make_engine": SemanticLoss},
    "trainable": {"make_engine": SemanticLoss, "clip": Clipper()},
    "bank": {"make_engine": SemanticLoss, "clip": Clipper(), "bank": 12},
    "random": {"make_engine": SemanticLoss, "clip": Clipper(objective="random")},
    "ised": {"make_engine": lambda: IsedLoss(sum, samples=10), "clip": Clipper()},
    "sampled": {"make_engine": lambda: SampledSemanticLoss(2), "clip": Clipper()},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("moment", [(1, 1), (2, 3), (4, 2)])
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(name, moment, tmp_path):
    setting = dict(SETTINGS[name])
    make_engine = setting.pop("make_engine")
    setting |= {"epochs": 4, "batch": 8, "seed": 3}
    whole, first, second = TinyNet(), TinyNet(), TinyNet(seed=9)
    expected = train(whole, problem(), make_engine(), **setting)
    setting |= {"checkpoint": tmp_path / "run.pt", "checkpoint_steps": 2}
    with pytest.raises(PullThePlugError):
        train(first, problem(), make_engine(), watch=interrupted_at(*moment), **setting)
    if not (tmp_path / "run.pt").exists():
        second = TinyNet()  # interrupted before the first checkpoint: it starts anew
    history = train(second, problem(), make_engine(), **setting)
    assert same_weights(whole, second)
    assert [figures.loss for figures in history] == [figures.loss for figures in expected]


def test_a_finished_run_gives_its_history_again(tmp_path):
    setting = {"epochs": 2, "checkpoint": tmp_path / "run.pt"}
    first, second = TinyNet(), TinyNet(seed=4)
    history = train(first, problem(), SemanticLoss(), **setting)
    assert train(second, problem(), SemanticLoss(), **setting) == history
    assert same_weights(first, second)


def test_more_epochs_go_on_from_the_checkpoint(tmp_path):
    whole, parts = TinyNet(), TinyNet()
    train(whole, problem(), SemanticLoss(), epochs=4)
    for epochs in (1, 4):
        train(parts, problem(), SemanticLoss(), epochs=epochs, checkpoint=tmp_path / "run.pt")
    assert same_weights(whole, parts)


@pytest.mark.parametrize("change", [{"seed": 1}, {"batch": 5}, {"clip": Clipper()}])
def test_a_checkpoint_of_another_run_is_refused(change, tmp_path):
    train(TinyNet(), problem(), SemanticLoss(), epochs=1, checkpoint=tmp_path / "run.pt")
    with pytest.raises(FileError, match="another run"):
        train(TinyNet(), problem(), SemanticLoss(), epochs=1, checkpoint=tmp_path / "run.pt", **change)


@pytest.mark.parametrize("change", [{"k": 2}, {"mutual": True}, {"share": 0.5}, {"search": "nn-descent"}])
def test_a_checkpoint_of_another_pruning_is_refused_with_the_name_of_the_option(change, tmp_path):
    train(TinyNet(), problem(), SemanticLoss(), clip=Clipper(), epochs=1, checkpoint=tmp_path / "run.pt")
    with pytest.raises(FileError, match=f"another run: {next(iter(change))} .* there and .* here"):
        train(TinyNet(), problem(), SemanticLoss(), clip=Clipper(**change), epochs=1, checkpoint=tmp_path / "run.pt")


def test_searches_of_several_kinds_are_options_of_a_run():
    by_kind = options_of(Clipper(search={"names": "ivf", "relations": ExactSearch()}))
    assert by_kind == options_of(Clipper()) | {"search names": "ivf", "search relations": "ExactSearch"}


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    train(TinyNet(), problem(), SemanticLoss(), epochs=1, checkpoint=tmp_path / "run.pt")
    with pytest.raises(FileError, match="data"):
        train(TinyNet(), problem(seed=1), SemanticLoss(), epochs=1, checkpoint=tmp_path / "run.pt")


def test_a_failed_write_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    save_checkpoint(path, {"step": 1}, {})

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="full"):
        save_checkpoint(path, {"step": 2}, {})
    assert load_checkpoint(path, {}) == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_run_left_half_written_is_swept_away(tmp_path):
    (tmp_path / ".run.pt.abc.part").write_bytes(b"half")
    assert load_checkpoint(tmp_path / "run.pt", {}) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"no checkpoint", pickle.dumps({"format": 1}, protocol=2)])
def test_a_damaged_checkpoint_is_refused(content, tmp_path):
    (tmp_path / "run.pt").write_bytes(content)
    with pytest.raises(FileError, match="to start anew"):
        load_checkpoint(tmp_path / "run.pt", {})


def test_a_checkpoint_of_the_first_version_goes_on(tmp_path):
    setting = {"clip": Clipper(k=1), "bank": 12, "epochs": 4, "batch": 8, "seed": 3}
    whole, resumed = TinyNet(), TinyNet(seed=9)
    expected = train(whole, problem(), SemanticLoss(), **setting)
    copyfile(Path(__file__).parent / "data" / "checkpoint-0.1.pt", tmp_path / "run.pt")  # stopped in the second epoch
    history = train(resumed, problem(), SemanticLoss(), checkpoint=tmp_path / "run.pt", **setting)
    assert [metrics.loss for metrics in history] == pytest.approx([metrics.loss for metrics in expected], rel=1e-5)
    pairs = zip(whole.parameters(), resumed.parameters(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
