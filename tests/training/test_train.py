from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from clipper import Candidates, Clipper, ClipperError
from clipper.engines import AblSim, Context, DolphinLoss, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import InputError, TrainingError
from clipper.proximity import Pixels
from clipper.training import Progress, train
from clipper.training.schedule import KnownDistances, prune_together
from tests.engine_oracles import OUTPUTS
from tests.training.problems import TinyNet, problem, same_weights


@pytest.mark.parametrize("objective", [None, "paper", "exact", "random"])
@pytest.mark.parametrize("encoder", ["trainable", "frozen", "once"])
def test_every_objective_trains_with_every_encoder(objective, encoder):
    clip = Clipper(objective=objective, encoder=None if encoder == "trainable" else Pixels()) if objective else None
    once = encoder == "once" and clip is not None
    history = train(TinyNet(), problem(), SemanticLoss(), clip=clip, once=once, epochs=3, batch=8)
    assert [figures.epoch for figures in history] == [1, 2, 3]
    assert all(0 < figures.retained <= 1 and 0 <= figures.gold <= 1 for figures in history)
    assert (history[-1].retained < 1) == (clip is not None)


@pytest.mark.parametrize(
    "engine",
    [
        SemanticLoss(entropy=0.1),
        SampledSemanticLoss(2),
        DolphinLoss(),
        DolphinLoss(outputs=OUTPUTS),
        ScallopLoss(k=2, outputs=OUTPUTS),
        IsedLoss(sum, samples=20),
        AblSim(beam=5),
    ],
    ids=lambda engine: f"{type(engine).__name__}-{getattr(engine, 'outputs', None) is not None}",
)
def test_every_engine_trains_with_pruning(engine):
    history = train(TinyNet(), problem(), engine, clip=Clipper(), epochs=2, batch=8)
    assert len(history) == 2


def test_training_on_clear_classes_learns_them():
    data = problem(samples=60)
    network = TinyNet()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    held_out = (data.inputs.flatten(0, 1), data.gold.flatten())
    history = train(
        network, data, SemanticLoss(), clip=Clipper(), optimiser=optimiser, evaluate=held_out, epochs=40, batch=16
    )
    assert history[-1].loss < history[0].loss / 2
    assert history[-1].accuracy > 0.9


def test_a_trainable_encoder_costs_no_second_forward_pass():
    network = TinyNet()
    train(network, problem(samples=16), SemanticLoss(), clip=Clipper(), epochs=3, batch=8)
    assert network.passes == 6


def test_a_frozen_encoder_sees_every_instance_once():
    seen = []

    def encoder(inputs: Tensor) -> Tensor:
        seen.append(len(inputs))
        return inputs

    train(TinyNet(), problem(samples=16), SemanticLoss(), clip=Clipper(encoder=encoder), epochs=3, batch=8)
    assert sum(seen) == 32


def test_pruning_once_equals_pruning_the_pool_by_hand():
    data, clip = problem(), Clipper()
    pruned = clip(data.candidates, data.inputs)
    first, second = TinyNet(), TinyNet()
    train(first, data, SemanticLoss(), clip=clip, embeddings=data.inputs, once=True, epochs=3, batch=8)
    train(second, (data.inputs, pruned), SemanticLoss(), epochs=3, batch=8)
    assert same_weights(first, second)


def test_a_classifier_that_gives_log_probabilities_alone_trains_with_a_frozen_encoder():
    network = nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(-1))
    assert train(network, problem(), SemanticLoss(), clip=Clipper(encoder=Pixels()), epochs=1)[0].retained < 1


def test_a_classifier_without_embedding_cannot_be_its_own_encoder():
    network = nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(-1))
    with pytest.raises(InputError, match="log_probs, embedding"):
        train(network, problem(), SemanticLoss(), clip=Clipper(), epochs=1)


def test_the_same_seed_gives_the_same_weights_and_another_seed_gives_others():
    networks = [TinyNet() for _ in range(3)]
    for network, seed in zip(networks, (5, 5, 6), strict=True):
        train(network, problem(), SemanticLoss(), clip=Clipper(objective="random"), epochs=2, batch=8, seed=seed)
    assert same_weights(networks[0], networks[1])
    assert not same_weights(networks[0], networks[2])


