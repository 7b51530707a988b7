"""Losses against brute force in double precision, where numbers are extreme: tiny, certain, impossible, repeated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from clipper import Candidates, Lattice
from clipper.engines import (
    AblSim,
    Context,
    DolphinLoss,
    IsedLoss,
    SampledSemanticLoss,
    ScallopLoss,
    SemanticLoss,
)
from tests.hardening.attack import EFFORT

Rows = Sequence[tuple[int, ...]]
ADDING = (0, lambda total, label: total + label, lambda total: total)
EXTREMES = ("ordinary", "tiny", "one-hot", "impossible", "half impossible", "masked", "flat")


def _problem(seed: int) -> tuple[Tensor, list[list[tuple[int, ...]]], int]:
    """`log_probs (n, m, c)` in double precision and the candidates of each sample: ragged, repeated, one-class."""
    generator = torch.Generator().manual_seed(seed)

    def pick(high: int) -> int:
        return int(torch.randint(high, (), generator=generator))

    n, m, c = 1 + pick(4), 1 + pick(3), (1, 2, 3, 5)[pick(4)]
    samples = []
    for _ in range(n):
        used = 1 + pick(m)
        samples.append([tuple(pick(c) for _ in range(used)) for _ in range(1 + pick(5))])
    width = max(len(rows[0]) for rows in samples)
    log_probs = torch.randn(n, width, c, generator=generator, dtype=torch.float64).mul_(2).log_softmax(-1)
    extreme = EXTREMES[seed % len(EXTREMES)]
    if extreme == "tiny":
        log_probs = log_probs - 1e4
    if extreme == "one-hot":
        log_probs = torch.where(log_probs == log_probs.amax(-1, keepdim=True), 0.0, -math.inf)
    if extreme == "impossible":
        log_probs[0] = -math.inf
    if extreme == "half impossible":
        log_probs = log_probs.masked_fill(torch.rand(log_probs.shape, generator=generator) < 0.5, -math.inf)
    if extreme == "masked":
        log_probs = log_probs + math.log(0.3)
    if extreme == "flat":
        log_probs = torch.full_like(log_probs, -math.log(c))
    return log_probs, samples, c


def _worth(log_probs: Tensor, row: tuple[int, ...]) -> float:
    return math.fsum(float(log_probs[j, label]) for j, label in enumerate(row))


def _log_sum(values: Sequence[float]) -> float:
    peak = max(values)
    return peak if peak == -math.inf else peak + math.log(math.fsum(math.exp(v - peak) for v in values))


def _semantic(log_probs: Tensor, rows: Rows) -> float:
    return -_log_sum([_worth(log_probs, row) for row in rows])


def _clamped(log_probs: Tensor, rows: Rows) -> float:
    return max(0.0, _semantic(log_probs, rows))


def _best(log_probs: Tensor, rows: Rows, k: int) -> list[tuple[int, ...]]:
    return sorted(rows, key=lambda row: -_worth(log_probs, row))[:k]


def _disjunction(log_probs: Tensor, rows: Rows) -> float:
    """−log P of a disjunction of proofs with independent facts, by inclusion and exclusion."""
    proofs = {frozenset(enumerate(row)) for row in rows}
    values, signs = [], []
    for size in range(1, len(proofs) + 1):
        for chosen in itertools.combinations(proofs, size):
            facts = frozenset().union(*chosen)
            values.append(math.fsum(float(log_probs[j, label]) for j, label in facts))
            signs.append(1 if size % 2 else -1)
    peak = max(values)
    if peak == -math.inf:
        return math.inf
    return -(peak + math.log(math.fsum(s * math.exp(v - peak) for v, s in zip(values, signs, strict=True))))


def _entropy(log_probs: Tensor, rows: Rows) -> float:
    worths = [_worth(log_probs, row) for row in rows]
    total = _log_sum(worths)
    logs = [] if total == -math.inf else [w - total for w in worths if w > -math.inf]
    return -math.fsum(math.exp(q) * q for q in logs)


ORACLES: dict[str, tuple[Callable[..., Any], Callable[[Tensor, Rows], float]]] = {
    "semantic": (SemanticLoss(), _semantic),
    "all of them sampled": (SampledSemanticLoss(10), _semantic),
    "damp": (DolphinLoss(), _clamped),
    "dtkp-am": (DolphinLoss("dtkp-am", k=2), lambda p, rows: _clamped(p, _best(p, rows, 2))),
    "scallop": (ScallopLoss(2), lambda p, rows: _disjunction(p, _best(p, rows, 2))),
    "scallop, all": (ScallopLoss(None), _disjunction),
    "entropy": (lambda log_probs, candidates: candidates.entropy(log_probs), _entropy),
}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 4e-3, torch.float16: 5e-2}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_losses_equal_brute_force_and_gradients_are_numbers(name: str, dtype: torch.dtype) -> None:
    engine, oracle = ORACLES[name]
    for seed in range(28 * EFFORT):
        exact, samples, c = _problem(seed)
        log_probs = exact.to(dtype).requires_grad_()  # as rounded: brute force sees the same numbers
        losses = engine(log_probs, Candidates.from_lists(samples, c))
        rounded = log_probs.detach().double()
        expected = torch.tensor(
            [oracle(p, rows) for p, rows in zip(rounded, samples, strict=True)], dtype=torch.float64
        )
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(
            losses.double(), expected, atol=tolerance, rtol=tolerance, msg=lambda m, s=seed: f"{s}: {m}"
        )
        (gradient,) = torch.autograd.grad(
            losses[losses.isfinite()].sum() + 0 * log_probs.nan_to_num(0, 0, 0).sum(), log_probs
        )
        assert bool(gradient.isfinite().all()), seed


@pytest.mark.parametrize("name", [name for name in ORACLES if name != "entropy"])
def test_an_impossible_sample_costs_infinity_and_teaches_nothing(name: str) -> None:
    candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(0, 0)]], classes=2)
    log_probs = torch.full((2, 2, 2), math.log(0.5))
    log_probs[0] = -math.inf
    log_probs.requires_grad_()
    losses = ORACLES[name][0](log_probs, candidates)
    assert losses[0] == math.inf
    assert losses[1].item() == pytest.approx(math.log(4))
    (gradient,) = torch.autograd.grad(losses.sum(), log_probs)
    assert bool((gradient[0] == 0).all())
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("seed", range(14))
def test_ised_and_abl_stay_numbers_where_the_classifier_is_certain_or_hopeless(seed: int) -> None:
    exact, samples, c = _problem(seed)
    candidates = Candidates.from_lists(samples, c)
    log_probs = exact.requires_grad_()
    losses = IsedLoss(lambda _: 0, 20)(log_probs, candidates)
    embeddings = torch.rand(*log_probs.shape[:2], 3, generator=torch.Generator().manual_seed(seed))
    abduced = AblSim(20)(log_probs, candidates, Context(embeddings=embeddings))
    for values in (losses, abduced):
        assert not bool(values.isnan().any())
        (gradient,) = torch.autograd.grad(values.sum(), log_probs, retain_graph=True)
        assert not bool(gradient.isnan().any())
    chosen = AblSim(20).abduce(log_probs, candidates, embeddings)
    for p, rows, row, loss in zip(exact.detach(), samples, chosen.tolist(), abduced.tolist(), strict=True):
        label = tuple(row[: len(rows[0])])
        assert label in rows
        assert loss == pytest.approx(-_worth(p, label))


@pytest.mark.parametrize("seed", range(7))
def test_lattices_give_the_losses_of_their_lists(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lattice = Lattice.from_rule(*ADDING, targets=[3, 2, 0], slots=[3, 2, 1], classes=3)
    listed = lattice.to_candidates()
    log_probs = torch.randn(3, 3, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    if seed % 3 == 1:
        log_probs = log_probs - 1e4
    if seed % 3 == 2:
        log_probs = log_probs.masked_fill(torch.rand(log_probs.shape, generator=generator) < 0.4, -math.inf)
    for engine in (SemanticLoss(), SemanticLoss(entropy=0.5), DolphinLoss(), DolphinLoss("dtkp-am"), ScallopLoss()):
        pair = []
        for candidates in (lattice, listed):
            leaf = log_probs.clone().requires_grad_()
            losses = engine(leaf, candidates)
            pair.append((losses.detach(), torch.autograd.grad(losses[losses.isfinite()].sum(), leaf)[0]))
        torch.testing.assert_close(pair[0], pair[1])


def test_every_loss_is_finite_in_single_precision_down_to_ten_thousand_nats() -> None:
    candidates = Candidates.from_rule(sum, targets=[13], slots=3, classes=10)
    log_probs = torch.full((1, 3, 10), -1e4).requires_grad_()
    for engine in (SemanticLoss(), DolphinLoss(), DolphinLoss("dtkp-am"), ScallopLoss(), ScallopLoss(None)):
        (loss,) = engine(log_probs, candidates)
        assert loss.item() == pytest.approx(3e4, rel=1e-3)
        assert float(torch.autograd.grad(loss, log_probs)[0].sum()) == pytest.approx(-3.0, rel=1e-3)
