from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipper import Candidates, Clipper, ProximityGraph, infer
from clipper.candidates import Formula, any_of, has_label
from clipper.candidates.propositions import from_clauses, read_dimacs
from clipper.engines import DolphinLoss, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import BudgetError, FileError, InputError
from clipper.training import train
from tests.training.problems import TinyNet

pytest.importorskip("klay", reason="KLay is not installed (extra circuits)")

SLOTS, CLASSES = 3, 3
LITERALS = st.integers(1, SLOTS * CLASSES).flatmap(lambda i: st.sampled_from([i, -i]))
CNFS = st.lists(st.lists(LITERALS, min_size=1, max_size=3), max_size=4)
VARIABLES = [(slot, value) for slot in range(SLOTS) for value in range(CLASSES)]


def brute_force(clauses: list[list[int]], length: int = SLOTS) -> list[tuple[int, ...]]:
    def true(number: int, row: tuple[int, ...]) -> bool:
        slot, value = VARIABLES[abs(number) - 1]
        return (row[slot] == value) == (number > 0)

    rows = itertools.product(range(CLASSES), repeat=length)
    return [row for row in rows if all(any(true(n, row) for n in clause) for clause in clauses)]


@st.composite
def formulas(draw: st.DrawFn) -> tuple[Formula, Candidates]:
    """Several samples, each with its own clauses, restricted or not; and the same candidates, listed."""
    cnfs = draw(st.lists(CNFS.filter(brute_force), min_size=1, max_size=3))
    one = [Formula.from_cnf(cnf, variables=VARIABLES, slots=SLOTS, classes=CLASSES) for cnf in cnfs]
    samples = [brute_force(cnf) for cnf in cnfs]
    assert [len(rows) for rows in samples] == [formula.counts[0] for formula in one]
    formula = Formula.from_propositions([from_clauses(cnf, VARIABLES) for cnf in cnfs], SLOTS, CLASSES)
    candidates = Candidates.from_lists(samples, CLASSES)
    allowed = torch.rand(len(cnfs) * SLOTS, CLASSES, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    allowed = allowed < draw(st.sampled_from([0.7, 1.0]))
    for i, rows in enumerate(samples):  # so that a candidate is left
        kept = draw(st.sampled_from(rows))
        allowed.view(len(cnfs), SLOTS, CLASSES)[i, range(SLOTS), list(kept)] = True
    inside = torch.stack([allowed[candidates.sample * SLOTS + s, candidates.labels[:, s].long()] for s in range(SLOTS)])
    return formula.restrict(allowed), candidates.subset(inside.all(0))


def noise(candidates: Candidates, seed: int = 0) -> Tensor:
    shape = candidates.samples, candidates.slots, candidates.classes
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()).log_softmax(-1)


@settings(max_examples=40, deadline=None)
@given(formulas())
def test_a_formula_is_the_list_of_its_candidates(pair: tuple[Formula, Candidates]) -> None:
    formula, candidates = pair
    assert formula.counts == candidates.counts
    assert [
        formula.compiled.count(t, formula.mask[i]) for i, t in enumerate(formula.template.tolist())
    ] == formula.counts
    assert torch.equal(formula.support, candidates.support)
    assert torch.equal(formula.to_candidates().labels, candidates.labels)
    assert torch.equal(formula.kind, candidates.kind)
    for row in itertools.product(range(CLASSES), repeat=SLOTS):
        gold = torch.tensor([row] * candidates.samples)
        assert torch.equal(formula.contains(gold), candidates.contains(gold))


@settings(max_examples=25, deadline=None)
@given(formulas(), st.integers(0, 99))
def test_probabilities_entropies_and_gradients_agree(pair: tuple[Formula, Candidates], seed: int) -> None:
    candidates = pair[1]
    found = []
    for form in pair:
        log_probs = noise(candidates, seed).requires_grad_()
        losses, entropy = SemanticLoss()(log_probs, form), form.entropy(log_probs)
        slope = torch.autograd.grad(losses.sum() + entropy.sum(), log_probs)[0]
        found.append((losses.detach(), entropy.detach(), slope))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(formulas(), st.integers(1, 5), st.integers(0, 99))
def test_the_best_and_random_candidates(pair: tuple[Formula, Candidates], k: int, seed: int) -> None:
    formula, candidates = pair
    log_probs = noise(candidates, seed)
    best, drawn = formula.top_k(log_probs, k), formula.draw(k, seed)
    weighed = formula.draw(k, seed, log_probs)
    for i in range(candidates.samples):
        rows = candidates.labels[candidates.sample == i].long()
        value = log_probs[i].gather(1, rows.T).sum(0)
        assert torch.equal(best.labels[best.sample == i].long(), rows[value.argsort(descending=True)[:k]])
        own = {tuple(row) for row in drawn.labels[drawn.sample == i].tolist()}
        assert len(own) == min(k, len(rows)) == int(drawn.counts[i])
        assert own <= {tuple(row) for row in rows.tolist()}
        assert {tuple(r) for r in weighed.labels[weighed.sample == i].tolist()} <= {tuple(r) for r in rows.tolist()}


