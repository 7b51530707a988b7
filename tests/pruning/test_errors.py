"""Bad input to a pruning gets an error that teaches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clipper import Candidates, Clipper, ClipperError, ProximityGraph, prune
from clipper.errors import InputError


@pytest.fixture
def candidates() -> Candidates:
    return Candidates.from_lists([[(0, 1), (1, 0)], [(1,)]], classes=2)


@pytest.mark.parametrize(("source", "target"), [([4], [0]), ([0], [9]), ([-1], [0])])
def test_edges_to_unknown_instances_are_refused(candidates: Candidates, source: list[int], target: list[int]) -> None:
    with pytest.raises(ClipperError, match=r"among the 4 instances|instance ids of 0 and more"):
        prune(candidates, ProximityGraph.from_edges(source, target))


def test_edges_to_unused_slots_are_refused(candidates: Candidates) -> None:
    with pytest.raises(ClipperError, match=r"kind=candidates\.kind"):
        prune(candidates, ProximityGraph.from_edges([0], [3]))


def test_edges_between_kinds_are_refused() -> None:
    mixed = Candidates.from_lists([[(0, 2)], [(1, 3)]], classes={"name": 2, "rel": 2})
    with pytest.raises(ClipperError, match="different kinds"):
        prune(mixed, ProximityGraph.from_edges([0], [3]))


@pytest.mark.parametrize("objective", ["exact", "paper", "joint", "random"])
def test_a_clipper_checks_the_graph_that_it_is_given(candidates: Candidates, objective: Any) -> None:
    clip = Clipper(objective=objective)
    with pytest.raises(InputError, match="expected edge targets among the"):
        clip.along(candidates, ProximityGraph.from_edges([0], [100]))
    with pytest.raises(InputError, match=r"expected a ProximityGraph, .*prune\(candidates, inputs\)"):
        clip.along(candidates, torch.rand(candidates.samples, candidates.slots, 2))  # type: ignore[arg-type]
    several = Candidates.from_lists([[(0, 3), (1, 4)], [(2, 3)]], {"name": 3, "rel": 2})
    with pytest.raises(InputError, match="different kinds of label"):
        clip.along(several, ProximityGraph.from_edges([0], [3]))


def test_unknown_objectives_and_solvers_are_named(candidates: Candidates) -> None:
    graph = ProximityGraph.from_edges([0], [2])
    with pytest.raises(ClipperError, match="'greedy'"):
        prune(candidates, graph, "greedy")
    with pytest.raises(ClipperError, match="'gurobi'"):
        prune(candidates, graph, solver="gurobi")


def test_a_pool_of_other_classes_is_refused(candidates: Candidates) -> None:
    other = Candidates.from_lists([[(0, 1)]], classes=3)
    with pytest.raises(ClipperError, match="2 classes"):
        prune(candidates, ProximityGraph.from_edges([0], [0]), pool=other)


def test_a_batch_of_one_sample_is_left_as_it_is() -> None:
    alone = Candidates.from_rule(sum, targets=[3], slots=2, classes=10)
    assert len(Clipper(k=1)(alone, torch.rand(1, 2, 4))) == len(alone)


def test_ragged_samples_and_kinds_pass_through_the_front_door() -> None:
    mixed = Candidates.from_lists([[(0, 2), (1, 3)], [(1, 3)], [(0,), (1,)]], classes={"name": 2, "rel": 2})
    embeddings = torch.tensor([[[0.0], [0.0]], [[0.1], [9.0]], [[5.0], [float("nan")]]])  # the last slot is unused
    pruning = Clipper(k=1).prune(mixed, embeddings)
    assert pruning.candidates.labels.tolist() == [[1, 3], [1, 3], [1, -1]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_every_device_gives_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    candidates = Candidates.from_rule(sum, torch.randint(0, 28, (64,), generator=generator), 3, 10)
    graph = ProximityGraph.from_embeddings(torch.rand(64, 3, 16, generator=generator), k=3)
    for objective in ("exact", "paper"):
        here, there = prune(candidates, graph, objective), prune(candidates.to("cuda"), graph.to("cuda"), objective)
        assert torch.equal(here.keep, there.keep.cpu())
        assert torch.equal(here.edges, there.edges.cpu())
