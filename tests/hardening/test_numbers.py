"""Numbers at their limits: candidate sets and losses against brute force in double precision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clipper import Candidates, Lattice, ProximityGraph, rules
from clipper.candidates import Alignments
from clipper.candidates.rules import MAX, SUM
from clipper.engines import SemanticLoss
from clipper.errors import InputError
from tests.hardening.attack import EFFORT

Row = tuple[int, ...]
Rows = list[list[Row]]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INF = math.inf


def by_rule(rule: Callable[[Row], object], targets: list[int], slots: list[int], classes: int) -> Rows:
    """Every tuple that gives the target, one by one."""
    return [
        [row for row in itertools.product(range(classes), repeat=length) if rule(row) == target]
        for target, length in zip(targets, slots, strict=True)
    ]


def merged(row: Row) -> Row:
    return tuple(label for label, _ in itertools.groupby(row))


def narrowed(rows: Rows, slots: int, classes: int) -> tuple[Rows, Tensor]:
    """What is left of some candidates when each slot loses a label, and which labels each instance may take."""
    allowed = torch.ones(len(rows), slots, classes, dtype=torch.bool)
    left = []
    for i, own in enumerate(rows):
        kept = own
        for slot in range(len(own[0])):
            for label in range(classes):
                fewer = [row for row in kept if row[slot] != label]
                if fewer and len(fewer) < len(kept):
                    kept, allowed[i, slot, label] = fewer, False
                    break
        left.append(kept)
    return left, allowed.flatten(0, 1)


def restricted(lattice: Lattice, rows: Rows) -> tuple[Lattice, Rows]:
    left, allowed = narrowed(rows, lattice.slots, lattice.classes)
    return lattice.restrict(allowed), left


def _listed() -> tuple[Candidates, Rows]:
    rows = by_rule(sum, [3, 0, 6], [3, 3, 3], 4)
    return Candidates.from_lists(rows, 4), rows


def _ragged_listed() -> tuple[Candidates, Rows]:
    rows = by_rule(max, [2, 1, 0], [1, 3, 2], 3)
    return Candidates.from_lists(rows, 3), rows


def _subset() -> tuple[Candidates, Rows]:
    candidates, rows = _listed()
    left, _ = narrowed(rows, candidates.slots, candidates.classes)
    keep = [row in kept for own, kept in zip(rows, left, strict=True) for row in own]
    return candidates.subset(torch.tensor(keep)), left


def _lattice() -> tuple[Lattice, Rows]:
    return Lattice.from_rule(*SUM, [3, 0, 6], 3, 4), by_rule(sum, [3, 0, 6], [3] * 3, 4)


def _ragged_lattice() -> tuple[Lattice, Rows]:
    return Lattice.from_rule(*MAX, [2, 1, 0], [1, 3, 2], 3), by_rule(max, [2, 1, 0], [1, 3, 2], 3)


def _condensed() -> tuple[Lattice, Rows]:
    candidates, rows = _ragged_listed()
    return Lattice.from_candidates(candidates), rows


def _alignments() -> tuple[Alignments, Rows]:
    texts = [(2, 0), (0, 1, 2), (1,)]
    return Alignments.from_texts(texts, 4, 3), [by_rule(merged, [text], [4], 3)[0] for text in texts]  # type: ignore[list-item]


def _ragged_alignments() -> tuple[Alignments, Rows]:
    texts, frames = [(2, 0), (0, 1, 0), (1,)], [2, 5, 1]
    rows = [by_rule(merged, [text], [length], 3)[0] for text, length in zip(texts, frames, strict=True)]  # type: ignore[list-item]
    return Alignments.from_texts(texts, frames, 3), rows


def _single() -> tuple[Lattice, Rows]:
    return Lattice.from_rule(*SUM, [0], 1, 1), [[(0,)]]


def _single_listed() -> tuple[Candidates, Rows]:
    return Candidates.from_lists([[(0,)]], 1), [[(0,)]]


SETS: dict[str, Callable[[], tuple[Candidates | Lattice, Rows]]] = {
    "listed": _listed,
    "ragged and listed": _ragged_listed,
    "a subset": _subset,
    "lattice": _lattice,
    "ragged lattice": _ragged_lattice,
    "restricted lattice": lambda: restricted(*_lattice()),
    "restricted ragged lattice": lambda: restricted(*_ragged_lattice()),
    "condensed": _condensed,
    "alignments": _alignments,
    "ragged alignments": _ragged_alignments,
    "restricted alignments": lambda: restricted(*_ragged_alignments()),
    "one of all": _single,
    "one of all, listed": _single_listed,
}


def _zeros(logs: Tensor, _: Rows) -> Tensor:
    return torch.zeros_like(logs)


def _one_label(value: float) -> Callable[[Tensor, Rows], Tensor]:
    """The first label of each slot has that value, the others usual ones."""

    def change(logs: Tensor, _: Rows) -> Tensor:
        logs[..., 0] = value
        return logs

    return change


def _one_slot(value: float) -> Callable[[Tensor, Rows], Tensor]:
    """Every label of the first slot has that value, those of other slots all the same."""

    def change(logs: Tensor, _: Rows) -> Tensor:
        logs = torch.zeros_like(logs)
        logs[:, 0] = value
        return logs

    return change


def _all_but_one(logs: Tensor, rows: Rows) -> Tensor:
    """Of each sample only the last candidate is possible."""
    result = torch.full_like(logs, -INF)
    for i, own in enumerate(rows):
        for slot, label in enumerate(own[-1]):
            result[i, slot, label] = logs[i, slot, label]
    return result


def _nothing(logs: Tensor, _: Rows) -> Tensor:
    """The first sample's candidates are ruled out, one by its first slot, the others as they are."""
    logs[0, 0] = -INF
    return logs


