from __future__ import annotations

import math
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper.candidates import Candidates, Lattice
from clipper.candidates.rules import SUM
from clipper.engines import Context, ScallopLoss, scallop
from clipper.engines.proof_circuits import ProofCircuit, compiled
from clipper.engines.scallop import is_restriction
from clipper.errors import InputError, MissingExtraError
from tests.engine_oracles import (
    OUTPUTS,
    disjunction,
    gradient,
    model_count,
    most_probable,
    one_hot_cross_entropy,
    per_sample,
    problems,
    rows_of,
)


def _batch(samples=8, slots=2, classes=4, *, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (samples, slots), generator=generator).sum(1)
    noise = torch.randn(samples, slots, classes, generator=generator, dtype=torch.float64)
    return (scale * noise).log_softmax(-1).requires_grad_(), targets


@settings(max_examples=40)
@given(problems(rows=5), st.sampled_from([1, 2, 3, 10]))
def test_the_most_probable_proofs_equal_a_sum_over_all_worlds(problem, k):
    log_probs, candidates = problem
    expected = per_sample(log_probs, candidates, lambda p, rows: disjunction(p, most_probable(p, rows, k)))
    torch.testing.assert_close(ScallopLoss(k)(log_probs, candidates), -expected.log(), atol=1e-9, rtol=1e-9)


@settings(max_examples=20)
@given(problems(rows=5, impossible=False))
def test_the_gradient_equals_that_of_a_sum_over_all_worlds(problem):
    log_probs, candidates = problem
    log_probs.requires_grad_()
    expected = gradient(-per_sample(log_probs, candidates, disjunction).log(), log_probs)
    torch.testing.assert_close(gradient(ScallopLoss(None)(log_probs, candidates), log_probs), expected)


@settings(max_examples=25)
@given(problems(rows=5))
def test_a_compiled_circuit_equals_a_sum_over_all_worlds(problem):
    pytest.importorskip("pysdd")
    log_probs, candidates = problem
    log_probs.requires_grad_()
    for i in range(candidates.samples):
        rows = rows_of(candidates, i)
        expected = disjunction(log_probs[i], rows).log()
        value = ProofCircuit(torch.tensor(rows), 10_000).log_probability(log_probs[i : i + 1])[0]
        torch.testing.assert_close(value, expected, atol=1e-9, rtol=1e-9)
        if expected.isfinite():
            found, right = gradient(value, log_probs), gradient(expected, log_probs)
            torch.testing.assert_close(found, right.nan_to_num(0.0), atol=1e-9, rtol=1e-7)


def test_proofs_that_share_no_fact_fail_independently():
    candidates = Candidates.from_rule(sum, targets=[9], slots=2, classes=10)
    log_probs = torch.randn(1, 2, 10, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    p, q = log_probs[0].exp()
    expected = -torch.log(1 - torch.prod(1 - p * q.flip(0)))
    torch.testing.assert_close(ScallopLoss(None)(log_probs, candidates)[0], expected)


def test_all_proofs_of_three_digits_agree_with_the_weighted_model_count():
    log_probs, _ = _batch(5, 3, 10)
    candidates = Candidates.from_rule(sum, targets=[4, 9, 13, 20, 24], slots=3, classes=10)
    losses = ScallopLoss(None)(log_probs, candidates)
    for i in range(5):
        expected = -model_count(log_probs[i], rows_of(candidates, i), exclusive=False)
        assert losses[i].item() == pytest.approx(expected, abs=1e-6)


@settings(max_examples=60)
@given(problem=problems(rows=14, impossible=False))
def test_random_problems_agree_with_the_weighted_model_count(problem):
    """Up to ten proofs go by inclusion-exclusion, more by a compiled circuit."""
    log_probs, candidates = problem
    losses = ScallopLoss(None)(log_probs, candidates)
    for i in range(candidates.samples):
        expected = -model_count(log_probs[i], rows_of(candidates, i), exclusive=False)
        assert losses[i].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", [2, None])
def test_the_loss_over_all_outputs_equals_a_transcription_of_its_definition(k):
    log_probs, targets = _batch()
    candidates = OUTPUTS.batch(targets)
    losses = ScallopLoss(k, outputs=OUTPUTS)(log_probs, candidates, Context(targets=targets))
    expected = []
    for i, target in enumerate(targets.tolist()):
        rows = [most_probable(log_probs[i], rows_of(OUTPUTS, o), k or 99) for o in range(7)]
        values = [disjunction(log_probs[i], own) for own in rows]
        expected.append(one_hot_cross_entropy(values.pop(target), values))
    torch.testing.assert_close(losses, torch.stack(expected))
    torch.testing.assert_close(gradient(losses, log_probs), gradient(torch.stack(expected), log_probs))


@pytest.mark.parametrize("targets", [[*range(7), 99], [99, *range(7)], [0, 99, 3, 98]])
@pytest.mark.parametrize("k", [1, 3, None])
def test_outputs_that_no_labels_give_have_probability_zero(k, targets):
    outputs = Candidates.from_rule(sum, targets, slots=2, classes=4, impossible="keep")
    possible = [target for target in targets if target < 7]
    alone = Candidates.from_rule(sum, possible, slots=2, classes=4)
    log_probs = _batch(2)[0]
    candidates = OUTPUTS.batch([0, 3])
    place = torch.tensor([targets.index(0), targets.index(3)])
    losses = ScallopLoss(k, outputs=outputs)(log_probs, candidates, Context(targets=place))
    place = torch.tensor([possible.index(0), possible.index(3)])
    expected = ScallopLoss(k, outputs=alone)(log_probs, candidates, Context(targets=place))
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient(losses, log_probs), gradient(expected, log_probs))


