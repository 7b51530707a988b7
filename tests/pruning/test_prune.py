"""Closed form = HiGHS = CP-SAT = brute force, and what every pruning must satisfy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates, ProximityGraph, prune
from clipper.errors import InputError
from clipper.pruning import closed_form
from clipper.pruning.objectives import Pruning
from tests.oracles import Problem, fewest_survivors, fewest_survivors_of_the_printed_program, inside
from tests.strategies import as_tensors, problems

ORACLES = {"exact": fewest_survivors, "paper": fewest_survivors_of_the_printed_program}
OBJECTIVES = sorted(ORACLES)
MIXED = st.one_of(problems(), problems(kinds=True), problems(most_edges=1))


def _inside(candidates: Candidates, pruning: Pruning[Candidates]) -> list[bool]:
    return inside(candidates.labels.tolist(), candidates.sample.tolist(), pruning.allowed.tolist())


def check_promises(problem: Problem, pruning: Pruning[Candidates]) -> None:
    candidates = pruning.original
    survivors = pruning.keep.tolist()
    certain = [kept for sample in problem.globally_consistent() for kept in sample]
    assert min(pruning.candidates.counts) > 0, "sound"
    assert all(kept or not sure for kept, sure in zip(survivors, certain, strict=True)), "keeps the consistent"
    assert pruning.keep.tolist() == _inside(candidates, pruning), "keep = inside allowed"
    chosen = [edge for edge, on in zip(problem.edges, pruning.edges.tolist(), strict=True) if on]
    assert survivors == [kept for sample in problem.survivors(chosen) for kept in sample], "the edges explain it"


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=1500)
@given(problem=MIXED)
def test_closed_form_equals_brute_force(objective: str, problem: Problem) -> None:
    pruning = prune(*as_tensors(problem), objective=objective)
    assert int(pruning.keep.sum()) == ORACLES[objective](problem)
    check_promises(problem, pruning)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("solver", ["highs", "cp-sat"])
@settings(max_examples=300)
@given(problem=MIXED)
def test_solvers_equal_the_closed_form(objective: str, solver: str, problem: Problem) -> None:
    pytest.importorskip("highspy" if solver == "highs" else "ortools")
    candidates, graph = as_tensors(problem)
    by_solver = prune(candidates, graph, objective, solver)
    assert by_solver.discarded == prune(candidates, graph, objective).discarded
    check_promises(problem, by_solver)


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=400)
@given(problem=MIXED, data=st.data())
def test_permuting_samples_permutes_the_answer(objective: str, problem: Problem, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(problem.samples))))
    place = {old: new for new, old in enumerate(order)}
    moved = Problem(
        [problem.samples[old] for old in order],
        [((place[a], i), (place[b], j)) for (a, i), (b, j) in problem.edges],
    )
    lengths = data.draw(st.lists(st.sampled_from([0.5, 1.0]), min_size=len(moved.edges), max_size=len(moved.edges)))
    before, after = (prune(*as_tensors(p, lengths), objective=objective) for p in (problem, moved))
    counts = before.original.counts
    rows = dict(enumerate(torch.split(before.keep, counts)))
    assert torch.equal(torch.cat([rows[old] for old in order]), after.keep)
    assert torch.equal(before.edges, after.edges)


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=100)
@given(problem=MIXED)
def test_running_twice_gives_the_same_bits(objective: str, problem: Problem) -> None:
    first, second = (prune(*as_tensors(problem), objective=objective) for _ in range(2))
    assert torch.equal(first.keep, second.keep)
    assert torch.equal(first.edges, second.edges)
    assert torch.equal(first.allowed, second.allowed)


@settings(max_examples=300)
@given(problem=problems(most_edges=4))
def test_tables_and_pairs_of_masks_agree_to_the_edge(problem: Problem) -> None:
    by_table = prune(*as_tensors(problem))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closed_form, "TABLE_WIDTH", 0)
        by_pairs = prune(*as_tensors(problem))
    assert torch.equal(by_table.keep, by_pairs.keep)
    assert torch.equal(by_table.edges, by_pairs.edges)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("per_slot", [10, 40, 70])
def test_many_edges_per_sample_equal_the_solver(objective: str, per_slot: int) -> None:
    """20 edges need pairs instead of a table, 80 need two words, 140 need three."""
    pytest.importorskip("highspy")
    generator = torch.Generator().manual_seed(per_slot)
    targets = torch.randint(0, 19, (40,), generator=generator)
    candidates = Candidates.from_rule(sum, targets, slots=2, classes=10)
    source = torch.arange(80).repeat_interleave(per_slot)
    target = torch.randint(0, 80, (len(source),), generator=generator)
    foreign = source // 2 != target // 2
    graph = ProximityGraph.from_edges(source[foreign], target[foreign])
    pruning = prune(candidates, graph, objective)
    assert pruning.discarded == prune(candidates, graph, objective, "highs").discarded
    assert pruning.keep.tolist() == _inside(candidates, pruning)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_pruning_piece_by_piece_changes_nothing(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    candidates = Candidates.from_rule(sum, torch.randint(0, 28, (50,), generator=generator), slots=3, classes=10)
    graph = ProximityGraph.from_embeddings(torch.rand(50, 3, 4, generator=generator), k=3)
    whole = prune(candidates, graph, objective)
    monkeypatch.setattr("clipper.pruning.objectives._PIECE", 100)
    monkeypatch.setattr(closed_form, "_CELLS", 1 << 10)
    pieces = prune(candidates, graph, objective)
    assert torch.equal(whole.keep, pieces.keep)
    assert torch.equal(whole.edges, pieces.edges)
    assert torch.equal(whole.allowed, pieces.allowed)


def test_ties_keep_more_edges_then_drop_the_more_distant_then_the_lower_id() -> None:
    samples = [[(0,), (1,)], [(0,)], [(1,)], [(1,)]]
    candidates = Candidates.from_lists(samples, classes=2)
    three = ProximityGraph.from_edges(torch.tensor([0, 0, 0]), torch.tensor([1, 2, 3]))
    assert prune(candidates, three).edges.tolist() == [False, True, True]  # drops one edge rather than two
    for distance, chosen in (([1.0, 2.0], [True, False]), ([2.0, 1.0], [False, True]), ([1.0, 1.0], [False, True])):
        two = ProximityGraph.from_edges(torch.tensor([0, 0]), torch.tensor([1, 2]), torch.tensor(distance))
        for objective in OBJECTIVES:
            assert prune(candidates, two, objective).edges.tolist() == chosen


def test_a_pool_decides_what_its_instances_could_be() -> None:
    pool = Candidates.from_lists([[(3, 5)], [(2, 2), (1, 1)]], classes=10)
    batch = Candidates.from_rule(sum, targets=[8], slots=2, classes=10)
    graph = ProximityGraph.from_edges(torch.tensor([0]), torch.tensor([2]))  # to the first slot of the pool's second
    assert prune(batch, graph, pool=pool).candidates.labels.tolist() == [[1, 7], [2, 6]]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("slots", "k"), [(1, 1), (2, 1), (3, 1), (3, 2), (2, 3), (4, 2)])
def test_a_graph_with_as_many_edges_everywhere_is_pruned_as_any_other(objective: str, slots: int, k: int) -> None:
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        targets = torch.randint(0, 5 * slots, (12,), generator=generator)
        candidates = Candidates.from_rule(sum, targets, slots, classes=6)
        embeddings = torch.randint(0, 4, (12, slots, 2), generator=generator).float()  # with many equal distances
        graph = ProximityGraph.from_embeddings(embeddings, k=k)
        assert graph.degree == k
        regular, other = (prune(candidates, g, objective) for g in (graph, replace(graph, degree=None)))
        assert torch.equal(regular.keep, other.keep)
        assert torch.equal(regular.edges, other.edges)


def test_embeddings_of_samples_of_different_lengths_may_be_a_list() -> None:
    candidates = Candidates.from_rule(sum, targets=[3, 1, 2], slots=[2, 1, 3], classes=4)
    generator = torch.Generator().manual_seed(0)
    listed = [torch.rand(length, 5, generator=generator) for length in (2, 1, 3)]
    padded = torch.zeros(3, 3, 5)
    for row, part in zip(padded, listed, strict=True):
        row[: len(part)] = part
    expected, found = prune(candidates, padded), prune(candidates, [part.numpy() for part in listed])
    assert torch.equal(found.keep, expected.keep)
    assert torch.equal(found.graph.target, expected.graph.target)
    with pytest.raises(InputError, match=r"\(1, 5\) for sample 1, got \(2, 5\)"):
        prune(candidates, [listed[0], listed[0], listed[2]])
    with pytest.raises(InputError, match="3 samples, got a list of 2"):
        prune(candidates, listed[:2])