def _spread(logs: Tensor, _: Rows) -> Tensor:
    steps = torch.tensor([0.0, -50.0, -700.0, -1e5, -INF, -2.5], dtype=logs.dtype)
    place = (logs.abs() * 1e6).long() % len(steps)
    return steps[place]


SCORES = "scores instead of log-probabilities"
"""Which a lattice adds up all the same; losses refuse them."""
PATTERNS: dict[str, Callable[[Tensor, Rows], Tensor]] = {
    "zeros": _zeros,
    "usual": lambda logs, _: logs,
    "thousands": lambda logs, _: logs - 1000,
    "ten thousands": _one_slot(-1e4),
    "one label at -1e4": _one_label(-1e4),
    "one label at -4e29": _one_label(-4e29),
    "a slot at -4e29": _one_slot(-4e29),
    "one label at -1e35": _one_label(-1e35),
    "a slot at -1e35": _one_slot(-1e35),
    "a slot at -3e38": _one_slot(-3e38),
    "a slot at -1e300": _one_slot(-1e300),
    "one label impossible": _one_label(-INF),
    "all but one candidate impossible": _all_but_one,
    "a sample impossible": _nothing,
    "everything impossible": lambda logs, _: torch.full_like(logs, -INF),
    "a huge spread": _spread,
    SCORES: lambda logs, _: logs + 300,
}


def problem(name: str, pattern: str, dtype: torch.dtype, seed: int) -> tuple[Candidates | Lattice, Rows, Tensor]:
    candidates, rows = SETS[name]()
    shape = (candidates.samples, candidates.slots, candidates.classes)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logs = PATTERNS[pattern](noise.log_softmax(-1), rows)
    if pattern != SCORES:
        logs = logs - logs.logsumexp(-1, keepdim=True).clamp(min=0)  # no slot's probabilities sum to more than 1
    return candidates, rows, logs.to(dtype)


def values_of(logs: Tensor, rows: list[Row]) -> list[Fraction | float]:
    """The log-probability of each candidate of one sample, without rounding."""
    table = [[v if v == -INF else Fraction(v) for v in row] for row in logs.double().tolist()]
    return [_total([table[slot][label] for slot, label in enumerate(row)]) for row in rows]


def _total(values: list[Fraction | float]) -> Fraction | float:
    return -INF if -INF in values else sum(values)


def log_sum(values: list[Fraction | float]) -> float:
    peak = max(values)
    return -INF if peak == -INF else float(peak + Fraction(math.log(math.fsum(relative(values)))))


def relative(values: list[Fraction | float]) -> list[float]:
    """What each candidate weighs beside the best one."""
    peak = max(values)
    return [0.0 if value == -INF else math.exp(max(-800, value - peak)) for value in values]


def posterior(values: list[Fraction | float]) -> np.ndarray:
    weights = np.array(relative(values))
    return weights / max(1.0, weights.sum())


