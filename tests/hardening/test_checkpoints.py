"""Checkpoints: damaged ones are refused in words, and a run that goes on ends as if it had never stopped."""

from __future__ import annotations

import io
import json
import pickle
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import clipper
from clipper.benchmarks.config import RunConfig
from clipper.engines import IsedLoss, SemanticLoss
from clipper.errors import FileError
from clipper.training import Progress, train, train_iterated
from tests.hardening.attack import EFFORT, Clippers, answered, damaged, refused
from tests.training.problems import same_weights

TINY = ("train", "--samples", 8, "--slots", 2, "--batch", 4, "--epochs", 3, "--json")
FIGURES = ("loss", "accuracy", "retained", "gold")


class Net(nn.Module):
    """Log-probabilities and embedding, with dropout; it fails at the pass `until`, as if the plug were pulled."""

    def __init__(self, seed: int = 0, until: int = -1, width: int = 8) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.features = nn.Sequential(nn.Linear(6, width), nn.ReLU())
            self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(width, 4))
        self.until, self.passes = until, 0

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        self.passes += 1
        if self.passes == self.until:
            raise KeyboardInterrupt
        embedding = self.features(inputs)
        return self.head(embedding).log_softmax(-1), embedding


def problem(samples: int = 24) -> tuple[Tensor, clipper.Candidates]:
    generator = torch.Generator().manual_seed(0)
    gold = torch.randint(0, 4, (samples, 2), generator=generator)
    inputs = 3 * torch.randn(4, 6, generator=generator)[gold] + 0.3 * torch.randn(samples, 2, 6, generator=generator)
    return inputs, clipper.Candidates.from_rule(sum, gold.sum(1), 2, 4)


@pytest.fixture(scope="module")
def stopped(clippers: Clippers, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Any]]:
    """The checkpoint of a run after two epochs of three, and the record that it should end with."""
    folder = tmp_path_factory.mktemp("stopped")
    assert clippers.run(*TINY[:-3], "--epochs", 2, "-o", folder / "run.json").code == 0
    content = (folder / "run.pt").read_bytes()
    (folder / "run.json").unlink()
    whole = clippers.run(*TINY, "-o", folder / "whole.json")
    assert whole.code == 0, whole.err
    return content, json.loads(whole.out)


def figures(record: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(epoch[name] for name in FIGURES) for epoch in record["epochs"]]


def test_an_undamaged_checkpoint_goes_on_to_the_same_figures(clippers, stopped, tmp_path):
    content, whole = stopped
    (tmp_path / "run.pt").write_bytes(content)
    ran = clippers.run(*TINY, "-o", tmp_path / "run.json")
    assert ran.code == 0, ran.err
    assert figures(json.loads(ran.out)) == figures(whole)


def test_no_damaged_checkpoint_goes_on_to_other_figures(clippers, stopped, tmp_path):
    content, whole = stopped
    refusals = 0
    for i, bad in enumerate(damaged(content, 150 * EFFORT, seed=7)):
        (tmp_path / "run.pt").write_bytes(bad)
        ran = clippers.run(*TINY, "-o", tmp_path / "run.json")
        if ran.code == 0:
            assert bad == content, f"damage {i} was not noticed"
            assert figures(json.loads(ran.out)) == figures(whole)
            (tmp_path / "run.json").unlink()
        else:
            ran.check_refused()
            refusals += 1
            assert not (tmp_path / "run.json").exists()
    assert refusals >= 140 * EFFORT


def test_not_one_flipped_bit_goes_unnoticed(stopped, tmp_path):
    content, _ = stopped
    path, positions, data = tmp_path / "run.pt", random.Random(1), problem()
    for _ in range(100 * EFFORT):
        bad = bytearray(content)
        bad[positions.randrange(len(bad))] ^= 1 << positions.randrange(8)
        path.write_bytes(bad)
        error = refused(lambda: train(Net(), data, SemanticLoss(), epochs=1, checkpoint=path))
        assert isinstance(error, FileError)
        assert "start anew" in str(error)


