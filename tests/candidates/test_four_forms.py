"""A rule in Python, a logic program, a lattice and a compiled formula are four ways to say the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clipper import Candidates, ProximityGraph, prune
from clipper.candidates import CandidateSet
from clipper.engines import SemanticLoss
from tests.theories import BENCHMARKS

pytest.importorskip("clingo", reason="clingo is not installed (extra logic)")
pytest.importorskip("klay", reason="KLay is not installed (extra circuits)")


@pytest.fixture(scope="module", params=BENCHMARKS)
def forms(request: pytest.FixtureRequest) -> dict[str, CandidateSet]:
    benchmark = BENCHMARKS[request.param]
    return {
        "rule": benchmark.by_rule(),
        "program": benchmark.by_program(),
        "lattice": benchmark.by_lattice(),
        "formula": benchmark.by_formula(),
    }


def listed(candidates: CandidateSet) -> Candidates:
    return candidates.to_candidates()


def test_the_same_candidates_and_counts(forms: dict[str, CandidateSet]) -> None:
    rule = listed(forms["rule"])
    for form in forms.values():
        assert torch.equal(listed(form).labels, rule.labels)
        assert torch.equal(listed(form).offsets, rule.offsets)
        assert form.counts == rule.counts


def test_the_same_supports_and_kinds(forms: dict[str, CandidateSet]) -> None:
    for form in forms.values():
        assert torch.equal(form.support, forms["rule"].support)
        assert torch.equal(form.kind, forms["rule"].kind)
        assert form.kinds == forms["rule"].kinds


def test_the_same_probabilities_and_gradients(forms: dict[str, CandidateSet]) -> None:
    rule = forms["rule"]
    shape = rule.samples, rule.slots, rule.classes
    scores = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    found = []
    for form in forms.values():
        log_probs = scores.log_softmax(-1).requires_grad_()
        losses = SemanticLoss()(log_probs, form)
        found.append((losses.detach(), *torch.autograd.grad(losses.sum(), log_probs)))
    for losses, slopes in found[1:]:
        assert torch.allclose(losses, found[0][0], rtol=1e-10, atol=1e-12)
        assert torch.allclose(slopes, found[0][1], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("objective", ["exact", "paper"])
@pytest.mark.parametrize("k", [1, 3])
def test_the_same_prunings(forms: dict[str, CandidateSet], objective: Any, k: int) -> None:
    rule = forms["rule"]
    vectors = torch.randn(rule.samples, rule.slots, 2, generator=torch.Generator().manual_seed(k))
    graph = ProximityGraph.from_embeddings(vectors, k=k)
    expected = prune(rule, graph, objective)
    for form in forms.values():
        pruning = prune(form, graph, objective)
        assert torch.equal(pruning.edges, expected.edges)
        assert torch.equal(listed(pruning.candidates).labels, expected.candidates.labels)
        assert torch.equal(pruning.candidates.support, expected.candidates.support)