def entropy(shares: np.ndarray) -> float:
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def near(found: float, expected: float, dtype: torch.dtype, scale: float = 1.0) -> bool:
    """Equal, up to what the type can tell apart at this scale."""
    rounded = float(torch.tensor(expected, dtype=torch.float64).to(dtype))
    if math.isinf(rounded) or math.isinf(found):
        return found == rounded or (math.isinf(rounded) and abs(found) >= torch.finfo(dtype).max / 2)
    return abs(found - expected) <= 16 * torch.finfo(dtype).eps * max(1.0, scale, abs(expected))


def working(candidates: Candidates | Lattice, dtype: torch.dtype) -> torch.dtype:
    """In what listed candidates are added up, and lattices."""
    if isinstance(candidates, Lattice):
        return torch.float64
    return torch.float64 if dtype == torch.float64 else torch.float32


def _worth_it(pattern: str, dtype: torch.dtype) -> bool:
    """Half precision holds few of the patterns."""
    return EFFORT > 1 or dtype.itemsize > 2 or pattern in ("zeros", "usual", "thousands", "a huge spread")


CASES = [(s, p, dtype) for s in SETS for p in PATTERNS for dtype in DTYPES if _worth_it(p, dtype)]
LATTICES = [case for case in CASES if isinstance(SETS[case[0]]()[0], Lattice)]
LOSSES = [case for case in CASES if case[1] != SCORES]


def _name(value: object) -> str:
    return str(value).removeprefix("torch.")


@pytest.mark.parametrize(("name", "pattern", "dtype"), LOSSES, ids=_name)
def test_probability_gradient_and_entropy_equal_brute_force(name: str, pattern: str, dtype: torch.dtype) -> None:
    for seed in range(EFFORT):
        candidates, rows, logs = problem(name, pattern, dtype, seed)
        logs = logs - logs.double().logsumexp(2, keepdim=True).clamp(min=0).to(dtype)  # losses refuse what sums past 1
        logs.requires_grad_()
        losses = SemanticLoss()(logs, candidates)
        (gradient,) = torch.autograd.grad(losses.sum(), logs)
        uncertain = candidates.entropy(logs)
        (slope,) = torch.autograd.grad(uncertain.sum(), logs)
        assert not bool(slope.isnan().any())
        inside = working(candidates, dtype)
        for i, own in enumerate(rows):
            values = values_of(logs[i].detach(), own)
            peak = max(values)
            if peak < torch.finfo(inside).min:
                values = [-INF] * len(values)  # the sum leaves the type in which it is taken
            assert near(-float(losses[i].detach()), log_sum(values), dtype), (i, losses[i], log_sum(values))
            shares = posterior(values)
            scale = 0.0 if peak == -INF else min(abs(float(peak)), 1e6)
            error = 16 * (torch.finfo(inside).eps * scale + torch.finfo(dtype).eps)
            expected = torch.zeros(candidates.slots, candidates.classes, dtype=torch.float64)
            for row, share in zip(own, shares, strict=True):
                for slot, label in enumerate(row):
                    expected[slot, label] += share
            torch.testing.assert_close(-gradient[i].double(), expected, rtol=0, atol=error)
            assert abs(float(uncertain[i].detach()) - entropy(shares)) <= 20 * error


@pytest.mark.parametrize(("name", "pattern", "dtype"), LATTICES, ids=_name)
def test_the_best_and_the_drawn_are_candidates_and_the_right_ones(name: str, pattern: str, dtype: torch.dtype) -> None:
    for seed in range(EFFORT):
        lattice, rows, logs = problem(name, pattern, dtype, seed)
        assert isinstance(lattice, Lattice)
        for k in (1, 3, 10**12):
            best = lattice.top_k(logs, k)
            for i, (own, found) in enumerate(zip(rows, _rows_of(best), strict=True)):
                values = dict(zip(own, values_of(logs[i], own), strict=True))
                assert set(found) <= set(own)
                assert len(set(found)) == len(found) == min(k, len(own))
                wanted = sorted(values.values(), reverse=True)[:k]
                np.testing.assert_allclose([float(values[row]) for row in found], list(map(float, wanted)), rtol=1e-12)
        drawn = lattice.draw(4, seed=seed, log_probs=logs)
        for i, (own, found) in enumerate(zip(rows, _rows_of(drawn), strict=True)):
            values = dict(zip(own, values_of(logs[i], own), strict=True))
            possible = {row for row, value in values.items() if value > -INF} or set(own)
            assert found
            assert set(found) <= possible
            assert len(set(found)) == len(found)
        marginals, probability = lattice.marginals(logs), lattice.log_probability(logs)
        assert not bool(marginals.isnan().any())
        assert not bool(lattice.entropy(logs).isnan().any())
        possible_sums = (probability > -INF).double() * lattice.lengths
        if dtype == torch.float64:
            torch.testing.assert_close(marginals.sum((1, 2)), possible_sums)


