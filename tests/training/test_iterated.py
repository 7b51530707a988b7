"""Iterated training and the joint objective in a training loop."""

from __future__ import annotations

import pytest
import torch

from clipper import Clipper
from clipper.engines import SemanticLoss
from clipper.errors import InputError
from clipper.training import train, train_iterated
from tests.pruning.pools import shuffled
from tests.training.problems import TinyNet, problem, same_weights


@pytest.mark.slow
def test_later_passes_are_borne_out_better() -> None:
    data = problem(samples=30)
    done = train_iterated(
        TinyNet(), data, SemanticLoss(), data.inputs, passes=3, still=0.0, epochs=15, evaluate=_held_out()
    )
    assert 1 <= len(done) <= 3
    assert done[0].changed == 1.0
    assert all(one.posterior.converged for one in done)
    explained = [one.posterior.verification.explained for one in done]
    assert explained == sorted(explained), "a pass that explains less ends it"
    assert done[-1].history[-1].accuracy is not None


def test_labels_that_stand_still_end_it() -> None:
    data = problem(samples=30)
    done = train_iterated(TinyNet(), data, SemanticLoss(), data.inputs, passes=3, still=1.1, epochs=1)
    assert len(done) == 1


@pytest.mark.slow
def test_each_pass_begins_with_the_first_weights() -> None:
    data = problem(samples=30)
    network, again = TinyNet(), TinyNet()
    done = train_iterated(network, data, SemanticLoss(), data.inputs, passes=1, epochs=2, batch=8)
    kept = done[0].posterior.prune().candidates
    train(again, (data.inputs, kept), SemanticLoss(), epochs=2, batch=8)
    assert same_weights(network, again)


def test_it_abstains_where_embeddings_say_nothing() -> None:
    data = problem(samples=30)
    done = train_iterated(TinyNet(), data, SemanticLoss(), shuffled(data.inputs), passes=3, epochs=1)
    assert len(done) == 1
    assert done[0].posterior.verdict == "uninformative"
    assert done[0].history[-1].retained == 1.0


def test_the_pool_is_inferred_once_before_training() -> None:
    data = problem(samples=30)
    clip = Clipper(objective="joint")
    history = train(TinyNet(), data, SemanticLoss(), clip=clip, embeddings=data.inputs, once=True, epochs=2)
    assert history[-1].retained < 0.6
    assert (history[-1].gold or 0) > 0.9


def test_what_cannot_be_is_said() -> None:
    data = problem(samples=10)
    with pytest.raises(InputError, match="whole pool"):
        train(TinyNet(), data, SemanticLoss(), clip=Clipper(objective="joint"), embeddings=data.inputs)
    with pytest.raises(InputError, match="passes of at least 1"):
        train_iterated(TinyNet(), data, SemanticLoss(), data.inputs, passes=0)
    with pytest.raises(InputError, match="2 to 10 folds"):
        train_iterated(TinyNet(), data, SemanticLoss(), data.inputs, folds=11)
    with pytest.raises(InputError, match="folds of at least 2"):
        train_iterated(TinyNet(), data, SemanticLoss(), data.inputs, folds=1)


def _held_out() -> tuple[torch.Tensor, torch.Tensor]:
    data = problem(samples=30, seed=0)
    assert data.gold is not None
    return data.inputs.flatten(0, 1), data.gold.flatten()