def test_draws_are_uniform_and_by_weight() -> None:
    formula = Formula.from_cnf([[1, 2], [-2, 3]], samples=3000)  # four candidates of three bits
    for log_probs, share in ((None, [0.25] * 4), (torch.tensor([[0.2, 0.8]]).log().expand(3000, 3, 2), None)):
        counts = formula.draw(1, 3, log_probs).labels.long() @ torch.tensor([4, 2, 1])
        seen = torch.bincount(counts, minlength=8)[[3, 4, 5, 7]].double() / 3000
        weights = torch.tensor([0.2 * 0.64, 0.8 * 0.04, 0.2 * 0.64, 0.512]).double()
        expected = torch.tensor(share).double() if share else weights / weights.sum()
        assert torch.allclose(seen, expected, atol=0.04)


def road() -> list[list[int]]:
    """As many constraints over as many labels as ROAD-R has: exclusions and implications of agents, actions, places."""
    chance = torch.Generator().manual_seed(7)
    clauses = [[-a, -b] for a, b in itertools.combinations(range(1, 11), 2)]  # one agent
    while len(clauses) < 243:
        a, b, c = (1 + torch.randperm(41, generator=chance)[:3]).tolist()
        clauses.append([-a, -b] if len(clauses) % 3 else [-a, b, c])
    return clauses


def count_models(clauses: list[list[int]], variables: int) -> int:
    """Another counter: split on a variable, drop what is satisfied, remember what was counted."""

    @cache
    def count(left: frozenset[frozenset[int]], free: frozenset[int]) -> int:
        if any(not clause for clause in left):
            return 0
        if not left:
            return 2 ** len(free)
        pivot = max(free, key=lambda v: sum(v in c or -v in c for c in left))
        total = 0
        for literal in (pivot, -pivot):
            rest = frozenset(c - {-literal} for c in left if literal not in c)
            total += count(rest, free - {pivot})
        return total

    return count(frozenset(map(frozenset, clauses)), frozenset(range(1, variables + 1)))


def test_constraints_of_the_size_of_road_r(tmp_path: Path) -> None:
    clauses = road()
    text = "\n".join([f"p cnf 41 {len(clauses)}", *(" ".join(map(str, clause)) + " 0" for clause in clauses)])
    (tmp_path / "road.cnf").write_text(text)
    formula = Formula.from_cnf(tmp_path / "road.cnf", samples=16)
    assert formula.counts == [count_models(clauses, 41)] * 16
    scores = torch.randn(16, 41, 2, generator=torch.Generator().manual_seed(0)).log_softmax(-1).requires_grad_()
    SemanticLoss()(scores, formula).sum().backward()
    assert bool(torch.isfinite(scores.grad).all())
    best = formula.top_k(scores.detach(), 1)
    assert bool(formula.contains(best.labels.long()).all())
    graph = ProximityGraph.from_embeddings(torch.randn(16, 41, 2, generator=torch.Generator().manual_seed(1)), k=1)
    assert len(Clipper().along(formula, graph).candidates.counts) == 16


def test_more_candidates_than_a_float_can_count() -> None:
    formula = Formula.from_cnf([[1, 2]], slots=80)
    assert formula.counts == [3 * 2**78]


def test_samples_of_different_lengths_and_kinds() -> None:
    classes, domains = {"name": 3, "rel": 2}, [range(3), range(3, 5), range(3, 5)]
    on = any_of(has_label(slot, 3) for slot in (1, 2))
    formula = Formula.from_propositions([~has_label(0, 2) & on, has_label(1, 4)], [3, 2], classes, domains=domains)
    rows = [[(n, a, b) for n in (0, 1) for a in (3, 4) for b in (3, 4) if 3 in (a, b)], [(n, 4) for n in range(3)]]
    candidates = Candidates.from_lists(rows, classes)
    assert torch.equal(formula.to_candidates().labels, candidates.labels)
    assert torch.equal(formula.kind, candidates.kind)
    assert torch.equal(formula.support, candidates.support)
    assert torch.equal(formula.top_k(noise(candidates), 9).distinct().labels, candidates.labels)
    assert torch.equal(formula.draw(9).distinct().labels, candidates.labels)
    log_probs = noise(candidates)
    for engine in (DolphinLoss(), DolphinLoss(k=2), ScallopLoss(k=3), IsedLoss(lambda row: 3 in row[1:])):
        torch.manual_seed(0)
        ours = engine(log_probs, formula)
        if isinstance(engine, IsedLoss):
            engine = IsedLoss(lambda row: 3 in row[1:])
        assert torch.allclose(ours, engine(log_probs, candidates))
    assert torch.isfinite(SampledSemanticLoss(2)(log_probs, formula)).all()