def _rows_of(candidates: Candidates) -> Rows:
    """Each sample's candidates, without unused slots."""
    rows: Rows = [[] for _ in range(candidates.samples)]
    for sample, row in zip(candidates.sample.tolist(), candidates.labels.tolist(), strict=True):
        rows[sample].append(tuple(label for label in row if label >= 0))
    return rows


@pytest.mark.parametrize("name", SETS)
def test_what_a_set_says_of_itself_equals_a_list(name: str) -> None:
    candidates, rows = SETS[name]()
    assert candidates.counts == [len(own) for own in rows]
    support = candidates.support.view(candidates.samples, candidates.slots, candidates.classes)
    for i, own in enumerate(rows):
        for slot in range(candidates.slots):
            taken = {row[slot] for row in own if slot < len(row)}
            assert set(support[i, slot].nonzero().flatten().tolist()) == taken
    assert all(row in own for row, own in zip(_first(candidates), rows, strict=True))
    listed = candidates.to_candidates()
    assert [sorted(own) for own in _rows_of(listed)] == [sorted(own) for own in rows]
    order = [candidates.samples - 1, 0]
    again = candidates.batch(order)
    listed = again.to_candidates()
    assert [sorted(own) for own in _rows_of(listed)] == [sorted(rows[i]) for i in order]
    for row in itertools.product(range(candidates.classes), repeat=candidates.slots):
        gold = torch.tensor([row] * candidates.samples, dtype=torch.uint8)
        expected = [row[: len(own[0])] in own for own in rows]
        assert candidates.contains(gold).tolist() == expected


def _first(candidates: Candidates | Lattice) -> list[Row]:
    return [tuple(label for label in row if label >= 0) for row in candidates.first.tolist()]


@pytest.mark.parametrize("pattern", ["zeros", "usual", "one label at -1e35", "one label impossible", "a huge spread"])
def test_the_probabilities_of_all_outputs_equal_brute_force(pattern: str) -> None:
    for seed in range(2 * EFFORT):
        lattice, rows, logs = problem("lattice", pattern, torch.float64, seed)
        found = lattice.output_probabilities(logs)
        for i, o in itertools.product(range(lattice.samples), repeat=2):
            assert float(found[i, o]) == pytest.approx(math.exp(log_sum(values_of(logs[i], rows[o]))), rel=1e-9)


