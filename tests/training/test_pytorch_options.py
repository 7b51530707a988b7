"""Schedulers, mixed precision, gradient clipping and callbacks do what a loop written by hand does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from clipper import Clipper
from clipper.engines import SemanticLoss
from clipper.errors import FileError, InputError
from clipper.training import Progress, Record, train, train_iterated
from tests.training.problems import TinyNet, problem, same_weights

BATCH, EPOCHS, SEED = 8, 4, 3


def by_hand(network, optimiser, *, scheduler=None, by_step=False, dtype=None, norm=None) -> None:
    """The loop that a user of PyTorch would write; only the order of the samples is the trainer's."""
    data = problem()
    torch.manual_seed(SEED)
    for epoch in range(1, EPOCHS + 1):
        for ids in data.batches(BATCH, SEED, epoch):
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                log_probs, embedding = network(data.inputs[ids].flatten(0, 1))
            kept = Clipper()(data.candidates.batch(ids), embedding.detach().float().view(len(ids), 2, -1))
            optimiser.zero_grad()
            SemanticLoss()(log_probs.view(len(ids), 2, -1), kept).mean().backward()
            if norm:
                nn.utils.clip_grad_norm_(network.parameters(), norm)
            optimiser.step()
            if scheduler and by_step:
                scheduler.step()
        if scheduler and not by_step:
            scheduler.step()


def compared(make_scheduler=None, dtype=None, norm=None, by_step=False) -> tuple[TinyNet, TinyNet]:
    """Two networks, one trained by hand and one by `train`."""
    networks = TinyNet(), TinyNet()
    first, second = (torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9) for network in networks)
    with torch.random.fork_rng():
        scheduler = make_scheduler and make_scheduler(first)
        by_hand(networks[0], first, scheduler=scheduler, by_step=by_step, dtype=dtype, norm=norm)
    train(
        networks[1], problem(), SemanticLoss(), clip=Clipper(), optimiser=second, epochs=EPOCHS, batch=BATCH, seed=SEED,
        scheduler=make_scheduler and make_scheduler(second), autocast=dtype, clip_gradients=norm,
    )  # fmt: skip
    return networks


def plain() -> TinyNet:
    return compared()[1]


@pytest.mark.parametrize(
    "make_scheduler",
    [
        lambda optimiser: lr_scheduler.StepLR(optimiser, 1, gamma=0.3),
        lambda optimiser: lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS),
        lambda optimiser: lr_scheduler.MultiStepLR(optimiser, [1, 3]),
        lambda optimiser: lr_scheduler.LambdaLR(optimiser, lambda epoch: 1 / (1 + epoch)),
    ],
    ids=["step", "cosine", "milestones", "function"],
)
def test_a_scheduler_is_stepped_after_every_epoch(make_scheduler):
    networks = compared(make_scheduler)
    assert same_weights(*networks)
    assert not same_weights(networks[1], plain())


@pytest.mark.parametrize(
    "make_scheduler",
    [
        lambda optimiser: lr_scheduler.OneCycleLR(
            optimiser, 0.5, total_steps=EPOCHS * len(problem().batches(BATCH, 0, 1))
        ),
        lambda optimiser: lr_scheduler.CyclicLR(optimiser, 0.01, 0.5, step_size_up=3),
    ],
    ids=["one cycle", "cyclic"],
)
def test_a_scheduler_of_cycles_is_stepped_after_every_batch(make_scheduler):
    networks = compared(make_scheduler, by_step=True)
    assert same_weights(*networks)
    assert not same_weights(networks[1], plain())


def test_a_plateau_scheduler_is_told_the_mean_loss():
    network = TinyNet()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimiser, patience=0, threshold=10.0, threshold_mode="abs")
    history = train(network, problem(), SemanticLoss(), optimiser=optimiser, scheduler=scheduler, epochs=3)
    assert scheduler.best == pytest.approx(history[0].loss)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.005)


def test_gradients_are_clipped_to_a_norm():
    networks = compared(norm=0.05)
    assert same_weights(*networks)
    assert not same_weights(networks[1], plain())


def test_autocast_runs_the_classifier_in_lower_precision():
    networks = compared(dtype=torch.bfloat16)
    assert same_weights(*networks)
    assert not same_weights(networks[1], plain())


def test_half_precision_scales_gradients_and_still_learns():
    data, network = problem(60), TinyNet()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    history = train(
        network, data, SemanticLoss(), optimiser=optimiser, autocast=torch.float16, clip_gradients=5.0, epochs=20
    )
    assert history[-1].loss < history[0].loss


def test_all_of_them_together():
    networks = compared(lambda optimiser: lr_scheduler.StepLR(optimiser, 2), torch.bfloat16, 0.1)
    assert same_weights(*networks)


