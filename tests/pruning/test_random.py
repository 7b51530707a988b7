"""The control that discards blindly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates, ClipperError, ProximityGraph, prune
from tests.oracles import Problem
from tests.strategies import as_tensors, problems


@settings(max_examples=200)
@given(problem=problems(), seed=st.integers(0, 1000), data=st.data())
def test_any_count_is_discarded_and_no_sample_is_emptied(problem: Problem, seed: int, data: st.DataObject) -> None:
    candidates, graph = as_tensors(problem)
    count = data.draw(st.integers(0, len(candidates) - candidates.samples))
    pruning = prune(candidates, graph, "random", count=count, seed=seed)
    assert pruning.discarded == count
    assert min(pruning.candidates.counts) > 0


@settings(max_examples=200)
@given(problem=problems(), seed=st.integers(0, 1000))
def test_imitation_discards_as_many_of_every_sample(problem: Problem, seed: int) -> None:
    candidates, graph = as_tensors(problem)
    model = prune(candidates, graph)
    pruning = prune(candidates, graph, "random", imitate=model, seed=seed)
    assert pruning.candidates.counts == model.candidates.counts


def test_every_candidate_is_equally_likely_to_go() -> None:
    candidates = Candidates.from_rule(sum, targets=[4], slots=2, classes=5)
    graph = ProximityGraph.from_edges([], [])
    kept = sum(prune(candidates, graph, "random", count=2, seed=seed).keep.long() for seed in range(2000))
    expected = 2000 * 3 / 5
    chi_square = float(((kept - expected) ** 2 / (expected * 2 / 5)).sum())
    assert chi_square < 23.5  # far beyond the 0.999 quantile for four degrees of freedom


@pytest.mark.parametrize("count", [None, -1, 5])
def test_an_impossible_count_is_refused(count: int | None) -> None:
    candidates = Candidates.from_rule(sum, targets=[4], slots=2, classes=5)
    with pytest.raises(ClipperError, match=r"0 … 4"):
        prune(candidates, ProximityGraph.from_edges([], []), "random", count=count)
