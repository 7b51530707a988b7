"""Joint inference against the joint distribution written out in full, world by world."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clipper import Candidates, ProximityGraph, infer
from clipper.benchmarks.zoo import lines_like, make_pool
from clipper.pruning.joint import InferenceSettings, Trust
from clipper.pruning.joint.inference import _Run
from clipper.pruning.joint.potential import Potential
from clipper.pruning.joint.propagate import Schedule, exact_probabilities, propagate, score, zero_messages
from tests.pruning.pools import brute_force, model_of, random_pool

HURRIED = InferenceSettings(rounds=40, generations=0)
"""A short search: what is exact does not depend on it."""
EPS = torch.finfo(torch.float).eps


def error_of(seed: int) -> float:
    return Random(seed).uniform(0.02, 0.4)


def check_exact(seed: int, tree: bool, tolerance: float, constants: InferenceSettings = HURRIED) -> None:
    candidates, graph = random_pool(seed, tree)
    exact = brute_force(candidates, graph, error_of(seed))
    posterior = infer(candidates, graph, trust=error_of(seed), starts=2, seed=seed, settings=constants)
    assert float((posterior.marginals - exact.marginals).abs().max()) < tolerance, seed
    assert float((posterior.probability - exact.probability).abs().max()) < tolerance, seed
    sums = torch.zeros(candidates.samples).index_add_(0, candidates.sample, posterior.probability)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_three_hundred_small_pools_with_cycles_or_without_are_solved_exactly(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        check_exact(seed, tree=seed % 3 == 0, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_on_trees_messages_alone_are_exact(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Run, "_solved", lambda *_: {})
    for seed in range(50 * block, 50 * block + 50):
        check_exact(seed, tree=True, tolerance=1e-3, constants=replace(HURRIED, still=1e-4))


def test_where_memory_is_short_nothing_is_enumerated_and_a_cycle_is_approximated() -> None:
    candidates = Candidates.from_lists([[(0,), (1,)]] * 3 + [[(1,)]], classes=2)
    graph = ProximityGraph.from_edges([0, 0, 1, 2], [1, 2, 2, 3])  # a cycle of three, and one that knows its label
    exact = brute_force(candidates, graph, 0.3)
    whole = infer(candidates, graph, trust=0.3)
    short = infer(candidates, graph, trust=0.3, settings=InferenceSettings(memory=1))
    torch.testing.assert_close(whole.marginals.double(), exact.marginals)
    assert not short.mixture.solved
    assert 1e-3 < float((short.marginals - exact.marginals).abs().max()) < 0.1


@st.composite
def potentials(draw: st.DrawFn, classes: int) -> Potential:
    """ψ with a given ε, with or without q."""
    error = draw(st.floats(0.02, 0.4))
    if draw(st.booleans()):
        return Potential(Trust.constant(error), EPS, 1.0)
    half = torch.rand(classes, classes, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) + 0.1
    return Potential(Trust.constant(error), EPS, 1.0, confusion=(half + half.T) * (1 - torch.eye(classes)))


@given(st.data(), st.integers(0, 10**6))
def test_on_trees_messages_give_marginals_and_score_gives_log_z(data: st.DataObject, seed: int) -> None:
    candidates, graph = random_pool(seed, tree=True)
    pool, potential = model_of(candidates, graph), data.draw(potentials(candidates.classes))
    messages, still = propagate(pool, potential, zero_messages(pool, 1), Schedule(200, still=EPS))
    assert still
    error = float(potential.trust.error(torch.ones(1)))
    exact = brute_force(candidates, graph, error, potential.confusion)
    marginals = pool.beliefs(pool.heard(messages))[:, :, 0]
    torch.testing.assert_close(marginals.double(), exact.marginals.flatten(0, 1), atol=1e-4, rtol=0)
    assert float(score(pool, potential, messages).total) == pytest.approx(exact.log_z, abs=1e-3)


@given(st.data(), st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_exact_probabilities_are_those_of_all_worlds(
    data: st.DataObject, seed: int, told: bool, sharpness: float
) -> None:
    candidates, graph = random_pool(seed, tree=False)  # pairs within samples, too
    n, m, c = candidates.samples, candidates.slots, candidates.classes
    unary = torch.randn(n, m, c, generator=torch.Generator().manual_seed(seed)) * told
    pool, potential = model_of(candidates, graph), data.draw(potentials(c))
    pool.unary.copy_(unary.view_as(pool.unary))
    exact = brute_force(
        candidates, graph, float(potential.trust.error(torch.ones(1))), potential.confusion, unary, sharpness
    )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()  # any order will do
    rows = {i: candidates.labels[candidates.sample == i] for i in order}
    found = exact_probabilities(pool, potential, sharpness, rows)
    probability = torch.cat([found[i] for i in range(n)])
    torch.testing.assert_close(probability, exact.probability, atol=1e-5, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_thirty_triangles_are_uniform_over_four_labellings_each(seed: int) -> None:
    pool = make_pool(*lines_like(["xor-3/edges/90/triangles"]), seed)
    assert pool.graph is not None
    posterior = infer(pool.candidates, pool.graph, seed=seed)
    assert float((posterior.marginals - 1 / 2).abs().max()) < 0.1
    assert float((posterior.probability - 1 / 4).abs().max()) < 0.1
    assert posterior.prune().discarded == 0


@pytest.mark.parametrize("seed", range(2))
def test_triangles_of_given_trust_are_uniform_too(seed: int) -> None:
    pool = make_pool(*lines_like(["xor-3/edges/90/triangles"]), seed)
    assert pool.graph is not None
    posterior = infer(pool.candidates, pool.graph, trust=0.05, starts=5, seed=seed)
    assert float((posterior.probability - 1 / 4).abs().max()) < 1e-4
