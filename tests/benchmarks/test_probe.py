"""The probe: which part of the method has changed, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clipper.benchmarks import probe
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.probe import changed, changed_parts, digest, parts_of, probe_of
from clipper.engines import DolphinLoss
from clipper.pruning import Clipper
from clipper.training import EpochMetrics, Record
from clipper.training.environment import versions

PARTS = ("pruning", "em", "draws", "training", "engine semantic", "engine dolphin", "engine abl-sim")
fresh = digest.__wrapped__


@pytest.mark.parametrize("part", [*PARTS, pytest.param("joint", marks=pytest.mark.slow)])
def test_a_part_has_the_same_digest_again_and_after_a_disturbance_as_small_as_rounding(part, monkeypatch):
    plain = probe._pool

    def disturbed(*args: Any, **options: Any) -> Any:
        candidates, embeddings, gold = plain(*args, **options)
        noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(9))
        return candidates, embeddings * (1 + 1e-7 * noise), gold

    monkeypatch.setattr(probe, "_pool", disturbed)
    torch.manual_seed(5)
    assert fresh(part) == digest(part) != ""


def test_a_probe_leaves_the_callers_random_numbers_and_threads_alone():
    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    fresh("training")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_change_of_one_engine_is_seen_in_that_engine_alone(monkeypatch):
    before = {part: digest(part) for part in PARTS}
    plain = DolphinLoss.losses
    monkeypatch.setattr(DolphinLoss, "losses", lambda *args: 1.001 * plain(*args))
    assert [part for part in PARTS if fresh(part) != before[part]] == ["engine dolphin"]


def test_a_change_of_pruning_is_seen_in_pruning_alone(monkeypatch):
    before, plain = {part: digest(part) for part in PARTS}, Clipper.along
    monkeypatch.setattr(Clipper, "along", lambda self, *args, seed=0, **rest: plain(self, *args, seed=seed + 1, **rest))
    assert [part for part in PARTS if fresh(part) != before[part]] == ["pruning"]


def test_a_run_carries_the_parts_that_it_used_and_no_other():
    assert set(probe_of(RunConfig(objective="none"))) == {"training", "task sum", "engine semantic"}
    assert "joint" not in parts_of(RunConfig(objective="exact"))
    assert "pruning" not in parts_of(RunConfig(objective="joint"))
    assert "draws" in parts_of(RunConfig(per_sample=100))
    assert probe_of(RunConfig(rule="sum", engine="dolphin"))["pruning"] == digest("pruning")


def test_what_cannot_be_computed_has_no_digest():
    assert fresh("task no-such-rule") == ""
    assert fresh("no such part") == ""


def test_a_record_is_stale_in_the_parts_whose_digest_differs_and_only_under_the_same_libraries():
    epochs = [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)]
    noted = {"draws": "something else", "training": digest("training"), "no such part": "1"}
    assert changed_parts(Record({}, epochs, probe=noted)) == ["draws"]
    assert changed_parts(Record({}, epochs)) == []
    assert changed(noted, {**versions(), "torch": "1.0"}) == []
