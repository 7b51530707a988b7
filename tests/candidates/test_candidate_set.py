"""What every candidate set answers: listed ones against plain Python, all kinds against one another."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates, Lattice
from clipper.benchmarks.bench_loss import alignment_machine
from clipper.candidates import Alignments, CandidateSet
from clipper.candidates.rules import SUM
from clipper.errors import BudgetError, InputError
from tests.oracles import Problem
from tests.strategies import KINDS, problems


def _scores(candidates: CandidateSet, seed: int) -> torch.Tensor:
    shape = candidates.samples, candidates.slots, candidates.classes
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double().log_softmax(-1)


def _weights(rows: list[tuple[int, ...]], log_probs: torch.Tensor) -> list[float]:
    return [math.exp(sum(float(log_probs[slot, label]) for slot, label in enumerate(row))) for row in rows]


@settings(max_examples=60, deadline=None)
@given(problems(kinds=True), st.integers(0, 100))
def test_a_listed_set_answers_as_plain_python_does(problem: Problem, seed: int) -> None:
    candidates = Candidates.from_lists(problem.samples, KINDS)
    log_probs = _scores(candidates, seed)
    assert candidates.counts == [len(rows) for rows in problem.samples]
    assert candidates.lengths.tolist() == [len(rows[0]) for rows in problem.samples]
    assert candidates.log_counts.tolist() == pytest.approx([math.log(len(rows)) for rows in problem.samples])
    total, entropy = candidates.log_probability(log_probs), candidates.entropy(log_probs)
    marginals = candidates.marginals(log_probs)
    outputs = candidates.output_probabilities(log_probs[:1]).flatten().tolist()
    for i, rows in enumerate(problem.samples):
        weights = _weights(rows, log_probs[i])
        shares = [weight / sum(weights) for weight in weights]
        assert float(total[i]) == pytest.approx(math.log(sum(weights)))
        assert float(entropy[i]) == pytest.approx(-sum(q * math.log(q) for q in shares))
        assert outputs[i] == pytest.approx(sum(_weights(rows, log_probs[0])))
        expected = torch.zeros_like(marginals[i])
        for row, share in zip(rows, shares, strict=True):
            for slot, label in enumerate(row):
                expected[slot, label] += share
        assert torch.allclose(marginals[i], expected)


@pytest.mark.parametrize("k", [1, 2, 3, 100])
def test_outputs_add_up_their_most_probable_candidates(k: int) -> None:
    listed, log_probs = Candidates.from_rule(sum, range(10), 3, 4), torch.randn(5, 3, 4).double().log_softmax(-1)
    expected = []
    for logs in log_probs:
        weights = [_weights(listed.labels[listed.sample == i].tolist(), logs) for i in range(10)]
        expected.append([sum(sorted(own)[-k:]) for own in weights])
    for outputs in (listed, Lattice.from_rule(*SUM, range(10), 3, 4)):
        got = outputs.output_probabilities(log_probs.requires_grad_(), k)
        assert torch.allclose(got, torch.tensor(expected).double())
        got.sum().backward()
        assert bool(log_probs.grad.isfinite().all())


@settings(max_examples=60, deadline=None)
@given(problems(kinds=True), st.integers(1, 5), st.integers(0, 100))
def test_the_best_of_a_listed_set_come_first(problem: Problem, k: int, seed: int) -> None:
    candidates = Candidates.from_lists(problem.samples, KINDS)
    log_probs = _scores(candidates, seed)
    best = candidates.top_k(log_probs, k)
    assert best.counts == [min(k, len(rows)) for rows in problem.samples]
    for i, rows in enumerate(problem.samples):
        found = [tuple(label for label in row if label >= 0) for row in best.labels[best.sample == i].tolist()]
        expected = sorted(_weights(rows, log_probs[i]), reverse=True)[:k]
        assert _weights(found, log_probs[i]) == pytest.approx(expected)
        assert not Counter(found) - Counter(rows)


@settings(max_examples=60, deadline=None)
@given(problems(kinds=True), st.randoms(use_true_random=False))
def test_a_restriction_keeps_the_rows_inside_it_or_refuses(problem: Problem, random: object) -> None:
    candidates = Candidates.from_lists(problem.samples, KINDS)
    allowed = torch.tensor([random.random() < 0.7 for _ in range(candidates.support.numel())])  # type: ignore[attr-defined]
    allowed = allowed.view(candidates.support.shape)
    inside = [
        [row for row in rows if all(allowed[i * candidates.slots + j, label] for j, label in enumerate(row))]
        for i, rows in enumerate(problem.samples)
    ]
    narrowed = candidates.narrowed(allowed)
    assert narrowed.counts == [len(rows) for rows in inside]
    assert narrowed.possible().tolist() == [bool(rows) for rows in inside]
    if all(inside):
        assert torch.equal(candidates.restrict(allowed).labels, Candidates.from_lists(inside, KINDS).labels)
    else:
        with pytest.raises(InputError, match="would lose their last candidate"):
            candidates.restrict(allowed)


def test_listed_candidates_are_drawn_as_the_classifier_says() -> None:
    candidates = Candidates.from_rule(sum, [3], 2, 4).batch([0] * 20_000)
    log_probs = torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    drawn = candidates.draw(1, seed=2, log_probs=log_probs.expand(20_000, 2, 4))
    assert set(drawn.counts) == {1}
    rows = [(0, 3), (1, 2), (2, 1), (3, 0)]
    weights = _weights(rows, log_probs[0])
    found = Counter(map(tuple, drawn.labels.tolist()))
    for row, weight in zip(rows, weights, strict=True):
        assert found[row] / 20_000 == pytest.approx(weight / sum(weights), abs=0.02)


def test_draws_never_choose_what_is_ruled_out_unless_everything_is() -> None:
    candidates = Candidates.from_rule(sum, [3, 3], 2, 4)
    log_probs = torch.zeros(2, 2, 4)
    log_probs[0, 0, 1:] = -torch.inf  # only (0, 3) is left
    log_probs[1] = -torch.inf
    assert candidates.draw(50, log_probs=log_probs).counts == [1, 4]


def test_a_list_is_its_own_list_within_a_budget() -> None:
    candidates = Candidates.from_rule(sum, [8, 2], 2, 10)
    assert candidates.to_candidates() is candidates
    assert candidates.to_candidates(budget=12) is candidates
    with pytest.raises(BudgetError, match="more than the budget of 11"):
        candidates.to_candidates(budget=11)


def test_all_kinds_of_set_give_the_same_answers() -> None:
    texts = [(2, 0), (2, 1, 2), (0,)]
    pairs: list[tuple[CandidateSet, CandidateSet]] = [
        (Lattice.from_rule(*SUM, [8, 2, 16], 2, 10), Candidates.from_rule(sum, [8, 2, 16], 2, 10)),
        (Alignments.from_texts(texts, 5, 3), Lattice.from_rule(*alignment_machine(texts), texts, 5, 3)),
    ]
    for one, other in pairs:
        log_probs = _scores(one, 3)
        allowed = one.support & ~torch.eye(one.slots * one.samples, one.classes, dtype=torch.bool)
        for a, b in ((one, other), (one.restrict(allowed), other.restrict(allowed))):
            assert a.counts == b.counts
            assert torch.equal(a.support, b.support)
            assert torch.equal(a.lengths, b.lengths)
            for method in ("log_probability", "entropy", "marginals"):
                assert torch.allclose(getattr(a, method)(log_probs), getattr(b, method)(log_probs))
            assert torch.equal(a.top_k(log_probs, 3).labels, b.top_k(log_probs, 3).labels)
            gold = b.top_k(log_probs, 1).labels.long()
            assert torch.equal(a.contains(gold), b.contains(gold))
            assert bool(a.contains(gold).all())
