"""Which candidates a run draws, and when; and runs that are the best of several starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clipper import Candidates, Clipper
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.drawing import with_gold
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import run
from clipper.benchmarks.settings import run_key
from clipper.engines import SemanticLoss
from clipper.errors import InputError
from clipper.training import Draws, Samples, train
from clipper.training.schedule import PruningSchedule

LONG = RunConfig(slots=12, samples=30, per_sample=20, batch=10, epochs=2, engine="dolphin", objective="none")


@pytest.mark.parametrize(("draws", "share"), [("fixed", 0.0), ("gold", 1.0), ("fresh", 0.0), ("own", 0.0)])
def test_a_record_says_how_often_gold_is_among_the_draws(draws, share):
    record = run(replace(LONG, draws=draws))
    assert [metrics.scores["drawn"] for metrics in record.epochs] == [share, share]
    assert record.settings["draws"] == draws
    assert record.last.gold == share  # nothing was pruned


@pytest.mark.parametrize("encoder", ["pixels", "trainable"])
@pytest.mark.parametrize("draws", ["gold", "fresh", "own"])
def test_draws_of_every_kind_are_pruned_by_any_encoder(draws, encoder):
    config = replace(LONG, slots=4, draws=draws, objective="paper", encoder=encoder, k=3)
    record = run(config)
    assert record.last.retained < 1
    assert record.last.gold <= record.last.scores["drawn"]
    assert [metrics.loss for metrics in run(config).epochs] == [metrics.loss for metrics in record.epochs]


def test_gold_takes_the_place_of_a_draw_only_where_it_is_missing():
    registered = benchmark_named("sum")
    fixed, gold = (registered(replace(LONG, draws=draws)).samples for draws in ("fixed", "gold"))
    assert gold.candidates.contains(gold.gold).all()
    assert fixed.candidates.counts == gold.candidates.counts
    changed = (fixed.candidates.labels != gold.candidates.labels).any(1)
    assert changed.sum() == (~fixed.candidates.contains(fixed.gold)).sum()
    assert torch.equal(with_gold(gold.candidates, gold.gold).labels, gold.candidates.labels)


def drawn(step: int, draws: Draws, log_probs: torch.Tensor) -> Candidates:
    candidates = Candidates.from_rule(sum, targets=[9, 9], slots=2, classes=10)
    samples = Samples(torch.zeros(2, 2, 1), candidates)
    schedule = PruningSchedule(samples, None, None, False, 0, 0, draws=draws)
    schedule.begin([torch.tensor([0, 1]), torch.tensor([0, 1])], seed=5)
    before, kept = schedule.of_batch(step, None, log_probs)
    assert before is kept
    return before


def test_every_step_draws_anew_and_repeats_itself():
    even = torch.zeros(2, 2, 10).log_softmax(-1)
    first, second, again = (drawn(step, Draws(3), even).labels.tolist() for step in (0, 1, 0))
    assert first == again != second


def test_own_draws_follow_the_classifier():
    sure = torch.full((2, 2, 10), -30.0)
    sure[:, 0, 4], sure[:, 1, 5] = 0.0, 0.0
    assert drawn(0, Draws(50, own=True), sure).labels.tolist() == [[4, 5], [4, 5]]
    assert drawn(0, Draws(50), sure).counts == [10, 10]


def test_draws_are_refused_with_a_pruning_of_the_whole_pool():
    candidates = Candidates.from_rule(sum, targets=[9, 9], slots=2, classes=10)
    inputs, network = torch.zeros(2, 2, 4), torch.nn.Sequential(torch.nn.Linear(4, 10), torch.nn.LogSoftmax(-1))
    with pytest.raises(InputError, match="drop once, bank and group"):
        PruningSchedule(Samples(inputs, candidates), Clipper(), inputs, True, 0, 0, draws=Draws(3))
    train(network, (inputs, candidates), SemanticLoss(), epochs=1, draws=Draws(3))
    with pytest.raises(InputError, match="per_sample"):
        Draws(0)
    with pytest.raises(InputError, match="expected per_sample"):
        RunConfig(draws="own")


def test_draws_tell_runs_apart_only_where_something_is_drawn():
    assert run_key(replace(LONG, draws="own")) != run_key(LONG)
    assert "draws" not in run_key(RunConfig())


def test_the_start_with_the_lowest_training_loss_counts():
    config = RunConfig(samples=20, slots=2, epochs=3, network="LinearOnOutlines", objective="none", lr=0.05)
    best = run(replace(config, restarts=3))
    assert best.config["restarts"] == 3
    assert len(best.epochs) == 3
    fewer = run(replace(config, restarts=2))
    assert best.last.loss <= fewer.last.loss
    assert run(replace(config, restarts=3)).last.loss == best.last.loss
    seen = []
    gentle = replace(config, restarts=3, trial=1, epochs=4, lr=1e-3)
    tried = run(gentle, callbacks=[lambda progress: seen.append((progress.metrics.epoch, progress.metrics.loss))])
    assert [epoch for epoch, _ in seen] == [1, 1, 1, 1, 2, 3, 4], "three trials, and the best of them goes on"
    assert tried.epochs[0].loss < min(loss for _, loss in seen[:3]), "it goes on, it does not begin anew"
    with pytest.raises(InputError, match="several restarts with trials of 1"):
        replace(config, trial=1)
    with pytest.raises(InputError, match="one pass with 2 restarts"):
        replace(config, restarts=2, passes=2, objective="joint")
