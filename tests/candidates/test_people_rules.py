"""The rules people have against plain Python on every label combination, listed and as lattices."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import clipper
from clipper import Candidates, CandidateSet, Lattice, rules
from clipper.candidates.abduction import run_on_columns
from clipper.candidates.rules import Machine, Rule
from clipper.engines import SemanticLoss
from clipper.errors import BudgetError, InputError
from tests.machines import log_probs_for

Row = tuple[int, ...]


def passes_luhn(row: Row) -> bool:
    doubled = [digit if i % 2 == 0 else sum(divmod(2 * digit, 10)) for i, digit in enumerate(reversed(row))]
    return sum(doubled) % 10 == 0


def ascends(row: Row) -> bool:
    return list(row) == sorted(row)


def is_iban(row: Row) -> bool:
    return int("".join(str(int(character, 36)) for character in map(character_of, row))) % 97 == 1


def character_of(label: int) -> str:
    return "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[label]


VALUES: dict[str, tuple[Rule, Callable[[Row], Hashable], int, int]] = {  # with the numbers of slots and classes
    "sum": (rules.total(), sum, 3, 4),
    "weighted-sum": (rules.weighted_sum([5, -1, 2]), lambda row: 5 * row[0] - row[1] + 2 * row[2], 3, 4),
    "checksum": (rules.checksum([3, 1, 7], 10), lambda row: (3 * row[0] + row[1] + 7 * row[2]) % 10, 3, 10),
    "weights again": (rules.checksum([1, 3]), lambda r: (r[0] + 3 * r[1] + r[2] + 3 * r[3] + r[4]) % 10, 5, 3),
    "luhn": (rules.luhn(), passes_luhn, 4, 10),
    "luhn of odd length": (rules.luhn(), passes_luhn, 3, 10),
    "iban": (rules.iban(), is_iban, 2, 36),
    "max": (rules.largest(), max, 3, 4),
    "min": (rules.smallest(), min, 3, 4),
    "count": (rules.count(2), lambda row: row.count(2), 4, 3),
    "at-least-one": (rules.at_least_one(1), lambda row: 1 in row, 4, 3),
    "exactly-one": (rules.exactly_one(1), lambda row: row.count(1) == 1, 4, 3),
    "none": (rules.none(1), lambda row: 1 not in row, 4, 3),
    "all-different": (rules.all_different(), lambda row: len(set(row)) == len(row), 3, 4),
    "ordered": (rules.ordered(), ascends, 3, 4),
    "strictly-ordered": (rules.ordered(strict=True), lambda row: ascends(row) and len(set(row)) == 3, 3, 4),
    "proportions": (rules.proportions(), lambda row: tuple(sorted(row)), 4, 3),
    "addition": (rules.addition(1), lambda row: row[0] + row[1], 2, 10),
    "transcript": (rules.transcript(), lambda row: tuple(label for label, _ in itertools.groupby(row)), 4, 3),
}


def oracle(value: Callable[[Row], Hashable], targets: Sequence[Any], slots: int, classes: int) -> Candidates:
    every = list(itertools.product(range(classes), repeat=slots))
    return Candidates.from_lists([[row for row in every if value(row) == target] for target in targets], classes)


def assert_same(found: CandidateSet, expected: Candidates, seed: int = 0) -> None:
    """The same candidates, and the same numbers by whatever way."""
    assert found.counts == expected.counts
    assert torch.equal(found.to_candidates().distinct().labels, expected.distinct().labels)
    assert torch.equal(found.support, expected.support)
    assert torch.equal(found.kind, expected.kind)
    log_probs = log_probs_for(expected, seed)
    torch.testing.assert_close(found.log_probability(log_probs), expected.log_probability(log_probs))
    torch.testing.assert_close(found.marginals(log_probs), expected.marginals(log_probs))


@pytest.mark.parametrize("name", VALUES)
def test_a_rule_gives_what_python_gives_listed_and_as_a_lattice(name: str) -> None:
    rule, value, slots, classes = VALUES[name]
    every = list(itertools.product(range(classes), repeat=slots))
    targets = list(dict.fromkeys(value(row) for row in every))[:6]
    expected = oracle(value, targets, slots, classes)
    given = [Counter(target) for target in targets] if name == "proportions" else targets
    listed, lattice = rule.candidates(given, slots, classes), rule.candidates(given, slots, classes, budget=0)
    assert isinstance(listed, Candidates)
    assert isinstance(lattice, Lattice)
    assert_same(listed, expected)
    assert_same(lattice, expected)
    assert all(rule.value(row) == value(row) for row in every[:: len(every) // 50 + 1])
    assert_same(Candidates.from_rule(rule, given, slots, classes), expected)


@pytest.mark.parametrize(
    "name",
    ["sum", "max", "min", "count", "at-least-one", "exactly-one", "none", "all-different", "ordered", "proportions",
     "transcript"],
)  # fmt: skip
def test_bags_of_different_sizes_have_the_candidates_of_each_size(name: str) -> None:
    rule, value, _, classes = VALUES[name]
    lengths = [1, 3, 2, 3]
    rows = [(1,), (0, 1, 2), (2, 1), (1, 1, 0)]
    targets = [value(row) for row in rows]
    given = [Counter(target) for target in targets] if name == "proportions" else targets
    for budget in (10_000, 0):
        found = rule.candidates(given, lengths, classes, budget=budget)
        assert found.lengths.tolist() == lengths
        for i, (target, length) in enumerate(zip(targets, lengths, strict=True)):
            own = found.batch([i]).to_candidates().distinct().labels[:, :length]
            assert torch.equal(own, oracle(value, [target], length, classes).labels)


@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=4),
    st.integers(2, 12),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_checksums_of_any_weights_and_modulus(weights: list[int], modulus: int, slots: int, classes: int, seed: int):
    def value(row: Row) -> int:
        return sum(weight * label for weight, label in zip(itertools.cycle(weights), row, strict=False)) % modulus

    row = tuple(torch.randint(classes, (slots,), generator=torch.Generator().manual_seed(seed)).tolist())
    rule = rules.checksum(weights, modulus)
    assert_same(rule.candidates([value(row)], slots, classes), oracle(value, [value(row)], slots, classes), seed)
    assert rule.value(row) == value(row)


@given(st.data())
def test_partial_labels_are_the_product_of_their_sets(data: st.DataObject) -> None:
    classes = data.draw(st.integers(1, 4))
    sets = st.sets(st.integers(0, classes - 1), min_size=1)
    targets = data.draw(st.lists(st.lists(sets, min_size=1, max_size=3), min_size=1, max_size=4))
    lengths = [len(target) for target in targets]
    expected = Candidates.from_lists([list(itertools.product(*map(sorted, target))) for target in targets], classes)
    for budget in (10_000, 0):
        assert_same(rules.partial_labels().candidates(targets, lengths, classes, budget=budget), expected)


@given(st.data())
def test_proportions_of_bags_of_any_size(data: st.DataObject) -> None:
    classes = data.draw(st.integers(1, 4))
    bags = data.draw(st.lists(st.lists(st.integers(0, classes - 1), min_size=1, max_size=5), min_size=1, max_size=4))
    expected = Candidates.from_lists([sorted(set(itertools.permutations(bag))) for bag in bags], classes)
    counts = [[bag.count(label) for label in range(classes)] for bag in bags]
    for budget in (10_000, 0):
        assert_same(rules.proportions().candidates(counts, list(map(len, bags)), classes, budget=budget), expected)


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        ([0, 2, 1, 0], [1, 1, 2]),
        (torch.tensor([0, 2, 1, 0]), [1, 1, 2]),
        (np.array([0, 0.67, 0.33, 0]), [1, 1, 2]),
        ([0.0, 2.0, 1.0, 0.0], [1, 1, 2]),
        ([0.0, 1.0, 0.0, 0.0], [1, 1, 1]),
        ((2, 1, 1), [1, 1, 2]),
        ({1: 2, 2: 1}, [1, 1, 2]),
        (Counter([3, 0, 3]), [0, 3, 3]),
    ],
)
def test_proportions_are_counts_shares_mappings_or_labels(target: Any, labels: list[int]) -> None:
    found = rules.proportions().candidates([target], slots=3, classes=4)
    assert found.labels[0].tolist() == labels


def test_the_value_of_a_bag_is_read_as_labels_where_there_are_as_many_labels_as_slots() -> None:
    rows = list(itertools.product(range(3), repeat=3))
    targets = [pickle.loads(pickle.dumps(rules.proportions().value(row))) for row in rows]
    for budget in (1_000, 0):
        found = rules.proportions().candidates(targets, slots=3, classes=3, budget=budget)
        assert found.counts == [len(set(itertools.permutations(row))) for row in rows]
        assert found.contains(torch.tensor(rows)).all()


def test_counts_that_could_be_labels_are_counts_and_wrong_ones_are_refused() -> None:
    assert rules.proportions().candidates([[1, 1, 1]], slots=3, classes=3).counts == [6]
    with pytest.raises(InputError, match=r"sample 1: expected counts of 3 labels .*Counter\(labels\)"):
        rules.proportions().candidates([[3, 0, 0], [2, 2, 2]], slots=3, classes=3)
    for wrong in ([0.4, 0.4, 0.1, 0.1], [1, 2], [-1, 3, 1, 0], [0.0, float("nan"), 0.0, 1.0]):
        with pytest.raises(InputError, match="expected a count or a share for each of 4 labels, or 3 labels"):
            rules.proportions().candidates([wrong], slots=3, classes=4)


def test_counts_that_do_not_fit_the_bag_are_a_target_that_nothing_satisfies() -> None:
    for wrong in ([0, 1, 0, 0], {0: 2**40}, [2**40, 0, 0, 0]):
        with pytest.raises(InputError, match="sample 0: no labels of 3 slots give the rule 'proportions'"):
            rules.proportions().candidates([wrong], slots=3, classes=4)
        kept = rules.proportions().candidates([wrong, [3, 0, 0, 0]], slots=3, classes=4, impossible="keep")
        assert kept.counts == [0, 1]


def test_a_matrix_of_counts_has_a_row_for_each_bag() -> None:
    counts = torch.tensor([[2, 1], [0, 3]])
    assert rules.proportions().candidates(counts, slots=3, classes=2).counts == [3, 1]


def test_large_bags_of_two_labels_are_lattices_and_of_many_say_that_they_are_too_large() -> None:
    found = rules.proportions().candidates([[60, 40], [10, 90]], slots=100, classes=2)
    assert isinstance(found, Lattice)
    assert found.counts[1] == 17_310_309_456_440
    rough = torch.Generator().manual_seed(0)
    bags = [torch.bincount(torch.randint(10, (40,), generator=rough), minlength=10).tolist() for _ in range(50)]
    with pytest.raises(BudgetError, match="arcs"):
        rules.proportions().lattice(bags, slots=40, classes=10, budget=100_000)


def test_partial_labels_are_sets_lists_or_rows_of_truth_values() -> None:
    rule = rules.partial_labels()
    sets = [{1, 3}, frozenset({0}), [2, 0], {0, 1, 2, 3}]
    expected = rule.candidates(sets, slots=1, classes=4)
    assert expected.labels.flatten().tolist() == [1, 3, 0, 0, 2, 0, 1, 2, 3]
    rows = torch.tensor([[label in labels for label in range(4)] for labels in sets])
    for given_rows in (rows, rows.numpy(), rows[:, None], rows.tolist()):
        assert torch.equal(rule.candidates(given_rows, slots=1, classes=4).labels, expected.labels)
    pairs = rule.candidates(rows.view(2, 2, 4), slots=2, classes=4)
    assert pairs.counts == [2, 8]
    with pytest.raises(InputError, match="sample 0: expected a set of labels for each of 2 slots"):
        rule.candidates([{1, 2, 3}], slots=2, classes=4)
    with pytest.raises(InputError, match="at most 3"):
        rule.candidates([{4}], slots=1, classes=4)


def test_many_partial_labels_are_a_lattice_of_one_state_a_slot() -> None:
    found = rules.partial_labels().candidates([[{0, 1}] * 40], slots=40, classes=10)
    assert isinstance(found, Lattice)
    assert found.counts == [2**40]
    assert found.states == 41


def test_long_checks_are_lattices() -> None:
    cards = rules.luhn().candidates([True, True], slots=16, classes=10)
    assert cards.counts == [10**15] * 2
    assert bool(cards.contains(torch.tensor([[4, *[1] * 15], [4, *[1] * 14, 2]])).tolist() == [True, False])
    books = rules.isbn().candidates([True], slots=13, classes=10)
    assert bool(books.contains(torch.tensor([[9, 7, 8, 3, 1, 6, 1, 4, 8, 4, 1, 0, 0]])).all())
    old = rules.isbn(10).candidates([True, True], slots=10, classes=11)
    with_x = torch.tensor([[0, 8, 0, 4, 4, 2, 9, 5, 7, 10], [0, 8, 0, 4, 4, 2, 9, 5, 7, 9]])
    assert old.contains(with_x).tolist() == [True, False]
    assert not bool(old.support.view(2, 10, 11)[:, :9, 10].any())  # X comes last only
    ibans = rules.iban().candidates([True], slots=22, classes=36)
    characters = "WEST12345698765432GB82"
    assert bool(ibans.contains(torch.tensor([[int(character, 36) for character in characters]])).all())


@pytest.mark.parametrize("digits", [1, 2])
def test_addition_is_enumeration(digits: int) -> None:
    """Loss, gradient, counts, marginals, entropy and best candidates of every sum that there is."""
    highest = 2 * (10**digits - 1)
    targets = list(range(0, highest + 1, 1 if digits == 1 else 7))

    def value(row: Row) -> int:
        first, second = ("".join(map(str, part)) for part in (row[:digits], row[digits:]))
        return int(first) + int(second)

    expected = oracle(value, targets, 2 * digits, 10)
    lattice = rules.addition(digits).candidates(targets, 2 * digits, 10, budget=0)
    assert isinstance(lattice, Lattice)
    assert_same(lattice, expected)
    log_probs = log_probs_for(expected, 3)
    gradients = []
    for candidates in (lattice, expected):
        own = log_probs.clone().requires_grad_()
        losses = SemanticLoss()(own, candidates)
        gradients.append((losses.detach(), torch.autograd.grad(losses.sum(), own)[0]))
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(lattice.entropy(log_probs), expected.entropy(log_probs))
    assert torch.equal(lattice.top_k(log_probs, 4).labels, expected.top_k(log_probs, 4).labels)
    assert torch.equal(rules.addition(digits).candidates(targets, 2 * digits, 10).labels, expected.labels)


def by_columns(log_probs: torch.Tensor, target: int, digits: int) -> float:
    """The probability of a sum, by carries from right to left in plain Python."""
    probs = log_probs.exp().tolist()
    ways = {0: 1.0}
    for column in range(digits):
        first, second = probs[digits - 1 - column], probs[2 * digits - 1 - column]
        after: dict[int, float] = {}
        for (carry, way), a, b in itertools.product(ways.items(), range(10), range(10)):
            if (carry + a + b) % 10 == target // 10**column % 10:
                key = (carry + a + b) // 10
                after[key] = after.get(key, 0.0) + way * first[a] * second[b]
        ways = after
    return ways.get(target // 10**digits, 0.0)


@pytest.mark.parametrize(("digits", "states"), [(15, 494), (100, 3_299)])
def test_long_additions_are_exact_on_one_small_graph(digits: int, states: int) -> None:
    generator = torch.Generator().manual_seed(digits)
    gold = torch.randint(10, (6, 2 * digits), generator=generator)
    numbers = [int("".join(map(str, part))) for row in gold.tolist() for part in (row[:digits], row[digits:])]
    targets = [a + b for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    found = rules.addition(digits).candidates(targets, 2 * digits, 10)
    assert isinstance(found, Lattice)
    assert found.states == states
    assert bool(found.contains(gold).all())
    assert not bool(found.contains((gold + 1) % 10).any())
    most = 10**digits - 1
    assert found.counts == [min(target, most) - max(0, target - most) + 1 for target in targets]
    log_probs = log_probs_for(found, 0)
    expected = [by_columns(row, target, digits) for row, target in zip(log_probs, targets, strict=True)]
    torch.testing.assert_close(found.log_probability(log_probs), torch.tensor(expected, dtype=torch.float64).log())
    torch.testing.assert_close(found.marginals(log_probs).sum(2), torch.ones(6, 2 * digits, dtype=torch.float64))
    best = found.top_k(log_probs, 3)
    assert [rules.addition(digits).value(row) for row in best.labels.tolist()] == [t for t in targets for _ in range(3)]
    drawn = found.draw(5, seed=1)
    assert bool(found.batch(drawn.sample).contains(drawn.labels).all())


@pytest.mark.parametrize(
    "target", [142, "142", "0142", [1, 4, 2], torch.tensor([1, 4, 2]), np.int64(142), ("1", 4, "2")]
)
def test_a_sum_is_a_number_or_its_digits(target: Any) -> None:
    rule = rules.addition(2)
    given_targets = target[None] if isinstance(target, torch.Tensor) else [target]
    assert torch.equal(rule.candidates(given_targets, 4, 10).labels, rule.candidates([142], 4, 10).labels)


def test_sums_and_slots_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="sample 1: no labels of 4 slots give the rule 'addition' the target 199"):
        rules.addition(2).candidates([198, 199], 4, 10)
    with pytest.raises(InputError, match=r"sample 0: expected a sum of two numbers of 2 digits, got -3"):
        rules.addition(2).candidates([-3], 4, 10)
    with pytest.raises(InputError, match="expected samples of 4 slots for the rule 'addition', got 6"):
        rules.addition(2).candidates([3], 6, 10)
    with pytest.raises(InputError, match="each of ten digits, got 9 classes"):
        rules.addition(2).candidates([3], 4, 9)


def test_digits_that_are_known_narrow_an_addition() -> None:
    found = rules.addition(2).candidates([42], 4, 10, domains=[[1], range(10), [2], range(10)])
    assert found.labels.tolist() == [[1, a, 2, 12 - a] for a in range(3, 10)]


def test_samples_with_the_same_target_share_the_work() -> None:
    found = rules.total().candidates([8, 2, 8], slots=2, classes=10)
    assert found.counts == [9, 3, 9]
    assert "support_with_unused" in found.__dict__


def test_the_number_of_candidates_decides_between_list_and_lattice() -> None:
    rule = rules.count(1)
    assert isinstance(rule.candidates([1] * 10, slots=40, classes=2), Candidates)  # 2^40 combinations, 40 candidates
    assert isinstance(rule.candidates([1] * 10, slots=40, classes=2, budget=400), Candidates)
    assert isinstance(rule.candidates([1] * 10, slots=40, classes=2, budget=399), Lattice)
    assert isinstance(rule.candidates([20] * 10, slots=40, classes=2), Lattice)


def test_a_rule_without_a_machine_tries_every_combination() -> None:
    rule = Rule("product", lambda row: row[0] * row[1])
    assert rule.candidates([6], slots=2, classes=10).labels.tolist() == [[1, 6], [2, 3], [3, 2], [6, 1]]
    with pytest.raises(BudgetError, match="100 combinations"):
        rule.candidates([6], slots=2, classes=10, budget=99)


@pytest.mark.parametrize("rule", [rule for rule, *_ in VALUES.values()], ids=VALUES.keys())
def test_rules_can_be_pickled(rule: Rule) -> None:
    again = pickle.loads(pickle.dumps(rule))
    assert again.name == rule.name
    row = (1, 2, 0, 1)[: rule.slots]
    assert again.value(row) == rule.value(row)


@pytest.mark.parametrize(
    "name", ["sum", "weighted-sum", "checksum", "luhn", "iban", "count", "at-least-one", "exactly-one"]
)
def test_arithmetic_rules_run_on_all_combinations_at_once(name: str) -> None:
    rule, value, slots, classes = VALUES[name]
    rows = list(itertools.product(range(classes), repeat=slots))[:200]
    found = run_on_columns(rule.value, torch.tensor(rows))
    assert found is not None
    assert found.tolist() == [value(row) for row in rows]


@pytest.mark.parametrize(
    ("text", "row", "value"),
    [
        ("sum", (3, 5), 8),
        (" max ", (3, 5), 5),
        ("min", (3, 5), 3),
        ("weighted-sum:10,1", (4, 2), 42),
        ("weighted-sum:-1,1", (4, 2), -2),
        ("checksum:3,1,7,9", (1, 1, 1, 1), 0),
        ("checksum:1,4%5", (2, 3), 4),
        ("luhn", (1, 8), True),
        ("isbn:10", (0, 3, 0, 6, 4, 0, 6, 1, 5, 2), True),
        ("count:3", (3, 3, 1), 2),
        ("at-least-one:1", (0, 1), True),
        ("exactly-one:1", (1, 1), False),
        ("none:1", (0, 0), True),
        ("all-different", (0, 1), True),
        ("ordered", (1, 1), True),
        ("strictly-ordered", (1, 1), False),
        ("proportions", (1, 0), (0, 1)),
        ("addition:2", (1, 2, 3, 4), 46),
        ("transcript", (1, 1, 0), (1, 0)),
    ],
)
def test_rules_have_names_for_the_command_line(text: str, row: Row, value: Hashable) -> None:
    assert rules.named(text).value(row) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "total",
        "sum%5",
        7,
    ],
)
def test_a_name_that_is_none_is_refused_with_all_names(text: Any) -> None:
    with pytest.raises(InputError, match=r"rules are sum, weighted-sum:WEIGHT,….*addition:DIGITS, transcript"):
        rules.named(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "count needs a label: count:LABEL, got") for text in ("count", "count:", "count:x", "count:1,2")),
        ("count:1%2", "count needs a label: count:LABEL, got"),
        ("sum:3", "sum takes no numbers, got 'sum:3'"),
        ("luhn:1", "luhn takes no numbers, got"),
        ("checksum:1,2%", r"checksum needs weights.*: checksum:WEIGHT,…\[%MODULUS\], got"),
        ("addition", "addition needs a number of digits: addition:DIGITS, got"),
    ],
)
def test_a_rule_with_other_numbers_than_it_has_is_refused_with_its_own_syntax(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rules.named(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rules.checksum([], 10), "weights as a list"),
        (lambda: rules.checksum([1.5], 10), "whole weights"),
        (lambda: rules.checksum([1], 1), "modulus of at least 2"),
        (lambda: rules.count(-1), "a label of at least 0"),
        (lambda: rules.addition(0), "digits of at least 1"),
        (lambda: rules.isbn(12), "10 or 13"),
        (lambda: rules.luhn().candidates([2], 4, 10), "sample 0: expected True or False, or 1 or 0"),
        (lambda: rules.luhn().candidates(["yes"], 4, 10), "expected True or False"),
        (lambda: rules.checksum([1]).candidates([True], 4, 10), "expected a remainder, 0 for most"),
        (lambda: rules.weighted_sum([1, 2]).candidates([3], 3, 10), "samples of 2 slots"),
        (lambda: rules.transcript().candidates([(1, 1)], 3, 2), "neighbouring ones different"),
        *(
            (
                lambda make=make, target=target: make(12).candidates([target], 2, 10),
                "label of 0 … 9 in the rule .*got 12",
            )
            for make, target in [
                (rules.count, 0),
                (rules.at_least_one, False),
                (rules.exactly_one, False),
                (rules.none, True),
            ]
        ),
        (lambda: rules.addition(2).candidates(["1²"], 4, 10), "a digit of at least 0 and at most 9.*'²'"),
        (lambda: rules.named("count:" + "1" * 5000), "expected a number"),
        (lambda: rules.named("checksum:1%" + "1" * 5000), "expected a number"),
        (lambda: rules.total().candidates([99], 2, 10), "sample 0: no labels of 2 slots give the rule 'sum'"),
        (lambda: rules.total().candidates([1, 2], [1, 2, 3], 10), "one positive number of slots per target"),
        (lambda: rules.total().candidates(3, 2, 10), "targets, one for each sample"),
        (lambda: rules.total().candidates([3], 2, 10, impossible="drop"), 'impossible to be "refuse" or "keep"'),
    ],
)
def test_what_is_wrong_is_said(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("sum", "14", 14),
        ("luhn", " Yes", True),
        ("at-least-one:1", "0", False),
        ("proportions", "0 2;1", [0, 2, 1]),
        ("proportions", "0, .5, 0.5", [0, 0.5, 0.5]),
        ("partial-labels", "1,3|2", [{1, 3}, {2}]),
        ("partial-labels", "{1, 3} | 2 4|", [{1, 3}, {2, 4}, set()]),
        ("proportions", "[0, 2,1]", [0, 2, 1]),
        ("transcript", "2-0-1", [2, 0, 1]),
        ("transcript", "2 -> 0 - 1", [2, 0, 1]),
        ("addition:3", "0142", 142),
    ],
)
def test_targets_are_read_from_text(name: str, text: str, target: Any) -> None:
    assert rules.named(name).parse(text) == target


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("partial-labels", text) for text in ("2.0", "1-3", "0,1,1,0", "1,x", "1e2|0", "-1")),
        *(("transcript", text) for text in ("-1 2", "0, -1", "0 -1", "1e9", "2 cats", "", "0..1")),
        *(("proportions", text) for text in ("0,5;0,5", "0,5 0,5", "1e-1, 1", "0.5.5", "-1 2", "50 %")),
    ],
)
def test_text_that_may_mean_another_target_is_refused(name: str, text: str) -> None:
    with pytest.raises(InputError, match=r"expected (numbers|labels|commas|each label)"):
        rules.named(name).parse(text)


def test_truth_values_written_as_numbers_are_not_read_as_labels() -> None:
    values = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1]])
    for rows, slots in ((values, 1), (values[:, None], 1), (values[None], 2)):
        with pytest.raises(InputError, match=r"each label of a set once.*True and False, such as tensor\.bool\(\)"):
            rules.partial_labels().candidates(rows, slots, 4)
    assert rules.partial_labels().candidates(values.bool(), 1, 4).labels.tolist() == [[1], [2], [0], [3]]


def test_truth_values_come_from_anywhere() -> None:
    expected = rules.at_least_one(1).candidates([True, False], 3, 2)
    right: list[Any] = [
        [1, 0],
        [1.0, 0.0],
        np.array([True, False]),
        torch.tensor([1, 0]),
        [np.bool_(True), torch.tensor(0)],
    ]
    for targets in right:
        assert torch.equal(rules.at_least_one(1).candidates(targets, 3, 2).labels, expected.labels)


def test_the_room_is_reached_from_the_top() -> None:
    assert clipper.rules is rules
    assert {"checksum", "count", "at_least_one", "exactly_one", "proportions", "all_different", "addition"} <= set(
        dir(rules)
    )
    assert issubclass(rules.Machine, Machine)


def test_numbers_of_numpy_are_as_good_as_pythons_in_targets() -> None:
    one, two = np.int64(1), np.int64(2)
    assert Candidates.from_rule(rules.at_least_one(1), [np.True_, np.False_], 2, 2).counts == [3, 1]
    assert Candidates.from_rule(rules.proportions(), [[two, one]], 3, 2).counts == [3]
    assert Candidates.from_rule(rules.partial_labels(), [{one, two}], 1, 3).labels.tolist() == [[1], [2]]
    assert Candidates.from_rule(rules.partial_labels(), [[{one, two}, {one}]], 2, 3).labels.tolist() == [[1, 1], [2, 1]]


@pytest.mark.parametrize(
    ("rule", "words"),
    [("sum", r"clipper\.rules\.named"), (5, "any callable"), (rules.total, r"call it: rules\.total\(")],
)
def test_what_is_no_rule_is_refused_with_the_way_to_one(rule: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Candidates.from_rule(rule, [3], slots=2, classes=10)