def test_training_leaves_the_callers_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    train(TinyNet(), problem(), SemanticLoss(), epochs=1)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("clip", [None, Clipper()])
def test_a_loss_that_is_not_a_number_stops_the_run_and_names_the_sample(clip):
    data = problem()
    data.inputs[13, 1, 2] = torch.nan
    with pytest.raises(TrainingError, match="sample 13 is nan in epoch 1"):
        train(TinyNet(), data, SemanticLoss(), clip=clip, epochs=1, batch=8)


def test_an_infinite_loss_stops_the_run_and_names_the_sample():
    class Harsh(nn.Module):
        def forward(self, log_probs: Tensor, candidates: Candidates, context: Context) -> Tensor:
            losses = SemanticLoss()(log_probs, candidates, context)
            return losses / (torch.tensor(candidates.counts) != 1)  # the samples with one candidate

    data = problem()
    alone = (torch.tensor(data.candidates.counts) == 1).nonzero().flatten().tolist()
    with pytest.raises(ClipperError, match="loss of sample") as caught:
        train(TinyNet(), data, Harsh(), epochs=1, batch=20)
    assert int(str(caught.value).split("sample ")[1].split()[0]) in alone


def test_who_watches_sees_every_step_and_the_end_of_every_epoch():
    moments: list[Progress] = []
    data = problem()
    held_out = (data.inputs.flatten(0, 1), data.gold.flatten())
    train(TinyNet(), data, SemanticLoss(), epochs=3, batch=8, evaluate=held_out, evaluate_every=2, watch=moments.append)
    assert [(moment.epoch, moment.step) for moment in moments if not moment.ended] == [
        (epoch, step) for epoch in (1, 2, 3) for step in (1, 2, 3)
    ]
    measured = [moment.metrics.accuracy is not None for moment in moments if moment.ended]
    assert measured == [False, True, True]


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": 0}, {"once": True}, {"bank": 4}, {"checkpoint_steps": -1}])
def test_arguments_that_do_not_fit_are_refused(wrong):
    with pytest.raises(InputError):
        train(TinyNet(), problem(), SemanticLoss(), **wrong)


def test_pruning_once_asks_for_a_frozen_encoder():
    with pytest.raises(InputError, match="frozen encoder"):
        train(TinyNet(), problem(), SemanticLoss(), clip=Clipper(), once=True)


def test_inputs_that_do_not_fit_the_candidates_are_refused():
    data = problem()
    with pytest.raises(InputError, match=r"\(20, 2, \*shape\)"):
        train(TinyNet(), (data.inputs[:-1], data.candidates), SemanticLoss())


@pytest.mark.parametrize("objective", ["paper", "exact"])
def test_batches_pruned_together_survive_as_they_would_alone(objective):
    data, clip = problem(samples=30), Clipper(objective=objective, k=2)
    batches = data.batches(7, seed=0, epoch=1)
    _, together = prune_together(clip, data.candidates, data.inputs, batches)
    for ids, kept in zip(batches, together, strict=True):
        alone = clip(data.candidates.batch(ids), data.inputs[ids])
        assert torch.equal(kept.labels, alone.labels)
        assert torch.equal(kept.offsets, alone.offsets)


@pytest.mark.parametrize("how", [{"k": 1}, {"k": 3}, {"k": 50}, {"k": None, "radius": 2.0}, {"k": 2, "share": 0.5}])
def test_distances_looked_up_give_the_edges_of_a_search(how):
    data = problem(samples=30)
    known = KnownDistances(data.inputs)
    ids = torch.randperm(30, generator=torch.Generator().manual_seed(0))[:12]
    candidates = data.candidates.batch(ids)
    searched = Clipper(**how).graph(candidates, data.inputs[ids])
    looked_up = Clipper(**how, metric=known).graph(candidates, known.rows[ids])
    assert torch.equal(looked_up.source, searched.source)
    assert torch.equal(looked_up.target, searched.target)
    assert torch.allclose(looked_up.distance, searched.distance, atol=1e-4)
