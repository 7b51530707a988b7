"""Wrong arguments to the engines are refused in words; what is taken instead of a tensor gives the same losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clipper import Candidates, Lattice, ProximityGraph, prune, rules
from clipper.engines import AblSim, Context, DolphinLoss, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import ClipperError, InputError
from tests.hardening.attack import answered, check_all_answer, refused

SUMS = Candidates.from_rule(sum, targets=range(7), slots=2, classes=4)
CANDIDATES = SUMS.batch([3, 0, 5])
TARGETS = torch.tensor([3, 0, 5])
KINDS = Candidates.from_lists([[(0, 2), (1, 3)], [(1, 2)]], classes={"name": 2, "rel": 2})
EMBEDDINGS = torch.rand(3, 2, 5, generator=torch.Generator().manual_seed(0))
ADDING = (0, lambda total, label: total + label, lambda total: total)

BUILD: dict[str, Callable[..., Any]] = {
    "semantic": SemanticLoss,
    "sampled": lambda **options: SampledSemanticLoss(3, **options),
    "scallop": ScallopLoss,
    "scallop, all": lambda **options: ScallopLoss(None, **options),
    "damp": DolphinLoss,
    "dtkp-am": lambda **options: DolphinLoss("dtkp-am", **options),
    "ised": lambda **options: IsedLoss(sum, **options),
    "abl": AblSim,
}
every_engine = pytest.mark.parametrize("name", BUILD)


def _log_probs(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1)).log_softmax(-1).to(dtype)


def _called(name: str, log_probs: Any, candidates: Any = CANDIDATES, **more: Any) -> Any:
    options = {"embeddings": EMBEDDINGS} if name == "abl" else {}
    return BUILD[name]()(log_probs, candidates, Context(**{**options, **more}))


def _wrong_log_probs() -> dict[str, Any]:
    good = _log_probs()
    broken = good.clone()
    broken[1, 0, 2] = math.nan
    high = good.clone()
    high[1, 0, 2] = math.inf
    return {
        "raw scores": torch.randn(3, 2, 4) * 5 + 3,
        "probabilities": good.exp(),
        "zeros": torch.zeros(3, 2, 4),
        "one slot too much": good + torch.tensor([[0.0, 0.1]])[..., None],
        "NaN": broken,
        "infinity": high,
        "raw scores as an array": np.ones((3, 2, 4)),
        "NaN in a list": broken.tolist(),
        "whole numbers": torch.zeros(3, 2, 4, dtype=torch.long),
        "truth values": torch.zeros(3, 2, 4, dtype=torch.bool),
        "complex": good.to(torch.complex64),
        "too few samples": good[:2],
        "too few slots": good[:, :1],
        "too few classes": good[..., :3],
        "flat": good.flatten(),
        "one dimension more": good[None],
        "no dimension": torch.tensor(0.0),
        "on meta": good.to("meta"),
        "sparse": good.to_sparse(),
        "none": None,
        "a number": 3,
        "text": "log_probs",
        "a mapping": {"label": good},
        "a pair": (good, EMBEDDINGS),
        "a ragged list": [[[0.1], [0.2, 0.3]]],
        "a list of text": [["a"]],
        "an empty list": [],
        "an array of objects": np.array([None, 1], dtype=object),
        "a function": torch.log_softmax,
        "candidates": CANDIDATES,
        "huge": torch.full((3, 2, 4), 1e30),
    }


def _wrong_candidates() -> dict[str, Any]:
    graph = ProximityGraph.from_edges([0, 1], [2, 3])
    return {
        "none": None,
        "a list": [[(0, 1)]],
        "a tensor": CANDIDATES.labels,
        "the class": Candidates,
        "a pruning": prune(CANDIDATES, graph),
        "a graph": graph,
        "text": "sum",
        "others": SUMS,
        "of other classes": Candidates.from_rule(sum, [3, 0, 5], 2, 5),
        "of other slots": Candidates.from_rule(sum, [3, 0, 5], 3, 4),
        "log_probs": _log_probs(),
    }


@every_engine
def test_wrong_log_probs_and_candidates_are_refused(name: str) -> None:
    calls = [(f"log_probs: {what}", lambda x=x: _called(name, x)) for what, x in _wrong_log_probs().items()]
    calls += [
        (f"candidates: {what}", lambda c=c: _called(name, _log_probs(), c)) for what, c in _wrong_candidates().items()
    ]
    assert check_all_answer(calls) == (0, len(calls))
    assert len(calls) >= 40


@every_engine
def test_scores_before_a_softmax_are_told_what_to_apply(name: str) -> None:
    message = str(refused(lambda: _called(name, torch.full((3, 2, 4), 1.0))))
    assert "sum to 10.87" in message
    assert "log_softmax" in message


def test_a_pruning_is_told_to_pass_its_candidates() -> None:
    pruning = prune(CANDIDATES, ProximityGraph.from_edges([0], [2]))
    assert "pass its .candidates" in str(refused(lambda: SemanticLoss()(_log_probs(), pruning)))


@every_engine
def test_arrays_lists_and_other_widths_give_the_same_losses(name: str) -> None:
    expected = _called(name, _log_probs(torch.float64))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
        found = _called(name, _log_probs().to(dtype))
        torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    values = _log_probs(torch.float64)
    for given in (values.numpy(), values.tolist(), tuple(map(tuple, values.tolist())), values.clone().requires_grad_()):
        torch.testing.assert_close(_called(name, given).double(), expected, atol=1e-5, rtol=1e-5)


@every_engine
def test_unused_slots_and_labels_of_other_kinds_may_hold_anything(name: str) -> None:
    ragged = Candidates.from_lists([[(0, 1), (1, 0)], [(1,)]], classes=2)
    clean = torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(2)).log_softmax(-1)
    embeddings = torch.rand(2, 2, 3, generator=torch.Generator().manual_seed(3))
    more = {"embeddings": embeddings} if name == "abl" else {}
    expected = _called(name, clean, ragged, **more)
    for filling in (0.0, 7.0, -math.inf, math.nan, math.inf):
        filled = clean.clone()
        filled[1, 1] = filling
        torch.testing.assert_close(_called(name, filled, ragged, **more), expected)
    if name == "abl":
        return  # which takes one kind only
    own = torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(4)).log_softmax(-1)
    apart = torch.full((2, 2, 4), -math.inf)
    apart[:, 0, :2], apart[:, 1, 2:] = own[:, 0], own[:, 1]
    both = torch.cat([own, own], dim=2)  # either classifier on every slot: each sums to 1
    torch.testing.assert_close(_called(name, both, KINDS), _called(name, apart, KINDS))


@pytest.mark.parametrize("filling", [0.0, 7.0, math.nan])
def test_unused_slots_of_lattices_may_hold_anything(filling: float) -> None:
    lattice = Lattice.from_rule(*ADDING, targets=[3, 1], slots=[2, 1], classes=3)
    listed = lattice.to_candidates()
    log_probs = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(5)).log_softmax(-1)
    log_probs[1, 1] = filling
    for engine in (SemanticLoss(entropy=0.3), DolphinLoss(), ScallopLoss(3)):
        torch.testing.assert_close(engine(log_probs, lattice), engine(log_probs, listed))


@pytest.mark.parametrize("filling", [0.0, 7.0, -math.inf, math.nan, math.inf])
@pytest.mark.parametrize("narrowed", [True, False])
def test_labels_of_other_kinds_may_hold_anything_in_every_set(narrowed: bool, filling: float) -> None:
    classes = {"digit": 3, "sign": 2}
    domains = [[0, 1, 2], [3, 4] if narrowed else [0, 1, 2, 3, 4]]

    def value(row: tuple[int, ...]) -> int | tuple[int, int]:  # slot 1 holds a digit or a sign, as the target says
        return sum(row) if row[1:] and row[1] >= 3 else row

    machine = ((), lambda state, label: (*state, label), value)
    targets = [4, 5] if narrowed else [4, (2, 1)]
    lattice = Lattice.from_rule(*machine, targets, 2, classes, domains=domains)
    listed = Candidates.from_rule(value, targets, 2, classes, domains=domains)
    clean = torch.cat([torch.randn(2, 2, size, generator=torch.Generator().manual_seed(6)) for size in (3, 2)], dim=2)
    clean = torch.cat([part.double().log_softmax(-1) for part in clean.split([3, 2], dim=2)], dim=2)
    filled = clean.clone()
    kind = torch.tensor([0, 0, 0, 1, 1])
    filled[kind != listed.kind[..., None]] = filling
    for candidates in (lattice, listed):
        results = []
        for given in (clean, filled):
            logs = given.clone().requires_grad_()
            losses = SemanticLoss(entropy=0.3)(logs, candidates) + DolphinLoss("dtkp-am", k=1)(logs, candidates)
            best, drawn = candidates.top_k(given, 2), candidates.draw(9, log_probs=given)
            slope = torch.autograd.grad(losses.sum(), logs)[0]
            results.append([losses, slope, candidates.marginals(given), best.labels, drawn.distinct().labels])
            if narrowed:
                results[-1].append(candidates.output_probabilities(given))
        torch.testing.assert_close(*results)


def test_numbers_without_an_order_are_refused_where_they_are_read() -> None:
    for candidates in (KINDS, Lattice.from_candidates(KINDS)):
        log_probs = torch.zeros(2, 2, 4)
        log_probs[1, 1, 3] = math.nan
        assert "NaN" in str(refused(lambda own=candidates, logs=log_probs: own.top_k(logs, 1)))


@every_engine
def test_masked_labels_are_no_raw_scores(name: str) -> None:
    masked = torch.where(CANDIDATES.support.view(3, 2, 4), _log_probs(), -math.inf)
    assert isinstance(answered(lambda: _called(name, masked)), torch.Tensor)


@every_engine
def test_an_empty_batch_has_no_losses(name: str) -> None:
    log_probs = _log_probs()[:0].requires_grad_()
    more = {"embeddings": EMBEDDINGS[:0]} if name == "abl" else {}
    losses = _called(name, log_probs, CANDIDATES.batch([]), **more)
    assert losses.shape == (0,)
    assert torch.autograd.grad(losses.sum(), log_probs)[0].shape == (0, 2, 4)


@every_engine
@pytest.mark.parametrize("entropy", [0.0, 0.3])
def test_candidates_made_in_inference_mode_can_be_learned_from(name: str, entropy: float) -> None:
    with torch.inference_mode():
        made = Candidates.from_rule(sum, [3, 0, 5], 2, 4)
    more = {"embeddings": EMBEDDINGS} if name == "abl" else {}
    log_probs = _log_probs().requires_grad_()
    losses = BUILD[name](entropy=entropy)(log_probs, made, Context(**more))
    expected = BUILD[name](entropy=entropy)(log_probs, CANDIDATES, Context(**more))
    torch.testing.assert_close(losses, expected)
    assert bool(torch.autograd.grad(losses.sum(), log_probs)[0].isfinite().all())


def test_wrong_options_are_refused_when_an_engine_is_built() -> None:
    numbers: list[Any] = [0, -1, 1.5, math.nan, math.inf, "3", [3], True, torch.tensor([1, 2])]
    weights: list[Any] = [-0.1, math.nan, math.inf, -math.inf, "0.1", None, [0.1], True, 1j, torch.tensor([0.1, 0.2])]
    seeds: list[Any] = [-1, 1.5, 2**70, math.nan, "0", None, [0], True]
    others: list[Any] = [0, "sum", [SUMS], SUMS.labels, sum, Candidates, {"outputs": SUMS}]
    calls: list[tuple[str, Callable[[], Any]]] = []
    for name, build in BUILD.items():
        calls += [(f"{name} entropy={w!r}", lambda b=build, w=w: b(entropy=w)) for w in weights]
    for x in numbers:
        calls += [
            (f"per_sample={x!r}", lambda x=x: SampledSemanticLoss(x)),
            (f"scallop k={x!r}", lambda x=x: ScallopLoss(x)),
            (f"budget={x!r}", lambda x=x: ScallopLoss(budget=x)),
            (f"dolphin k={x!r}", lambda x=x: DolphinLoss(k=x)),
            (f"samples={x!r}", lambda x=x: IsedLoss(sum, x)),
            (f"beam={x!r}", lambda x=x: AblSim(x)),
        ]
    calls += [("scallop k=11", lambda: ScallopLoss(11)), ("scallop k=2**70", lambda: ScallopLoss(2**70))]
    calls += [(f"revisions={x!r}", lambda x=x: AblSim(revisions=x)) for x in (-1, 1.5, math.nan, "1", None, True)]
    calls += [(f"similarity={x!r}", lambda x=x: AblSim(similarity=x)) for x in (-0.1, 1.1, math.nan, "1", None, True)]
    calls += [(f"seed={s!r}", lambda s=s: IsedLoss(sum, seed=s)) for s in seeds]
    calls += [(f"seed={s!r}", lambda s=s: SampledSemanticLoss(2, seed=s)) for s in seeds]
    calls += [(f"provenance={p!r}", lambda p=p: DolphinLoss(p)) for p in ("amp", None, 3, ["damp"], "DAMP", "")]
    calls += [(f"rule={r!r}", lambda r=r: IsedLoss(r)) for r in (None, "sum", 3, SUMS, [sum])]
    calls += [(f"distinct={d!r}", lambda d=d: IsedLoss(sum, distinct=d)) for d in ("no", "True", None, 2, 0.5, [True])]
    calls += [(f"outputs={o!r}", lambda o=o: ScallopLoss(outputs=o)) for o in others]
    calls += [(f"outputs={o!r}", lambda o=o: DolphinLoss(outputs=o)) for o in others]
    assert check_all_answer(calls) == (0, len(calls))
    assert len(calls) >= 150


def test_a_rule_in_place_of_its_function_is_told_what_to_pass() -> None:
    assert "rules.total().value" in str(refused(lambda: IsedLoss(rules.total())))
    assert "value" not in str(refused(lambda: IsedLoss(3)))
    torch.testing.assert_close(IsedLoss(rules.total().value)(_log_probs(), CANDIDATES), _called("ised", _log_probs()))


@pytest.mark.parametrize("build", [ScallopLoss, DolphinLoss])
def test_targets_that_do_not_fit_the_outputs_are_refused(build: Callable[..., Any]) -> None:
    wrong: list[Any] = [
        None, TARGETS[:2], TARGETS + 7, TARGETS - 1, TARGETS.float(), TARGETS.bool(), TARGETS[None], "3", 3,
        [3, 0], [3, 0, 7], [3.0, 0.0, 5.0], [[3, 0, 5]], TARGETS.to("meta"), {"targets": TARGETS}, ["a", "b", "c"],
        np.array([3.5, 0, 5]), np.array([3, 0, 50]), [2**70, 0, 0], [],
    ]  # fmt: skip
    engine = build(outputs=SUMS)
    calls = [(repr(t), lambda t=t: engine(_log_probs(), CANDIDATES, Context(targets=t))) for t in wrong]
    other = Candidates.from_rule(sum, range(7), 2, 5)
    calls += [("other outputs", lambda: build(outputs=other)(_log_probs(), CANDIDATES, Context(targets=TARGETS)))]
    assert check_all_answer(calls) == (0, len(calls))
    alone = build()(_log_probs(), CANDIDATES)
    torch.testing.assert_close(build()(_log_probs(), CANDIDATES, Context(targets=TARGETS)), alone)  # taken by no one
    expected = engine(_log_probs(), CANDIDATES, Context(targets=TARGETS))
    for targets in (TARGETS.int(), TARGETS.to(torch.uint8), TARGETS.numpy(), TARGETS.tolist(), (3, 0, 5)):
        torch.testing.assert_close(engine(_log_probs(), CANDIDATES, Context(targets=targets)), expected)


def test_abl_without_embeddings_says_where_they_come_from() -> None:
    message = str(refused(lambda: AblSim()(_log_probs(), CANDIDATES)))
    assert "AblSim needs embeddings: let the classifier return" in message
    wrong: list[Any] = [
        None, EMBEDDINGS[:2], EMBEDDINGS[:, :1], EMBEDDINGS[0], EMBEDDINGS.long(), EMBEDDINGS.to("meta"), "pixels", 3,
        EMBEDDINGS * math.nan, EMBEDDINGS / 0, [[1.0]], {"label": EMBEDDINGS}, (EMBEDDINGS, EMBEDDINGS), [],
    ]  # fmt: skip
    calls = [(repr(e)[:40], lambda e=e: AblSim()(_log_probs(), CANDIDATES, Context(embeddings=e))) for e in wrong]
    calls += [(repr(e)[:40], lambda e=e: AblSim().abduce(_log_probs(), CANDIDATES, e)) for e in wrong]
    assert check_all_answer(calls) == (0, len(calls))
    expected = AblSim()(_log_probs(), CANDIDATES, Context(embeddings=EMBEDDINGS))
    for given in (EMBEDDINGS.numpy(), EMBEDDINGS.tolist()):
        torch.testing.assert_close(AblSim()(_log_probs(), CANDIDATES, Context(embeddings=given)), expected)


@every_engine
def test_a_context_that_is_none_is_refused(name: str) -> None:
    wrong: list[Any] = [TARGETS, 3, "targets", {"targets": TARGETS}, CANDIDATES, (TARGETS, EMBEDDINGS), Context]
    calls = [(repr(w)[:40], lambda w=w: BUILD[name]()(_log_probs(), CANDIDATES, w)) for w in wrong]
    assert check_all_answer(calls) == (0, len(calls))


def test_unpruned_candidates_that_do_not_fit_are_refused() -> None:
    wrong: list[Any] = [SUMS, 3, "all", CANDIDATES.labels, [CANDIDATES], Candidates.from_rule(sum, [3, 0, 5], 2, 5)]
    engine = ScallopLoss(None)
    calls = [(repr(u), lambda u=u: engine(_log_probs(), CANDIDATES, Context(unpruned=u))) for u in wrong]
    assert check_all_answer(calls) == (0, len(calls))


def test_rules_that_fail_are_named_with_the_labels_they_failed_on() -> None:
    def fails(labels: tuple[int, ...]) -> int:
        raise ZeroDivisionError(str(labels))

    rules: list[Callable[..., Any]] = [
        fails, lambda: 1, lambda labels: labels[9], lambda _: [1], lambda _: {}, lambda _: None, int,
        lambda _, __: 1, lambda labels: labels.total(), open,
    ]  # fmt: skip
    calls = [(repr(rule), lambda rule=rule: IsedLoss(rule)(_log_probs(), CANDIDATES)) for rule in rules]
    assert check_all_answer(calls) == (0, len(calls))


def test_the_entropy_refuses_other_shapes_and_types_but_takes_scores() -> None:
    numbers = {"raw scores", "probabilities", "zeros", "one slot too much", "huge", "NaN", "infinity"}
    calls = [(k, lambda v=v: CANDIDATES.entropy(v)) for k, v in _wrong_log_probs().items() if k not in numbers]
    assert check_all_answer(calls) == (0, len(calls))
    shifted = CANDIDATES.entropy(_log_probs(torch.float64) + 3)
    torch.testing.assert_close(shifted, CANDIDATES.entropy(_log_probs(torch.float64)))


@pytest.mark.filterwarnings("ignore")  # of torch itself, while it compiles
def test_a_compiled_loss_is_the_same() -> None:
    log_probs = _log_probs().requires_grad_()
    compiled = torch.compile(SemanticLoss(), backend="eager")
    torch.testing.assert_close(compiled(log_probs, CANDIDATES), SemanticLoss()(log_probs, CANDIDATES))


def test_refusals_are_input_errors_that_a_caller_may_catch_as_value_errors() -> None:
    error = refused(lambda: SemanticLoss()(torch.zeros(3, 2, 4), CANDIDATES))
    assert isinstance(error, ClipperError)
    assert isinstance(error, InputError)
    assert isinstance(error, ValueError)