def test_a_classifier_is_trained_from_a_formula_and_the_pool_decides() -> None:
    cnfs = [has_label(0, 0) | has_label(1, 0), has_label(0, 1), ~has_label(1, 2) & ~has_label(0, 2), has_label(1, 3)]
    formula = Formula.from_propositions(cnfs, slots=2, classes=4)
    inputs = torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(0))
    history = train(TinyNet(), (inputs, formula), SemanticLoss(), clip=Clipper(), epochs=20, batch=4)
    assert history[-1].loss < history[0].loss
    graph = ProximityGraph.from_embeddings(inputs, k=2)
    ours, theirs = (infer(form, graph, trust=0.1, starts=2) for form in (formula, formula.to_candidates()))
    assert torch.allclose(ours.marginals, theirs.marginals, atol=1e-5)
    assert bool(ours.prune(0.9).candidates.possible().all())


def test_what_is_wrong_with_a_formula_is_told(tmp_path: Path) -> None:
    for text, message in (
        ("1 2 0", "one line `p cnf"),
        ("p cnf 2 1\n1 3 0", "the variable 3"),
        ("p cnf 2 2\n1 2 0", "got 1 clauses"),
        ("p cnf 2 1\n1 x 0", "whole numbers"),
    ):
        with pytest.raises(InputError, match=message):
            read_dimacs(text)
    with pytest.raises(FileError, match="cannot read"):
        read_dimacs(tmp_path / "absent.cnf")
    with pytest.raises(InputError, match="sample 1: no labels satisfy"):
        Formula.from_propositions([has_label(0, 0), has_label(0, 0) & ~has_label(0, 0)], slots=1, classes=2)
    with pytest.raises(InputError, match="got slot 2 with label 0"):
        Formula.from_propositions([has_label(2, 0)], slots=2, classes=2)
    with pytest.raises(InputError, match="labels of one kind in slot 0"):
        Formula.from_propositions([has_label(0, 0)], slots=1, classes={"name": 1, "rel": 1})
    with pytest.raises(BudgetError, match="more than the budget of 10"):
        Formula.from_cnf(road(), budget=10)
    with pytest.raises(BudgetError, match="more than the budget of 1,000"):
        Formula.from_cnf([[1, 2]], slots=30).to_candidates(budget=1000)
    formula = Formula.from_cnf([[1]])
    with pytest.raises(InputError, match="lose their last candidate"):
        formula.restrict(torch.tensor([[True, False]]))


@pytest.mark.parametrize("anything", [-1.0, 0.0, float("-inf")])
@pytest.mark.parametrize("domains", [[[1], [0]], [[1], [0, 1]]])
def test_a_formula_that_fixes_its_labels_answers_as_its_list_does(domains: list[list[int]], anything: float) -> None:
    for propositions, slots in (([has_label(0, 1)], 1), ([has_label(0, 1) & has_label(1, 0)] * 2, 2)):
        formula = Formula.from_propositions(propositions, slots, 2, domains=domains)
        log_probs = torch.full((formula.samples, slots, 2), -1.0).double()
        log_probs[0, 0, 1] = anything
        results = []
        for each in (formula, formula.to_candidates()):
            logs = log_probs.clone().requires_grad_()
            total, entropy = each.log_probability(logs), each.entropy(logs)
            slopes = [torch.autograd.grad(value.sum(), logs)[0] for value in (total, entropy)]
            outputs = each.output_probabilities(logs)
            slopes += torch.autograd.grad(outputs.sum(), logs)
            results.append([total, entropy, outputs, each.marginals(log_probs), *slopes])
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("anything", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_unused_slots_may_hold_anything(anything: float) -> None:
    either = has_label(0, 1) | has_label(1, 2)
    formula = Formula.from_propositions([either, has_label(0, 1) | has_label(0, 2)], [2, 1], 3)
    logs = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).log_softmax(-1)
    logs[1, 1] = anything
    for ask in ("entropy", "log_probability"):
        results = []
        for each in (formula, formula.to_candidates()):
            own = logs.clone().requires_grad_()
            value = getattr(each, ask)(own)
            (slope,) = torch.autograd.grad(value.sum(), own)
            results += [(value, slope)]
        torch.testing.assert_close(*results)
        assert bool(results[0][1][1, 1].eq(0).all())
