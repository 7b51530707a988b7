"""Which labels formulas identify, against trying every permutation and every map."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import clipper
from clipper import Candidates, CandidateSet, Lattice, identify
from clipper.candidates import Alignments, Formula, all_of, any_of, has_label
from clipper.candidates.comparison import PRIME, distinct_samples, weighted_counts
from clipper.candidates.rules import MAX, SUM
from clipper.errors import InputError
from clipper.labelling import Identification, symmetries
from clipper.labelling.identify import LISTED, smallest_hitting_set
from tests.oracles import Labels, fewest_that_settle, maps_of, namings_of
from tests.strategies import KINDS, problems

ONE_KIND = [range(4)]
TWO_KINDS = [range(4), range(4, 7)]


def check(found: Identification, expected: Sequence[Labels]) -> None:
    """What was found is what brute force found."""
    classes = range(len(expected[0]))
    assert found.exhaustive
    assert found.order == len(expected)
    listed = [tuple(row) for row in found.namings.tolist()]
    assert listed[0] == tuple(classes), "the identity comes first"
    assert len(listed) == len(set(listed)) == min(len(expected), LISTED)
    assert set(listed) <= set(expected)
    assert found.identified.tolist() == [all(names[y] == y for names in expected) for y in classes]
    assert found.possible.tolist() == [[any(names[y] == z for names in expected) for z in classes] for y in classes]
    kept = [names for names in expected if all(names[y] == y for y in found.settle)]
    assert kept == [tuple(classes)], "the labels that settle it leave the identity alone"
    if found.smallest:
        assert len(found.settle) == fewest_that_settle(expected)


def check_group(found: Identification, expected: Sequence[Labels]) -> None:
    """As `check`; and the generators generate all of them."""
    check(found, expected)
    identity = tuple(range(len(expected[0])))
    reached, ends = {identity}, [identity]
    generators = [tuple(row) for row in found.generators.tolist()]
    for names in ends:
        for generator in generators:
            product = tuple(generator[label] for label in names)
            if product not in reached:
                reached.add(product)
                ends.append(product)
    assert reached == set(expected)


def rows_of(candidates: CandidateSet) -> list[list[Labels]]:
    listed = candidates.to_candidates()
    bounds = itertools.pairwise(listed.offsets.tolist())
    return [[tuple(y for y in row if y >= 0) for row in listed.labels[a:b].tolist()] for a, b in bounds]


# Permutations


@given(problems(kinds=True), st.booleans())
def test_the_symmetries_are_those_of_brute_force(problem: Any, repeat: bool) -> None:
    samples = [*problem.samples, *problem.samples[:1] * repeat]
    found = identify(Candidates.from_lists(samples, classes=KINDS))
    check_group(found, namings_of(samples, TWO_KINDS))
    supports = [{row[slot] for row in rows} for rows in samples for slot in range(len(rows[0]))]
    shares = [sum((y in own) / len(own) for own in supports) for y in range(7)]
    assert found.instances.tolist() == pytest.approx(shares)
    assert found.concerned == pytest.approx(sum(s for s, y in zip(shares, found.identified, strict=True) if not y))


@st.composite
def symmetric_samples(draw: st.DrawFn) -> list[list[Labels]]:
    """Samples that a permutation, drawn at random, maps onto themselves."""
    names = draw(st.permutations(range(5)))
    samples = []
    for slots in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)):
        rows = draw(st.lists(st.tuples(*[st.integers(0, 4)] * slots), min_size=1, max_size=3))
        for row in rows:
            image = tuple(names[y] for y in row)
            if image not in rows:
                rows.append(image)
        samples.append(rows)
    return samples


@given(symmetric_samples())
def test_symmetries_that_were_built_in_are_found(samples: list[list[Labels]]) -> None:
    found = identify(Candidates.from_lists(samples, classes=5))
    check_group(found, namings_of(samples, [range(5)]))


def distance(labels: Any) -> Any:
    return abs(labels[0] - labels[1])


RULES: dict[str, tuple[Callable[..., Any], int]] = {
    "distance": (distance, 2),
    "sum modulo c": (lambda y: (y[0] + y[1]) % 6, 2),
    "product modulo 10": (lambda y: y[0] * y[1] % 10, 2),
    "equal": (lambda y: y[0] == y[1], 2),
    "sum": (sum, 3),
    "largest": (max, 3),
    "between": (lambda y: min(y[0], y[2]) < y[1] < max(y[0], y[2]), 3),
    "neighbours on a circle": (lambda y: (y[0] - y[1]) % 6 in (1, 5), 2),
    "opposite": (lambda y: (y[0] - y[1]) % 6 == 3, 2),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("classes", [2, 5, 6, 7])
def test_rules_have_the_symmetries_of_brute_force(name: str, classes: int) -> None:
    rule, slots = RULES[name]
    targets = sorted({rule(row) for row in itertools.product(range(classes), repeat=slots)})
    candidates = Candidates.from_rule(rule, targets, slots, classes)
    check_group(identify(candidates), namings_of(rows_of(candidates), [range(classes)]))


def test_known_groups_of_ten_labels() -> None:
    pairs = Candidates.from_rule(distance, range(10), slots=2, classes=10)
    assert identify(pairs).namings.tolist() == [list(range(10)), list(range(9, -1, -1))]
    shifts = Candidates.from_rule(lambda y: (y[0] - y[1]) % 10, range(10), slots=2, classes=10)
    assert identify(shifts).namings.tolist() == [[(y + step) % 10 for y in range(10)] for step in range(10)]
    sums = Candidates.from_rule(lambda y: (y[0] + y[1]) % 10, range(10), slots=2, classes=10)
    assert identify(sums).namings[1].tolist() == [(y + 5) % 10 for y in range(10)]
    product = Candidates.from_rule(lambda y: y[0] * y[1] % 10, range(10), slots=2, classes=10)
    assert identify(product).namings.tolist() == [list(range(10)), [0, 9, 8, 7, 6, 5, 4, 3, 2, 1]]
    equal = identify(Candidates.from_rule(lambda y: y[0] == y[1], [True, False], slots=2, classes=10))
    assert equal.order == math.factorial(10)
    assert (len(equal.namings), len(equal.settle), equal.smallest) == (LISTED, 9, True)
    assert not equal.identified.any()


PAIRS = list(itertools.combinations(range(5), 2))
TORUS = {(0, 1), (1, 0), (0, 3), (3, 0), (1, 1), (3, 3)}


@pytest.mark.parametrize(
    ("vertices", "adjacent", "order"),
    [
        pytest.param(10, lambda a, b: not set(PAIRS[a]) & set(PAIRS[b]), 120, id="Petersen's graph"),
        pytest.param(8, lambda a, b: (a ^ b).bit_count() == 1, 48, id="a cube"),
        pytest.param(13, lambda a, b: (a - b) % 13 in (1, 3, 4, 9, 10, 12), 78, id="Paley's graph"),
        pytest.param(16, lambda a, b: ((a // 4 - b // 4) % 4, (a - b) % 4) in TORUS, 192, id="Shrikhande's graph"),
        pytest.param(16, lambda a, b: (a // 4 == b // 4) != (a % 4 == b % 4), 1152, id="a rook's graph"),
        pytest.param(25, lambda a, b: a // 5 == b // 5, 120**6, id="five cliques"),
    ],
)
def test_graphs_have_as_many_symmetries_as_the_books_say(vertices: int, adjacent: Any, order: int) -> None:
    edges = [(a, b) for a, b in itertools.permutations(range(vertices), 2) if adjacent(a, b)]
    found = identify(Candidates.from_lists([edges], classes=vertices))
    assert (found.order, found.exhaustive) == (order, True)
    for names in found.namings[:50].tolist():
        assert {(names[a], names[b]) for a, b in edges} == set(edges)


def sudoku() -> Lattice:
    """Every row, column and block of the square holds four digits; a state is what each of them has seen."""

    def step(seen: tuple[int, ...], digit: int) -> tuple[int, ...] | None:
        cell, units = seen[0], list(seen[1:])
        row, column = divmod(cell, 4)
        for unit in (row, 4 + column, 8 + 2 * (row // 2) + column // 2):
            if units[unit] >> digit & 1:
                return None
            units[unit] |= 1 << digit
        return (cell + 1, *units)

    return Lattice.from_rule((0,) * 13, step, lambda _: True, [True], slots=16, classes=4)


def test_a_sudoku_has_every_permutation_of_its_digits() -> None:
    found = identify(sudoku())
    check_group(found, list(itertools.permutations(range(4))))
    assert (len(found.settle), found.smallest) == (3, True)
    allowed = torch.ones(16, 4, dtype=torch.bool)
    allowed[5, 1:] = False  # one clue
    check_group(identify(sudoku().restrict(allowed)), [(0, *rest) for rest in itertools.permutations((1, 2, 3))])


def test_many_interchangeable_labels_take_no_time() -> None:
    found = identify(Candidates.from_rule(lambda y: y[0] == y[1], [True, False], slots=2, classes=60))
    assert found.order == math.factorial(60)
    assert found.exhaustive


def test_a_search_that_is_cut_short_says_so() -> None:
    shifts = Candidates.from_rule(lambda y: (y[0] - y[1]) % 10, range(10), slots=2, classes=10)
    found = identify(shifts, budget=10_000)
    assert not found.exhaustive
    assert not found.smallest
    assert found.order < 10
    assert not found.identified.any(), "what was not ruled out is not identified"
    assert found.settle == tuple(range(10))
    assert "the search was not exhaustive" in found.sentence.lower()
    assert {tuple(row) for row in found.namings.tolist()} <= {tuple(row) for row in identify(shifts).namings.tolist()}


# Maps


@st.composite
def labelled(draw: st.DrawFn) -> tuple[list[list[Labels]], list[Labels]]:
    samples = draw(problems(kinds=draw(st.booleans()))).samples
    return samples, [draw(st.sampled_from(rows)) for rows in samples]


def padded(labels: Sequence[Labels], slots: int) -> Tensor:
    return torch.tensor([[*row, *[-1] * (slots - len(row))] for row in labels])


@given(labelled(), st.booleans())
def test_the_maps_are_those_of_brute_force(problem: tuple[list[list[Labels]], list[Labels]], one_to_one: bool) -> None:
    samples, labels = problem
    several = max(y for rows in samples for row in rows for y in row) > 3
    candidates = Candidates.from_lists(samples, classes=KINDS if several else 4)
    kinds = TWO_KINDS if several else ONE_KIND
    expected = maps_of(samples, labels, kinds)
    if one_to_one:
        expected = [names for names in expected if len(set(names)) == len(names)]
    found = identify(candidates, padded(labels, candidates.slots), one_to_one=one_to_one)
    check(found, expected)
    flat = [y for row in labels for y in row]
    assert found.instances.tolist() == [flat.count(y) for y in range(candidates.classes)]
    assert found.concerned == sum(not found.identified[y] for y in flat)
    symmetric = identify(candidates)
    assert {tuple(row) for row in symmetric.namings.tolist()} <= set(expected), "symmetries keep all labels satisfied"


@given(labelled(), st.booleans(), st.booleans(), st.integers(1, 20_000))
def test_a_search_that_is_cut_short_anywhere_claims_nothing_wrong(
    problem: tuple[list[list[Labels]], list[Labels]], given_labels: bool, one_to_one: bool, budget: int
) -> None:
    samples, labels = problem
    candidates = Candidates.from_lists(samples, classes=KINDS)
    if given_labels:
        found = identify(candidates, padded(labels, candidates.slots), one_to_one=one_to_one, budget=budget)
        expected = maps_of(samples, labels, TWO_KINDS)
        expected = [names for names in expected if not one_to_one or len(set(names)) == len(names)]
    else:
        found, expected = identify(candidates, budget=budget), namings_of(samples, TWO_KINDS)
    if found.exhaustive:
        check(found, expected)
        return
    listed = [tuple(row) for row in found.namings.tolist()]
    assert listed[0] == tuple(range(7))
    assert len(set(listed)) == len(listed) <= found.order <= len(expected)
    assert set(listed) <= set(expected)
    assert all(found.possible[y, names[y]] for names in expected for y in range(7)), "what is ruled out is ruled out"
    assert [names for names in expected if all(names[y] == y for y in found.settle)] == [tuple(range(7))]


EVEN_ODD = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]


def test_even_and_odd_digits_that_are_added_apart() -> None:
    """MNIST-Even-Odd: even digits and odd digits never meet, so each half has shortcuts of its own."""
    candidates = Candidates.from_rule(sum, [a + b for a, b in EVEN_ODD], slots=2, classes=10)
    found = identify(candidates, torch.tensor(EVEN_ODD))
    halves = []
    for half in (EVEN_ODD[:4], EVEN_ODD[4:]):
        digits = sorted({y for pair in half for y in pair})
        every = (dict(zip(digits, names, strict=True)) for names in itertools.product(range(10), repeat=5))
        halves.append([names for names in every if all(names[a] + names[b] == a + b for a, b in half)])
    combined = (even | odd for even in halves[0] for odd in halves[1])
    expected = sorted(tuple(names[y] for y in range(10)) for names in combined)
    check(found, expected)
    assert found.order == 36
    assert (found.concerned, found.settle) == (16, (0, 1))
    distinct = identify(candidates, torch.tensor(EVEN_ODD), one_to_one=True)
    check(distinct, [names for names in expected if len(set(names)) == 10])


def test_labels_that_no_sample_has_may_be_called_anything() -> None:
    candidates = Candidates.from_rule(sum, [0, 2], slots=2, classes=100)
    found = identify(candidates, torch.tensor([[0, 0], [1, 1]]))
    assert found.order == 100**98
    assert found.identified.nonzero()[:, 0].tolist() == [0, 1]
    assert found.concerned == 0
    assert len(found.namings) == LISTED


def test_maps_that_do_not_constrain_each_other_are_counted_by_multiplication() -> None:
    parity = Candidates.from_rule(lambda y: (y[0] + y[1]) % 2, [0, 1], slots=2, classes=10)
    pairs = torch.tensor(list(itertools.product(range(10), repeat=2)))
    found = identify(parity.batch(pairs.sum(1) % 2), pairs)
    assert found.order == 2 * 5**10, "labels keep their parity, or all change it"
    assert found.exhaustive
    assert len(found.settle) == 10


def test_the_maxima_of_real_samples_leave_small_labels_open() -> None:
    gold = torch.randint(0, 10, (400, 4), generator=torch.Generator().manual_seed(1))
    listed = Candidates.from_rule(max, gold.amax(1), slots=4, classes=10)
    found = identify(listed, gold)
    rows = {tuple(sorted(row)) for row in gold.tolist()}
    small = [row for row in rows if max(row) <= 4]
    assert found.identified[5:].all()
    halves = [n for n in itertools.product(range(10), repeat=5) if all(max(n[y] for y in r) == max(r) for r in small)]
    kept = [names for names in halves if max(names) <= 4]  # above, the labels 5 … 9 are their own witnesses
    assert found.order == len(kept)
    same = identify(Lattice.from_rule(*MAX, gold.amax(1), slots=4, classes=10), gold)
    assert torch.equal(same.namings, found.namings)


def test_names_that_leave_the_same_choice_are_counted_together() -> None:
    """Whatever is largest is 7, 8 or 9: one of the labels 0 … 7 must be called 7, and all may be called 0 … 7."""
    gold = torch.stack([torch.arange(30) % (largest + 1) for largest in (7, 8, 9)])
    found = identify(Lattice.from_rule(*MAX, [7, 8, 9], slots=30, classes=10), gold)
    assert found.order == 8**8 - 7**8
    assert found.exhaustive
    assert found.identified.tolist() == [False] * 8 + [True] * 2


def test_a_search_for_maps_that_is_cut_short_still_tries_the_usual_ones() -> None:
    gold = torch.randint(0, 10, (50, 12), generator=torch.Generator().manual_seed(0))
    lattice = Lattice.from_rule(0, lambda total, y: (total + y) % 5, lambda total: total, gold.sum(1) % 5, 12, 10)
    found = identify(lattice, gold, budget=10_000_000)
    assert not found.exhaustive
    assert found.order > 10
    listed = {tuple(row) for row in found.namings.tolist()}
    assert (5, *range(1, 10)) in listed, "0 may be called 5"
    assert all(lattice.contains(torch.tensor(names)[gold]).all() for names in listed)
    assert not found.identified.any()
    assert found.settle == tuple(range(10))


# Whatever stands behind the candidates


def forms(samples: list[list[Labels]], classes: int) -> list[CandidateSet]:
    """The same candidates as a list, a formula and, sample by sample, as a restricted lattice."""
    listed = Candidates.from_lists(samples, classes)
    slots = [len(rows[0]) for rows in samples]
    said = [any_of(all_of(has_label(j, y) for j, y in enumerate(row)) for row in rows) for rows in samples]
    return [listed, Formula.from_propositions(said, slots, classes)]


@given(st.lists(st.lists(st.tuples(*[st.integers(0, 2)] * 2), min_size=1, max_size=6), min_size=1, max_size=3))
def test_formulas_have_the_symmetries_and_maps_of_their_lists(samples: list[list[Labels]]) -> None:
    pytest.importorskip("klay", reason="KLay is not installed (extra circuits)")
    listed, formula = forms(samples, classes=3)
    check_group(identify(formula), namings_of(samples, [range(3)]))
    labels = [rows[0] for rows in samples]
    check(identify(formula, torch.tensor(labels)), maps_of(samples, labels, [range(3)]))
    assert torch.equal(identify(formula).possible, identify(listed).possible)


@given(st.integers(0, 1000), st.sampled_from([0.6, 0.8, 1.0]))
def test_restricted_lattices_have_the_symmetries_and_maps_of_their_lists(seed: int, kept: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    gold = torch.randint(0, 4, (3, 3), generator=generator)
    lengths = [3, *torch.randint(1, 4, (2,), generator=generator).tolist()]
    targets = [int(row[:length].max()) for row, length in zip(gold, lengths, strict=True)]
    lattice = Lattice.from_rule(*MAX, targets, lengths, classes=4)
    allowed = torch.rand(3, 3, 4, generator=generator) <= kept
    allowed.scatter_(2, gold[..., None], True)
    pruned = lattice.restrict(allowed.view(9, 4))
    samples = rows_of(pruned)
    check_group(identify(pruned), namings_of(samples, [range(4)]))
    labels = [tuple(row[:length]) for row, length in zip(gold.tolist(), lengths, strict=True)]
    check(identify(pruned, gold), maps_of(samples, labels, [range(4)]))


def test_clips_identify_every_action_that_a_text_names() -> None:
    clips = Alignments.from_texts([(2, 0), (2, 1, 2)], frames=[4, 60], classes=6)
    found = identify(clips)
    assert found.identified.tolist() == [True, True, True, False, False, False]
    assert found.order == 6


def test_sums_of_forty_digits_identify_every_digit() -> None:
    gold = torch.randint(0, 10, (100, 40), generator=torch.Generator().manual_seed(0))
    found = identify(Lattice.from_rule(*SUM, gold.sum(1), slots=40, classes=10))
    assert (found.order, found.exhaustive) == (1, True)
    even = Lattice.from_rule(0, lambda total, y: (total + y) % 2, lambda total: total, [0, 1], slots=40, classes=10)
    assert identify(even).order == 2 * math.factorial(5) ** 2 - math.factorial(5) ** 2 * (40 % 2)


@given(st.integers(0, 1000))
def test_weighted_counts_are_those_of_the_listed_candidates(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lattice = Lattice.from_rule(*SUM, targets=[2, 3, 5], slots=[2, 3, 3], classes=4)
    weights = torch.randint(0, PRIME, (3, 3, 4), generator=generator)
    expected = [
        [sum(math.prod(w[j][y] for j, y in enumerate(row)) for row in rows) % PRIME for w in weights.tolist()]
        for rows in rows_of(lattice)
    ]
    assert weighted_counts(lattice, weights).tolist() == expected
    assert weighted_counts(lattice.to_candidates(), weights).tolist() == expected


def test_samples_with_the_same_candidates_are_looked_at_once() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[2, 3, 2], slots=2, classes=4)
    distinct, which = distinct_samples(lattice)
    assert (distinct.counts, which.tolist()) == ([3, 4], [0, 1, 0])
    pruned = lattice.restrict(torch.tensor([[True] * 4] * 5 + [[True, True, False, True]]))
    assert distinct_samples(pruned)[1].tolist() == [0, 1, 2]


# What is said, and what is refused


def test_it_says_what_it_found() -> None:
    maxima = Candidates.from_rule(max, targets=[2, 2, 1], slots=2, classes=3)
    found = clipper.identify(maxima, torch.tensor([[0, 2], [1, 2], [1, 1]]))
    assert found.sentence == (
        "3 maps of the labels satisfy every formula, for example 0 → 1. The formulas identify 2 of 3 labels: not 0. "
        "1 of 6 instances has a label that is not identified. Knowing label 0 would settle it."
    )
    assert str(found).splitlines()[1:] == [
        "label  may be called  instances",
        "0      0, 1, 2        1",
        "1      1              3",
        "2      2              2",
    ]
    assert repr(found) == "Identification(3 namings, 2 of 3 labels identified)"
    assert found.as_dict()["namings"] == [[0, 1, 2], [1, 1, 2], [2, 1, 2]]
    sums = identify(Candidates.from_rule(sum, targets=[1, 2], slots=2, classes=3))
    assert sums.sentence == "The formulas identify all 3 labels."


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1]], r"\(2, 2\), got \(1, 2\)"),
        ([[0, 1], [0, 0]], "1 of 2 have labels that are not among their candidates"),
        ([[0, 1], [-1, 2]], "not among their candidates"),
        ([[0.5, 1], [0, 2]], "whole labels"),
    ],
)
def test_labels_that_satisfy_no_formula_are_refused(labels: Any, message: str) -> None:
    candidates = Candidates.from_rule(sum, targets=[1, 2], slots=2, classes=3)
    with pytest.raises(InputError, match=message):
        identify(candidates, labels)


def test_wrong_arguments_are_refused() -> None:
    candidates = Candidates.from_rule(sum, targets=[1, 2], slots=2, classes=3)
    for wrong in (lambda: identify([[(0, 1)]]), lambda: identify(candidates, budget=0)):  # type: ignore[arg-type]
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="at least one sample"):
        identify(candidates.batch(torch.zeros(0, dtype=torch.long)))


@given(st.lists(st.frozensets(st.integers(0, 5)), max_size=8))
def test_the_smallest_hitting_set_is_that_of_brute_force(sets: list[frozenset[int]]) -> None:
    found = smallest_hitting_set(sets)
    assert found is not None
    assert all(not own or own & set(found) for own in sets)
    for fewer in itertools.combinations(range(6), len(found) - 1 if found else 0):
        assert not found or any(own and not own & set(fewer) for own in sets)


def test_composition_takes_one_permutation_after_the_other() -> None:
    assert symmetries.composed((1, 2, 0), (1, 0, 2)) == (2, 1, 0)
