"""Candidates against plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates, ClipperError
from clipper.candidates.abduction import run_on_columns
from tests.strategies import KINDS, problems

RULES: dict[str, Callable[..., object]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "arithmetic": lambda t: 3 * t[0] - t[-1] * t[0] + 7,
    "division": lambda t: (t[0] + 5) // (t[-1] + 1) % 3,
    "comparison": lambda t: (t[0] > t[-1]) + (t[0] == t[-1]) * 5,
    "absolute": lambda t: abs(t[0] - t[-1]),
    "branches": lambda t: t[0] if t[0] > t[-1] else -1,
    "sets": lambda t: sum(set(t)),
    "membership": lambda t: 2 in t,
    "text": lambda t: "".join(map(str, t)),
    "sorted": lambda t: sorted(t)[len(t) // 2],
    "constant": lambda _: 1,
    "table": lambda t: _or(lambda: {(0, 0): 7, (1,): 9}[t], sum(t)),
    "truth": lambda t: _or(lambda: 5 if t[0] > 1 else 6, t[-1]),
    "number": lambda t: _or(lambda: int(t[0]) + 10, t[-1]),
    "power": lambda t: _or(lambda: t[0] ** 2, t[-1]),
    "quotient": lambda t: _or(lambda: t[0] // t[-1], t[0]),
    "attribute": lambda t: _or(lambda: t[0].bit_length(), t[0]),
    "written": lambda t: {"0": 3, "1": 4}.get(str(t[0]), t[-1]),
    "type": lambda t: t[-1] if isinstance(t[0], int) else t[0] + 1,
}


def _or(first: Callable[[], Any], otherwise: Any) -> Any:
    """The result of a function; if it fails for any reason, another value."""
    try:
        return first()
    except Exception:
        return otherwise


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_rule_gives_what_brute_force_gives(name: str, slots: int) -> None:
    rule = RULES[name]
    groups: dict[object, list[list[int]]] = {}
    for row in itertools.product(range(4), repeat=slots):
        groups.setdefault(rule(row), []).append(list(row))
    candidates = Candidates.from_rule(rule, list(groups), slots=slots, classes=4)
    rows = torch.split(candidates.labels, candidates.counts)
    assert [part.tolist() for part in rows] == list(groups.values())


@pytest.mark.parametrize(
    ("name", "vectorised"), [("sum", True), ("arithmetic", True), ("sets", False), ("text", False)]
)
def test_only_rules_that_mean_the_same_on_columns_are_vectorised(name: str, vectorised: bool) -> None:
    labels = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    assert (run_on_columns(RULES[name], labels) is not None) == vectorised


def test_numbers_beyond_64_bits_are_left_to_python() -> None:
    assert run_on_columns(lambda t: t[0] * 10**18 * t[1] * 10**18, torch.tensor([[3, 4]])) is None
    huge = Candidates.from_rule(lambda t: t[0] * 10**30, targets=[2 * 10**30], slots=1, classes=4)
    assert huge.labels.tolist() == [[2]]


def test_samples_of_different_lengths_share_one_table() -> None:
    candidates = Candidates.from_rule(sum, targets=[1, 1, 2], slots=[1, 2, 1], classes=3)
    assert candidates.labels.tolist() == [[1, -1], [0, 1], [1, 0], [2, -1]]
    assert candidates.kind.tolist() == [[0, -1], [0, 0], [0, -1]]


def test_domains_narrow_the_slots() -> None:
    candidates = Candidates.from_rule(sum, targets=[5], slots=2, classes=10, domains=[[1, 2], range(10)])
    assert candidates.labels.tolist() == [[1, 4], [2, 3]]


@settings(max_examples=200)
@given(problem=problems(kinds=True), data=st.data())
def test_a_batch_and_a_subset_are_what_lists_would_give(problem, data) -> None:  # type: ignore[no-untyped-def]
    candidates = Candidates.from_lists(problem.samples, classes=KINDS)
    ids = data.draw(st.lists(st.integers(0, candidates.samples - 1), min_size=1, max_size=6))
    if data.draw(st.booleans()):
        assert candidates.support.shape == (candidates.samples * candidates.slots, 7)  # cached before the batch
    batch = candidates.batch(ids)
    assert _unpadded(batch) == [list(problem.samples[i]) for i in ids]
    for instance in range(batch.samples * batch.slots):
        sample, slot = divmod(instance, batch.slots)
        rows = problem.samples[ids[sample]]
        support = {row[slot] for row in rows} if slot < len(rows[0]) else set()
        assert set(batch.support[instance].nonzero().flatten().tolist()) == support
    first = torch.zeros(len(batch), dtype=torch.bool)
    first[batch.offsets[:-1]] = True
    assert _unpadded(batch.subset(first)) == [[problem.samples[i][0]] for i in ids]


def _unpadded(candidates: Candidates) -> list[list[tuple[int, ...]]]:
    parts = torch.split(candidates.labels, candidates.counts)
    return [[tuple(label for label in row if label >= 0) for row in part.tolist()] for part in parts]


def test_contains_finds_gold_labels_and_ignores_unused_slots() -> None:
    candidates = Candidates.from_lists([[(0, 8), (1, 7)], [(2,)]], classes=10)
    assert candidates.contains(torch.tensor([[1, 7], [2, 5]])).tolist() == [True, True]
    assert candidates.contains(torch.tensor([[2, 6], [3, 5]])).tolist() == [False, False]


def test_sampling_is_uniform_without_replacement_and_repeatable() -> None:
    candidates = Candidates.from_rule(sum, targets=[4, 0], slots=2, classes=5)
    drawn = Counter(tuple(row) for seed in range(2000) for row in candidates.draw(2, seed=seed).labels.tolist()[:-1])
    assert len(drawn) == 5
    assert sum((n - 800) ** 2 / (800 * 3 / 5) for n in drawn.values()) < 23.5
    once, again = (candidates.draw(2, seed=7).labels for _ in range(2))
    assert torch.equal(once, again)


def test_distinct_drops_repetitions() -> None:
    candidates = Candidates.from_lists([[(1, 0), (0, 1), (1, 0)], [(1, 1)]], classes=2)
    assert candidates.distinct().labels.tolist() == [[0, 1], [1, 0], [1, 1]]


def test_labels_take_the_smallest_type_that_fits() -> None:
    assert Candidates.from_lists([[(1,)]], classes=100).labels.dtype == torch.int8
    assert Candidates.from_lists([[(1,)]], classes=500).labels.dtype == torch.int16
    assert Candidates.from_lists([[(1,)]], classes=100_000).labels.dtype == torch.int32


@pytest.mark.slow
def test_support_in_halves_equals_support_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Candidates.from_rule(sum, targets=list(range(28)), slots=3, classes=10)
    parts = Candidates(whole.labels, whole.offsets, whole.kinds)
    monkeypatch.setattr("clipper.candidates.table._CHUNK", 100)
    assert torch.equal(whole.support, parts.support)


BAD = {
    "no candidates": (lambda: Candidates.from_lists([[(1,)], []], classes=2), "1 of 2 has no candidates"),
    "no sample": (lambda: Candidates.from_lists([], classes=2), "got"),
    "label too large": (lambda: Candidates.from_lists([[(0, 2)]], classes=2), "got 2 in slot 1 of sample 0"),
    "label too small": (lambda: Candidates.from_lists([[(-2,)]], classes=2), "got -2"),
    "lengths in a sample": (lambda: Candidates.from_lists([[(0,), (0, 1)]], classes=2), "one length in sample 0"),
    "mixed kinds": (lambda: Candidates.from_lists([[(0,), (2,)]], classes={"a": 2, "b": 2}), "different kinds"),
    "unused in one": (
        lambda: Candidates.from_tensors(torch.tensor([[0], [-1]]), torch.tensor([0, 0]), 2),
        "different kinds",
    ),
    "unsorted samples": (
        lambda: Candidates.from_tensors(torch.zeros(2, 1, dtype=torch.long), torch.tensor([1, 0]), 2),
        "ascending",
    ),
    "a gap": (
        lambda: Candidates.from_tensors(torch.zeros(2, 1, dtype=torch.long), torch.tensor([0, 2]), 2),
        "sample 1",
    ),
    "shapes": (
        lambda: Candidates.from_tensors(torch.zeros(2, 1, dtype=torch.long), torch.tensor([0]), 2),
        r"shape \(2,\)",
    ),
    "float labels": (lambda: Candidates.from_tensors(torch.zeros(1, 1), torch.tensor([0]), 2), "whole labels"),
    "number of samples": (
        lambda: Candidates.from_tensors(torch.zeros(1, 1, dtype=torch.long), torch.tensor([0]), 2, samples=2),
        "1 of 2 has no candidates",
    ),
    "no classes": (lambda: Candidates.from_lists([[(0,)]], classes=0), "positive number of classes"),
    "target out of reach": (lambda: Candidates.from_rule(sum, [3, 99], 2, 10), "sample 1: no labels of 2 slots"),
    "a rule that fails": (lambda: Candidates.from_rule(lambda t: 1 / t[0], [1], 1, 3), r"failed on \(0,\): ZeroDiv"),
    "budget": (lambda: Candidates.from_rule(sum, [3], 12, 10), "1,000,000,000,000 combinations"),
    "slots": (lambda: Candidates.from_rule(sum, [3], [1, 2], 10), "2 slot numbers"),
    "per_sample": (lambda: Candidates.from_lists([[(0,)]], 2).draw(0), "at least 1"),
    "unknown sample": (lambda: Candidates.from_lists([[(0,)]], 2).batch([1]), "0 … 0"),
    "emptying": (lambda: Candidates.from_lists([[(0,)]], 2).subset(torch.tensor([False])), "last candidate"),
    "keep": (lambda: Candidates.from_lists([[(0,)]], 2).subset(torch.tensor([1])), "bool"),
    "gold": (lambda: Candidates.from_lists([[(0,)]], 2).contains(torch.zeros(2, 2)), r"\(1, 1\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_was_expected(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ClipperError, match=message):
        call()


@pytest.mark.parametrize("rule", [lambda a, b: a + b, lambda a, b, *, c=0: a + b + c])
def test_a_rule_with_a_parameter_for_each_slot_is_refused_in_words(rule: Callable[..., int]) -> None:
    with pytest.raises(ClipperError, match=r"called with one tuple of labels; write def rule\(labels\).*a, b = labels"):
        Candidates.from_rule(rule, [3], slots=2, classes=10)
    assert Candidates.from_rule(lambda labels, more=0: sum(labels) + more, [3], slots=2, classes=10).counts == [4]


def test_names_of_labels_are_not_their_number() -> None:
    with pytest.raises(ClipperError, match=r"classes=2.*label_names="):
        Candidates.from_rule(sum, [1], slots=2, classes=["a", "b"])  # type: ignore[arg-type]
