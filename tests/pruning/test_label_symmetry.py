"""Names: what the formulas cannot tell apart is not told apart, and what they can is corrected."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from clipper import Candidates, Lattice, ProximityGraph, infer
from clipper.candidates.rules import MAX
from clipper.pruning.joint.edges import one_hot
from clipper.pruning.joint.factors import CandidateFactor
from clipper.pruning.joint.inference import model_of
from clipper.pruning.joint.label_symmetry import weigh_namings
from clipper.pruning.joint.messages import Model
from clipper.pruning.joint.permutations import random_walk
from tests.pruning.pools import clustered


def points(gold: Tensor, spread: float = 0.1) -> Tensor:
    """A vector for each instance, near those of its class, `(n, m, 8)`."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(int(gold.max()) + 1, 8, generator=generator)
    return centres[gold] + spread * torch.randn(*gold.shape, 8, generator=generator)


def model(candidates: Candidates, embeddings: Tensor) -> Model:
    return model_of(candidates, ProximityGraph.from_embeddings(embeddings, k=3), CandidateFactor(candidates))


def total_evidence(candidates: Candidates, field: Tensor) -> float:
    """log Π over samples of Σ over candidates of exp(Σ of the field `(n*m, c)` at its labels), one by one."""
    said = field.view(candidates.samples, candidates.slots, -1)
    total = 0.0
    for i in range(candidates.samples):
        rows = candidates.labels[candidates.sample == i].tolist()
        total += float(sum(sum(said[i, j, label] for j, label in enumerate(row)).exp() for row in rows).log())
    return total


