"""Joint inference on a lattice against the same on its listed candidates."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clipper
from clipper import Candidates, Clipper, Lattice, Posterior, ProximityGraph, infer
from clipper.candidates.rules import SUM
from clipper.pruning import factors
from clipper.pruning.factors import CandidateFactor, LatticeFactor, factor_of
from clipper.pruning.joint import InferenceSettings
from clipper.pruning.joint.naming import Namings
from tests.machines import restricted
from tests.pruning.pools import brute_force, clustered, shuffled

SHORT = InferenceSettings(rounds=20, generations=0)


def as_lattice(gold: torch.Tensor, classes: int = 10) -> Lattice:
    return Lattice.from_rule(*SUM, targets=gold.sum(1), slots=gold.shape[1], classes=classes)


@settings(max_examples=50, deadline=None)
@given(restricted(), st.integers(1, 3), st.integers(0, 9))
def test_the_factor_says_what_the_listed_one_says(sets: tuple[Lattice, Candidates], starts: int, seed: int) -> None:
    lattice, candidates = sets
    shape = lattice.samples * lattice.slots, lattice.classes, starts
    field = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    factor, listed = LatticeFactor(lattice), CandidateFactor(candidates)
    assert factor.shape == listed.shape
    assert torch.allclose(factor.marginals(field), listed.marginals(field), atol=1e-5)
    assert torch.allclose(factor.evidence(field), listed.evidence(field), atol=1e-4)
    assert torch.equal(factor.best(field), listed.best(field))


@pytest.mark.slow
def test_a_list_that_few_states_stand_for_is_walked_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, embeddings, gold = clustered(samples=40, slots=4, classes=6)
    candidates = Candidates.from_rule(max, gold.amax(1), 4, 6)
    graph = ProximityGraph.from_embeddings(embeddings, k=4)
    walked = clipper.infer(candidates, graph, starts=10)
    assert isinstance(factor_of(candidates), LatticeFactor)
    monkeypatch.setattr(factors, "_WORTH", len(candidates))
    assert isinstance(factor_of(candidates), CandidateFactor)
    looked_up = clipper.infer(candidates, graph, starts=10)
    assert walked.verdict == looked_up.verdict
    assert len(walked.namings) == len(looked_up.namings)
    assert torch.allclose(walked.marginals, looked_up.marginals, atol=1e-3)
    assert torch.equal(walked.prune().keep, looked_up.prune().keep)


def test_a_list_is_looked_up_where_formulas_are_too_different_for_a_small_lattice() -> None:
    every = list(itertools.product(range(6), repeat=4))
    parts = torch.randperm(len(every), generator=torch.Generator().manual_seed(0)).split(len(every) // 8)
    irregular = Candidates.from_lists([[every[i] for i in parts[j % 8].tolist()] for j in range(80)], classes=6)
    assert isinstance(factor_of(irregular), CandidateFactor)  # shared by ten samples each, but without a pattern
    assert isinstance(factor_of(Candidates.from_rule(max, range(6), 4, 6)), CandidateFactor)  # not shared
    narrowed = Candidates.from_rule(max, [4, 5] * 20, 4, 6)
    narrowed = narrowed.subset((narrowed.labels[:, 0] > 2) | (narrowed.sample > 0))
    assert isinstance(factor_of(narrowed), CandidateFactor)  # the first sample lists a part of what others list


def by_log_odds(lattice: Lattice, log_odds: torch.Tensor, suspicion: float = 0.0) -> Posterior[Lattice]:
    """A posterior that is believed, whose samples hear these log-odds `(n, m, c)` and nothing else."""
    abstains = clipper.infer(lattice, ProximityGraph.from_edges([], []), starts=1, settings=SHORT)
    n, m, c = log_odds.shape
    heard = log_odds.view(n * m, c, 1)
    return replace(
        abstains,
        labels=lattice.top_k(log_odds, 1).labels.long(),
        marginals=lattice.marginals(log_odds),
        mixture=replace(abstains.mixture, heard=heard, weight=torch.ones(n, 1), solved={}),
        verification=replace(abstains.verification, suspicion=torch.full((n,), suspicion)),
        verdict="joint",
    )


@settings(max_examples=50, deadline=None)
@given(restricted(), st.sampled_from([0.3, 0.8, 0.95, 1.0]), st.integers(0, 9))
def test_the_labels_kept_hold_the_mass_and_no_higher_threshold_does(
    sets: tuple[Lattice, Candidates], mass: float, seed: int
) -> None:
    lattice, _ = sets
    shape = lattice.samples, lattice.slots, lattice.classes
    log_odds = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    posterior = by_log_odds(lattice, log_odds)
    marginals, best = posterior.marginals, posterior.labels
    pruning = posterior.prune(mass)
    allowed = pruning.allowed
    kept = lattice.restrict(allowed)
    held = (kept.log_probability(log_odds.double()) - lattice.log_probability(log_odds.double())).exp()
    assert bool((held >= mass - 1e-6).all())
    assert bool(kept.contains(best).all())
    dropped_next = _without_the_least(allowed.view(shape), marginals, best)
    tighter = lattice.restrict(dropped_next.flatten(0, 1))
    less = (tighter.log_probability(log_odds.double()) - lattice.log_probability(log_odds.double())).exp()
    smaller = (dropped_next != allowed.view(shape)).flatten(1).any(1)
    assert bool((less[smaller] < mass + 1e-5).all()), "one more label could have gone"


def _without_the_least(allowed: torch.Tensor, marginals: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """Without each sample's least probable label that is still allowed, unless the best candidate takes it."""
    certain = best[..., None] == torch.arange(allowed.shape[2])
    free = torch.where(allowed & ~certain & (marginals > 1e-8), marginals, torch.inf).flatten(1)
    least = free.amin(1, keepdim=True)
    return (allowed.flatten(1) & (free > least * (1 + 1e-6))).view_as(allowed) | (allowed & certain)