def sealed(content: Any) -> bytes:
    """What someone crafted, with the checksum that a checkpoint ends with."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue() + b"clipper sha256 " + sha256(buffer.getvalue()).hexdigest().encode()


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("harm-was-done"),))


def crafted(content: dict[str, Any]) -> list[Any]:
    """What a checkpoint could hold instead of what it should."""
    state = content["state"]
    wrong: list[Any] = [None, 3, "text", [], {}, [content], {"state": state}, {**content, "format": 1}]
    wrong += [{**content, "state": value} for value in (None, [], 3, {}, {"classifier": {}})]
    wrong += [
        {**content, "identity": value} for value in (None, [], {}, {"seed": 0}, {**content["identity"], "seed": 9})
    ]
    for name in state:
        wrong.append({**content, "state": {key: value for key, value in state.items() if key != name}})
        wrong += [{**content, "state": {**state, name: value}} for value in (3.5, "text", [7], {"a": 1}, torch.ones(2))]
    weights = state["classifier"]
    first = next(iter(weights))
    for value in (torch.ones(3), "text", None, weights[first].T.clone(), weights[first].tolist()):
        wrong.append({**content, "state": {**state, "classifier": {**weights, first: value}}})
    wrong.append({**content, "state": {**state, "classifier": {**weights, "more": torch.ones(2)}}})
    wrong += [{**content, "state": {**state, "step": value}} for value in (-1, 99, 1.5, "1", None, 2**80)]
    moments = state["optimiser"]["state"]
    for value in (torch.ones(1, 1, 1), torch.ones(0)):
        changed = {**moments, 0: {**moments[0], "exp_avg": value}}
        wrong.append({**content, "state": {**state, "optimiser": {**state["optimiser"], "state": changed}}})
    wrong.append({**content, "state": {**state, "optimiser": torch.optim.SGD([torch.ones(1)], lr=1.0).state_dict()}})
    history = state["history"]
    for change in ({"loss": float("nan")}, {"accuracy": 7.0}, {"epoch": 5}, {"loss": "2"}, {"unknown": 1}):
        wrong.append({**content, "state": {**state, "history": [{**history[0], **change}, *history[1:]]}})
    return wrong


def test_crafted_checkpoints_are_refused_and_change_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.pt"
    data = problem()
    train(Net(), data, SemanticLoss(), epochs=1, batch=8, checkpoint=path)
    content = torch.load(io.BytesIO(path.read_bytes()), weights_only=True)
    contents = [sealed(each) for each in crafted(content)]
    contents += [sealed({**content, "state": {**content["state"], "step": Harmful()}})]
    contents += [b"", b"no checkpoint", pickle.dumps(content["identity"]), pickle.dumps(Harmful())]
    contents.append(path.read_bytes()[: -len(sealed(0).partition(b"clipper sha256 ")[2]) - 15])  # without a checksum
    for i, bad in enumerate(contents):
        path.write_bytes(bad)
        network, expected = Net(seed=5), Net(seed=5)
        error = answered(lambda n=network: train(n, data, SemanticLoss(), epochs=2, batch=8, checkpoint=path))
        assert isinstance(error, FileError), f"crafted checkpoint {i}: {error!r}"
        assert same_weights(network, expected), f"crafted checkpoint {i} changed the weights before it was refused"
    assert not (tmp_path / "harm-was-done").exists()
    assert len(contents) >= 60


def test_a_checkpoint_of_other_weights_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    train(Net(), problem(), SemanticLoss(), epochs=2, checkpoint=path)
    for network in (Net(width=9), Net(width=1)):
        assert isinstance(refused(lambda n=network: train(n, problem(), SemanticLoss(), checkpoint=path)), FileError)
    other = Net()
    head = torch.optim.AdamW(other.head.parameters(), lr=1e-3)
    error = refused(lambda: train(other, problem(), SemanticLoss(), optimiser=head, checkpoint=path))
    assert isinstance(error, FileError)


def test_fewer_epochs_than_a_checkpoint_holds_are_refused(tmp_path):
    train(Net(), problem(), SemanticLoss(), epochs=3, checkpoint=tmp_path / "run.pt")
    error = refused(lambda: train(Net(), problem(), SemanticLoss(), epochs=2, checkpoint=tmp_path / "run.pt"))
    assert "3 finished epochs" in str(error)


@pytest.mark.parametrize("make_engine", [SemanticLoss, lambda: IsedLoss(sum, samples=4)], ids=["semantic", "ised"])
def test_a_run_of_several_passes_goes_on_wherever_it_was_stopped(make_engine, tmp_path):
    data = problem()
    held_out = data[0].flatten(0, 1), torch.zeros(48, dtype=torch.long)
    setting = {"passes": 2, "still": 0.0, "folds": 2, "epochs": 2, "batch": 12, "evaluate": held_out}
    whole = Net()
    expected = train_iterated(whole, data, make_engine(), data[0], **setting)
    moments = range(1, whole.passes, max(1, whole.passes // (7 * EFFORT)))
    for until in moments:
        path = tmp_path / f"run-{until}.pt"
        with pytest.raises(KeyboardInterrupt):
            train_iterated(Net(until=until), data, make_engine(), data[0], checkpoint=path, **setting)
        resumed = Net(seed=9)  # its own first weights must not matter
        done = train_iterated(resumed, data, make_engine(), data[0], checkpoint=path, **setting)
        assert same_weights(whole, resumed), f"stopped at pass {until} of {whole.passes}"
        assert [[f.loss for f in each.history] for each in done] == [
            [f.loss for f in each.history] for each in expected
        ]
        assert [each.changed for each in done] == [each.changed for each in expected]
        assert [place.name for place in tmp_path.iterdir()] == [path.name], "a finished run leaves one checkpoint"
        path.unlink()


def test_damaged_checkpoints_of_several_passes_are_refused(tmp_path):
    data, path = problem(), tmp_path / "run.pt"
    setting = {"passes": 2, "still": 0.0, "epochs": 1, "checkpoint": path}
    train_iterated(Net(), data, SemanticLoss(), data[0], **setting)
    content = path.read_bytes()
    for bad in damaged(content, 20 * EFFORT, seed=3):
        path.write_bytes(bad)
        assert bad == content or isinstance(
            refused(lambda: train_iterated(Net(), data, SemanticLoss(), data[0], **setting)), FileError
        )
    whole = torch.load(io.BytesIO(content), weights_only=True)
    for name in whole["state"]:
        for value in (None, 3, "text", [3], {"a": 1}):
            path.write_bytes(sealed({**whole, "state": {**whole["state"], name: value}}))
            error = refused(lambda: train_iterated(Net(), data, SemanticLoss(), data[0], **setting))
            assert isinstance(error, FileError), (name, value, error)


def test_passes_on_the_command_line_go_on_too(clippers, tmp_path):
    joint = ("train", "--samples", 30, "--slots", 2, "--objective", "joint", "--passes", 2, "--epochs", 2, "--json")
    first = clippers.run(*joint, "-o", tmp_path / "first.json")
    assert first.code == 0, first.err
    again = clippers.run(*joint, "-o", tmp_path / "first.json")  # from the checkpoint alone
    assert figures(json.loads(again.out)) == figures(json.loads(first.out))
    assert (tmp_path / "first.pt").exists()


def test_a_moment_that_raises_leaves_a_checkpoint_to_go_on_from(tmp_path):
    path, whole, parts = tmp_path / "run.pt", Net(), Net()
    setting = {"epochs": 3, "batch": 8, "checkpoint_steps": 1}
    train(whole, problem(), SemanticLoss(), **setting)

    def pull(moment: Progress) -> None:
        if (moment.epoch, moment.step) == (2, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(parts, problem(), SemanticLoss(), watch=pull, checkpoint=path, **setting)
    train(parts, problem(), SemanticLoss(), checkpoint=path, **setting)
    assert same_weights(whole, parts)


def test_a_configuration_says_which_option_is_wrong():
    numbers = ("slots", "samples", "names", "k", "passes", "epochs", "batch", "evaluate_every")
    for name in numbers:
        none = [] if name == "k" else [None]  # no k is the objective's own
        for value in (0, -1, 1.5, True, "3", *none, float("nan"), 2**70, -(2**70), [1], 10**400):
            assert name in str(refused(lambda n=name, v=value: RunConfig(**{n: v})))
    for name in ("seed", "bank", "per_sample"):
        for value in (-1, 1.5, True, "3", None, float("inf"), 2**70):
            assert name in str(refused(lambda n=name, v=value: RunConfig(**{n: v})))
    for name in ("lr", "entropy"):
        for value in (-1.0, float("nan"), float("inf"), "fast", None, True, 10**400):
            assert name in str(refused(lambda n=name, v=value: RunConfig(**{n: v})))
    for name in ("rule", "data", "engine", "objective", "when", "optimiser", "network", "encoder"):
        for value in (None, 3, [], {}, ["sum"]):
            assert name in str(refused(lambda n=name, v=value: RunConfig(**{n: v})))
    for value in (None, [1], {3: 4}, {"k": float("nan")}, {"k": {1, 2}}, {"k": SemanticLoss}):
        assert "engine_options" in str(refused(lambda v=value: RunConfig(engine_options=v)))
    for values in (None, 3, [], {"seed": "0"}, {"unknown": 1}, {3: 4}):
        refused(lambda v=values: RunConfig.from_dict(v) if v != [] else RunConfig.from_dict([1]))


@pytest.mark.parametrize(
    "wrong",
    [
        ("--lr", "nan"), ("--lr", "inf"), ("--lr", "-1"), ("--lr", "0"), ("--seed", 2**70), ("--seed", -1),
        ("-k", 100_000), ("-k", 2**80), ("--entropy", "nan"), ("--entropy", "-1"), ("--samples", 10**18),
        ("--slots", 10**9), ("--slots", 2**70), ("--batch", 0), ("--batch", 2**80), ("--bank", -3),
        ("--per-sample", -1), ("--epochs", 0), ("--evaluate-every", 0), ("--checkpoint-steps", 0),
        ("--passes", 2), ("--network", "NoSuch"), ("--encoder", "no-such"), ("--engine-option", "k=NaN"),
        ("--engine", "ised", "--rule", "vqar", "--data", "scenes"),
        ("--engine", "ised", "--rule", "align", "--data", "clips"),
    ],
    ids=lambda wrong: " ".join(map(str, wrong))[:40],
)  # fmt: skip
def test_wrong_options_are_refused_in_words(clippers, wrong, tmp_path):
    ran = clippers.run(*TINY, *wrong, "-o", tmp_path / "run.json")
    ran.check_refused()
    assert not (tmp_path / "run.json").exists()


def test_dolphin_learns_from_very_short_clips(clippers, tmp_path):
    clips = ("--rule", "align", "--data", "clips", "--slots", 4, "--engine", "dolphin", "--epochs", 1)
    ran = clippers.run(*TINY, *clips, "-o", tmp_path / "run.json")
    assert ran.code == 0 or "Traceback" not in ran.err, ran.err
    assert "KeyError" not in ran.err