def maxima(samples: int = 60, classes: int = 4) -> Tensor:
    """Gold labels `(n, 3)` whose maxima never tell 0 from 1: each sample has both, or neither."""
    generator = torch.Generator().manual_seed(3)
    gold = torch.randint(2, classes, (samples, 3), generator=generator)
    gold[: samples // 2, :2] = torch.tensor([0, 1])
    gold[: samples // 8, 2] = torch.arange(samples // 8) % 2
    return gold


def test_names_that_no_formula_tells_apart_are_equally_probable() -> None:
    rows = [list(pair) for pair in itertools.permutations(range(3), 2)]
    candidates = Candidates.from_lists([rows] * 30, classes=3)  # all that is known: the two differ
    gold = torch.tensor(rows * 5)
    readings = weigh_namings(model(candidates, points(gold)), 3 * one_hot(gold.view(-1, 1), 3))
    assert readings.weight.tolist() == pytest.approx([1 / 6] * 6)
    said = {tuple(readings.field[:, :, way].argmax(1).tolist()) for way in range(6)}
    assert said == {tuple(torch.tensor(names)[gold.flatten()].tolist()) for names in itertools.permutations(range(3))}


@pytest.mark.parametrize("classes", [3, 4])
def test_names_are_as_probable_as_they_make_the_formulas(classes: int) -> None:
    candidates, embeddings, gold = clustered(6, slots=2, classes=classes, seed=2)
    pool, field = model(candidates, embeddings), 0.3 * one_hot(gold.view(-1, 1), classes)
    readings = weigh_namings(pool, field)
    found = pool.factor.evidence(readings.field).sum(0)
    expected = [
        total_evidence(candidates, field[:, list(names), 0]) for names in itertools.permutations(range(classes))
    ]
    assert float(found[0]) == pytest.approx(max(expected), abs=1e-4)
    assert torch.allclose(readings.weight, found.softmax(0), atol=1e-3)


@pytest.mark.parametrize("scores", [[0.0] * 6, [0.0, 1.0, -1.0, 0.5, -0.5, 0.2]])
def test_a_walk_reaches_orders_as_often_as_they_are_probable(scores: list[float]) -> None:
    ways = list(itertools.permutations(range(3)))
    table = dict(zip(ways, scores, strict=True))

    def score(orders: Tensor) -> Tensor:
        return torch.tensor([table[tuple(order)] for order in orders.tolist()], dtype=torch.float64)

    walked = random_walk([(0, 1), (1, 2)], 3, score, walkers=4000)
    seen = torch.tensor([sum(tuple(order) == way for order in walked.tolist()) for way in ways]) / 4000
    assert torch.allclose(seen, torch.tensor(scores).softmax(0), atol=0.04)


def test_of_many_exchangeable_names_each_is_as_probable_as_the_others() -> None:
    rows = [list(pair) for pair in itertools.permutations(range(6), 2)]
    gold = torch.tensor(rows * 2)
    candidates = Candidates.from_lists([rows] * len(gold), classes=6)
    readings = weigh_namings(model(candidates, points(gold)), 4 * one_hot(gold.view(-1, 1), 6))
    assert len(readings.weight) > 20
    chance = readings.field.softmax(1) @ readings.weight  # (n*m, c)
    assert chance.max() < 0.5
    assert chance.min() > 0.01


def test_exchanged_names_are_put_right() -> None:
    candidates, embeddings, gold = clustered(60, slots=2, classes=5)
    wrong = torch.tensor([0, 3, 2, 1, 4])[gold]
    readings = weigh_namings(model(candidates, embeddings), 3 * one_hot(wrong.view(-1, 1), 5))
    assert not readings.as_found
    assert torch.equal(readings.field[:, :, 0].argmax(1), gold.flatten())
    assert float(readings.weight[0]) > 0.99


def test_what_a_classifier_knows_beforehand_keeps_its_names() -> None:
    gold = maxima()
    pool = model(Candidates.from_rule(max, gold.amax(1), 3, 4), points(gold))
    field = 3 * one_hot(gold.view(-1, 1), 4)
    assert weigh_namings(pool, field).weight.tolist() == pytest.approx([0.5, 0.5], abs=0.1)
    told = replace(pool, unary=field / 3)
    assert float(weigh_namings(told, field + told.unary).weight[0]) > 0.99


@pytest.mark.parametrize("listed", [True, False])
def test_the_posterior_keeps_both_ways_where_nobody_can_tell(listed: bool) -> None:
    gold = maxima()
    sets = Candidates.from_rule(max, gold.amax(1), 3, 4) if listed else Lattice.from_rule(*MAX, gold.amax(1), 3, 4)
    posterior = infer(sets, ProximityGraph.from_embeddings(points(gold), k=8))
    assert posterior.converged
    exchanged = torch.tensor([1, 0, 2, 3])[gold]
    kept = posterior.prune(0.95)
    assert kept.candidates.contains(gold).double().mean() >= 0.95
    assert kept.candidates.contains(exchanged).double().mean() >= 0.95
    assert posterior.marginals[gold < 2][:, :2].sub(0.5).abs().max() < 0.2
    assert (posterior.marginals.sum(2) - 1).abs().max() < 1e-4


def test_two_classes_do_not_share_a_name_although_every_formula_would_allow_it() -> None:
    gold = maxima(classes=5)
    posterior = infer(Candidates.from_rule(max, gold.amax(1), 3, 5), ProximityGraph.from_embeddings(points(gold), k=8))
    assert {len(posterior.labels[gold == label].unique()) for label in range(5)} == {1}
    assert len(posterior.labels.unique()) == 5


def test_agreement_on_a_crowded_label_is_worth_less() -> None:
    candidates = Candidates.from_lists([[(0,), (1,)]] * 6, classes=2)
    graph = ProximityGraph.from_edges([0, 1, 2, 3, 4], [1, 2, 3, 4, 5])
    size_corrected = replace(model_of(candidates, graph, CandidateFactor(candidates)), size_corrected=True)
    labels = torch.tensor([[0, 0], [0, 0], [0, 0], [0, 1], [0, 1], [0, 1]])
    weight = torch.full((5,), 0.5)
    worth = torch.tensor([4 / 7, 4 / 4]).log()  # three would be typical, and everybody counts one more
    assert size_corrected.energy(labels, weight).tolist() == pytest.approx(
        [-5 * float(worth[0]), 0.5 - 4 * float(worth[1])]
    )
