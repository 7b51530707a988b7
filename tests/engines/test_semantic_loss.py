from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings

from clipper.candidates import Candidates
from clipper.engines import SampledSemanticLoss, SemanticLoss
from clipper.errors import InputError
from tests.engine_oracles import gradient, mass, model_count, per_sample, problems, rows_of


@given(problems())
def test_semantic_loss_equals_enumeration(problem):
    log_probs, candidates = problem
    expected = -per_sample(log_probs, candidates, mass).log()
    torch.testing.assert_close(SemanticLoss()(log_probs, candidates), expected, atol=1e-9, rtol=1e-9)


@given(problems(impossible=False))
def test_its_gradient_equals_that_of_enumeration(problem):
    log_probs, candidates = problem
    log_probs.requires_grad_()
    expected = gradient(-per_sample(log_probs, candidates, mass).log(), log_probs)
    torch.testing.assert_close(gradient(SemanticLoss()(log_probs, candidates), log_probs), expected)


def _sums(slots, *, samples=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(slots)
    gold = torch.randint(10, (samples, slots), generator=generator)
    log_probs = torch.randn(samples, slots, 10, generator=generator, dtype=dtype).log_softmax(-1)
    return log_probs, Candidates.from_rule(sum, gold.sum(1), slots, 10)


def test_finite_differences_confirm_the_gradient():
    log_probs, candidates = _sums(3, samples=2)
    for engine in (SemanticLoss(), SemanticLoss(entropy=0.3)):
        assert torch.autograd.gradcheck(lambda x: engine(x, candidates), log_probs.requires_grad_())  # noqa: B023


@pytest.mark.parametrize("slots", [2, 3])
def test_it_agrees_with_the_weighted_model_count_of_a_compiled_formula(slots):
    log_probs, candidates = _sums(slots)
    losses = SemanticLoss()(log_probs, candidates)
    for i in range(candidates.samples):
        expected = -model_count(log_probs[i], rows_of(candidates, i), exclusive=True)
        assert float(losses[i]) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=100)
@given(problem=problems(impossible=False))
def test_random_problems_agree_with_the_weighted_model_count(problem):
    log_probs, candidates = problem
    losses = SemanticLoss()(log_probs, candidates)
    for i in range(candidates.samples):
        expected = -model_count(log_probs[i], rows_of(candidates, i), exclusive=True)
        assert float(losses[i]) == pytest.approx(expected, abs=1e-6)


def test_a_pruning_changes_the_value_as_removing_the_candidates_would():
    log_probs, candidates = _sums(3)
    keep = torch.rand(len(candidates), generator=torch.Generator().manual_seed(0)) < 0.5
    keep[candidates.offsets[:-1]] = True
    kept = candidates.subset(keep)
    lists = [rows_of(kept, i) for i in range(kept.samples)]
    by_hand = Candidates.from_lists(lists, classes=10)
    torch.testing.assert_close(SemanticLoss()(log_probs, kept), SemanticLoss()(log_probs, by_hand))


def test_very_small_probabilities_keep_value_and_gradient():
    candidates = Candidates.from_lists([[(0, 1), (1, 0)]], classes=2)
    log_probs = torch.tensor([[[-1e4, -1e4], [-1e4, 0.0]]], requires_grad=True)
    loss = SemanticLoss()(log_probs, candidates)
    assert loss.item() == pytest.approx(1e4)
    torch.testing.assert_close(gradient(loss, log_probs), torch.tensor([[[-1.0, 0.0], [0.0, -1.0]]]))


@pytest.mark.parametrize("entropy", [0.0, 0.5])
def test_an_impossible_sample_costs_infinity_and_teaches_nothing(entropy):
    candidates = Candidates.from_lists([[(0,), (1,)], [(0,)]], classes=2)
    log_probs = torch.tensor([[[-math.inf, -math.inf]], [[-1.0, -1.0]]], requires_grad=True)
    losses = SemanticLoss(entropy=entropy)(log_probs, candidates)
    assert losses.tolist() == [math.inf, 1.0]
    assert gradient(losses, log_probs).tolist() == [[[0.0, 0.0]], [[-1.0, 0.0]]]


def test_single_precision_is_accurate_on_many_candidates():
    log_probs, candidates = _sums(4, samples=8, dtype=torch.float32)
    exact = SemanticLoss()(log_probs.double(), candidates)
    torch.testing.assert_close(SemanticLoss()(log_probs, candidates).double(), exact, atol=1e-5, rtol=1e-5)


def test_the_wrong_shape_is_answered_with_the_right_one():
    log_probs, candidates = _sums(2)
    with pytest.raises(InputError, match=r"\(5, 2, 10\).*got \(5, 2, 9\)"):
        SemanticLoss()(log_probs[..., :9], candidates)
    with pytest.raises(InputError, match="entropy weight to be a finite number of at least 0, got -1"):
        SemanticLoss(entropy=-1)


def test_sampling_more_candidates_than_there_are_is_exact():
    log_probs, candidates = _sums(3)
    sampled = SampledSemanticLoss(per_sample=75)(log_probs, candidates)
    torch.testing.assert_close(sampled, SemanticLoss()(log_probs, candidates))


def test_every_candidate_is_sampled_equally_often():
    candidates = Candidates.from_rule(sum, targets=[4], slots=2, classes=5)
    log_probs = torch.full((1, 2, 5), -2.0, dtype=torch.float64, requires_grad=True)
    engine = SampledSemanticLoss(per_sample=2, seed=3)
    seen = sum(-gradient(engine(log_probs, candidates), log_probs)[0, 0] for _ in range(600)) / 600
    torch.testing.assert_close(seen, torch.full((5,), 0.2, dtype=torch.float64), atol=0.04, rtol=0)


def test_a_resumed_engine_draws_what_an_uninterrupted_one_draws():
    log_probs, candidates = _sums(3)
    engine = SampledSemanticLoss(per_sample=3, seed=1)
    engine(log_probs, candidates)
    stored = copy.deepcopy(engine.state_dict())
    expected = engine(log_probs, candidates)
    resumed = SampledSemanticLoss(per_sample=3, seed=2)
    resumed.load_state_dict(stored)
    assert torch.equal(resumed(log_probs, candidates), expected)