@pytest.mark.parametrize("k", [3, None])
def test_finite_differences_confirm_the_gradient(k, monkeypatch):
    if k is None:
        pytest.importorskip("pysdd")
        monkeypatch.setattr(scallop, "LARGEST_K", 2)  # more than two proofs go through a circuit
    log_probs, targets = _batch(4)
    engine = ScallopLoss(k, outputs=OUTPUTS, entropy=0.1)
    assert torch.autograd.gradcheck(lambda x: engine(x, OUTPUTS.batch(targets), Context(targets=targets)), log_probs)


def test_a_compiled_circuit_has_no_second_derivative(monkeypatch):
    pytest.importorskip("pysdd")
    monkeypatch.setattr(scallop, "LARGEST_K", 2)
    log_probs, targets = _batch(4)
    losses = ScallopLoss(None)(log_probs, OUTPUTS.batch(targets))
    with pytest.raises(InputError, match="second derivatives are not supported by this loss"):
        torch.autograd.grad(losses.sum(), log_probs, create_graph=True)


def _restricted(candidates, seed):
    """Prune by label domains, as Clipper does, keeping each sample's first candidate."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.rand(candidates.samples, candidates.slots, candidates.classes, generator=generator) < 0.8
    first = candidates.labels[candidates.offsets[:-1]].long()
    allowed.scatter_(2, first[..., None], True)
    labels = candidates.labels.long()
    return candidates.subset(allowed[candidates.sample[:, None], torch.arange(candidates.slots), labels].all(1))


@pytest.mark.parametrize("seed", range(2))
def test_a_pruning_masks_the_circuit_and_equals_removing_the_candidates(seed, monkeypatch):
    pytest.importorskip("pysdd")
    monkeypatch.setattr(scallop, "LARGEST_K", 2)
    log_probs, targets = _batch(6, slots=3, seed=seed)
    candidates = Candidates.from_rule(sum, targets, slots=3, classes=4)
    engine = ScallopLoss(None)
    engine(log_probs, candidates)
    before = compiled.cache_info().misses
    kept = _restricted(candidates, seed)
    assert len(kept) < len(candidates)
    losses = engine(log_probs, kept, Context(unpruned=candidates))
    assert compiled.cache_info().misses == before
    alone = ScallopLoss(None)(log_probs, kept)
    torch.testing.assert_close(losses, alone)
    torch.testing.assert_close(gradient(losses, log_probs), gradient(alone, log_probs))
    torch.testing.assert_close(alone, -per_sample(log_probs, kept, disjunction).log())


def test_outputs_serve_as_the_templates_of_a_pruning(monkeypatch):
    pytest.importorskip("pysdd")
    monkeypatch.setattr(scallop, "LARGEST_K", 2)
    log_probs, targets = _batch(12)
    engine = ScallopLoss(None, outputs=OUTPUTS)
    whole = engine(log_probs, OUTPUTS.batch(targets), Context(targets=targets))
    before = compiled.cache_info().misses
    kept = _restricted(OUTPUTS.batch(targets), 1)
    losses = engine(log_probs, kept, Context(targets=targets))
    assert compiled.cache_info().misses == before
    whole_loss, after = (-per_sample(log_probs, c, disjunction).log() for c in (OUTPUTS.batch(targets), kept))
    torch.testing.assert_close(losses - whole, after - whole_loss)


def test_a_random_pruning_is_compiled_on_its_own(monkeypatch):
    pytest.importorskip("pysdd")
    monkeypatch.setattr(scallop, "LARGEST_K", 2)
    log_probs, targets = _batch(6, slots=3)
    candidates = Candidates.from_rule(sum, targets, slots=3, classes=4)
    kept = candidates.draw(4, seed=0)
    assert not is_restriction(kept, candidates).all()
    losses = ScallopLoss(None)(log_probs, kept, Context(unpruned=candidates))
    torch.testing.assert_close(losses, -per_sample(log_probs, kept, disjunction).log())


def test_unpruned_candidates_that_are_too_many_to_list_are_not_needed(monkeypatch):
    pytest.importorskip("pysdd")
    outputs = Lattice.from_rule(*SUM, targets=[50, 60], slots=12, classes=10)
    assert min(outputs.counts) > outputs.LISTED
    log_probs = torch.randn(2, 12, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64).log_softmax(-1)
    allowed = outputs.draw(1, seed=0).support.view(2, 12, 10).clone()
    allowed[:, :3] = True
    kept = outputs.restrict(allowed.flatten(0, 1))
    assert min(kept.counts) > 10
    losses = ScallopLoss(None)(log_probs, kept, Context(unpruned=outputs))
    torch.testing.assert_close(losses, ScallopLoss(None)(log_probs, kept.to_candidates()))
    few = kept.draw(3)
    expected = ScallopLoss(3)(log_probs, few)
    monkeypatch.setattr(scallop, "LARGEST_K", 2)
    torch.testing.assert_close(ScallopLoss(None)(log_probs, few, Context(unpruned=outputs)), expected)


def test_unpruned_candidates_are_not_listed_if_few_are_left(monkeypatch):
    outputs = Lattice.from_rule(*SUM, targets=[9, 8], slots=2, classes=10)
    kept = outputs.draw(1, seed=0)
    monkeypatch.setattr(Lattice, "to_candidates", lambda *_: pytest.fail("there is no need for a list"))
    log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
    losses = ScallopLoss(None)(log_probs, kept, Context(unpruned=outputs))
    torch.testing.assert_close(losses.exp(), torch.tensor([100.0, 100.0]))


@pytest.mark.parametrize("by_circuit", [False, True])
def test_very_small_probabilities_keep_value_and_gradient(by_circuit, monkeypatch):
    if by_circuit:
        pytest.importorskip("pysdd")
        monkeypatch.setattr(scallop, "LARGEST_K", 1)
    candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(0, 0), (1, 1)]], classes=2)
    row = [[-1e4, -1e4], [-1e4, 0.0]]
    log_probs = torch.tensor([row, [[-math.inf, 0.0], [0.0, -math.inf]]], requires_grad=True)
    losses = ScallopLoss(None)(log_probs, candidates)
    assert losses.tolist() == [1e4, math.inf]
    expected = [[[-1.0, 0.0], [0.0, -1.0]], [[0.0, 0.0], [0.0, 0.0]]]
    torch.testing.assert_close(gradient(losses, log_probs), torch.tensor(expected))


def test_what_cannot_be_compiled_is_named_once_and_replaced_by_the_best_proofs():
    pytest.importorskip("pysdd")
    log_probs, targets = _batch(4, slots=3, classes=10)
    candidates = Candidates.from_rule(sum, targets, slots=3, classes=10)
    engine = ScallopLoss(None, budget=50)
    with pytest.warns(UserWarning, match=r"proofs, more than the budget of 50; the 10 most probable"):
        losses = engine(log_probs, candidates)
    torch.testing.assert_close(losses, ScallopLoss(10)(log_probs, candidates))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine(log_probs, candidates)


def test_unpruned_candidates_of_other_samples_are_refused():
    log_probs, targets = _batch(4)
    candidates = OUTPUTS.batch(targets)
    with pytest.raises(InputError, match=r"\(4, 2, 4\), got \(7, 2, 4\)"):
        ScallopLoss(None)(log_probs, candidates, Context(unpruned=OUTPUTS))


def test_more_proofs_than_inclusion_exclusion_can_take_are_refused():
    with pytest.raises(InputError, match=r"None for all proofs\) of at least 1 and at most 10, a whole number, got 11"):
        ScallopLoss(11)


def test_many_proofs_without_a_compiler_name_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pysdd.sdd", None)
    compiled.cache_clear()
    log_probs, targets = _batch(4, slots=3, classes=10)
    with pytest.raises(MissingExtraError, match=r"clipper-nesy\[circuits\]"):
        ScallopLoss(None)(log_probs, Candidates.from_rule(sum, targets, slots=3, classes=10))


@pytest.mark.slow
def test_all_sums_of_three_digits_are_compiled_within_the_default_budget():
    pytest.importorskip("pysdd")
    outputs = Candidates.from_rule(sum, targets=range(28), slots=3, classes=10)
    log_probs = _batch(1, 3, 10)[0].detach().repeat(28, 1, 1)
    compiled.cache_clear()
    losses = ScallopLoss(None)(log_probs, outputs)  # a warning would be an error
    assert compiled.cache_info().misses == sum(count > 10 for count in outputs.counts)
    assert (losses < ScallopLoss(10)(log_probs, outputs) + 1e-9).all()  # more proofs, more probability
