from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given

from clipper.candidates import Candidates
from clipper.engines import Context, DolphinLoss
from clipper.errors import InputError
from tests.engine_oracles import (
    OUTPUTS,
    gradient,
    mass,
    most_probable,
    one_hot_cross_entropy,
    per_sample,
    problems,
    rows_of,
)


def _batch(scale, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(7, (12,), generator=generator)
    log_probs = (scale * torch.randn(12, 2, 4, generator=generator, dtype=torch.float64)).log_softmax(-1)
    return log_probs.requires_grad_(), targets


def _transcription(log_probs, candidates, outputs, targets, k):
    losses = []
    for i, target in enumerate(targets.tolist()):
        rows = [rows_of(outputs, o) for o in range(outputs.samples)]
        rows[target] = rows_of(candidates, i)
        masses = [mass(log_probs[i], most_probable(log_probs[i], own, k)) for own in rows]
        losses.append(one_hot_cross_entropy(masses.pop(target), masses))
    return torch.stack(losses)


@pytest.mark.parametrize(("provenance", "k"), [("damp", 100), ("dtkp-am", 1), ("dtkp-am", 3)])
@pytest.mark.parametrize("times", [1, 4])
def test_value_and_gradient_equal_a_transcription_of_the_definition(provenance, k, times):
    log_probs, targets = _batch(1.0)
    rows = [rows_of(OUTPUTS, o) for o in range(OUTPUTS.samples)]
    outputs = Candidates.from_lists([own * times for own in rows], classes=4)  # repetitions make sums exceed 1
    candidates = outputs.batch(targets)
    losses = DolphinLoss(provenance, k=k, outputs=outputs)(log_probs, candidates, Context(targets=targets))
    expected = _transcription(log_probs, candidates, outputs, targets, k)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient(losses, log_probs), gradient(expected, log_probs))


@given(problems(impossible=False))
def test_ragged_samples_of_several_kinds_equal_enumeration(problem):
    log_probs, candidates = problem
    for provenance, k in (("damp", 100), ("dtkp-am", 2)):
        expected = per_sample(log_probs, candidates, lambda p, rows: mass(p, most_probable(p, rows, k)))  # noqa: B023
        losses = DolphinLoss(provenance, k=k)(log_probs, candidates)
        torch.testing.assert_close(losses, -expected.clamp(max=1).log(), atol=1e-9, rtol=1e-9)


def test_a_clamped_sum_passes_no_gradient():
    candidates = Candidates.from_lists([[(0,), (0,)]], classes=2)
    log_probs = torch.tensor([[[-0.1, -3.0]]], requires_grad=True)
    losses = DolphinLoss()(log_probs, candidates)
    assert losses.tolist() == [0.0]
    assert gradient(losses, log_probs).tolist() == [[[0.0, 0.0]]]


def test_an_output_that_is_certain_and_wrong_costs_a_hundred():
    outputs = Candidates.from_lists([[(0,)], [(1,)]], classes=2)
    log_probs = torch.tensor([[[0.0, -32.0]]], requires_grad=True)
    losses = DolphinLoss(outputs=outputs)(log_probs, outputs.batch([1]), Context(targets=torch.tensor([1])))
    assert losses.tolist() == [132.0]
    assert gradient(losses, log_probs).tolist() == [[[0.0, -1.0]]]


@pytest.mark.parametrize("provenance", ["damp", "dtkp-am"])
def test_finite_differences_confirm_the_gradient(provenance):
    log_probs, targets = _batch(0.5)
    engine = DolphinLoss(provenance, outputs=OUTPUTS, entropy=0.2)
    assert torch.autograd.gradcheck(lambda x: engine(x, OUTPUTS.batch(targets), Context(targets=targets)), log_probs)


def test_a_pruning_acts_on_the_target_only():
    log_probs, targets = _batch(0.5)
    candidates = OUTPUTS.batch(targets)
    keep = torch.zeros(len(candidates), dtype=torch.bool)
    keep[candidates.offsets[:-1]] = True
    kept = candidates.subset(keep)
    losses = DolphinLoss(outputs=OUTPUTS)(log_probs, kept, Context(targets=targets))
    torch.testing.assert_close(losses, _transcription(log_probs, kept, OUTPUTS, targets, 100))


def test_small_probabilities_do_not_underflow():
    candidates = Candidates.from_lists([[(0, 0), (1, 1)]], classes=2)
    losses = DolphinLoss()(torch.full((1, 2, 2), -1e4), candidates)
    assert losses.item() == pytest.approx(2e4 - math.log(2))


def test_missing_and_misplaced_targets_are_refused():
    log_probs, targets = _batch(0.5)
    candidates = OUTPUTS.batch(targets)
    with pytest.raises(InputError, match="DolphinLoss needs targets: give the samples targets"):
        DolphinLoss(outputs=OUTPUTS)(log_probs, candidates)
    with pytest.raises(InputError, match=r"targets in 0 … 6"):
        DolphinLoss(outputs=OUTPUTS)(log_probs, candidates, Context(targets=targets + 7))
    with pytest.raises(InputError, match=r'"damp" or "dtkp-am", got .amp.'):
        DolphinLoss("amp")
