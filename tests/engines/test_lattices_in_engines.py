"""Every engine on a lattice gives what it gives on the listed candidates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet, Lattice
from clipper.candidates.rules import MAX, SUM, run
from clipper.engines import (
    AblSim,
    Context,
    DolphinLoss,
    Engine,
    IsedLoss,
    SampledSemanticLoss,
    ScallopLoss,
    SemanticLoss,
)
from clipper.errors import BudgetError, InputError
from tests.machines import Task, log_probs_for, restricted, tasks

WITHOUT_OUTPUTS: dict[str, Callable[[], Engine]] = {
    "semantic": SemanticLoss,
    "semantic, entropy": lambda: SemanticLoss(entropy=0.3),
    "damp": DolphinLoss,
    "dtkp-am": lambda: DolphinLoss("dtkp-am", k=2, entropy=0.1),
    "scallop": lambda: ScallopLoss(k=3),
}
WITH_OUTPUTS: dict[str, Callable[[CandidateSet], Engine]] = {
    "damp": lambda outputs: DolphinLoss(outputs=outputs),
    "dtkp-am": lambda outputs: DolphinLoss("dtkp-am", k=2, outputs=outputs),
    "scallop": lambda outputs: ScallopLoss(k=2, outputs=outputs),
}


def _assert_equal(first: Tensor, second: Tensor, log_probs: Tensor) -> None:
    assert torch.allclose(first, second, atol=1e-7)
    slopes = [torch.autograd.grad(values.sum(), log_probs)[0] for values in (first, second)]
    assert torch.allclose(*slopes, atol=1e-7)


@pytest.mark.parametrize("name", WITHOUT_OUTPUTS)
@settings(max_examples=20, deadline=None)
@given(both=restricted(), seed=st.integers(0, 99))
def test_losses_are_those_of_the_candidates(name: str, both: tuple[Lattice, Candidates], seed: int) -> None:
    lattice, candidates = both
    log_probs = (log_probs_for(lattice, seed) - 0.01).requires_grad_()  # at 1, rounding decides whether it is clamped
    engine = WITHOUT_OUTPUTS[name]()
    _assert_equal(engine(log_probs, lattice), engine(log_probs, candidates), log_probs)


@pytest.mark.parametrize("name", WITH_OUTPUTS)
@pytest.mark.parametrize(("machine", "rule", "highest"), [(SUM, sum, 12), (MAX, max, 4)])
def test_losses_over_all_outputs_are_those_of_the_candidates(name: str, machine, rule, highest: int) -> None:  # type: ignore[no-untyped-def]
    lattices = Lattice.from_rule(*machine, range(highest + 1), 3, 5)
    outputs = Candidates.from_rule(rule, range(highest + 1), 3, 5)
    targets = torch.tensor([4, 0, 2, 3])
    log_probs = log_probs_for(lattices.batch(targets), seed=1).requires_grad_()
    got = WITH_OUTPUTS[name](lattices)(log_probs, lattices.batch(targets), Context(targets=targets))
    expected = WITH_OUTPUTS[name](outputs)(log_probs, outputs.batch(targets), Context(targets=targets))
    _assert_equal(got, expected, log_probs)


@settings(max_examples=20, deadline=None)
@given(task=tasks(), seed=st.integers(0, 99))
def test_ised_counts_the_same_draws(task: Task, seed: int) -> None:
    lattice, candidates = task.lattice(), task.candidates()
    log_probs = log_probs_for(lattice, seed).requires_grad_()
    losses = [
        IsedLoss(lambda row: run(task.machine, row), samples=20, seed=seed)(log_probs, c) for c in (lattice, candidates)
    ]
    assert torch.allclose(*losses)


def test_sampled_semantic_loss_draws_from_a_lattice() -> None:
    lattice = Lattice.from_rule(*SUM, [8, 150], [2, 30], 10)
    losses = SampledSemanticLoss(per_sample=20)(torch.zeros(2, 30, 10).log_softmax(-1), lattice)
    assert losses.exp()[0] == pytest.approx(100 / 9)
    assert bool(losses.isfinite().all())


@pytest.mark.parametrize("engine", [AblSim(), ScallopLoss(k=None)])
def test_engines_that_need_a_list_make_one(engine: Engine) -> None:
    lattice = Lattice.from_rule(*SUM, [8], 2, 10)
    context = Context(embeddings=torch.zeros(1, 2, 3))
    log_probs = torch.zeros(1, 2, 10).log_softmax(-1)
    assert torch.equal(engine(log_probs, lattice, context), engine(log_probs, lattice.to_candidates(), context))
    long, embeddings = Lattice.from_rule(*SUM, [150], 30, 10), torch.zeros(1, 30, 3)
    with pytest.raises(BudgetError, match="budget"):
        engine(torch.zeros(1, 30, 10).log_softmax(-1), long, Context(embeddings=embeddings))


def test_damp_trains_on_thirty_digits() -> None:
    outputs = Lattice.from_rule(*SUM, range(271), 30, 10)
    targets = torch.tensor([135, 120])
    log_probs = torch.zeros(2, 30, 10).log_softmax(-1).requires_grad_()
    losses = DolphinLoss(outputs=outputs)(log_probs, outputs.batch(targets), Context(targets=targets))
    losses.sum().backward()
    assert bool(losses.isfinite().all())
    assert log_probs.grad is not None
    assert bool(log_probs.grad.isfinite().all())


def test_nan_is_refused_with_its_place() -> None:
    lattice = Lattice.from_rule(*SUM, [8, 8], 2, 10)
    log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
    log_probs[1, 0, 0] = torch.nan
    with pytest.raises(InputError, match="NaN in slot 0 of sample 1"):
        SemanticLoss()(log_probs, lattice)
