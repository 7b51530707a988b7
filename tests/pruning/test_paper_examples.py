"""Examples 1.1 to 3.5 of arXiv 2602.07973, in the paper's own notation: samples and pre-images count from 1."""

from __future__ import annotations

import pytest

from clipper import Candidates, ProximityGraph, prune

PHI = {1: 8, 2: 2, 3: 16}  # φ₁ := l₁ + l₂ = 8, φ₂ := l′₁ + l′₂ = 2, φ₃ := l″₁ + l″₂ = 16


@pytest.fixture
def samples() -> Candidates:
    return Candidates.from_rule(sum, targets=list(PHI.values()), slots=2, classes=10)


def node(sample: int, x: int) -> int:
    """The node (ℓ, x_j)."""
    return (sample - 1) * 2 + (x - 1)


def graph(*edges: tuple[tuple[int, int], tuple[int, int]]) -> ProximityGraph:
    return ProximityGraph.from_edges([node(*a) for a, _ in edges], [node(*b) for _, b in edges])


def pre_images(candidates: Candidates, sample: int) -> set[tuple[int, ...]]:
    return {tuple(row) for row in candidates.labels[candidates.sample == sample - 1].tolist()}


E1 = ((1, 1), (2, 1))  # e₁ := (1, x₁) → (2, x′₁)
E1_BACK = ((2, 1), (1, 1))  # e′₁ := (2, x′₁) → (1, x₁)
E2 = ((1, 1), (3, 1))  # e₂ := (1, x₁) → (3, x″₁)


def test_example_1_1_nine_combinations_sum_to_eight(samples: Candidates) -> None:
    sigma = pre_images(samples, 1)
    assert len(sigma) == 9
    assert (2, 6) in sigma
    assert (3, 6) not in sigma
    assert (1, 7) in sigma  # the gold labels


def test_example_1_2_a_close_neighbour_leaves_three_of_nine(samples: Candidates) -> None:
    assert pre_images(samples, 2) == {(0, 2), (1, 1), (2, 0)}
    kept = prune(samples, graph(E1)).candidates
    assert pre_images(kept, 1) == {(0, 8), (1, 7), (2, 6)}


def test_example_2_1_pre_images_are_mappings_from_inputs_to_labels(samples: Candidates) -> None:
    assert {(0, 8), (1, 7), (8, 0)} <= pre_images(samples, 1)
    assert {(0, 2), (1, 1)} <= pre_images(samples, 2)


@pytest.mark.parametrize("objective", ["exact", "paper"])
def test_example_3_3_what_exceeds_two_is_inconsistent_with_the_edge(samples: Candidates, objective: str) -> None:
    kept = prune(samples, graph(E1), objective).candidates
    assert (8, 0) not in pre_images(kept, 1)
    assert (0, 8) in pre_images(kept, 1)
    assert all(x1 <= 2 for x1, _ in pre_images(kept, 1))
    back = prune(samples, graph(E1_BACK), objective)
    assert back.discarded == 0  # all pre-images of the second sample are globally consistent


def test_example_3_5_both_edges_together_would_leave_nothing(samples: Candidates) -> None:
    assert samples.support[node(2, 1)].nonzero().flatten().tolist() == [0, 1, 2]
    assert samples.support[node(3, 1)].nonzero().flatten().tolist() == [7, 8, 9]
    both = graph(E1, E2)
    printed, stated = prune(samples, both, "paper"), prune(samples, both, "exact")
    assert len(pre_images(printed.candidates, 1)) == 9  # equation (1) ties e₁ to e₂ and can choose neither
    assert pre_images(stated.candidates, 1) == {(7, 1), (8, 0)}  # Problem 3.6 chooses e₂: 2 of 9
    assert stated.edges.tolist() == [False, True]


@pytest.mark.parametrize("solver", ["highs", "cp-sat"])
def test_example_3_5_solvers_agree(samples: Candidates, solver: str) -> None:
    pytest.importorskip("highspy" if solver == "highs" else "ortools")
    both = graph(E1, E2)
    assert prune(samples, both, "paper", solver).discarded == 0
    assert prune(samples, both, "exact", solver).discarded == 7