def test_a_lattice_of_a_doubted_target_stays_whole_and_open_names_stay_open() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[2, 3], slots=2, classes=3)
    sure = torch.tensor([[[9.0, 0, 0], [0, 0, 9]], [[0, 9, 0], [0, 0, 9]]])
    assert by_log_odds(lattice, sure).prune().candidates.counts == [1, 1]
    assert by_log_odds(lattice, sure, suspicion=0.6).prune().discarded == 0
    posterior = by_log_odds(lattice, sure)
    names = replace(Namings.given(3), exhaustive=False)
    settled = replace(posterior, mixture=replace(posterior.mixture, namings=names))
    assert settled.prune().candidates.counts == [1, 1]
    orders = torch.tensor([[0, 1, 2], [2, 1, 0]])
    both = replace(names, orders=orders, evidence=torch.tensor([9.0, 0.0]), orbit=torch.tensor([0, 1, 0]))
    unnamed = replace(posterior, mixture=replace(posterior.mixture, namings=both))
    kept = unnamed.prune(0.9).candidates
    assert bool(kept.contains(torch.tensor([[2, 0], [1, 2]])).all()), "0 and 2 may be each other"
    assert not bool(kept.contains(torch.tensor([[1, 1], [1, 2]]))[0]), "1 is nobody else"


def test_a_pool_is_inferred_alike_listed_or_not() -> None:
    candidates, embeddings, gold = clustered(40, slots=2, classes=5)
    graph = ProximityGraph.from_embeddings(embeddings, k=5)
    listed = clipper.infer(candidates, graph, starts=4)
    posterior = clipper.infer(as_lattice(gold, 5), graph, starts=4)
    assert posterior.verdict == listed.verdict == "joint"
    assert torch.equal(posterior.labels, listed.labels)
    assert torch.allclose(posterior.marginals, listed.marginals, atol=1e-3)
    assert posterior.calibration(gold).right == listed.calibration(gold).right
    pruning = posterior.prune(0.95)
    assert pruning.gold_retained(gold) >= 0.9
    assert pruning.retained < 0.5
    assert not bool(pruning.certified.any()), "nothing is proved of a joint pruning"


