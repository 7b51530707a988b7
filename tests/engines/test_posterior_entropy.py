from __future__ import annotations

import math

import torch
from hypothesis import given

from clipper.candidates import Candidates
from clipper.engines import SemanticLoss
from tests.engine_oracles import entropy, gradient, per_sample, problems


@given(problems())
def test_entropy_equals_enumeration(problem):
    log_probs, candidates = problem
    expected = per_sample(log_probs, candidates, entropy)
    torch.testing.assert_close(candidates.entropy(log_probs), expected, atol=1e-9, rtol=1e-9)


@given(problems(impossible=False))
def test_its_gradient_equals_that_of_enumeration(problem):
    log_probs, candidates = problem
    log_probs.requires_grad_()
    expected = gradient(per_sample(log_probs, candidates, entropy), log_probs)
    torch.testing.assert_close(gradient(candidates.entropy(log_probs), log_probs), expected, atol=1e-9, rtol=1e-7)


def test_impossible_candidates_count_for_nothing():
    candidates = Candidates.from_lists([[(0,), (1,), (2,)], [(0,), (1,)]], classes=3)
    log_probs = torch.tensor([[[-math.inf, -1.0, -1.0]], [[-math.inf, -math.inf, 0.0]]], requires_grad=True)
    values = candidates.entropy(log_probs)
    torch.testing.assert_close(values, torch.tensor([math.log(2), 0.0]))
    assert gradient(values, log_probs).isfinite().all()


def test_the_option_adds_the_weighted_entropy():
    candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
    log_probs = torch.randn(2, 2, 10, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    expected = SemanticLoss()(log_probs, candidates) + 0.7 * candidates.entropy(log_probs)
    torch.testing.assert_close(SemanticLoss(entropy=0.7)(log_probs, candidates), expected)
