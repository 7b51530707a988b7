"""The beam finds candidates only, the best of them if it is wide, and keeps what was found."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper.benchmarks import hwf
from clipper.candidates import Candidates, Lattice, beam_search
from clipper.candidates.rules import HWF, SUM, Machine, run
from clipper.errors import InputError
from tests.machines import Task, log_probs_for, tasks


@settings(max_examples=40, deadline=None)
@given(task=tasks(), seed=st.integers(0, 99))
def test_a_wide_beam_finds_everything(task: Task, seed: int) -> None:
    log_probs = log_probs_for(task.lattice(), seed)
    found = beam_search(
        task.machine, task.targets, task.lengths, task.classes, log_probs, width=512, ways=512, domains=task.domains
    )
    expected = task.candidates()
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()


def test_a_narrow_beam_finds_likely_candidates_and_keeps_earlier_ones() -> None:
    gold = torch.tensor([[1, 9, 2, 11, 3, 10, 0, 9, 8, 11, 5, 9, 4, 10, 7]])
    target = run(HWF, gold[0].tolist())
    turn = hwf.domains(15)
    sure = torch.full((1, 15, 12), -5.0).scatter(2, gold[..., None], 0.0).log_softmax(-1)
    found = beam_search(HWF, [target], 15, 12, sure, width=64, domains=turn)
    assert bool(found.contains(gold).all())
    assert all(run(HWF, row) == target for row in found.labels.tolist())
    unsure = torch.zeros(1, 15, 12).log_softmax(-1)
    again = beam_search(HWF, [target], 15, 12, unsure, width=64, domains=turn, known=found)
    assert set(map(tuple, again.labels.tolist())) >= set(map(tuple, found.labels.tolist()))
    assert len(again.distinct()) == len(again)


def test_the_best_candidate_survives_a_beam_that_is_wide_enough() -> None:
    lattice = Lattice.from_rule(*SUM, [20, 31], 6, 10)
    log_probs = log_probs_for(lattice, seed=3)
    found = beam_search(SUM, [20, 31], 6, 10, log_probs, width=60, ways=1)
    assert bool(found.contains(lattice.top_k(log_probs, 1).labels.long()).all())


def test_every_step_is_taken_once() -> None:
    steps: list[tuple[int, int]] = []

    def counted(state: int, label: int) -> int:
        steps.append((state, label))
        return state + label

    beam_search(Machine(0, counted, lambda total: total), [10] * 8, 4, 10, torch.zeros(8, 4, 10), width=50)
    assert len(steps) == len(set(steps))


def test_a_sample_without_a_find_is_named() -> None:
    certain = torch.full((2, 3, 10), -9.0)
    certain[..., 0] = 0.0
    with pytest.raises(InputError, match="none of sample 1"):
        beam_search(SUM, [0, 27], 3, 10, certain, width=1)


def test_a_slot_with_labels_of_different_kinds_is_refused_as_by_a_list() -> None:
    classes, log_probs = {"digit": 2, "sign": 2}, torch.zeros(1, 2, 4)
    for build in (
        lambda **options: Candidates.from_rule(sum, [3], 2, classes, **options),
        lambda **options: beam_search(SUM, [3], 2, classes, log_probs, **options),
    ):
        with pytest.raises(InputError, match="slot 0 of sample 0 holds labels of different kinds"):
            build()
        assert build(domains=[[0, 1], [2, 3]]).labels.tolist() == [[0, 3], [1, 2]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width and ways"),
        ({"log_probs": torch.zeros(1, 2, 10)}, "expected log_probs of shape"),
        ({"known": Candidates.from_lists([[(1, 2)]], classes=10)}, "expected known candidates"),
    ],
)
def test_errors_say_what_to_do(options: dict[str, object], message: str) -> None:
    arguments = {"log_probs": torch.zeros(1, 3, 10), **options}
    with pytest.raises(InputError, match=message):
        beam_search(SUM, [3], 3, 10, **arguments)  # type: ignore[arg-type]
