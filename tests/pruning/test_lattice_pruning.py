"""Pruning a lattice against pruning its listed candidates: the same survivors because of the same edges."""

from __future__ import annotations

from typing import Literal
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings

from clipper import Candidates, Clipper, Lattice, ProximityGraph, prune
from clipper.candidates.rules import SUM
from clipper.errors import InputError
from clipper.pruning import lattice_search
from tests.machines import restricted
from tests.strategies import with_edges


@pytest.mark.parametrize("objective", ["exact", "paper"])
@settings(max_examples=50, deadline=None)
@given(problem=with_edges(restricted()))
def test_the_survivors_are_those_of_the_closed_form(
    objective: Literal["exact", "paper"], problem: tuple[Lattice, Candidates, ProximityGraph]
) -> None:
    lattice, candidates, graph = problem
    got, expected = prune(lattice, graph, objective), prune(candidates, graph, objective)
    assert got.candidates.to_candidates().labels.tolist() == expected.candidates.labels.tolist()
    assert got.edges.tolist() == expected.edges.tolist()
    assert torch.equal(got.allowed, expected.allowed)
    assert bool(got.certified.all())
    assert got.bound == expected.candidates.counts
    assert got.discarded == expected.discarded
    assert got.retained == pytest.approx(expected.retained)
    gold = candidates.first
    assert got.gold_retained(gold) == expected.gold_retained(gold)


@settings(max_examples=40, deadline=None)
@given(problem=with_edges(restricted()))
def test_the_best_found_is_sound_and_no_better_than_its_bound(
    problem: tuple[Lattice, Candidates, ProximityGraph],
) -> None:
    lattice, candidates, graph = problem
    with patch.object(lattice_search, "MOST_BUNDLES", 0):
        found = prune(lattice, graph)
    best = prune(candidates, graph).candidates.counts
    for count, bound, optimum, proved in zip(found.candidates.counts, found.bound, best, found.certified, strict=True):
        assert 1 <= bound <= optimum <= count
        assert count == optimum or not bool(proved)


def test_only_listed_candidates_have_rows_to_keep() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[8, 2, 16], slots=2, classes=10)
    graph = ProximityGraph.from_edges([0, 0], [2, 4])
    pruning = prune(lattice, graph)
    assert not hasattr(pruning, "keep")
    with pytest.raises(AttributeError, match="see allowed"):
        _ = pruning.keep
    listed = prune(lattice.to_candidates(), graph)
    assert (listed.bound, bool(listed.certified.all())) == (pruning.bound, True)
    assert (listed.discarded, listed.retained) == (pruning.discarded, pruning.retained)
    assert repr(listed) == repr(pruning)


def test_thirty_digits_are_pruned_without_listing_them() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[135, 7, 263], slots=30, classes=10)
    near_small, near_large = ProximityGraph.from_edges([0], [30]), ProximityGraph.from_edges([0, 1], [30, 60])
    one, two = prune(lattice, near_small), prune(lattice, near_large)
    assert one.allowed[0].tolist() == [True] * 8 + [False] * 2
    assert two.allowed[:2].sum(1).tolist() == [8, 8]
    assert two.discarded > one.discarded > 10**26
    assert bool(two.certified.all())
    assert 0.6 < two.candidates.counts[0] / lattice.counts[0] < one.candidates.counts[0] / lattice.counts[0] < 0.9


def test_nothing_near_leaves_a_lattice_as_it_was() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[135, 130], slots=30, classes=10)
    pruning = prune(lattice, ProximityGraph.from_edges([0], [30]))
    assert pruning.candidates is lattice
    assert pruning.retained == 1


def test_a_clipper_takes_a_lattice() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[8, 2], slots=2, classes=10)
    candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
    embeddings = torch.tensor([[[1.0], [7.0]], [[1.1], [2.0]]])
    assert Clipper()(lattice, embeddings).counts == Clipper()(candidates, embeddings).counts


def test_what_needs_a_list_is_refused() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[8, 2], slots=2, classes=10)
    graph = ProximityGraph.from_edges([0], [2])
    with pytest.raises(InputError, match="imitate="):
        prune(lattice, graph, "random")
    with pytest.raises(InputError, match="integer program"):
        prune(lattice, graph, solver="highs")
    with pytest.raises(InputError, match="among the 4 instances"):
        prune(lattice, ProximityGraph.from_edges([9], [2]))
