"""Joint inference: wrong arguments are refused, and a pool is called what it is, perfect, ordinary or noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clipper import Candidates, Posterior, ProximityGraph, infer
from clipper.proximity import Outlines, embed
from clipper.pruning.joint import InferenceSettings
from tests.hardening.attack import EFFORT, check_all_answer
from tests.hardening.test_pruning_arguments import MASSES, NOT_CANDIDATES, NOT_GRAPHS, SEEDS

CANDIDATES = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)
GRAPH = ProximityGraph.from_edges([0, 0, 1], [2, 4, 3])
LOG_PROBS = torch.randn(3, 2, 10, generator=torch.Generator().manual_seed(0)).log_softmax(-1)


def _with(value: float) -> torch.Tensor:
    changed = LOG_PROBS.clone()
    changed[1, 1, 3] = value
    return changed


KNOWN = torch.full((3, 2), -1)


def _known(label: int) -> torch.Tensor:
    changed = KNOWN.clone()
    changed[1, 1] = label
    return changed


def test_wrong_arguments_to_infer_are_refused() -> None:
    wrong: dict[str, list[Any]] = {
        "trust": [0, 1, -0.1, 1.5, math.nan, math.inf, "0.1", [0.1], True, 1j],
        "starts": [0, -1, 1.5, "3", [3], True, math.nan],
        "seed": SEEDS,
        "wrong": [1, 1.5, -0.1, math.nan, math.inf, "0.1", [0.1], True, 1j],
        "deadline": [-1, math.nan, math.inf, "soon", [3], True, 1j],
        "method": ["", "EM", "magic", None, 3, ["em"], True],
        "known": [
            3, "gold", [], [[1, 2]], KNOWN.float(), KNOWN.bool(), KNOWN[:2], KNOWN[:, :1], KNOWN[..., None], _known(10),
            _known(-2), _known(2**40), KNOWN.to("meta"), {"known": KNOWN}, CANDIDATES, [[1, 2], [3]], [["a", "b"]] * 3,
            np.full((3, 2), np.nan), [[2**70, 1]] * 3,
        ],
        "progress": [3, "bar", [print], True],
        "settings": [3, "fast", {"rounds": 3}, InferenceSettings],
        "log_probs": [
            _with(math.nan), _with(math.inf), LOG_PROBS[:2], LOG_PROBS[0], LOG_PROBS.long(), LOG_PROBS.to("meta"), 3,
            "uniform", [[0.1]], {"label": LOG_PROBS}, _with(math.inf).numpy(), _with(math.nan).tolist(), CANDIDATES,
        ],
        "neighbours": [3],
    }  # fmt: skip
    calls: list[tuple[str, Callable[[], Any]]] = [
        (f"{name}={v!r}", lambda name=name, v=v: infer(CANDIDATES, GRAPH, **{name: v}))
        for name, values in wrong.items()
        for v in values
    ]
    calls += [(f"candidates {c!r}", lambda c=c: infer(c, GRAPH)) for c in NOT_CANDIDATES]
    calls += [(f"graph {g!r}", lambda g=g: infer(CANDIDATES, g)) for g in NOT_GRAPHS]
    calls += [("swapped", lambda: infer(GRAPH, CANDIDATES)), ("nothing", lambda: infer())]
    calls += [("on meta", lambda: infer(CANDIDATES.to("meta"), GRAPH.to("meta")))]
    assert check_all_answer(calls) == (0, len(calls))
    assert len(calls) >= 40


def test_wrong_arguments_to_a_posterior_are_refused() -> None:
    posterior = infer(CANDIDATES, GRAPH, trust=0.1)
    golds: list[Any] = [
        None, 3, "gold", [], [[1, 2]], [[1], [2], [3]], torch.zeros(3, 2), torch.zeros(3, 3).long(), {"gold": 1},
        torch.zeros(3, 2, dtype=torch.bool), [["a", "b"]] * 3, torch.zeros(3, 2, 1).long(), [[1.5, 2.5]] * 3,
        torch.zeros(3, 2).long().to("meta"), CANDIDATES, np.zeros((3, 2)), [[1, 2], [3]], [[2**70, 1]] * 3,
    ]  # fmt: skip
    calls: list[tuple[str, Callable[[], Any]]] = [(f"mass={m!r}", lambda m=m: posterior.prune(m)) for m in MASSES]
    calls += [(f"mass={m!r}", lambda m=m: posterior.prune(mass=m)) for m in ("a", 2, -0.0, -math.inf, np.nan, (0.9,))]
    calls += [(f"gold={g!r}", lambda g=g: posterior.calibration(g)) for g in golds]
    calls += [(f"gold={g!r}", lambda g=g: posterior.prune(0.9).gold_retained(g)) for g in golds]
    calls += [
        (f"fallback={f!r}", lambda f=f: posterior.prune(fallback=f)) for f in ("", "nearest", None, 3, ["all"], True)
    ]
    calls += [(f"ask {k!r}", lambda k=k: posterior.ask(k)) for k in (0, -1, 1.5, "all", [3], True, math.nan, None)]
    calls += [("share", lambda: posterior.prune(share=0.9)), ("no gold", lambda: posterior.calibration())]
    assert check_all_answer(calls) == (0, len(calls))
    assert len(calls) >= 40


@pytest.mark.slow
def test_embeddings_arrays_and_lists_are_taken() -> None:
    embeddings = torch.rand(6, 2, 3, generator=torch.Generator().manual_seed(1))
    candidates = Candidates.from_rule(sum, targets=[3, 4, 5, 6, 7, 8], slots=2, classes=10)
    graph = ProximityGraph.from_embeddings(embeddings, k=8)
    expected = infer(candidates, graph, trust=0.2, starts=2)
    for form in (embeddings.numpy(), embeddings.tolist()):
        assert torch.equal(infer(candidates, form, trust=0.2, starts=2).marginals, expected.marginals)
    log_probs = torch.zeros(6, 2, 10).log_softmax(-1)
    said = infer(candidates, graph, log_probs=log_probs, trust=0.2, starts=2)
    for form in (log_probs.numpy(), log_probs.tolist(), log_probs.double()):
        assert torch.equal(infer(candidates, graph, log_probs=form, trust=0.2, starts=2).marginals, said.marginals)
    gold = expected.labels
    known = infer(candidates, graph, known=gold, trust=0.2, starts=2)
    assert torch.equal(known.labels, gold)
    for form in (gold.numpy(), gold.tolist(), gold.int()):
        assert torch.equal(infer(candidates, graph, known=form, trust=0.2, starts=2).marginals, known.marginals)
    assert expected.calibration(gold) == expected.calibration(gold.tolist()) == expected.calibration(gold.numpy())


def test_what_unused_slots_hold_does_not_matter() -> None:
    ragged = Candidates.from_lists([[(0, 1), (1, 0)], [(1,), (0,)], [(1, 1)]], classes=2)
    graph = ProximityGraph.from_edges([0, 1], [2, 4])
    log_probs = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    expected = infer(ragged, graph, log_probs=log_probs, trust=0.2).marginals
    for filling in (math.nan, math.inf, -math.inf, 9.0):
        filled = log_probs.clone()
        filled[1, 1] = filling
        torch.testing.assert_close(infer(ragged, graph, log_probs=filled, trust=0.2).marginals, expected)


def _perfect(samples: int, noise: float = 0.0) -> tuple[Candidates, torch.Tensor, torch.Tensor]:
    """A pool whose instances lie at the place of their label."""
    generator = torch.Generator().manual_seed(samples)
    gold = torch.randint(0, 5, (samples, 2), generator=generator)
    points = torch.eye(5)[gold] + noise * torch.randn(samples, 2, 5, generator=generator)
    return Candidates.from_rule(sum, gold.sum(1), 2, 5), points, gold


@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.01])
def test_a_perfect_pool_is_believed(noise: float) -> None:
    candidates, points, gold = _perfect(60, noise)
    posterior = infer(candidates, points)
    assert posterior.verdict == "joint"
    assert posterior.calibration(gold).right > 0.95


def test_formulas_that_are_all_explained_equally_are_believed() -> None:
    labels = torch.arange(40) % 2  # every sample has one candidate, and neighbours of its own label
    candidates = Candidates.from_lists([[(int(label),)] for label in labels], classes=2)
    posterior = infer(candidates, labels.float().view(40, 1, 1) + 1e-3 * torch.rand(40, 1, 1))
    assert posterior.verdict == "joint"


@pytest.mark.parametrize("seed", range(2 * EFFORT))
def test_noise_is_not_believed(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 10, (40, 2), generator=generator).sum(1)
    candidates = Candidates.from_rule(sum, targets, 2, 10)
    posterior = infer(candidates, torch.randn(40, 2, 8, generator=generator), seed=seed)
    assert posterior.verdict != "joint"
    assert posterior.verdict != "ambiguous" or posterior.expected_accuracy < 0.15, "groups perhaps, but no names"
    assert posterior.prune().discarded == 0


@pytest.mark.parametrize("seed", range(3 * EFFORT))
def test_two_samples_that_bear_each_other_out_are_not_believed(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 10, (2, 2), generator=generator).sum(1)
    candidates = Candidates.from_rule(sum, targets, 2, 10)
    assert not infer(candidates, torch.randn(2, 2, 4, generator=generator), starts=2).converged


@pytest.mark.slow
def test_digits_are_believed_and_shuffled_digits_are_not() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))[:180]
    gold = torch.as_tensor(digits.target)[order].view(60, 3)
    images = torch.as_tensor(digits.images, dtype=torch.float32)[order].div(16).view(60, 3, 1, 8, 8)
    candidates = Candidates.from_rule(sum, gold.sum(1), 3, 10)
    points = embed(Outlines(), images)
    posterior = infer(candidates, points)
    assert isinstance(posterior, Posterior)
    assert posterior.verdict == "joint"
    assert posterior.calibration(gold).right > 0.8
    shuffled = points.flatten(0, 1)[torch.randperm(180, generator=torch.Generator().manual_seed(1))].view(points.shape)
    assert infer(candidates, shuffled).verdict == "uninformative"


def test_the_smallest_pools_are_answered() -> None:
    alone = Candidates.from_rule(sum, [8], 2, 10)
    settled = Candidates.from_lists([[(1, 2)], [(3, 4)]], classes=10)
    nothing = ProximityGraph.from_edges([], [])
    for candidates, graph in (
        (alone, nothing),
        (settled, nothing),
        (alone, ProximityGraph.from_edges([0, 1, 1], [0, 1, 0])),
        (settled, ProximityGraph.from_edges([0, 0, 2, 0], [2, 2, 0, 0])),
        (CANDIDATES, ProximityGraph.from_edges([0, 0, 0], [1, 1, 0])),
    ):
        posterior = infer(candidates, graph)
        sums = posterior.probability.new_zeros(candidates.samples).index_add(
            0, candidates.sample, posterior.probability
        )
        torch.testing.assert_close(sums, torch.ones_like(sums))
        assert bool(candidates.contains(posterior.labels).all())
        assert min(posterior.prune(0.5).candidates.counts) > 0
