"""Joint inference in blocks: how many numbers are worked on at a time changes no answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipper import Candidates, Lattice, ProximityGraph, infer
from clipper.candidates import CandidateSet
from clipper.candidates.graph_building import templates_of
from clipper.candidates.rules import SUM
from clipper.pruning.factors import CandidateBlocks, CandidateFactor, LatticeFactor, listed_factor
from clipper.pruning.joint import InferenceSettings
from clipper.pruning.joint.potential import Potential, Trust, equal_confusion
from clipper.pruning.joint.propagate import Schedule, cavities, propagate, score, side_by_side, zero_messages
from clipper.pruning.joint.settings import blocks
from tests.pruning.pools import clustered, model_of

BLOCKS = st.sampled_from([1, 7, 40, 300])


@contextmanager
def block_of(numbers: int) -> Iterator[None]:
    """Work on so many numbers at a time."""
    before = InferenceSettings.block
    InferenceSettings.block = numbers
    try:
        yield
    finally:
        InferenceSettings.block = before


def random_lists(seed: int) -> Candidates:
    """Up to 12 samples of up to three slots, of different lengths, with few different formulas."""
    random = Random(seed)
    formulas = [[(0, 1, 2), (3, 1, 1)]]
    for _ in range(random.randint(0, 4)):
        used = random.randint(1, 3)
        formulas.append([tuple(random.randrange(4) for _ in range(used)) for _ in range(random.randint(1, 5))])
    drawn = [random.choice(formulas) for _ in range(random.randint(0, 11))]
    return Candidates.from_lists([formulas[0], *drawn], classes=4)


def test_blocks_follow_one_another_and_leave_nothing_out() -> None:
    with block_of(10):
        assert [blocks(0, 3), blocks(4, 100)] == [[], [slice(i, i + 1) for i in range(4)]]
        assert [list(range(7))[part] for part in blocks(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), BLOCKS, st.integers(1, 3))
def test_formulas_held_once_or_in_blocks_say_what_they_say_all_at_once(seed: int, block: int, starts: int) -> None:
    candidates = random_lists(seed)
    formula, firsts = templates_of(candidates)
    field = 3 * torch.randn(candidates.samples * 3, 4, starts, generator=torch.Generator().manual_seed(seed))
    plain = CandidateFactor(candidates)
    some = torch.randperm(candidates.samples, generator=torch.Generator().manual_seed(seed))[:3]
    part = field.view(-1, 3, 4, starts)[some].flatten(0, 1)
    with block_of(block):
        for factor in (CandidateBlocks(candidates.batch(firsts), formula), CandidateBlocks(candidates)):
            for ask in ("marginals", "evidence", "best", "probability"):
                torch.testing.assert_close(getattr(factor, ask)(field), getattr(plain, ask)(field))
            torch.testing.assert_close(factor.part(some).marginals(part), plain.part(some).marginals(part))
            assert (factor.size, factor.shape) == (plain.size, plain.shape)


@pytest.mark.parametrize("block", [1, 50, 400])
def test_a_lattice_says_the_same_in_blocks(block: int) -> None:
    factor = LatticeFactor(Lattice.from_rule(*SUM, targets=[3, 5, 9, 2, 5], slots=3, classes=4))
    field = torch.randn(15, 4, 5, generator=torch.Generator().manual_seed(block))  # as many starts as samples
    whole = [factor.marginals(field), factor.evidence(field), factor.best(field)]
    with block_of(block):
        for found, wanted in zip(
            [factor.marginals(field), factor.evidence(field), factor.best(field)], whole, strict=True
        ):
            torch.testing.assert_close(found, wanted)


def test_a_large_pool_holds_each_formula_once(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = Candidates.from_rule(sum, [3, 4, 4, 3], 2, 5)
    assert isinstance(listed_factor(candidates), CandidateFactor)
    with block_of(len(candidates) - 1):
        factor = listed_factor(candidates)
    assert isinstance(factor, CandidateBlocks)
    assert factor.different is candidates
    monkeypatch.setattr(InferenceSettings, "memory", len(candidates) - 1)
    factor = listed_factor(candidates)
    assert isinstance(factor, CandidateBlocks)
    assert len(factor.different) == len(candidates.batch([0, 1]))


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), BLOCKS, st.booleans())
def test_messages_scores_and_fits_do_not_depend_on_blocks(seed: int, block: int, confused: bool) -> None:
    candidates, embeddings, _ = clustered(12, slots=2, classes=4, seed=seed)
    pool = model_of(candidates, ProximityGraph.from_embeddings(embeddings, k=3))
    generator = torch.Generator().manual_seed(seed)
    half = torch.rand(4, 4, generator=generator)
    potential = Potential(Trust(-1.0, 2.0), 0.01, 4.0, (half + half.T) * equal_confusion(4) if confused else None)

    def found() -> list[Tensor]:
        noise, hidden = torch.Generator().manual_seed(seed), torch.arange(12)[:, None] % 3 == torch.arange(2)
        schedule = Schedule(12, noise=1.0, coupling=0.5, still=1e-3)
        messages, _ = propagate(pool, potential, zero_messages(pool, 2), schedule, None, hidden, noise)
        scores = score(pool, potential, messages, hidden)
        first = messages[:, :, :1].contiguous()
        belief = pool.beliefs(pool.heard(first))
        fitted = potential.refitted(pool, cavities(pool, first, belief), belief[:, :, 0], 1.0)
        assert fitted.confusion is not None
        trust = torch.tensor([fitted.trust.level, fitted.trust.slope])
        return [messages, scores.samples, scores.pairs, trust, fitted.confusion]

    whole = found()
    with block_of(block):
        for part, wanted in zip(found(), whole, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-5)


def pools() -> dict[str, tuple[CandidateSet, Tensor]]:
    sums, near, gold = clustered(24, slots=2, classes=3)
    lengths = [2 - (i % 3 == 2) for i in range(24)]
    targets = [sum(row[:length]) for row, length in zip(gold.tolist(), lengths, strict=True)]
    return {
        "sums": (sums, near),
        "different lengths": (Candidates.from_rule(sum, targets, lengths, 3), near),
        "lattice": (Lattice.from_rule(*SUM, targets=gold.sum(1).tolist(), slots=2, classes=3), near),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sums", "different lengths", "lattice"])
def test_a_posterior_does_not_depend_on_blocks(name: str) -> None:
    candidates, near = pools()[name]
    found = []
    for block in (InferenceSettings.block, 5000):
        with block_of(block):
            posterior = infer(candidates, near)
            found.append((posterior, posterior.prune()))
    (one, kept), (other, also) = found
    assert one.verdict == other.verdict
    assert torch.equal(one.labels, other.labels)
    assert torch.equal(kept.allowed, also.allowed)
    torch.testing.assert_close(one.marginals, other.marginals, rtol=1e-3, atol=1e-4)


def test_large_messages_lie_in_blocks_that_the_allocator_does_not_keep() -> None:
    candidates, embeddings, _ = clustered(12, slots=2, classes=4)
    pool = model_of(candidates, ProximityGraph.from_embeddings(embeddings, k=3))
    states = 1 + InferenceSettings.block // zero_messages(pool, 1).numel()
    for messages in (zero_messages(pool, states), side_by_side(zero_messages(pool, states))):
        assert messages.nbytes < InferenceSettings.kept_when_freed < messages.untyped_storage().nbytes()
    assert zero_messages(pool, 1).untyped_storage().nbytes() == zero_messages(pool, 1).nbytes


def test_states_stand_side_by_side_as_new_messages() -> None:
    one, two = torch.rand(6, 4, 3), torch.rand(6, 4, 2)
    both = side_by_side(one[:, :, 1:2], two)
    assert torch.equal(both, torch.cat([one[:, :, 1:2], two], 2))
    assert both.is_contiguous()
    both.zero_()
    assert bool((one > 0).any())
