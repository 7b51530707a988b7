"""Lattices against enumeration: whatever is asked of a lattice, listing its candidates gives the same answer."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipper.candidates import Candidates, Lattice
from clipper.candidates import lattice as lattice_module
from clipper.candidates.packed import candidate_log_probs
from clipper.candidates.rules import HWF, MAX, SUM
from clipper.errors import BudgetError, InputError
from tests.machines import Task, log_probs_for, restricted, tasks

RULES = {"sum": (SUM, sum), "max": (MAX, max)}


@settings(max_examples=40, deadline=None)
@given(task=tasks())
def test_a_lattice_lists_what_brute_force_lists(task: Task) -> None:
    lattice, expected = task.lattice(), task.candidates()
    assert lattice.counts == expected.counts
    listed = lattice.to_candidates()
    assert listed.labels.tolist() == expected.labels.tolist()
    assert listed.offsets.tolist() == expected.offsets.tolist()
    assert torch.equal(lattice.support, expected.support)
    assert torch.equal(lattice.kind, expected.kind)
    assert [lattice.graph.targets[i] for i in lattice.template.tolist()] == list(task.targets)
    assert lattice.log_counts.exp().tolist() == pytest.approx(lattice.counts)


@settings(max_examples=40, deadline=None)
@given(both=restricted())
def test_a_restriction_keeps_the_candidates_inside_it(both: tuple[Lattice, Candidates]) -> None:
    lattice, expected = both
    assert lattice.counts == expected.counts
    assert lattice.to_candidates().labels.tolist() == expected.labels.tolist()
    assert torch.equal(lattice.support, expected.support)
    ids = torch.arange(lattice.samples).flip(0)
    assert lattice.batch(ids).to_candidates().labels.tolist() == expected.batch(ids).labels.tolist()
    assert lattice.span(0, 1).counts == expected.counts[:1]


def _gradient(values: Tensor, log_probs: Tensor, weight: Tensor) -> Tensor:
    return torch.autograd.grad((values * weight).sum(), log_probs, retain_graph=True)[0]


@settings(max_examples=40, deadline=None)
@given(both=restricted(), seed=st.integers(0, 99), scale=st.sampled_from([0.5, 4.0, 100.0]))
def test_probability_gradient_and_marginals_are_those_of_the_candidates(
    both: tuple[Lattice, Candidates], seed: int, scale: float
) -> None:
    lattice, candidates = both
    log_probs = log_probs_for(lattice, seed, scale).requires_grad_()
    weight = torch.rand(lattice.samples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    value, expected = lattice.log_probability(log_probs), candidates.log_probability(log_probs)
    assert torch.allclose(value, expected, atol=1e-9)
    slope = _gradient(expected, log_probs, torch.ones_like(weight))
    assert torch.allclose(lattice.marginals(log_probs), slope, atol=1e-9)
    assert torch.allclose(_gradient(value, log_probs, weight), _gradient(expected, log_probs, weight), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(both=restricted(), seed=st.integers(0, 99))
def test_impossible_labels_are_no_trouble(both: tuple[Lattice, Candidates], seed: int) -> None:
    lattice, candidates = both
    noise = log_probs_for(lattice, seed)
    log_probs = torch.where(noise.exp() < 0.4, -math.inf, noise).requires_grad_()
    value, expected = lattice.log_probability(log_probs), candidates.log_probability(log_probs)
    assert torch.allclose(value, expected, atol=1e-9)
    ones = torch.ones(lattice.samples, dtype=torch.float64)
    finite = torch.where(expected > -math.inf, expected, 0)
    got = _gradient(torch.where(value > -math.inf, value, 0), log_probs, ones)
    assert torch.allclose(got, _gradient(finite, log_probs, ones), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(both=restricted(), seed=st.integers(0, 99), scale=st.sampled_from([0.5, 4.0]))
def test_entropy_and_its_gradient_are_those_of_the_candidates(
    both: tuple[Lattice, Candidates], seed: int, scale: float
) -> None:
    lattice, candidates = both
    log_probs = log_probs_for(lattice, seed, scale).requires_grad_()
    value, expected = lattice.entropy(log_probs), candidates.entropy(log_probs)
    assert torch.allclose(value, expected, atol=1e-8)
    ones = torch.ones(lattice.samples, dtype=torch.float64)
    assert torch.allclose(_gradient(value, log_probs, ones), _gradient(expected, log_probs, ones), atol=1e-8)


@settings(max_examples=30, deadline=None)
@given(both=restricted(), seed=st.integers(0, 99), k=st.integers(1, 9))
def test_the_k_best_are_the_k_best(both: tuple[Lattice, Candidates], seed: int, k: int) -> None:
    lattice, candidates = both
    log_probs = log_probs_for(lattice, seed)
    values = candidate_log_probs(log_probs, candidates)
    best = lattice.top_k(log_probs, k)
    for i in range(lattice.samples):
        rows, own = candidates.labels[candidates.sample == i], values[candidates.sample == i]
        order = own.argsort(descending=True)[:k]
        assert best.labels[best.sample == i].tolist() == rows[order].tolist()


@settings(max_examples=30, deadline=None)
@given(both=restricted(), data=st.data())
def test_contains_says_which_rows_are_candidates(both: tuple[Lattice, Candidates], data: st.DataObject) -> None:
    lattice, candidates = both
    size = lattice.samples * lattice.slots
    flat = data.draw(st.lists(st.integers(-1, lattice.classes), min_size=size, max_size=size))
    gold = torch.tensor(flat).view(lattice.samples, lattice.slots)
    if data.draw(st.booleans()):
        gold[0] = candidates.labels[0].long()
    assert lattice.contains(gold).tolist() == candidates.contains(gold).tolist()


@settings(max_examples=30, deadline=None)
@given(task=tasks(), seed=st.integers(0, 99))
def test_one_pass_gives_the_probability_of_every_output(task: Task, seed: int) -> None:
    lattice = task.lattice()
    log_probs = log_probs_for(lattice.batch([0] * 3), seed).requires_grad_()
    expected = torch.stack([lattice.batch([i] * 3).log_probability(log_probs).exp() for i in range(lattice.samples)])
    got = lattice.output_probabilities(log_probs)
    assert torch.allclose(got, expected.T, atol=1e-9)
    weight = torch.rand(got.shape, dtype=torch.float64)
    slopes = _gradient(got, log_probs, weight), _gradient(expected, log_probs, weight.T)
    assert torch.allclose(*slopes, atol=1e-9)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_sums_and_maxima_are_those_of_enumeration(name: str, slots: int) -> None:
    machine, rule = RULES[name]
    highest = 9 * slots if name == "sum" else 9
    lattice = Lattice.from_rule(*machine, range(highest + 1), slots, 10)
    candidates = Candidates.from_rule(rule, range(highest + 1), slots, 10)
    assert lattice.counts == candidates.counts
    assert torch.equal(lattice.support, candidates.support)
    log_probs = log_probs_for(lattice, slots).float().requires_grad_()
    value, expected = lattice.log_probability(log_probs), candidates.log_probability(log_probs.double())
    assert torch.allclose(value.double(), expected, atol=1e-6)
    ones = torch.ones(lattice.samples)
    assert torch.allclose(_gradient(value, log_probs, ones), _gradient(expected, log_probs, ones), atol=1e-6)


def test_counts_are_exact_beyond_64_bits() -> None:
    lattice = Lattice.from_rule(*SUM, range(361), 40, 10)
    assert sum(lattice.counts) == 10**40
    lattice = Lattice.from_rule(*SUM, range(121), 30, 10)
    low = torch.zeros(121, 30, 10, dtype=torch.bool)
    low[:, :, :5] = True
    assert sum(lattice.restrict(low.flatten(0, 1)).counts) == 5**30


def test_forty_slots_and_extreme_log_probabilities_stay_exact() -> None:
    lattice = Lattice.from_rule(*SUM, [180, 0, 360, 3], 40, 10)
    log_probs = torch.full((4, 40, 10), -1e4)
    log_probs[..., 5] = 0.0
    log_probs.requires_grad_()
    value = lattice.log_probability(log_probs)
    ways = math.comb(40, 3) + 40 * 39 + 40  # 3 is 1+1+1, 2+1 or 3; all other labels are 0, and none is 5
    assert value[1:].tolist() == pytest.approx([-4e5, -4e5, -4e5 + math.log(ways)], rel=1e-6)
    lattice.log_probability(log_probs).sum().backward()
    assert log_probs.grad is not None
    assert torch.allclose(log_probs.grad.sum(2), torch.ones(4, 40), atol=1e-5)


def test_numbers_that_are_no_probabilities_are_weights_all_the_same() -> None:
    lattice = Lattice.from_rule(*SUM, [4], 2, 5)
    scores = torch.full((1, 2, 5), 400.0, dtype=torch.float64)
    assert lattice.log_probability(scores).tolist() == pytest.approx([800 + math.log(5)])


def test_a_sample_that_nothing_satisfies_is_named() -> None:
    with pytest.raises(InputError, match="sample 1: no labels of 2 slots give the target 19"):
        Lattice.from_rule(*SUM, [18, 19], 2, 10)


def test_an_emptied_sample_is_named() -> None:
    lattice = Lattice.from_rule(*SUM, [18, 9], 2, 10)
    allowed = torch.ones(4, 10, dtype=torch.bool)
    allowed[0, 9] = False
    with pytest.raises(InputError, match="sample 0"):
        lattice.restrict(allowed)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: Lattice.from_rule(0, lambda s, _: s + "x", lambda s: s, [1], 2, 3), "step failed on 0 and 0"),
        (lambda: Lattice.from_rule(0, lambda s, x: s + x, lambda s: [s], [1], 2, 3), "accept failed on"),
        (lambda: Lattice.from_rule(*SUM, [1], 2, 3, domains=[[0]]), "non-empty domain"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3, domains=[[5]]), "labels 0 … 2 in the domain of slot 0"),
        (lambda: Lattice.from_rule(*SUM, [1, 2], [1], 3), "one positive number of slots per target"),
        (lambda: Lattice.from_rule(*SUM, [4], 2, {"a": 3, "b": 2}), "slot 0 holds labels of different kinds"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3).log_probability(torch.zeros(1, 2, 3)), "expected log_probs of sh"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3).output_probabilities(torch.zeros(5, 3)), "log_probs of shape"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3).top_k(torch.zeros(1, 1, 3), 0), "k of at least 1"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3).draw(0), "per_sample of at least 1"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3).batch([1]), "sample ids in 0 … 0"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3).contains(torch.zeros(2, 1)), "expected gold of shape"),
        (lambda: Lattice.from_rule(*SUM, [1], 1, 3).restrict(torch.ones(1, 2).bool()), "expected allowed of shape"),
    ],
)
def test_errors_say_what_to_do(broken, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        broken()


def test_budgets_are_kept() -> None:
    with pytest.raises(BudgetError, match="over the budget of 100"):
        Lattice.from_rule(*SUM, [50], 20, 10, budget=100)
    with pytest.raises(BudgetError, match="draw"):
        Lattice.from_rule(*SUM, [50], 20, 10).to_candidates()


def test_the_callers_numbers_stay_as_they_are() -> None:
    lattice = Lattice.from_rule(*SUM, [4], 2, 5)
    scores = torch.full((1, 2, 5), -1.0, dtype=torch.float64)
    lattice.log_probability(scores), lattice.marginals(scores), lattice.entropy(scores), lattice.top_k(scores, 2)
    assert bool((scores == -1).all())


def test_a_slot_without_any_possible_label_makes_a_sample_impossible() -> None:
    lattice = Lattice.from_rule(*SUM, [4, 4], 2, 5)
    scores = torch.full((2, 2, 5), 3.0, dtype=torch.float64)
    scores[0, 0] = -math.inf
    scores.requires_grad_()
    value = lattice.log_probability(scores)
    assert value.tolist() == pytest.approx([-math.inf, 6 + math.log(5)])
    value[1].backward()
    assert scores.grad is not None
    assert scores.grad[0].abs().sum() == 0
    assert lattice.entropy(scores).tolist() == pytest.approx([0, math.log(5)])


def test_pieces_of_bounded_memory_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = *SUM, [8, 2, 5, 11, 7], [2, 2, 3, 3, 1], 10
    lattice = Lattice.from_rule(*task)
    log_probs = log_probs_for(lattice, seed=1)
    whole = _answers(lattice, log_probs)
    monkeypatch.setattr("clipper.candidates.state_graph._CELLS", 1)
    again = _answers(Lattice.from_rule(*task), log_probs)
    for one, many in zip(whole, again, strict=True):
        torch.testing.assert_close(one, many)


def _answers(lattice: Lattice, log_probs: Tensor) -> list[Tensor]:
    listed, best = lattice.to_candidates(), lattice.top_k(log_probs, 4)
    return [
        listed.labels, listed.offsets, best.labels, best.offsets, lattice.support, lattice.possible(),
        torch.tensor(lattice.counts), lattice.log_probability(log_probs), lattice.marginals(log_probs),
        lattice.entropy(log_probs), lattice.output_probabilities(log_probs),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["sum", "hwf"])
def test_a_batch_of_a_large_graph_walks_its_own_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, targets, classes, domains = {
        "sum": (SUM, range(19), 10, None),
        "hwf": (HWF, [5, 7, 11, -3, 0, 24, 81], 12, [range(9), range(9, 12), range(9)]),
    }[name]
    slots = 2 if domains is None else 3
    lattice = Lattice.from_rule(*machine, targets, slots, classes, domains=domains)
    ids = torch.tensor([3, 1, 3])
    whole = lattice.batch(ids)
    monkeypatch.setattr(lattice_module, "_LARGE", 1)
    part = lattice.batch(ids)
    assert part.graph.arcs < whole.graph.arcs
    assert [part.graph.targets[i] for i in part.template.tolist()] == [targets[i] for i in ids.tolist()]
    assert part.counts == whole.counts
    assert torch.equal(part.support, whole.support)
    log_probs = torch.randn(3, slots, classes, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    assert torch.allclose(part.log_probability(log_probs), whole.log_probability(log_probs))
    assert torch.allclose(part.marginals(log_probs), whole.marginals(log_probs))
    assert part.to_candidates().labels.tolist() == whole.to_candidates().labels.tolist()
