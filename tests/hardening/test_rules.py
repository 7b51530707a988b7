"""Wrong arguments to the rules that people have, and to decode: refused in words, or answered rightly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clipper import Candidates, decode, rules
from clipper.training import pad_collate
from tests.hardening.attack import refused
from tests.hardening.test_candidate_arguments import attacks, check, junk

TARGETS: dict[str, tuple[Any, int, int]] = {  # a right target, and the numbers of slots and classes
    "sum": (3, 2, 4),
    "weighted-sum:2,1": (3, 2, 4),
    "checksum:3,1": (3, 2, 4),
    "luhn": (True, 2, 10),
    "isbn": (True, 13, 10),
    "iban": (True, 2, 36),
    "max": (3, 2, 4),
    "min": (3, 2, 4),
    "count:1": (1, 2, 4),
    "at-least-one:1": (True, 2, 4),
    "exactly-one:1": (True, 2, 4),
    "none:1": (True, 2, 4),
    "all-different": (True, 2, 4),
    "ordered": (True, 2, 4),
    "proportions": ([1, 0, 1, 0], 2, 4),
    "partial-labels": ([{1}, {2, 3}], 2, 4),
    "addition:1": (7, 2, 10),
    "transcript": ((1, 2), 2, 4),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_rule_answers_or_refuses_whatever_its_targets_are(name: str) -> None:
    rule, (target, slots, classes) = rules.named(name), TARGETS[name]
    assert rule.candidates([target], slots, classes).counts[0] > 0
    good = {"targets": [target, target], "slots": slots, "classes": classes, "domains": None, "impossible": "refuse"}
    check(attacks(rule.candidates, **good, **({"budget": 1_000} if slots == 2 else {})))
    wrong = [
        (f"target no. {i}", lambda i=i: rule.candidates([target, junk()[i]], slots, classes))
        for i in range(len(junk()))
    ]
    check(wrong)
    nested = [
        (f"target [no. {i}]", lambda i=i: rule.candidates([[junk()[i]] * slots], slots, classes))
        for i in range(len(junk()))
    ]
    check(nested)


@pytest.mark.parametrize("text", ["", "x", "1,x", "-3", "1e9", "|", "9" * 5000, "0.5.5", "\0", "nan", "1|2|3"])
def test_text_that_is_no_target_is_refused(text: str) -> None:
    calls = []
    for name, (_, slots, classes) in TARGETS.items():
        rule = rules.named(name)
        calls.append((name, lambda rule=rule, slots=slots, c=classes: rule.candidates([rule.parse(text)], slots, c)))
    check(calls, least=10)


def test_sets_are_refused_where_their_order_would_mean_something() -> None:
    for rule, targets, slots in (
        (rules.total(), {3, 4}, 2),
        (rules.transcript(), [{1, 2}], 2),
        (rules.partial_labels(), [{frozenset((1,)), frozenset((2, 3))}], 2),
        (rules.partial_labels(), [[{True, False}, {1}]], 2),
        (rules.proportions(), [{0, 1, 2, 3}], 6),  # counts
        (rules.addition(1), [{1, 2}], 2),
    ):
        refused(lambda own=(rule, targets, slots): own[0].candidates(own[1], own[2], 4 if own[0].slots is None else 10))
    refused(lambda: rules.partial_labels().candidates([[{True, False}]], 1, 2))


def test_sets_of_labels_are_labels() -> None:
    assert rules.partial_labels().candidates([[{1, 3}, {2}]], 2, 4).labels.tolist() == [[1, 2], [3, 2]]
    assert rules.partial_labels().candidates([{1, 3}, frozenset((2,))], 1, 4).labels.tolist() == [[1], [3], [2]]
    assert rules.proportions().candidates([{1, 3}], 2, 4).labels.tolist() == [[1, 3], [3, 1]]
    assert rules.proportions().candidates([{0, 1, 2}], 3, 3).counts == [6]  # as many labels as slots
    assert rules.total().candidates([3], 2, 4, domains=[{1, 0}, {3, 2}]).labels.tolist() == [[0, 3], [1, 2]]


@pytest.mark.parametrize("nothing", ["", [], (), torch.zeros(0, dtype=torch.long)])
def test_a_sum_without_digits_is_refused(nothing: Any) -> None:
    assert "at least one" in str(refused(lambda: rules.addition(1).candidates([7, nothing], 2, 10)))


@pytest.mark.parametrize("count", [10**400, -(10**400), 1e300, float("inf"), float("nan"), 2**60])
@pytest.mark.parametrize("other", [0, 0.5, 10**400])
def test_counts_of_any_size_are_refused_in_words(count: Any, other: Any) -> None:
    refused(lambda: rules.proportions().candidates([[count, other]], 2, 2))
    refused(lambda: rules.proportions().candidates([[count, other, 0]], 2, 3))


@pytest.mark.parametrize("machine", [(1, 2), (0, max), 3, "abc ", ([], max, abs), (torch.tensor(0), max, abs)])
def test_a_rule_whose_machine_is_none_is_refused(machine: Any) -> None:
    assert "machine of start, step and accept" in str(refused(lambda: rules.Rule("x", sum, machine=machine)))


def test_the_makers_of_rules_answer_or_refuse() -> None:
    check(attacks(rules.checksum, weights=[3, 1], modulus=10))
    check(attacks(rules.weighted_sum, weights=[3, 1]))
    for make in (rules.count, rules.at_least_one, rules.exactly_one, rules.none):
        check(attacks(make, label=1))
    check(attacks(rules.addition, digits=2))
    check(attacks(rules.isbn, digits=13))
    check(attacks(rules.ordered, strict=True))
    check(attacks(rules.named, text="sum"))


def test_decode_answers_or_refuses() -> None:
    candidates = Candidates.from_rule(sum, [3, 4], 2, 4)
    log_probs = torch.zeros(2, 2, 4).log_softmax(-1)
    check(attacks(decode, log_probs=log_probs, candidates=candidates, threshold=0.5))
    check(attacks(decode, log_probs=log_probs, outputs=candidates, threshold=0.5))


def test_padding_answers_or_refuses() -> None:
    check(attacks(pad_collate, items=[(torch.rand(2, 3), 0)], slots=3))
    check([(str(i), lambda i=i: pad_collate([(junk()[i], 0)], 3)) for i in range(len(junk()))])
