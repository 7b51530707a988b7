from __future__ import annotations

import copy
import itertools

import pytest
import torch

from clipper.candidates import Candidates
from clipper.engines import IsedLoss
from clipper.engines.ised import row_numbers, run_program
from clipper.errors import InputError
from tests.engine_oracles import facts_of, gradient, product, rows_of


def _batch(samples=3, slots=2, classes=4, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples, slots, classes, generator=generator, dtype=torch.float64)
    gold = torch.randint(classes, (samples, slots), generator=generator)
    return noise.log_softmax(-1), Candidates.from_rule(sum, gold.sum(1), slots, classes)


def _exact(log_probs, candidates, outputs, power):
    """Σ p(σ)^power over the tuples that give each output, without pruned ones, `(n, outputs)`."""
    masses = torch.zeros(candidates.samples, len(outputs), dtype=torch.float64)
    for i in range(candidates.samples):
        kept = rows_of(candidates, i)
        for row in itertools.product(range(candidates.classes), repeat=candidates.slots):
            if sum(row) != sum(kept[0]) or row in kept:
                masses[i, outputs.index(sum(row))] += product(log_probs[i], facts_of(row)) ** power
    return masses


@pytest.mark.parametrize("pruned", [False, True])
def test_distinct_draws_converge_to_the_exact_probability_of_each_output(pruned):
    log_probs, candidates = _batch()
    if pruned:
        candidates = candidates.draw(1, seed=0)
    errors = []
    for samples in (30, 300, 30_000):
        masses, outputs = IsedLoss(sum, samples, distinct=True).output_masses(log_probs, candidates)
        exact = _exact(log_probs, candidates, outputs, power=1)
        assert (masses <= exact + 1e-9).all()
        errors.append((masses - exact).abs().max().item())
    assert errors[2] < 1e-3
    assert errors[0] > errors[1] > errors[2]


def test_the_mean_of_published_masses_converges_to_the_sum_of_squares():
    log_probs, candidates = _batch()
    masses, outputs = IsedLoss(sum, 100_000).output_masses(log_probs, candidates)
    exact = _exact(log_probs, candidates, outputs, power=2)
    torch.testing.assert_close(masses / 100_000, exact, atol=3e-3, rtol=0)


def test_the_loss_is_the_cross_entropy_of_the_normalised_masses():
    log_probs, candidates = _batch()
    masses, outputs = IsedLoss(sum, 50, seed=4).output_masses(log_probs, candidates)
    share = masses / masses.norm(dim=1, keepdim=True)
    target = torch.zeros_like(share)
    for i in range(candidates.samples):
        target[i, outputs.index(sum(rows_of(candidates, i)[0]))] = 1
    expected = torch.nn.functional.binary_cross_entropy(share, target, reduction="none").sum(1)
    torch.testing.assert_close(IsedLoss(sum, 50, seed=4)(log_probs, candidates), expected)


def test_finite_differences_confirm_the_gradient():
    log_probs, candidates = _batch()
    for distinct in (False, True):
        assert torch.autograd.gradcheck(
            lambda x: IsedLoss(sum, 60, distinct=distinct, entropy=0.1)(x, candidates),  # noqa: B023
            log_probs.requires_grad_(),
        )


def test_pruned_tuples_count_for_nothing():
    log_probs = torch.zeros(1, 2, 3).log_softmax(-1).requires_grad_()
    whole = Candidates.from_rule(sum, targets=[2], slots=2, classes=3)
    masses, outputs = IsedLoss(sum, 500, distinct=True).output_masses(log_probs, whole.subset(whole.labels[:, 0] == 1))
    assert masses[0, outputs.index(2)].item() == pytest.approx(1 / 9)
    assert gradient(masses[:, outputs.index(2)], log_probs)[0, 0, 0] == 0


def test_a_program_that_only_runs_on_one_tuple_gives_the_same_losses():
    log_probs, candidates = _batch()

    def slow(labels):
        return sum(label for label in labels if label)  # a truth value: must be called tuple by tuple

    losses = IsedLoss(slow, 40, seed=1)(log_probs, candidates)
    torch.testing.assert_close(losses, IsedLoss(sum, 40, seed=1)(log_probs, candidates))


def test_unused_slots_and_kinds_are_drawn_as_the_classifier_reads_them():
    candidates = Candidates.from_lists([[(0, 2), (1, 3)], [(1,)]], classes={"name": 2, "relation": 2})
    log_probs = torch.zeros(2, 2, 4).log_softmax(-1)
    engine = IsedLoss(lambda labels: tuple(labels), 200, distinct=True)
    _, outputs = engine.output_masses(log_probs, candidates)
    assert set(outputs) == {(0, 2), (0, 3), (1, 2), (1, 3), (0,), (1,)}


def test_a_target_that_was_never_drawn_costs_a_hundred_and_passes_no_gradient():
    candidates = Candidates.from_lists([[(1,)]], classes=2)
    log_probs = torch.tensor([[[0.0, -1e4]]], requires_grad=True)
    loss = IsedLoss(sum, 10)(log_probs, candidates)
    assert loss.tolist() == [200.0]
    assert gradient(loss, log_probs).tolist() == [[[0.0, 0.0]]]


def test_the_seed_and_the_stored_state_decide_the_draws():
    log_probs, candidates = _batch()
    engine, other = IsedLoss(sum, 20, seed=5), IsedLoss(sum, 20, seed=6)
    assert not torch.equal(engine(log_probs, candidates), other(log_probs, candidates))
    other.load_state_dict(copy.deepcopy(engine.state_dict()))
    assert torch.equal(engine(log_probs, candidates), other(log_probs, candidates))


def test_labels_without_an_output_are_left_out():
    candidates = Candidates.from_lists([[(1,)]], classes=3)
    engine = IsedLoss(lambda labels: None if labels[0] == 2 else labels[0], 100)
    _, outputs = engine.output_masses(torch.zeros(1, 1, 3).log_softmax(-1), candidates)
    assert set(outputs) == {0, 1}


def test_a_rule_that_fails_or_does_not_fit_the_candidates_is_named():
    log_probs, candidates = _batch()
    with pytest.raises(InputError, match=r"the rule failed on .* ZeroDivisionError"):
        IsedLoss(lambda labels: 1 // len([x for x in labels if x > 9]))(log_probs, candidates)
    with pytest.raises(InputError, match="None for the first candidate of sample 0"):
        IsedLoss(lambda _: None)(log_probs, candidates)


def test_long_rows_are_numbered_without_overflow():
    labels = torch.randint(100, (50, 40), generator=torch.Generator().manual_seed(0))
    labels[7] = labels[3]
    numbers = row_numbers(labels)
    assert numbers[7] == numbers[3]
    assert len(numbers.unique()) == 49


def test_a_program_runs_once_per_distinct_row():
    calls = []

    def program(row):
        calls.append(row)
        return str(sorted(set(row)))

    output, values = run_program(program, torch.tensor([[1, -1], [1, -1], [0, 2], [2, 0], [0, 2]]))
    assert sorted(row for row in calls if all(type(label) is int for label in row)) == [(0, 2), (1,), (2, 0)]
    assert [values[i] for i in output] == ["[1]", "[1]", "[0, 2]", "[0, 2]", "[0, 2]"]
