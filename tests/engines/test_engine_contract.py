"""One contract: engine(log_probs, candidates, context), whoever wrote the engine and whatever wraps it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clipper import Candidates, Clipper
from clipper.candidates import CandidateSet
from clipper.engines import AblSim, Context, DolphinLoss, Engine, IsedLoss, ScallopLoss, SemanticLoss
from clipper.errors import InputError
from clipper.training import Samples, train

INPUTS = torch.rand(6, 2, 5, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([3, 1, 0, 2, 2, 1])
OUTPUTS = Candidates.from_rule(sum, targets=range(5), slots=2, classes=3)
CANDIDATES = OUTPUTS.batch(TARGETS)
DATA = Samples(INPUTS, CANDIDATES, targets=TARGETS)


class MostProbable(Engine):
    """An engine of a user's own: cross-entropy to each sample's most probable candidate."""

    def losses(self, log_probs: Tensor, candidates: CandidateSet, _: Context) -> Tensor:
        """As in `Engine.losses`."""
        return -candidates.top_k(log_probs, 1).log_probability(log_probs)


class Wrapper(nn.Module):
    """A wrapper that passes on whatever it does not know."""

    def __init__(self, engine: nn.Module) -> None:
        super().__init__()
        self.engine, self.seen = engine, list[Any]()

    def forward(self, log_probs: Tensor, candidates: CandidateSet, **others: Any) -> Tensor:
        self.seen.append(others)
        losses: Tensor = 2 * self.engine(log_probs, candidates, **others)
        return losses


def network(embeds: bool = True) -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with torch.random.fork_rng():
                torch.manual_seed(0)
                self.layer = nn.Linear(5, 3)

        def forward(self, inputs: Tensor) -> Any:
            scores = self.layer(inputs)
            return (scores.log_softmax(-1), scores) if embeds else scores.log_softmax(-1)

    return Net()


def test_an_engine_of_ones_own_is_one_class_and_trains():
    losses = [epoch.loss for epoch in train(network(), DATA, MostProbable(entropy=0.1), epochs=10, batch=6)]
    assert losses[-1] < losses[0]
    with pytest.raises(InputError, match="log_softmax"):  # checked without a line of its own
        MostProbable()(torch.zeros(6, 2, 3), CANDIDATES)


@pytest.mark.parametrize("build", [ScallopLoss, DolphinLoss])
def test_a_wrapper_with_keyword_arguments_loses_no_targets(build: Any):
    wrapper = Wrapper(build(outputs=OUTPUTS))
    wrapped = train(network(), DATA, wrapper, clip=Clipper(k=1), epochs=1, batch=6)
    plain = train(network(), DATA, build(outputs=OUTPUTS), clip=Clipper(k=1), epochs=1, batch=6)
    assert wrapped[0].loss == pytest.approx(2 * plain[0].loss)
    context = wrapper.seen[0]["context"]
    assert sorted(context.targets.tolist()) == sorted(TARGETS.tolist())
    assert context.embeddings.shape == (6, 2, 3)
    assert sorted(map(int, context.unpruned.counts)) == sorted(map(int, CANDIDATES.counts))


def test_an_engine_that_takes_no_context_is_told_how_engines_are_called():
    class TwoArguments(nn.Module):
        def forward(self, log_probs: Tensor, candidates: CandidateSet) -> Tensor:
            return SemanticLoss()(log_probs, candidates)

    with pytest.raises(InputError, match=r"TwoArguments, called as engine\(log_probs, candidates, context"):
        train(network(), DATA, TwoArguments(), epochs=1)


@pytest.mark.parametrize("engine", [DolphinLoss(outputs=OUTPUTS), ScallopLoss(outputs=OUTPUTS)])
def test_engines_with_outputs_name_the_targets_that_they_miss(engine: Engine):
    with pytest.raises(InputError, match=f"{type(engine).__name__} needs targets"):
        train(network(), (INPUTS, CANDIDATES), engine, epochs=1)
    assert engine.needs == ("targets",)


def test_abl_sim_takes_the_embeddings_of_the_classifier_or_of_a_frozen_encoder():
    message = "AblSim needs embeddings: let the classifier return them or pass embeddings="
    with pytest.raises(InputError, match=message):
        train(network(embeds=False), DATA, AblSim(), epochs=1)
    with pytest.raises(InputError, match=message):
        AblSim()(torch.zeros(6, 2, 3).log_softmax(-1), CANDIDATES)
    assert train(network(), DATA, AblSim(), epochs=1)
    assert train(network(embeds=False), DATA, AblSim(), clip=Clipper(k=1), embeddings=INPUTS, epochs=1)


@pytest.mark.parametrize("engine", [SemanticLoss(), ScallopLoss(), DolphinLoss(), IsedLoss(sum)])
def test_engines_leave_what_they_do_not_use(engine: Engine):
    log_probs = torch.zeros(6, 2, 3).log_softmax(-1)
    context = Context(targets=TARGETS, embeddings=INPUTS, unpruned=CANDIDATES)
    assert engine(log_probs, CANDIDATES, context).shape == (6,)
    assert engine.needs == ()


def test_an_engine_whose_need_nobody_knows_is_told_so():
    class Strange(MostProbable):
        needs = ("weather",)

    with pytest.raises(InputError, match="Strange needs weather: an engine may need targets, embeddings or unpruned"):
        Strange()(torch.zeros(6, 2, 3).log_softmax(-1), CANDIDATES)


def test_an_engine_without_losses_says_what_to_define():
    with pytest.raises(NotImplementedError, match="has to define losses"):
        Engine()(torch.zeros(6, 2, 3).log_softmax(-1), CANDIDATES)