@pytest.mark.parametrize("rows", [5_000, 200_000, 1_000_000])
def test_a_million_candidates_are_added_up_as_in_double_precision(rows: int) -> None:
    every = torch.cartesian_prod(*[torch.arange(10)] * 6)
    labels = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(0))[:rows]]
    few = torch.tensor([[0] * 6])
    candidates = Candidates.from_tensors(torch.cat([labels, few]), torch.tensor([0] * rows + [1]), 10)
    noise = torch.randn(2, 6, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = (0.3 * noise).log_softmax(-1)
    values = exact[0].gather(1, labels.T).sum(0)
    shares = values.softmax(0)
    expected = torch.zeros(6, 10, dtype=torch.float64)
    for slot in range(6):
        expected[slot].index_add_(0, labels[:, slot], shares)
    logs = exact.float().requires_grad_()
    losses = SemanticLoss()(logs, candidates)
    (gradient,) = torch.autograd.grad(losses.sum(), logs)
    assert abs(float(losses[0].detach()) + float(values.logsumexp(0))) < 2e-6
    torch.testing.assert_close(-gradient[0].double(), expected, rtol=3e-6, atol=1e-8)
    uncertain = float(candidates.entropy(logs.detach())[0])
    assert uncertain == pytest.approx(float(-(shares * shares.log()).sum()), rel=1e-5)


@pytest.mark.parametrize("actions", [5, 62, 63, 64, 65, 90])
def test_alignments_of_many_actions_have_what_a_count_says(actions: int) -> None:
    frames = actions + 2
    text = [i % 7 for i in range(actions)]
    clips = Alignments.from_texts([text, [0, 1]], [frames, 3], 7)
    assert clips.counts == [math.comb(frames - 1, actions - 1), 2]
    assert clips.possible().tolist() == [True, True]
    support = clips.support.view(2, frames, 7)
    for slot in range(frames):  # place p can be shown in the slots p, p + 1 and p + 2
        places = range(max(0, slot - 2), min(actions, slot + 1))
        assert set(support[0, slot].nonzero().flatten().tolist()) == {text[p] for p in places}
    gold = torch.tensor([[*text, text[-1], text[-1]], [0, 1, 1, *[0] * (frames - 3)]])
    assert clips.contains(gold).tolist() == [True, True]
    assert clips.restrict(clips.support).counts == clips.counts
    only = torch.nn.functional.one_hot(gold, 7).bool().flatten(0, 1)
    assert clips.restrict(only).counts == [1, 1]
    logs = torch.zeros(2, frames, 7, dtype=torch.float64)
    assert clips.log_probability(logs).exp().tolist() == pytest.approx(clips.counts)
    drawn = clips.draw(5, log_probs=logs)
    assert clips.batch(drawn.sample).contains(drawn.labels).all()


@pytest.mark.parametrize("seed", range(4 * EFFORT))
def test_restricted_alignments_of_many_actions_equal_a_lattice(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    text = [i % 5 for i in range(70)]
    clips = Alignments.from_texts([text], 75, 5)
    allowed = torch.rand(75, 5, generator=generator) < 0.8
    gold = clips.draw(1, seed=seed).labels[0].long()
    allowed[torch.arange(75), gold] = True
    kept = clips.restrict(allowed)
    support = torch.zeros(75, 5, dtype=torch.bool)
    reach = [{0}] + [set() for _ in range(74)]
    for slot in range(1, 75):
        reach[slot] = {p for q in reach[slot - 1] for p in (q, q + 1) if p < 70 and allowed[slot, text[p]]}
    behind = {69}
    for slot in reversed(range(75)):
        behind = {p for p in reach[slot] if p in behind or (slot < 74 and p + 1 in behind)}
        for place in behind:
            support[slot, text[place]] = True
    assert torch.equal(kept.support, support)
    assert kept.possible().tolist() == [True]


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, np.ulonglong(2**63)])
def test_numbers_of_64_bits_that_torch_cannot_hold_are_refused_in_words(number: Any) -> None:
    candidates = Candidates.from_rule(sum, [8, 2], 2, 10)
    for ask in (
        lambda: ProximityGraph.from_edges([number], [2]),
        lambda: candidates.batch([number]),
        lambda: rules.checksum([number]),
        lambda: Candidates.from_rule(sum, [1], [number], 10),
        lambda: candidates.contains([[number, 0], [0, 2]]),
    ):
        with pytest.raises(InputError):
            ask()
    small = np.array([1, 0], dtype=np.ulonglong)
    assert candidates.batch(small).counts == candidates.batch([1, 0]).counts


def test_bool_labels_and_unsigned_ones_mean_what_they_say() -> None:
    for dtype, classes in itertools.product(
        [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64],
        [100, 128, 200, 256, 300, 32_768, 40_000, 70_000],
    ):
        largest = min(torch.iinfo(dtype).max, classes - 1)
        labels = torch.tensor([[0, largest], [largest, 1]]).to(dtype)
        candidates = Candidates.from_tensors(labels, torch.tensor([0, 1], dtype=dtype), classes)
        assert candidates.labels.tolist() == [[0, largest], [largest, 1]]
        assert candidates.contains(labels).tolist() == [True, True]
        assert candidates.contains(labels.flip(0)).tolist() == [False, False]
        assert candidates.batch(torch.tensor([1, 0], dtype=dtype)).labels.tolist() == [[largest, 1], [0, largest]]
        lattice = Lattice.from_candidates(candidates)
        assert lattice.contains(labels).tolist() == [True, True]
        assert lattice.contains(labels.flip(0)).tolist() == [False, False]
