"""Pruning clips: between frames of different clips, against the same alignments listed one by one."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates, Clipper, ProximityGraph, infer, prune
from clipper.candidates import Alignments
from clipper.engines import DolphinLoss, ScallopLoss, SemanticLoss
from clipper.pruning.factors import CandidateFactor, LatticeFactor
from tests.candidates.test_alignments import Pair, clips
from tests.machines import log_probs_for
from tests.strategies import with_edges

Problem = tuple[Alignments, Candidates, ProximityGraph]


@pytest.mark.parametrize("objective", ["exact", "paper"])
@settings(max_examples=25, deadline=None)
@given(problem=with_edges(clips()))
def test_what_is_left_of_a_clip_is_what_is_left_of_its_listed_alignments(
    objective: Literal["exact", "paper"], problem: Problem
) -> None:
    lattice, candidates, graph = problem
    got, expected = prune(lattice, graph, objective), prune(candidates, graph, objective)
    assert got.edges.tolist() == expected.edges.tolist()
    assert torch.equal(got.allowed, expected.allowed)
    assert got.candidates.counts == expected.candidates.counts
    assert torch.equal(got.candidates.support, expected.candidates.support)
    assert bool(got.certified.all())
    assert isinstance(got.candidates, Alignments)


@settings(max_examples=25, deadline=None)
@given(both=clips(), seed=st.integers(0, 99), k=st.integers(1, 4))
def test_every_engine_has_the_loss_of_the_listed_alignments(both: Pair, seed: int, k: int) -> None:
    lattice, candidates = both
    log_probs = log_probs_for(lattice, seed)
    for engine in (SemanticLoss(entropy=0.1), ScallopLoss(k), DolphinLoss(), DolphinLoss("dtkp-am", k=k)):
        torch.testing.assert_close(engine(log_probs, lattice), engine(log_probs, candidates), rtol=1e-6, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(both=clips(), seed=st.integers(0, 99))
def test_dolphins_sum_never_reaches_its_clamp_so_it_is_the_exact_loss(both: Pair, seed: int) -> None:
    lattice, _ = both
    found = []
    for engine in (SemanticLoss(), DolphinLoss()):
        log_probs = log_probs_for(lattice, seed).requires_grad_()
        losses = engine(log_probs, lattice)
        found.append((losses, torch.autograd.grad(losses.sum(), log_probs)[0]))
    sure = found[0][0] > 1e-12  # a clip that is certain teaches neither
    assert torch.equal(found[0][0][sure], found[1][0][sure])
    assert torch.equal(found[0][1][sure], found[1][1][sure])


@settings(max_examples=25, deadline=None)
@given(both=clips(), seed=st.integers(0, 99))
def test_joint_inference_sees_the_same_formulas_listed_or_not(both: Pair, seed: int) -> None:
    lattice, candidates = both
    starts = 2
    shape = (lattice.samples * lattice.slots, lattice.classes, starts)
    field = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ours, listed = LatticeFactor(lattice), CandidateFactor(candidates)
    torch.testing.assert_close(ours.marginals(field), listed.marginals(field), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.evidence(field), listed.evidence(field), rtol=1e-6, atol=1e-6)
    assert torch.equal(ours.best(field), listed.best(field))


@pytest.mark.slow
def test_joint_inference_aligns_clips_that_no_classifier_has_seen() -> None:
    generator = torch.Generator().manual_seed(0)
    texts = [tuple(torch.randperm(5, generator=generator)[:3].tolist()) for _ in range(40)]
    lattice = Alignments.from_texts(texts, 8, classes=5)
    gold = lattice.draw(1, seed=3).labels.long()
    centres = torch.randn(5, 8, generator=generator)
    embeddings = centres[gold] + 0.4 * torch.randn(40, 8, 8, generator=generator)
    posterior = infer(lattice, Clipper(objective="joint").graph(lattice, embeddings))
    assert posterior.converged
    assert float((posterior.labels == gold).double().mean()) > 0.95
    pruning = posterior.prune(0.95)
    assert pruning.retained < 0.1
    assert pruning.gold_retained(gold) > 0.8