@pytest.mark.slow
def test_sums_too_long_to_list_are_inferred() -> None:
    _, embeddings, gold = clustered(60, slots=3, classes=10)
    long_gold = gold.view(15, 12)  # 10^11 combinations a sample
    posterior = clipper.infer(
        as_lattice(long_gold), ProximityGraph.from_embeddings(embeddings.view(15, 12, -1), k=6), starts=8
    )
    assert bool(posterior.candidates.contains(posterior.labels).all())
    assert min(posterior.prune(0.95).candidates.counts) >= 1


def test_an_abstaining_posterior_prunes_a_lattice_soundly() -> None:
    _, embeddings, gold = clustered(40, slots=2, classes=5)
    lattice = as_lattice(gold, 5)
    posterior = clipper.infer(lattice, ProximityGraph.from_embeddings(shuffled(embeddings), k=4), starts=4)
    for verdict in ("uninformative", "unsettled"):
        assert replace(posterior, verdict=verdict).prune().discarded == 0
    assert replace(posterior, verdict="uninformative").prune(fallback="exact").discarded == 0
    nearest = replace(posterior, verdict="unsettled").prune(fallback="exact")
    assert min(nearest.candidates.counts) >= 1
    assert len(nearest.edges) == len(posterior.graph)
    assert int(nearest.edges.sum()) <= 80, "at most the nearest neighbour's edge of each instance"


def test_the_probability_of_each_candidate_lists_them() -> None:
    _, embeddings, gold = clustered(8, slots=2, classes=5)
    lattice, graph = as_lattice(gold, 5), ProximityGraph.from_embeddings(embeddings, k=2)
    listed, walked = (clipper.infer(form, graph, starts=1) for form in (lattice.to_candidates(), lattice))
    torch.testing.assert_close(walked.probability, listed.probability, rtol=1e-4, atol=1e-5)


def test_clipper_prunes_a_lattice_jointly() -> None:
    _, embeddings, gold = clustered(40, slots=2, classes=5)
    kept = Clipper(objective="joint", k=5)(as_lattice(gold, 5), embeddings)
    assert isinstance(kept, Lattice)
    assert float(kept.contains(gold).float().mean()) >= 0.9


def test_a_pruned_lattice_holds_the_mass_where_a_small_component_is_solved_exactly() -> None:
    """Two samples that are tied to each other by cycles, beside others that are tied among themselves."""
    random = Random(0)
    lists = [[(0, 1, 0), (1, 0, 1), (1, 1, 0)], [(0, 0, 1)]]
    edges = [(1, 3), (0, 3), (4, 5), (3, 5), (2, 0), (0, 5)]
    lists += random.choices([[(0, 0, 0), (0, 1, 1)], [(1, 0, 0), (1, 1, 1)]], k=60)
    gold = [random.choice(rows) for rows in lists]
    for label in (0, 1):
        ends = [3 * i + j for i in range(2, 62) for j in range(3) if gold[i][j] == label]
        edges += [(a, b) for a in ends for b in random.sample(ends, 5) if a // 3 != b // 3]
    listed = Candidates.from_lists(lists, classes=2)
    posterior = infer(Lattice.from_candidates(listed), ProximityGraph.from_edges(*zip(*edges, strict=True)), trust=0.2)
    alone = ProximityGraph.from_edges(*zip(*edges[:6], strict=True))
    exact = brute_force(listed.batch([0, 1]), alone, 0.2).probability[:3]
    torch.testing.assert_close(posterior.probability[:3].double(), exact, atol=1e-4, rtol=0)
    for mass in (0.5, 0.8, 0.9, 0.95):
        kept = posterior.prune(mass).candidates.batch([0]).to_candidates().labels.tolist()
        held = sum(float(each) for each, row in zip(exact, lists[0], strict=True) if list(row) in kept)
        assert held >= mass - 1e-4
