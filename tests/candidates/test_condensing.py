"""Lists of candidates as the smallest lattice that has them, against brute force over beginnings and endings."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper.candidates import Candidates, Lattice
from clipper.candidates.graph_building import templates_of
from clipper.errors import InputError
from tests.machines import Row, Task, log_probs_for, tasks


@settings(max_examples=60, deadline=None)
@given(task=tasks(), seed=st.integers(0, 9))
def test_the_lattice_of_a_list_has_its_candidates(task: Task, seed: int) -> None:
    listed, by_rule = task.candidates(), task.lattice()
    lattice = Lattice.from_candidates(listed)
    again = lattice.to_candidates()
    assert torch.equal(again.labels, listed.labels)
    assert torch.equal(again.offsets, listed.offsets)
    assert torch.equal(lattice.kind, listed.kind)
    assert torch.equal(lattice.support, listed.support)
    log_probs = log_probs_for(by_rule, seed)
    assert torch.allclose(lattice.log_probability(log_probs), by_rule.log_probability(log_probs))
    assert torch.allclose(lattice.marginals(log_probs), by_rule.marginals(log_probs))


@settings(max_examples=60, deadline=None)
@given(task=tasks())
def test_no_lattice_is_smaller(task: Task) -> None:
    rows = {(row, (task.targets[i], task.lengths[i])) for i in range(len(task.targets)) for row in task.rows(i)}
    lattice = Lattice.from_candidates(task.candidates())
    assert lattice.graph.sizes == tuple(_different_beginnings(rows, depth) for depth in range(lattice.slots + 1))
    assert lattice.states <= task.lattice().states


def _different_beginnings(rows: set[tuple[Row, object]], depth: int) -> int:
    """How many beginnings of a length can be told apart by their endings and where these lead."""
    beginnings = {row[:depth] for row, _ in rows if len(row) >= depth}
    return len({frozenset((row[depth:], end) for row, end in rows if row[:depth] == b) for b in beginnings})


@settings(max_examples=60, deadline=None)
@given(lists=st.lists(st.lists(st.tuples(st.integers(0, 2)), min_size=1, max_size=3), min_size=1, max_size=6))
def test_samples_share_a_template_if_they_list_the_same(lists: list[list[Row]]) -> None:
    candidates = Candidates.from_lists(lists, classes=3)
    template, firsts = templates_of(candidates)
    rows = [candidates.batch([i]).labels.tolist() for i in range(len(lists))]
    assert all(rows[i] == rows[int(firsts[template[i]])] for i in range(len(lists)))
    assert len(firsts) == len({str(row) for row in rows})


def test_kinds_and_unused_slots_are_kept() -> None:
    lists = [[(0, 4), (1, 5)], [(2,)], [(0, 4), (1, 5)], [(4, 0, 6), (5, 1, 6), (5, 3, 6)]]
    candidates = Candidates.from_lists(lists, classes={"name": 4, "rel": 3})
    lattice = Lattice.from_candidates(candidates)
    assert torch.equal(lattice.to_candidates().labels, candidates.labels)
    assert torch.equal(lattice.kind, candidates.kind)
    assert lattice.kinds == candidates.kinds
    assert lattice.template.tolist() == [0, 1, 0, 2]
    assert lattice.lengths.tolist() == [2, 1, 2, 3]


@pytest.mark.parametrize("lists", [[[(0,), (1,)], [(1,)]], [[(0,), (1,)], [(1,), (0,)]], [[(0,), (0,)]]])
def test_a_candidate_of_two_formulas_is_refused(lists: list[list[Row]]) -> None:
    candidates = Candidates.from_lists(lists, classes=2)
    with pytest.raises(InputError, match="some candidate occurs twice"):
        Lattice.from_candidates(candidates)


def test_no_samples_have_no_lattice() -> None:
    candidates = Candidates.from_lists([[(0,)]], classes=2)
    for nothing in (candidates.batch([]), candidates.span(0, 0)):
        with pytest.raises(InputError, match="expected the candidates of at least one sample, got none"):
            Lattice.from_candidates(nothing)


@pytest.mark.parametrize(("rule", "states"), [(max, (1, 5, 5, 5)), (sum, (1, 5, 9, 13)), (min, (1, 5, 5, 5))])
def test_a_rule_that_nobody_wrote_as_a_machine_is_found_out(
    rule: Callable[[Row], int], states: tuple[int, ...]
) -> None:
    targets = sorted({rule(row) for row in itertools.product(range(5), repeat=3)})
    lattice = Lattice.from_candidates(Candidates.from_rule(rule, targets, slots=3, classes=5))
    assert lattice.graph.sizes == states
