"""Alignments against every labelling of short clips, and against the textbook's forward algorithm."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipper.benchmarks.bench_loss import alignment_machine
from clipper.candidates import Alignments, Candidates, Lattice
from clipper.candidates.packed import candidate_log_probs
from clipper.errors import InputError
from tests.machines import log_probs_for

Pair = tuple[Alignments, Candidates]


@st.composite
def clips(draw: st.DrawFn, restrict: bool = True) -> Pair:
    """Clips of mixed lengths with texts that repeat actions, restricted or not; and the same by trying every row."""
    classes = draw(st.integers(2, 3))
    texts, frames = [], []
    for _ in range(draw(st.integers(1, 4))):
        frames.append(draw(st.integers(1, 5)))
        drawn = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=frames[-1]))
        texts.append(tuple(action for action, _ in itertools.groupby(drawn)))
    lattice = Alignments.from_texts(texts, frames, classes)
    rows = [
        [row for row in itertools.product(range(classes), repeat=length) if _read(row) == text]
        for text, length in zip(texts, frames, strict=True)
    ]
    if restrict and draw(st.booleans()):
        flat = len(texts) * max(frames) * classes
        allowed = torch.tensor(draw(st.lists(st.booleans(), min_size=flat, max_size=flat)))
        allowed = allowed.view(len(texts), -1, classes)
        for sample, options in enumerate(rows):
            row = draw(st.sampled_from(options))  # stays, so that no clip is emptied
            allowed[sample, range(len(row)), row] = True
        lattice = lattice.restrict(allowed.flatten(0, 1))
        rows = [[row for row in part if _inside(row, allowed[i])] for i, part in enumerate(rows)]
    return lattice, Candidates.from_lists(rows, classes)


def _read(row: tuple[int, ...]) -> tuple[int, ...]:
    """The actions that a row of frames shows, in order."""
    return tuple(action for action, _ in itertools.groupby(row))


def _inside(row: tuple[int, ...], allowed: Tensor) -> bool:
    return bool(allowed[range(len(row)), row].all())


def _as_sets(candidates: Candidates) -> list[set[tuple[int, ...]]]:
    rows = [tuple(row) for row in candidates.labels.tolist()]
    return [{rows[i] for i in (candidates.sample == s).nonzero()[:, 0].tolist()} for s in range(candidates.samples)]


@settings(max_examples=50, deadline=None)
@given(both=clips())
def test_alignments_are_what_trying_every_labelling_finds(both: Pair) -> None:
    lattice, expected = both
    assert lattice.counts == expected.counts
    assert _as_sets(lattice.to_candidates()) == _as_sets(expected)
    assert torch.equal(lattice.support, expected.support)
    assert torch.equal(lattice.kind, expected.kind)
    assert bool(lattice.possible().all())
    assert lattice.log_counts.exp().tolist() == pytest.approx(lattice.counts)
    ids = torch.arange(lattice.samples).flip(0)
    assert _as_sets(lattice.batch(ids).to_candidates()) == _as_sets(expected.batch(ids))
    assert torch.equal(lattice.span(0, 1).actions, lattice.actions[:1])


@settings(max_examples=50, deadline=None)
@given(both=clips(), seed=st.integers(0, 99), scale=st.sampled_from([0.5, 4.0, 3000.0]))
def test_loss_marginals_and_gradient_are_those_of_the_listed_candidates(both: Pair, seed: int, scale: float) -> None:
    lattice, candidates = both
    log_probs = log_probs_for(lattice, seed, scale).requires_grad_()
    weight = torch.rand(lattice.samples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    value = lattice.log_probability(log_probs)
    expected = candidates.log_probability(log_probs)
    assert torch.allclose(value, expected, atol=1e-9)
    slopes = [torch.autograd.grad((v * weight).sum(), log_probs)[0] for v in (value, expected)]
    assert torch.allclose(*slopes, atol=1e-9)
    marginals = lattice.marginals(log_probs)
    assert torch.allclose(marginals.sum(2), (lattice.kind >= 0).double(), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(both=clips(), seed=st.integers(0, 99))
def test_impossible_frames_are_no_trouble(both: Pair, seed: int) -> None:
    lattice, candidates = both
    noise = log_probs_for(lattice, seed)
    log_probs = torch.where(noise.exp() < 0.3, -math.inf, noise).requires_grad_()
    value = lattice.log_probability(log_probs)
    expected = candidates.log_probability(log_probs)
    assert torch.allclose(value, expected, atol=1e-9)
    ways = [torch.where(v > -math.inf, v, 0).sum() for v in (value, expected)]
    slopes = [torch.autograd.grad(way, log_probs)[0] for way in ways]
    assert torch.allclose(*slopes, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(both=clips(), seed=st.integers(0, 99), k=st.integers(1, 6))
def test_best_candidates_draws_and_entropy_are_those_of_the_listed_candidates(both: Pair, seed: int, k: int) -> None:
    lattice, candidates = both
    log_probs = log_probs_for(lattice, seed)
    values = candidate_log_probs(log_probs, candidates)
    best = lattice.top_k(log_probs, k)
    for i in range(lattice.samples):
        own = candidates.sample == i
        order = values[own].argsort(descending=True)[:k]
        assert best.labels[best.sample == i].tolist() == candidates.labels[own][order].tolist()
    assert torch.allclose(lattice.entropy(log_probs), candidates.entropy(log_probs), atol=1e-8)
    for drawn in (lattice.draw(k, seed), lattice.draw(k, seed, log_probs)):
        assert all(some <= every for some, every in zip(_as_sets(drawn), _as_sets(candidates), strict=True))
    assert lattice.draw(k, seed).counts == [min(count, k) for count in candidates.counts]


@settings(max_examples=30, deadline=None)
@given(both=clips(), data=st.data())
def test_contains_says_which_labellings_are_alignments(both: Pair, data: st.DataObject) -> None:
    lattice, candidates = both
    size = lattice.samples * lattice.slots
    flat = data.draw(st.lists(st.integers(-1, lattice.classes), min_size=size, max_size=size))
    gold = torch.tensor(flat).view(lattice.samples, lattice.slots)
    chosen = data.draw(st.integers(0, lattice.samples - 1))
    gold[chosen] = candidates.labels[candidates.offsets[chosen]].long()
    used = lattice.lengths.tolist()
    every = _as_sets(candidates)
    expected = [
        any(row[: used[i]] == tuple(gold[i, : used[i]].tolist()) for row in every[i]) for i in range(lattice.samples)
    ]
    assert lattice.contains(gold).tolist() == expected


def _textbook(log_probs: Tensor, text: tuple[int, ...]) -> float:
    """The forward algorithm as it stands in textbooks: one clip, one state after the other, in plain probabilities."""
    forward = [float(log_probs[0, text[0]].exp())] + [0.0] * (len(text) - 1)
    for frame in log_probs[1:]:
        came = [0.0, *forward[:-1]]
        forward = [(f + g) * float(frame[a].exp()) for f, g, a in zip(forward, came, text, strict=True)]
    return math.log(forward[-1])


@pytest.mark.parametrize(("frames", "actions"), [(30, 5), (100, 12), (64, 1)])
def test_the_loss_is_the_textbooks_forward_algorithm(frames: int, actions: int) -> None:
    generator = torch.Generator().manual_seed(frames)
    texts = []
    for _ in range(5):
        drawn = torch.randint(8, (4 * actions,), generator=generator).tolist()
        texts.append(_read(tuple(drawn))[:actions])
    lengths = [frames - i for i in range(5)]
    lattice = Alignments.from_texts(texts, lengths, classes=8)
    log_probs = log_probs_for(lattice, seed=actions)
    expected = [_textbook(log_probs[i, :length], texts[i]) for i, length in enumerate(lengths)]
    assert lattice.log_probability(log_probs).tolist() == pytest.approx(expected)


def test_alignments_are_those_of_the_state_machine_at_the_size_of_real_clips() -> None:
    generator = torch.Generator().manual_seed(0)
    texts = [_read(tuple(torch.randint(8, (14,), generator=generator).tolist())) for _ in range(4)]
    lattice = Alignments.from_texts(texts, [200, 150, 90, 30], classes=8)
    slow = Lattice.from_rule(*alignment_machine(texts), texts, [200, 150, 90, 30], 8)
    assert lattice.graph.states < slow.graph.states
    assert lattice.counts == slow.counts
    assert torch.equal(lattice.support, slow.support)
    log_probs = log_probs_for(lattice, seed=1)
    assert torch.allclose(lattice.log_probability(log_probs), slow.log_probability(log_probs))
    assert torch.allclose(lattice.marginals(log_probs), slow.marginals(log_probs), atol=1e-9)
    narrow = lattice.marginals(log_probs).flatten(0, 1) > 1e-3
    narrow.scatter_(1, lattice.first.clamp(min=0).view(-1, 1), True)
    assert lattice.restrict(narrow).counts == slow.restrict(narrow).counts
    assert torch.equal(lattice.restrict(narrow).support, slow.restrict(narrow).support)


def test_a_thousand_frames_are_no_trouble_to_the_loss() -> None:
    lattice = Alignments.from_texts([(0, 1) * 20], 1000, classes=2)
    log_probs = log_probs_for(lattice, seed=0, scale=50.0).requires_grad_()
    value = lattice.log_probability(log_probs)
    (slope,) = torch.autograd.grad(value.sum(), log_probs)
    assert -1e6 < float(value.detach()) < -1e3  # far below what a product of probabilities can hold
    assert slope.sum(2).tolist() == [pytest.approx([1.0] * 1000)]


def test_counts_too_large_for_a_machine_number_are_exact() -> None:
    lattice = Alignments.from_texts([(0, 1) * 20], 200, classes=2)
    allowed = lattice.support
    assert lattice.restrict(allowed).counts == lattice.counts == [math.comb(199, 39)]


def test_a_clip_that_a_restriction_empties_is_named() -> None:
    lattice = Alignments.from_texts([(0, 1), (1, 0)], 3, classes=2)
    allowed = torch.ones(6, 2, dtype=torch.bool)
    allowed[3, 1] = False  # the second clip begins with 1
    with pytest.raises(InputError, match="sample 1"):
        lattice.restrict(allowed)


@pytest.mark.parametrize(
    ("texts", "frames", "complaint"),
    [
        ([(0, 1), ()], 4, "text 1"),
        ([(0, 1), (1, 1)], 4, "text 1.*merge repetitions"),
        ([(0, 3)], 4, "0 … 2"),
        ([(0, 1, 0)], [2], "3 actions of text 0, got 2 frames"),
        ([(0, 1)], [3, 3], "1 and 2"),
    ],
)
def test_texts_that_no_clip_can_show_are_refused(texts: list[tuple[int, ...]], frames: int, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Alignments.from_texts(texts, frames, classes=3)


def test_outputs_are_refused_with_a_way_out() -> None:
    lattice = Alignments.from_texts([(0, 1)], 3, classes=2)
    with pytest.raises(InputError, match="pairs of clips and texts"):
        lattice.output_probabilities(torch.zeros(1, 3, 2))
