"""Wrong arguments to every way of building and asking a set of candidates: refused in words, or answered rightly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from clipper import Candidates, Lattice, rules
from clipper.candidates import Alignments, Formula, beam_search, has_label
from clipper.candidates.rules import SUM
from clipper.engines import ScallopLoss, SemanticLoss
from clipper.errors import BudgetError, ClipperError, InputError
from tests.hardening.attack import EFFORT, answered, check_all_answer, refused

Call = tuple[str, Callable[[], Any]]


class Unhelpful:
    """An object that fails whatever is done with it."""

    def __repr__(self) -> str:
        raise RuntimeError("no name")

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("no array")

    def __index__(self) -> int:
        raise TypeError("no number")


def junk() -> list[Any]:
    """Values that somebody might pass where a number, a list or a tensor is expected."""
    return [
        None,
        True,
        False,
        -1,
        0,
        2.0,
        2.5,
        float("nan"),
        float("inf"),
        -(2**40),
        2**40,
        2**70,
        10**5000,
        1j,
        "2",
        "",
        "abc",
        b"2",
        [],
        (),
        {},
        set(),
        {"a": 0},
        {"a": 1.5},
        {1: 2},
        {"a": 2, "b": -1},
        [None],
        ["a"],
        [1.5],
        [True],
        [[1]],
        [[1], [1, 2]],
        [-1],
        [2**70],
        [float("nan")],
        range(0),
        slice(None),
        slice("a"),
        object,
        object(),
        Unhelpful(),
        Decimal(2),
        len,
        (i for i in range(2)),
        iter([1]),
        np.array(2.5),
        np.array([1.5]),
        np.array("a"),
        np.array([None]),
        np.zeros((2, 2, 2)),
        np.float32(2),
        np.bool_(True),
        np.datetime64("2020-01-01"),
        torch.tensor(2.5),
        torch.tensor(True),
        torch.zeros(2, 2, 2),
        torch.zeros(3),
        torch.tensor([[1, 2]]),
        torch.zeros(2, dtype=torch.complex64),
        torch.empty(2, dtype=torch.long, device="meta"),
        torch.empty((), dtype=torch.long, device="meta"),
        torch.eye(2, dtype=torch.long).to_sparse(),
        torch.zeros(2, requires_grad=True),
        torch.device("cpu"),
        torch.float32,
        Candidates,
        Candidates.from_rule,
    ]


def attacks(call: Callable[..., Any], **good: Any) -> list[Call]:
    """The call with each of its arguments replaced by each piece of junk in turn."""
    calls: list[Call] = []
    for name in good:
        for i in range(len(junk())):
            value = junk()[i]
            shown = f"{name}={type(value).__name__} no. {i}"
            calls.append((shown, lambda name=name, value=value: call(**{**good, name: value})))
    return calls


def check(calls: Sequence[Call], least: int = 40) -> tuple[int, int]:
    assert len(calls) >= least
    return check_all_answer(calls)


def test_from_rule_answers_or_refuses() -> None:
    good = {"targets": [3, 4], "slots": 2, "classes": 4, "domains": None, "budget": 10_000, "impossible": "keep"}
    check(attacks(Candidates.from_rule, rule=sum, **good))


def test_from_lists_answers_or_refuses() -> None:
    check(attacks(Candidates.from_lists, samples=[[(0, 1)], [(1, 1), (0, 0)]], classes=2))
    wrong: list[Any] = [
        [[0, 8], [1, 7]],
        "ab",
        [["ab"]],
        [["a", "b"]],
        [[("a",)]],
        [None],
        [[None]],
        [[[None]]],
        [[(1.5,)]],
        [[(1.0,)]],
        [[(True,)]],
        [[(0, True)]],
        [[{0: 1}]],
        [{0: (1,)}],
        {0: [(1,)]},
        [[{0, 1}]],
        [[()]],
        [[(0,), ()]],
        [[]],
        [],
        [[(0,)], []],
        [[(0,)], [()]],
        [[(2**70,)]],
        [[(-2,)]],
        [[(2,)]],
        [[(-1,)]],
        [[(0, -1), (-1, 0)]],
        3,
        None,
        [3],
        [[3]],
        [[[[0]]]],
        [[(np.nan,)]],
        [[(np.float64(1),)]],
        [[(torch.tensor(1.0),)]],
        [[(torch.tensor([1, 1]),)]],
        [[(Decimal(1),)]],
        [[("1",)]],
        [["01"]],
        [b"01"],
        [[b"01"]],
        np.zeros((1, 1, 1)),
        torch.zeros(1, 1, 1),
        [[range(5)]],
    ]
    for samples in wrong:
        refused(lambda samples=samples: Candidates.from_lists(samples, 2))


def test_from_lists_takes_whatever_holds_whole_numbers() -> None:
    right: list[Any] = [
        [[(0, 1)], [(1, 1), (0, 0)]],
        [[[0, 1]], [[1, 1], [0, 0]]],
        ([(0, 1)], [(1, 1), (0, 0)]),
        [np.array([[0, 1]]), np.array([[1, 1], [0, 0]], dtype=np.uint8)],
        [torch.tensor([[0, 1]]), [(1, 1), (0, 0)]],
        [[(np.int8(0), torch.tensor(1))], [(1, 1), (0, 0)]],
        (s for s in [[(0, 1)], [(1, 1), (0, 0)]]),
        [(r for r in [(0, 1)]), [(1, 1), (0, 0)]],
        [[range(2)], [(1, 1), (0, 0)]],
    ]
    for samples in right:
        candidates = Candidates.from_lists(samples, 2)
        assert candidates.labels.tolist() == [[0, 1], [1, 1], [0, 0]]
        assert candidates.counts == [1, 2]


def test_from_tensors_answers_or_refuses() -> None:
    labels, sample = torch.tensor([[0, 1], [1, 1], [0, 0]]), torch.tensor([0, 1, 1])
    check(attacks(Candidates.from_tensors, labels=labels, sample=sample, classes=2, samples=None))
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bool, torch.complex64):
        refused(lambda dtype=dtype: Candidates.from_tensors(labels.to(dtype), sample, 2))
        refused(lambda dtype=dtype: Candidates.from_tensors(labels, sample.to(dtype), 2))
    for ids in ([0, 1, 2**40], [2**40] * 3, [0, 0, 3], [1, 1, 2], [1, 0, 1], [-1, 0, 1], [0, 1], [0, 1, 1, 1]):
        refused(lambda ids=ids: Candidates.from_tensors(labels, torch.tensor(ids), 2))
    for count in (1, 3, 2**40, 10**12):
        refused(lambda count=count: Candidates.from_tensors(labels, sample, 2, samples=count))
    refused(lambda: Candidates.from_tensors(torch.tensor([[200]], dtype=torch.uint8), [0], 100))
    refused(lambda: Candidates.from_tensors(torch.tensor([[2**63 + 5]], dtype=torch.uint64), [0], 100))
    refused(lambda: Candidates.from_tensors(labels[:, :0], sample, 2))
    refused(lambda: Candidates.from_tensors(labels[:0], sample[:0], 2))


def test_candidates_do_not_change_with_the_tensor_they_came_from() -> None:
    labels = torch.tensor([[0, 1], [1, 1]], dtype=torch.int8)
    candidates = Candidates.from_tensors(labels, torch.tensor([0, 1]), 2)
    labels.fill_(0)
    assert candidates.labels.tolist() == [[0, 1], [1, 1]]


def _plus(total: int, own: int) -> int:
    return total + own


def _same(total: int) -> int:
    return total


@pytest.mark.parametrize("name", ["listed", "lattice", "alignments", "formula"])
def test_restricted_candidates_do_not_change_with_the_mask_that_they_were_given(name: str) -> None:
    candidates = _sets()[name]
    allowed = candidates.top_k(torch.zeros(3, 2, 4), 1).support
    for restricted in (candidates.restrict(allowed), candidates.narrowed(allowed)):
        mask = allowed.clone()
        kept = candidates.restrict(mask)
        mask.fill_(True)
        assert kept.counts == restricted.counts
        assert torch.equal(kept.support, restricted.support)


def test_lattices_answer_or_refuse() -> None:
    check(
        attacks(
            Lattice.from_rule,
            start=0,
            step=_plus,
            accept=_same,
            targets=[3, 4],
            slots=2,
            classes=4,
            domains=None,
            budget=10_000,
            impossible="keep",
            observed=[[1, -1], [2, -1]],
            read_at=[1],
        )
    )
    check(attacks(Lattice.from_candidates, candidates=Candidates.from_rule(sum, [3], 2, 4)))
    refused(lambda: Lattice.from_candidates(Candidates.from_lists([[(-1, 0)]], 2)))


def _raises(*_: object) -> None:
    raise ValueError("no")


def test_state_machines_that_misbehave_are_refused() -> None:
    steps: list[Callable[..., Any]] = [
        _raises,
        lambda s, _: [s],
        lambda *_: {},
        lambda s: s,
        lambda *_: torch.ones(2),
        lambda *_: np.ones(2),
        lambda s, a: (*s, a),
        lambda *_: None,
        lambda *_: 1 // 0,
        lambda *_: Unhelpful().__array__(),
    ]
    for step in steps:
        refused(lambda step=step: Lattice.from_rule(0, step, _same, [3], 2, 4))
        logs = torch.zeros(1, 2, 4)
        refused(lambda step=step, logs=logs: beam_search((0, step, _same), [3], 2, 4, logs))  # type: ignore[arg-type]
    accepts: list[Callable[..., Any]] = [
        _raises,
        lambda s: [s],
        lambda _: {},
        lambda: 0,
        lambda _: None,
        lambda _: torch.ones(2),
        lambda _: float("nan"),
    ]
    for accept in accepts:
        refused(lambda accept=accept: Lattice.from_rule(0, _plus, accept, [3], 2, 4))
        logs = torch.zeros(1, 2, 4)
        refused(lambda accept=accept, logs=logs: beam_search((0, _plus, accept), [3], 2, 4, logs))  # type: ignore[arg-type]
    for start in ([], {}, set(), np.ones(2)):
        refused(lambda start=start: Lattice.from_rule(start, _plus, _same, [3], 2, 4))
    endless = answered(lambda: Lattice.from_rule((), lambda s, a: (*s, a), sum, [30], 30, 10, budget=5_000))
    assert isinstance(endless, BudgetError)
    assert Lattice.from_rule(0, _plus, torch.tensor, [3], 2, 4).counts == [4]


def test_rules_that_misbehave_are_refused() -> None:
    rules: list[Any] = [
        _raises,
        lambda t: [t],
        lambda _: {},
        lambda: 0,
        lambda a, b: a + b,
        lambda _: torch.ones(2),
        lambda _: np.ones(2),
        lambda _: float("nan"),
        lambda _: None,
        lambda t: t[9],
        lambda t: 3 // t[0],
        lambda _: "3",
        None,
        3,
        "sum",
        [],
        lambda _: object(),
        lambda t: (t[0] + t[1],),
        lambda _: 3.5,
        lambda t: t,
        lambda t: set(t),
        lambda t: iter(t),
    ]
    for rule in rules:
        error = refused(lambda rule=rule: Candidates.from_rule(rule, [3], 2, 4))
        assert isinstance(error, InputError)
    for rule in (lambda t: torch.tensor(sum(t)), lambda t: np.int64(sum(t)), lambda t: float(sum(t)), np.sum):
        assert Candidates.from_rule(rule, [3], 2, 4).labels.tolist() == [[0, 3], [1, 2], [2, 1], [3, 0]]


def test_targets_come_in_any_list() -> None:
    expected = Candidates.from_rule(sum, [3, 4], 2, 4).labels.tolist()
    right: list[Any] = [
        (3, 4),
        np.array([3, 4]),
        np.array([3, 4], dtype=np.uint8),
        np.array([3.0, 4.0]),
        torch.tensor([3, 4]),
        torch.tensor([3, 4], dtype=torch.int8),
        torch.tensor([3.0, 4.0]),
        range(3, 5),
        [np.int64(3), torch.tensor(4)],
        [3.0, 4.0],
        (t for t in (3, 4)),
        np.array([3, 4], dtype=object),
        {3: 0, 4: 0}.keys(),
        [Decimal(3), 4],
    ]
    for targets in right:
        assert Candidates.from_rule(sum, targets, 2, 4).labels.tolist() == expected
    for targets in right:
        again = Lattice.from_rule(*SUM, [3, 4] if not hasattr(targets, "__len__") else targets, 2, 4)
        assert again.to_candidates().labels.tolist() == expected
    wrong: list[Any] = [
        3,
        "34",
        None,
        {3: 4},
        {3, 4},
        frozenset((3, 4)),
        [[3], [4]],
        torch.tensor(3),
        torch.tensor([[3, 4]]),
        np.array(3),
        np.array([[3, 4]]),
        [float("nan"), 4],
        [None, 3],
        np.array([np.nan, 4]),
        [3, {}],
        [3, [4]],
        [torch.tensor([3, 4])],
        [],
        [3, 99],
    ]
    for targets in wrong:
        refused(lambda targets=targets: Candidates.from_rule(sum, targets, 2, 4))
        refused(lambda targets=targets: Lattice.from_rule(*SUM, targets, 2, 4))


def test_slots_classes_domains_and_budgets_are_whole_numbers() -> None:
    for slots in (np.int64(2), torch.tensor(2), [2, 2], (2, 2), np.array([2, 2]), torch.tensor([2, 2]), np.uint8(2)):
        for classes in (4, np.int32(4), torch.tensor(4), {"digit": 4}):
            for build in (Candidates.from_rule, lambda *a: Lattice.from_rule(0, _plus, _same, *a[1:]).to_candidates()):
                assert len(build(sum, [3, 4], slots, classes)) == 4 + 3  # type: ignore[arg-type]
    for domains in (
        [[1, 2], [1, 2]],
        [{2, 1}, range(1, 3)],
        np.array([[2, 1], [1, 2]]),
        torch.tensor([[1, 2], [1, 2]]),
        [[2, 1, 1], [1, 2]],
        ((1, 2), (2, 1), (3,)),
    ):
        for build in (
            Candidates.from_rule,
            lambda *a, **k: Lattice.from_rule(0, _plus, _same, *a[1:], **k).to_candidates(),
        ):
            assert build(sum, [3], 2, 4, domains=domains).labels.tolist() == [[1, 2], [2, 1]]  # type: ignore[arg-type]
    for build in (Candidates.from_rule, lambda *a, **k: Lattice.from_rule(0, _plus, _same, *a[1:], **k)):
        for slots in (
            2.0,
            True,
            "2",
            [2],
            [2, 2, 2],
            [2.0, 2.0],
            [True, True],
            [0, 2],
            [2, -1],
            [[2, 2]],
            0,
            -1,
            None,
            {},
        ):
            refused(lambda build=build, slots=slots: build(sum, [3, 4], slots, 4))
        for slots in (2**40, [2, 2**40]):
            assert isinstance(refused(lambda b=build, s=slots: b(sum, [3, 4], s, 1)), BudgetError)
        for classes in (
            0,
            -1,
            2.5,
            True,
            {},
            {"a": 0},
            "10",
            None,
            {"a": True},
            {1: 3},
            2**40,
            [4],
            {"a": 4, "b": 2**31},
        ):
            refused(lambda build=build, classes=classes: build(sum, [3, 4], 2, classes))
        for domains in (
            [[0]],
            [[], [0]],
            [[0], [9]],
            [[0], [-1]],
            [[0.5], [0]],
            "ab",
            [["a"], [0]],
            3,
            [3, 4],
            [[True]] * 2,
            {0: [1]},
            {range(2), range(1, 3)},
            {frozenset((0, 1)), frozenset((1, 2))},
            [None, None],
            [[2**70], [0]],
            [],
        ):
            refused(lambda build=build, domains=domains: build(sum, [3], 2, 4, domains=domains))
        for budget in (-1, 0, 2.5, "10", None, True, [], 3):
            refused(lambda build=build, budget=budget: build(sum, [3], 2, 4, budget=budget))


def test_attainable_targets_are_sorted_as_numbers() -> None:
    error = refused(lambda: Candidates.from_rule(lambda t: 5 * t[0] * t[1], [3], 2, 4))
    assert "0, 5, 10, 15, 20, 30, 45" in str(error)
    error = refused(lambda: Candidates.from_rule(lambda t: "ab"[t[0] % 2] if t[1] else t[0], [9], 2, 4))
    assert "0, 1, 2, 3, 'a', 'b'" in str(error)


def test_alignments_answer_or_refuse() -> None:
    check(attacks(Alignments.from_texts, texts=[(0, 1), (1, 0, 1)], frames=4, classes=2))
    wrong: list[tuple[Any, Any, Any]] = [
        ([(0, 0)], 4, 2),
        ([(0, -1)], 4, 2),
        ([(0, 2)], 4, 2),
        ([(0, 1)], 1, 2),
        ([(0.0, 1.0)], 4, 2),
        (["01"], 4, 2),
        ("01", 4, 2),
        ([("0", "1")], 4, 2),
        ([(0, 1)], 2**40, 2),
        ([(0, 1)], [4, 4], 2),
        ([(0, 1)], [4.0], 2),
        ([()], 4, 2),
        ([], 4, 2),
        ([(0, 1)], 0, 2),
        ([(0, 1)], -4, 2),
        ([(0, 1)], "4", 2),
        ([(0, 1)], True, 2),
        ([(True, False)], 4, 2),
        ([(0, 1)], 4, {"a": 1, "b": 1}),
        ([(0, 1)], 4, 0),
        ([[[0, 1]]], 4, 2),
        ([0, 1], 4, 2),
        ([None], 4, 2),
        (None, 4, 2),
        ([{0: 1}], 4, 2),
        ([(0, 1)], [], 2),
        ([(0, 1)], None, 2),
        ([(0, float("nan"))], 4, 2),
        ([(0, 2**70)], 4, 2),
    ]
    for texts, frames, classes in wrong:
        refused(lambda t=texts, f=frames, c=classes: Alignments.from_texts(t, f, c))
    for texts in ([(0, 1)], [[0, 1]], [np.array([0, 1], dtype=np.uint8)], torch.tensor([[0, 1]]), ((0, 1),)):
        for frames in (4, [4], np.array([4]), torch.tensor(4), np.int16(4)):
            assert Alignments.from_texts(texts, frames, 2).counts == [3]  # type: ignore[arg-type]


def test_beam_search_answers_or_refuses() -> None:
    logs = torch.zeros(2, 2, 4)
    check(
        attacks(
            beam_search,
            machine=SUM,
            targets=[3, 4],
            slots=2,
            classes=4,
            log_probs=logs,
            width=8,
            ways=4,
            domains=None,
            known=None,
        )
    )
    for value in (float("nan"), float("inf")):
        refused(lambda value=value: beam_search(SUM, [3, 4], 2, 4, logs + value))
    assert len(beam_search(SUM, [3, 4], 2, 4, logs - float("inf"), width=10**12, ways=10**12)) == 7
    assert isinstance(
        refused(lambda: beam_search(SUM, [99], 22, 10, torch.zeros(1, 22, 10), width=10**12, ways=10**12)), BudgetError
    )


def _sets() -> dict[str, Any]:
    pytest.importorskip("pysdd", reason="formulas need PySDD")
    return {
        "listed": Candidates.from_rule(sum, [3, 4, 2], 2, 4),
        "lattice": Lattice.from_rule(*SUM, [3, 4, 2], 2, 4),
        "alignments": Alignments.from_texts([(0, 1), (1, 0), (2,)], 2, 4),
        "formula": Formula.from_propositions([has_label(0, 3) | has_label(1, 2)] * 3, slots=2, classes=4),
    }


def _methods(name: str) -> list[tuple[str, dict[str, Any]]]:
    logs = torch.zeros(3, 2, 4)
    shared: list[tuple[str, dict[str, Any]]] = [
        ("batch", {"samples": [0]}),
        ("contains", {"gold": torch.zeros(3, 2, dtype=torch.long)}),
        ("draw", {"per_sample": 1, "seed": 0}),
        ("to", {"device": "cpu"}),
        ("restrict", {"allowed": torch.ones(6, 4, dtype=torch.bool)}),
        ("narrowed", {"allowed": torch.ones(6, 4, dtype=torch.bool)}),
        ("top_k", {"log_probs": logs, "k": 2}),
        ("draw", {"per_sample": 2, "seed": 0, "log_probs": logs}),
        ("to_candidates", {"budget": 100}),
        ("log_probability", {"log_probs": logs}),
        ("marginals", {"log_probs": logs}),
        ("entropy", {"log_probs": logs}),
        ("output_probabilities", {"log_probs": logs, "k": 2}),
    ]
    return [*shared, ("subset", {"keep": torch.ones(10, dtype=torch.bool)})] if name == "listed" else shared


@pytest.mark.parametrize("name", ["listed", "lattice", "alignments", "formula"])
def test_every_question_to_a_set_is_answered_or_refused(name: str) -> None:
    candidates = _sets()[name]
    for method, good in _methods(name):
        calls = attacks(getattr(candidates, method), **good)
        check_all_answer([(f"{method}({text})", call) for text, call in calls])


@pytest.mark.parametrize("name", ["listed", "lattice", "alignments", "formula"])
def test_a_batch_is_taken_by_ids_masks_and_slices(name: str) -> None:
    candidates = _sets()[name]

    def content(some: Any) -> list[list[list[int]]]:
        listed = some.to_candidates()
        rows: list[list[list[int]]] = [[] for _ in range(listed.samples)]
        for sample, row in zip(listed.sample.tolist(), listed.labels.tolist(), strict=True):
            rows[sample].append(row)
        return [sorted(own) for own in rows]

    every = content(candidates)
    right: list[tuple[Any, list[int]]] = [
        ([2, 0], [2, 0]),
        ((1, 1), [1, 1]),
        (np.array([2, 0]), [2, 0]),
        (np.array([2], dtype=np.uint64), [2]),
        (torch.tensor([2, 0], dtype=torch.int8), [2, 0]),
        (range(2), [0, 1]),
        (torch.tensor([True, False, True]), [0, 2]),
        (np.array([False, True, False]), [1]),
        ([True, False, True], [0, 2]),
        (slice(1, None), [1, 2]),
        (slice(None), [0, 1, 2]),
        (slice(None, None, -1), [2, 1, 0]),
        (slice(-1, None), [2]),
        ([np.int64(1)], [1]),
    ]
    for ids, expected in right:
        assert content(candidates.batch(ids)) == [every[i] for i in expected]
    wrong: list[Any] = [
        [3],
        [-1],
        [0.0],
        [1.5],
        torch.tensor([0.0]),
        np.array([1.0]),
        [True, False],
        torch.tensor([True] * 4),
        [[0]],
        0,
        "0",
        None,
        ["0"],
        torch.tensor([[True, False, True]]),
        slice(0.5, 2),
        slice("a", "b"),
        slice(0, 2, 0),
        [2**70],
        [None],
        {0: 1},
    ]
    for ids in wrong:
        refused(lambda ids=ids: candidates.batch(ids))


@pytest.mark.parametrize("name", ["listed", "lattice", "alignments", "formula"])
def test_a_span_of_samples_that_do_not_exist_is_refused(name: str) -> None:
    candidates = _sets()[name]
    for first, last in itertools.product(range(-1, 5), repeat=2):
        if 0 <= first <= last <= 3:
            assert candidates.span(first, last).counts == candidates.counts[first:last]
        else:
            refused(lambda first=first, last=last: candidates.span(first, last))
    for first, last in ((0, 1.5), (None, 1), ("0", 1), (True, 2)):
        refused(lambda first=first, last=last: candidates.span(first, last))


@pytest.mark.parametrize("name", ["listed", "lattice", "alignments", "formula"])
def test_gold_comes_as_any_whole_numbers(name: str) -> None:
    candidates = _sets()[name]
    for rows in itertools.product([0, 1, 2, 3], repeat=2):
        gold = [list(rows)] * 3
        expected = candidates.contains(torch.tensor(gold)).tolist()
        for given in (gold, tuple(map(tuple, gold)), np.array(gold), np.array(gold, dtype=np.uint8)):
            assert candidates.contains(given).tolist() == expected
        for dtype in (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.uint64):
            assert candidates.contains(torch.tensor(gold, dtype=dtype)).tolist() == expected
    for far in (4, 100, 127):
        assert not candidates.contains(torch.full((3, 2), far, dtype=torch.int8)).any()
    for gold in ([[0.0, 1.0]] * 3, [[True, False]] * 3, [[0, 1]] * 2, [[0]] * 3, [0, 1], "ab", None, [[None, 1]] * 3):
        refused(lambda gold=gold: candidates.contains(gold))


def _more_sets() -> dict[str, Any]:
    ragged = Lattice.from_rule(*SUM, [3, 0, 2], [2, 2, 1], 4)
    return {
        **_sets(),
        "ragged": ragged,
        "observed": rules.addition(1).lattice([3, 4, 5], 2, 10),
        "impossible, listed": Candidates.from_rule(sum, [99] * 3, 2, 4, impossible="keep"),
        "impossible, lattice": Lattice.from_rule(*SUM, [99] * 3, 2, 4, impossible="keep"),
        "restricted": ragged.restrict(torch.ones(6, 4, dtype=torch.bool)),
    }


MORE_SETS = [
    "listed", "lattice", "alignments", "formula", "ragged", "observed", "impossible, listed", "impossible, lattice",
    "restricted",
]  # fmt: skip


@pytest.mark.parametrize("name", MORE_SETS)
@pytest.mark.parametrize("restricted", [False, True])
def test_an_empty_batch_answers_every_question(name: str, restricted: bool) -> None:
    empty = _more_sets()[name].batch([])
    logs, allowed = torch.zeros(0, 2, empty.classes), torch.zeros(0, empty.classes, dtype=torch.bool)
    empty = empty.restrict(allowed) if restricted else empty
    assert empty.counts == []
    for attribute in ("support", "kind", "lengths", "first", "log_counts"):
        assert len(getattr(empty, attribute)) == 0
    for values in (
        empty.log_probability(logs),
        empty.entropy(logs),
        empty.marginals(logs),
        empty.possible(),
        empty.contains(torch.zeros(0, 2, dtype=torch.long)),
        SemanticLoss()(logs, empty),
    ):
        assert len(values) == 0
    for some in (
        empty.batch([]),
        empty.span(0, 0),
        empty.to("cpu"),
        empty.top_k(logs, 2),
        empty.draw(2),
        empty.draw(2, log_probs=logs),
        empty.to_candidates(),
    ):
        assert (some.samples, some.slots, some.counts) == (0, 2, [])
    if name != "alignments":
        for rows in (0, 2):
            assert empty.output_probabilities(torch.zeros(rows, 2, empty.classes), 2).shape == (rows, 0)
    if name in ("listed", "lattice", "formula") and not restricted:
        assert empty.output_probabilities(torch.zeros(2, 2, empty.classes)).shape == (2, 0)


@pytest.mark.parametrize(
    "build", [Candidates.from_rule, lambda _, *rest, **more: Lattice.from_rule(*SUM, *rest, **more)]
)
@pytest.mark.parametrize("k", [None, 2])
def test_outputs_that_no_labels_give_have_probability_zero_for_any_number_of_samples(build: Any, k: int | None) -> None:
    outputs = build(sum, [99, 100], 2, 4, impossible="keep")
    for rows in (0, 1, 3):
        assert torch.equal(outputs.output_probabilities(torch.zeros(rows, 2, 4), k), torch.zeros(rows, 2))


def test_more_than_fits_is_refused_before_it_is_tried() -> None:
    large = Lattice.from_rule(*SUM, [180, 180], 40, 10)
    logs = torch.zeros(2, 40, 10)
    for call in (
        lambda: large.top_k(logs, 10**12),
        lambda: large.draw(10**12),
        lambda: large.draw(10**12, log_probs=logs),
        large.to_candidates,
        lambda: large.to_candidates(10**9),
        lambda: Candidates.from_rule(sum, [0], 6_000, 10),
        lambda: Candidates.from_lists([[(0, 1)]] * 5_000, 2**24).support,
    ):
        assert isinstance(refused(call), BudgetError)
    small = Lattice.from_rule(*SUM, [8, 2], 2, 10)
    assert small.top_k(torch.zeros(2, 2, 10), 10**12).counts == [9, 3]
    assert small.draw(10**12).counts == [9, 3]
    assert Candidates.from_rule(sum, [8], 2, 10).draw(10**12).counts == [9]


def test_what_no_order_holds_for_is_not_chosen_from() -> None:
    lattice = Lattice.from_rule(*SUM, [8, 2], 2, 10)
    for value in (float("nan"), float("inf")):
        logs = torch.zeros(2, 2, 10)
        logs[0, 0, 0] = value
        refused(lambda logs=logs: lattice.top_k(logs, 2))
        refused(lambda logs=logs: lattice.draw(2, log_probs=logs))
        assert not lattice.log_probability(logs)[0].isfinite()
        assert lattice.log_probability(logs)[1].isfinite()


def test_what_is_built_or_asked_in_inference_mode_can_be_trained_on() -> None:
    with torch.inference_mode():
        labels, sample = torch.tensor([[0, 1], [1, 1]], dtype=torch.int8), torch.tensor([0, 1])
        listed = Candidates.from_rule(sum, [3, 4], 2, 4)
        sets: list[Any] = [
            listed,
            Candidates.from_lists([[(0, 1)]], 2),
            Candidates.from_tensors(labels, sample, 2),
            Candidates.from_arrow(listed.to_arrow()),
            Lattice.from_rule(*SUM, [3, 4], 2, 4),
            Lattice.from_candidates(listed),
            Alignments.from_texts([(0, 1)], 4, 3),
            Formula.from_cnf([[1, 2]], samples=2),
        ]
        sets += [some.batch([0]) for some in sets]
        for some in sets:
            logs = torch.zeros(some.samples, some.slots, some.classes).log_softmax(-1)
            _ = SemanticLoss()(logs, some), some.support, some.counts, some.kind, some.first
            if isinstance(some, Lattice):
                assert some.marginals(logs).sum() > 0
    for some in sets:
        logs = torch.zeros(some.samples, some.slots, some.classes, requires_grad=True)
        SemanticLoss(entropy=0.1)(logs.log_softmax(-1), some).sum().backward()
        assert logs.grad is not None


MADE_OF: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "list": lambda some, _: some.to_candidates(),
    "draws": lambda some, _: some.draw(1),
    "weighted draws": lambda some, logs: some.draw(2, log_probs=logs),
    "best": lambda some, logs: some.top_k(logs, 2),
    "restriction": lambda some, logs: some.restrict(some.top_k(logs, 1).support),
    "second restriction": lambda some, _: some.narrowed(some.support).restrict(some.support),
    "batch of the best": lambda some, logs: some.top_k(logs, 2).batch([2, 0, 1]),
    "subset": lambda some, _: some.to_candidates().subset(torch.ones(len(some.to_candidates()), dtype=torch.bool)),
    "different": lambda some, _: some.to_candidates().distinct(),
    "span": lambda some, _: some.span(0, 3),
    "same": lambda some, _: some.to("cpu"),
}


@pytest.mark.parametrize("name", ["listed", "lattice", "alignments", "formula", "ragged", "observed"])
@pytest.mark.parametrize("part", MADE_OF)
def test_what_is_made_of_a_set_in_inference_mode_can_be_trained_on(name: str, part: str) -> None:
    whole = _more_sets()[name]
    with torch.inference_mode():
        inside = _more_sets()[name]
        made = []
        for some in (whole, inside):
            logs = torch.zeros(some.samples, some.slots, some.classes).log_softmax(-1)
            made += [some, MADE_OF[part](some, logs)]
            for own in made[-2:]:
                _ = own.support, own.counts, own.log_counts, own.kind, own.first, own.possible(), own.plain
                _ = SemanticLoss(entropy=0.1)(logs, own)
    for some in made:
        tensors = [some.support, some.log_counts, some.kind, some.first]
        assert not any(tensor.is_inference() for tensor in tensors)
        logs = torch.zeros(some.samples, some.slots, some.classes, requires_grad=True)
        for engine in (SemanticLoss(entropy=0.1), ScallopLoss(2)):
            engine(logs.log_softmax(-1), some).sum().backward()
        assert logs.grad is not None


def test_a_beam_in_inference_mode_finds_candidates_that_can_be_trained_on() -> None:
    with torch.inference_mode():
        found = beam_search(SUM, [3, 4], 2, 4, torch.zeros(2, 2, 4))
    logs = torch.zeros(2, 2, 4, requires_grad=True)
    SemanticLoss(entropy=0.1)(logs.log_softmax(-1), found).sum().backward()
    assert logs.grad is not None


def test_seeds_are_whole_numbers() -> None:
    listed, lattice = Candidates.from_rule(sum, [8], 2, 10), Lattice.from_rule(*SUM, [8], 2, 10)
    for seed in (0, 2**40, 2**63 - 1, np.int64(3)):
        assert listed.draw(3, seed).counts == lattice.draw(3, seed).counts == [3]
    for seed in (-1, 1.5, "0", None, True, 2**63, -(2**70), [], torch.tensor(0.5)):
        refused(lambda seed=seed: listed.draw(3, seed))
        refused(lambda seed=seed: lattice.draw(3, seed))


@pytest.mark.parametrize("seed", range(30 * EFFORT))
def test_random_lists_are_taken_or_refused_by_what_they_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(30):
        classes = int(rng.integers(1, 5))
        values: list[Any] = [*range(-2, 6), *range(3), *range(3), 1.5, True, None, "a"]
        weights = np.array([1.0 if type(v) is int and 0 <= v < classes else 0.02 for v in values])
        samples = [
            [
                [values[i] for i in rng.choice(len(values), width, p=weights / weights.sum())]
                for _ in range(rng.integers(1, 4))
            ]
            for width in rng.integers(1, 4, size=rng.integers(1, 4))
        ]
        whole = all(type(v) is int and -1 <= v < classes for rows in samples for row in rows for v in row)
        used = [{tuple(v >= 0 for v in row) for row in rows} for rows in samples] if whole else []
        fine = whole and all(len(own) == 1 and any(next(iter(own))) for own in used)
        answer = answered(lambda samples=samples, classes=classes: Candidates.from_lists(samples, classes))
        assert isinstance(answer, ClipperError) != fine, samples
        if fine:
            widest = max(len(rows[0]) for rows in samples)
            assert answer.labels.tolist() == [[*row, *[-1] * (widest - len(row))] for rows in samples for row in rows]
