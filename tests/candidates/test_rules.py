"""State machines against the rules they stand for, and lattices of them against enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from clipper.benchmarks import hwf as formulas
from clipper.benchmarks.bench_loss import alignment_machine
from clipper.candidates import Alignments, Candidates, Lattice
from clipper.candidates.rules import HWF, MAX, SUM, Machine, run
from clipper.errors import InputError


@pytest.mark.parametrize(("machine", "rule"), [(SUM, sum), (MAX, max)])
def test_a_machine_gives_what_its_rule_gives(machine: Machine, rule: Callable[..., int]) -> None:
    for row in itertools.product(range(4), repeat=3):
        assert run(machine, row) == rule(row)


@pytest.mark.parametrize("slots", [1, 3])
def test_formulas_have_the_value_of_the_rule_and_nothing_else_has_one(slots: int) -> None:
    for row in itertools.product(range(12), repeat=slots):
        expected = formulas.value(row)
        assert run(HWF, row) == (None if expected == formulas.NO_FORMULA else expected)


@pytest.mark.parametrize("slots", [1, 3, 5])
def test_the_lattice_of_formulas_is_their_enumeration(slots: int) -> None:
    targets = [3, 7, 9] if slots == 1 else [3, 14, -2, 0]
    domains = formulas.domains(slots)
    lattice = Lattice.from_rule(*HWF, targets, slots, 12, domains=domains)
    candidates = Candidates.from_rule(formulas.value, targets, slots, 12, domains=domains)
    assert torch.equal(lattice.to_candidates().labels, candidates.labels)
    unaided = Lattice.from_rule(*HWF, targets, slots, 12)  # the machine itself refuses symbols in the wrong places
    assert unaided.counts == lattice.counts


def test_formulas_of_mixed_lengths_share_a_lattice() -> None:
    lattice = Lattice.from_rule(*HWF, [9, 9, 9], [1, 3, 5], 12, domains=formulas.domains(5))
    for i, slots in enumerate((1, 3, 5)):
        alone = Candidates.from_rule(formulas.value, [9], slots, 12, domains=formulas.domains(slots))
        assert lattice.counts[i] == len(alone)


def _aligned(frames: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(action for action, _ in itertools.groupby(frames))


def test_an_alignment_shows_every_action_in_order() -> None:
    sequences = [(2, 0), (2, 0, 2, 1), (1,)]
    lattice = Lattice.from_rule(*alignment_machine(sequences), sequences, 5, 3)
    every = list(itertools.product(range(3), repeat=5))
    rows = [[row for row in every if _aligned(row) == sequence] for sequence in sequences]
    assert lattice.to_candidates().labels.tolist() == [list(row) for part in rows for row in part]


def test_long_videos_have_small_lattices() -> None:
    sequence = (0, 3, 1, 7, 2, 0, 5)
    lattice = Lattice.from_rule(*alignment_machine([sequence]), [sequence], 200, 8)
    assert lattice.graph.states < 200 * 8
    assert lattice.counts == [math.comb(199, 6)]  # 6 changes at 199 places


@pytest.mark.parametrize("sequence", [(), (1, 1), (0, 2, 2)])
def test_repeated_actions_are_refused(sequence: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="text 1"):
        Alignments.from_texts([(0, 1), sequence], 5, 3)


def test_a_machine_may_refuse_every_label() -> None:
    nothing = Machine(0, lambda *_: None, lambda state: state)
    assert run(nothing, (1,)) is None
    with pytest.raises(InputError, match="sample 0"):
        Lattice.from_rule(*nothing, [0], 1, 2)
