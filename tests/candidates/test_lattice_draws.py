"""Random draws from a lattice: the right frequencies, and no candidate twice."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from clipper.candidates import Candidates, Lattice
from clipper.candidates.rules import MAX, SUM

CRITICAL = 3.1
"""Standard normal quantile at 0.999: a chi-square above it, in Wilson and Hilferty's approximation, is no accident."""


def chi_square_z(observed: list[int], expected: list[float]) -> float:
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = len(observed) - 1
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


@pytest.mark.parametrize("machine", [SUM, MAX])
def test_single_draws_are_uniform(machine) -> None:  # type: ignore[no-untyped-def]
    one = Lattice.from_rule(*machine, [6], 4, 10)
    drawn = one.batch([0] * 8_000).draw(1, seed=1)
    assert set(drawn.counts) == {1}
    seen = Counter(map(tuple, drawn.labels.tolist()))
    rows = [tuple(row) for row in one.to_candidates().labels.tolist()]
    assert set(seen) <= set(rows)
    assert chi_square_z([seen[row] for row in rows], [8_000 / len(rows)] * len(rows)) < CRITICAL


def test_draws_without_replacement_take_every_candidate_equally_often() -> None:
    one = Lattice.from_rule(*SUM, [9], 3, 10)  # 55 candidates: more than 4 · 10, so they are drawn, not listed
    drawn = one.batch([0] * 4000).draw(10, seed=2)
    assert set(drawn.counts) == {10}
    assert len(drawn.distinct()) == len(drawn)
    seen = Counter(map(tuple, drawn.labels.tolist()))
    assert chi_square_z(sorted(seen.values()), [40_000 / 55] * 55) < CRITICAL


def test_the_classifiers_distribution_is_drawn_from() -> None:
    one = Lattice.from_rule(*SUM, [5], 2, 10)
    log_probs = torch.randn(1, 2, 10, generator=torch.Generator().manual_seed(3)).log_softmax(-1)
    drawn = one.batch([0] * 30_000).draw(1, seed=3, log_probs=log_probs.expand(30_000, 2, 10))
    seen = Counter(map(tuple, drawn.labels.tolist()))
    rows = [tuple(row) for row in one.to_candidates().labels.tolist()]
    weight = torch.tensor([float(log_probs[0, 0, a] + log_probs[0, 1, b]) for a, b in rows]).softmax(0)
    assert chi_square_z([seen[row] for row in rows], (30_000 * weight).tolist()) < CRITICAL


def test_restricted_samples_of_mixed_lengths_draw_candidates_of_their_own() -> None:
    lattice = Lattice.from_rule(*SUM, [8, 30, 150], [2, 7, 30], 10)
    even = torch.zeros(3, 30, 10, dtype=torch.bool)
    even[:, :, ::2] = True
    lattice = lattice.restrict(even.flatten(0, 1))
    drawn = lattice.draw(50, seed=4)
    assert drawn.counts == [5, 50, 50]
    assert lattice.batch(drawn.sample).contains(drawn.labels.long()).all()
    assert bool((drawn.labels[drawn.labels >= 0] % 2 == 0).all())


def test_a_seed_gives_the_same_draws() -> None:
    lattice = Lattice.from_rule(*SUM, [8, 100], [2, 20], 10)
    first, again, other = (lattice.draw(20, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.labels, other.labels)
    assert isinstance(first, Candidates)