@pytest.mark.parametrize("moment", [(1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_a_resumed_run_goes_on_with_its_scheduler(moment, dtype, tmp_path):
    def run(network: nn.Module, **options) -> list[float]:
        optimiser = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
        scheduler = lr_scheduler.SequentialLR(
            optimiser,
            [lr_scheduler.LinearLR(optimiser, total_iters=2), lr_scheduler.MultiStepLR(optimiser, [1, 2])],
            milestones=[2],
        )
        return train(
            network, problem(), SemanticLoss(), clip=Clipper(), optimiser=optimiser, scheduler=scheduler, epochs=4,
            batch=8, autocast=dtype, clip_gradients=0.2, **options,
        )  # fmt: skip

    def pull(progress: Progress) -> None:
        if (progress.epoch, progress.step, progress.ended) == (*moment, False):
            raise KeyboardInterrupt

    whole, parts = TinyNet(), TinyNet()
    expected = run(whole)
    setting = {"checkpoint": tmp_path / "run.pt", "checkpoint_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        run(parts, watch=pull, **setting)
    if not (tmp_path / "run.pt").exists():
        parts = TinyNet()
    history = run(parts, **setting)
    assert same_weights(whole, parts)
    assert [metrics.loss for metrics in history] == [metrics.loss for metrics in expected]


def test_a_checkpoint_without_the_scheduler_belongs_to_another_run(tmp_path):
    setting = {"epochs": 1, "checkpoint": tmp_path / "run.pt"}
    train(TinyNet(), problem(), SemanticLoss(), **setting)
    with pytest.raises(FileError, match="scheduler None there and StepLR here"):
        train(TinyNet(), problem(), SemanticLoss(), scheduler=lambda o: lr_scheduler.StepLR(o, 1), **setting)


def test_callbacks_are_called_after_each_epoch_in_their_order():
    called: list[tuple[str, int]] = []
    data = problem()
    train(
        TinyNet(), data, SemanticLoss(), epochs=3, batch=8, evaluate=(data.inputs.flatten(0, 1), data.gold.flatten()),
        callbacks=[
            lambda progress: called.append(("first", progress.epoch)),
            lambda progress: called.append(("second", progress.epoch)) or progress.metrics.accuracy.hex(),
        ],
    )  # fmt: skip
    assert called == [(name, epoch) for epoch in (1, 2, 3) for name in ("first", "second")]


def test_an_evaluator_measures_what_it_likes():
    history = train(TinyNet(), problem(), SemanticLoss(), epochs=2, evaluate=lambda _: {"accuracy": 0.5, "f1": 0.25})
    assert [(metrics.accuracy, metrics.scores) for metrics in history] == [(0.5, {"f1": 0.25})] * 2


def test_every_run_gives_a_record(tmp_path):
    history = train(TinyNet(), problem(), SemanticLoss(), clip=Clipper(), epochs=2, seed=5)
    history.record().write(tmp_path / "run.json")
    record = Record.read(tmp_path / "run.json")
    assert record.epochs == list(history)
    assert (record.config["seed"], record.config["engine"], record.config["k"]) == (5, "SemanticLoss", "1")
    assert history.record({"task": "mine"}).config == {"task": "mine"}


def test_iterated_training_takes_the_options_of_a_training():
    data, seen = problem(30), list[int]()
    done = train_iterated(
        TinyNet(), data, SemanticLoss(), data.inputs, passes=1, epochs=2, clip_gradients=0.5, autocast=torch.bfloat16,
        scheduler=lambda optimiser: lr_scheduler.StepLR(optimiser, 1),
        callbacks=[lambda progress: seen.append(progress.epoch)],
    )  # fmt: skip
    assert seen == [1, 2]
    assert done[-1].history.record().last == done[-1].history[-1]


class Weights(nn.Module):
    def forward(self, log_probs: Tensor, candidates: object, context: object = None) -> Tensor:
        del candidates, context
        return log_probs.sum((1, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"scheduler": 3},
        {"scheduler": lr_scheduler.StepLR},
        {"scheduler": lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)], lr=1.0), 1)},
        {"scheduler": lambda _: None},
        {"scheduler": lambda _: 1 / 0},
        {"autocast": "bfloat16"},
        {"autocast": torch.float64},
        {"clip_gradients": 0},
        {"clip_gradients": float("nan")},
        {"clip_gradients": "1"},
        {"workers": -1},
        {"workers": 1.5},
        {"callbacks": 3},
        {"callbacks": [3]},
        {"callbacks": print},
        {"inspect": -1},
        {"inspect": "all"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        train(TinyNet(), problem(), Weights(), epochs=1, **wrong)
