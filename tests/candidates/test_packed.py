from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clipper.candidates import Candidates
from clipper.candidates.packed import candidate_log_probs, cross_log_probs, segment_top
from tests.engine_oracles import facts_of, gradient, problems, product, rows_of


@given(problems(), st.integers(1, 9), st.integers(0, 99))
def test_the_top_rows_of_each_sample_equal_a_stable_sort(problem, k, seed):
    _, candidates = problem
    values = torch.randint(4, (len(candidates), 3), generator=torch.Generator().manual_seed(seed)).double()
    rows, found = segment_top(values, candidates, k)
    for i, column in ((i, column) for i in range(candidates.samples) for column in range(3)):
        start, stop = candidates.offsets[i : i + 2].tolist()
        expected = sorted(range(start, stop), key=lambda row: -values[row, column].item())[:k]
        assert rows[:, i, column][found[:, i, column]].tolist() == expected


def test_every_candidate_is_scored_under_every_sample():
    outputs = Candidates.from_lists([[(0, 1), (1, 0)], [(1,)]], classes=2)
    log_probs = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = [row for i in range(2) for row in rows_of(outputs, i)]
    expected = [[product(log_probs[i], facts_of(row)).item() for i in range(3)] for row in rows]
    torch.testing.assert_close(cross_log_probs(log_probs, outputs).exp().tolist(), expected)


@pytest.mark.parametrize("slots", [(5,), (6, 5)])
def test_looking_up_two_slots_at_once_changes_nothing(slots):
    candidates = Candidates.from_rule(lambda _: 0, targets=[0] * len(slots), slots=slots, classes=2)
    pairs = len(slots) * 3 * 3**2
    assert pairs < len(candidates)  # so many candidates that pairs of slots are tabulated
    shape = (len(slots), max(slots), 2)
    log_probs = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    values = candidate_log_probs(log_probs, candidates)
    rows = [(i, row) for i in range(len(slots)) for row in rows_of(candidates, i)]
    expected = torch.stack([product(log_probs[i], facts_of(row)).log() for i, row in rows])
    torch.testing.assert_close(values, expected)
    weights = torch.arange(len(rows), dtype=torch.float64)
    torch.testing.assert_close(gradient(values * weights, log_probs), gradient(expected * weights, log_probs))
