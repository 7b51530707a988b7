"""Brute force for the engines: definitions transcribed with Python loops, and random problems to try them on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from clipper.candidates import Candidates

Row = tuple[int, ...]
Fact = tuple[int, int]
OUTPUTS = Candidates.from_rule(sum, targets=range(7), slots=2, classes=4)
"""The candidates of every sum of two labels."""


@st.composite
def problems(draw: st.DrawFn, *, samples: int = 4, rows: int = 7, impossible: bool = True) -> tuple[Tensor, Candidates]:
    """Ragged samples with unused slots, one or two kinds, distinct candidates; `log_probs (n, m, c)` in float64."""
    classes = draw(st.sampled_from([{"name": 3}, {"name": 2}, {"name": 2, "relation": 3}]))
    stops = list(itertools.accumulate(classes.values()))
    ranges = [range(stop - size, stop) for stop, size in zip(stops, classes.values(), strict=True)]
    lists = []
    for _ in range(draw(st.integers(1, samples))):
        domains = draw(st.lists(st.sampled_from(ranges), min_size=1, max_size=3))
        every = list(itertools.product(*domains))
        lists.append(draw(st.lists(st.sampled_from(every), min_size=1, max_size=rows, unique=True)))
    candidates = Candidates.from_lists(lists, classes)
    noise = torch.randn(
        candidates.samples,
        candidates.slots,
        candidates.classes,
        generator=torch.Generator().manual_seed(draw(st.integers(0, 10_000))),
        dtype=torch.float64,
    )
    log_probs = (draw(st.sampled_from([0.3, 2.0, 8.0])) * noise).log_softmax(-1)
    if impossible and draw(st.booleans()):
        log_probs[0, 0, 0] = -math.inf
    return log_probs, candidates


def rows_of(candidates: Candidates, sample: int) -> list[Row]:
    start, stop = candidates.offsets[sample : sample + 2].tolist()
    return [tuple(row) for row in candidates.labels[start:stop].tolist()]


def facts_of(row: Row) -> frozenset[Fact]:
    return frozenset((slot, label) for slot, label in enumerate(row) if label >= 0)


def product(log_probs: Tensor, facts: Iterable[Fact]) -> Tensor:
    """Π p over some facts of one sample, from its `log_probs (m, c)`."""
    result = log_probs.new_ones(())
    for slot, label in facts:
        result = result * log_probs[slot, label].exp()
    return result


def per_sample(log_probs: Tensor, candidates: Candidates, value: Callable[[Tensor, list[Row]], Tensor]) -> Tensor:
    return torch.stack([value(log_probs[i], rows_of(candidates, i)) for i in range(candidates.samples)])


def mass(log_probs: Tensor, rows: list[Row]) -> Tensor:
    """The probability that one sample's labels are among `rows`."""
    return torch.stack([product(log_probs, facts_of(row)) for row in rows]).sum()


def entropy(log_probs: Tensor, rows: list[Row]) -> Tensor:
    weights = torch.stack([product(log_probs, facts_of(row)) for row in rows])
    posterior = [w / weights.sum() for w in weights if w > 0]
    return -sum((q * q.log() for q in posterior), start=log_probs.new_zeros(()))


def disjunction(log_probs: Tensor, rows: list[Row]) -> Tensor:
    """The probability that some row's facts are all true: every world of independent facts, one by one."""
    facts = sorted(frozenset().union(*map(facts_of, rows)))
    total = log_probs.new_zeros(())
    for bits in itertools.product([False, True], repeat=len(facts)):
        true = {fact for fact, bit in zip(facts, bits, strict=True) if bit}
        if any(facts_of(row) <= true for row in rows):
            world = log_probs.new_ones(())
            for slot, label in facts:
                p = log_probs[slot, label].exp()
                world = world * (p if (slot, label) in true else 1 - p)
            total = total + world
    return total


def most_probable(log_probs: Tensor, rows: list[Row], k: int) -> list[Row]:
    return sorted(rows, key=lambda row: -product(log_probs, facts_of(row)).item())[:k]


def one_hot_cross_entropy(target: Tensor, others: Iterable[Tensor]) -> Tensor:
    """Of the clamped probability of the target and of each other output of one sample."""
    result = -target.clamp(0, 1).log()
    for other in others:
        room = 1 - other.clamp(0, 1)
        result = result - (room.log() if room > 0 else -100.0)
    return result


def gradient(losses: Tensor, log_probs: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(losses.sum(), log_probs)
    return result


def model_count(log_probs: Tensor, rows: list[Row], *, exclusive: bool) -> float:
    """log P of one sample's formula by PySDD, from its `log_probs (m, c)`.

    `exclusive`: a slot has exactly one label (semantic loss); else every fact is a Bernoulli variable of its own.
    """
    sdd = pytest.importorskip("pysdd.sdd", reason="PySDD is not installed")
    slots, classes = log_probs.shape
    manager = sdd.SddManager(var_count=slots * classes)
    formula = manager.false()
    for row in rows:
        world = manager.true()
        for slot, label in ((slot, label) for slot, label in enumerate(row) if label >= 0):
            others = range(classes) if exclusive else [label]
            for other in others:
                literal = classes * slot + other + 1
                world = world & manager.literal(literal if other == label else -literal)
        formula = formula | world
    count = formula.wmc(log_mode=True)
    used = {slot for slot, label in enumerate(rows[0]) if label >= 0}
    for literal, weight in enumerate(log_probs.flatten().tolist(), start=1):
        free = (literal - 1) // classes not in used  # an unused slot's variables must not count
        positive = -math.inf if free else weight
        negative = 0.0 if exclusive or free else math.log1p(-math.exp(weight)) if weight < 0 else -math.inf
        count.set_literal_weight(manager.literal(literal), positive)
        count.set_literal_weight(manager.literal(-literal), negative)
    return float(count.propagate())
