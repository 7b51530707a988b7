"""The control that discards blindly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates, CandidateSet, Clipper, ClipperError, Lattice, ProximityGraph, prune
from clipper.candidates import Alignments
from clipper.candidates.rules import SUM
from clipper.errors import InputError
from clipper.pruning import Pruning
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


def test_a_count_may_be_a_number_of_numpy_or_a_tensor_of_one() -> None:
    candidates = Candidates.from_rule(sum, [8, 2], 2, 10)
    graph = ProximityGraph.from_edges([0], [2])
    for count in (np.int64(3), torch.tensor(3)):
        assert prune(candidates, graph, "random", count=count).discarded == 3  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a count of candidates to discard"):
        prune(candidates, graph, "random", count=True)


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


SETS: dict[str, CandidateSet] = {
    "lattice": Lattice.from_rule(*SUM, targets=[4, 8, 11, 2], slots=3, classes=6),
    "alignments": Alignments.from_texts([(0, 1), (1, 2, 0), (2, 0), (1, 0)], [6, 5, 6, 4], classes=3),
}


def pruned(candidates: CandidateSet, seed: int) -> Pruning[CandidateSet]:
    """By `exact`, along edges between random points."""
    points = torch.randn(*candidates.kind.shape, 3, generator=torch.Generator().manual_seed(seed))
    return prune(candidates, ProximityGraph.from_embeddings(points, k=2, kind=candidates.kind))


@pytest.mark.parametrize("form", sorted(SETS))
@settings(max_examples=40, deadline=None)
@given(edges=st.integers(0, 99), seed=st.integers(0, 1000))
def test_labels_are_forbidden_until_one_more_would_leave_too_few(form: str, edges: int, seed: int) -> None:
    candidates, model = SETS[form], pruned(SETS[form], edges)
    pruning = prune(candidates, model.graph, "random", imitate=model, seed=seed)
    left, least = pruning.candidates.to_candidates(), model.candidates.counts
    assert torch.equal(pruning.allowed, left.support)
    for sample in range(candidates.samples):
        rows = left.labels[left.sample == sample]
        assert least[sample] <= len(rows) <= candidates.counts[sample]
        for slot in range(candidates.slots):
            for label in rows[:, slot].unique().tolist():
                assert label < 0 or int((rows[:, slot] != label).sum()) < least[sample]


def test_seeds_forbid_different_labels_and_a_seed_the_same() -> None:
    candidates, model = SETS["lattice"], pruned(SETS["lattice"], 0)
    draws = [prune(candidates, model.graph, "random", imitate=model, seed=seed).allowed for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_clipper_discards_at_random_what_it_would_prune() -> None:
    candidates, model = SETS["alignments"], pruned(SETS["alignments"], 3)
    expected = prune(candidates, model.graph, "random", imitate=model, seed=7)
    assert torch.equal(Clipper(objective="random").along(candidates, model.graph, seed=7).allowed, expected.allowed)


def test_a_set_without_a_list_is_discarded_only_like_another_pruning() -> None:
    candidates, model = SETS["lattice"], pruned(SETS["lattice"], 0)
    for count in (None, 3):
        with pytest.raises(ClipperError, match="imitate="):
            prune(candidates, model.graph, "random", count=count)
    with pytest.raises(ClipperError, match="a pruning of the same candidates"):
        prune(candidates, model.graph, "random", imitate=pruned(SETS["alignments"], 0))
