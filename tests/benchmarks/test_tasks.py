"""Tasks: rules against Python's own arithmetic, candidates against brute force, splits that share no image."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from fractions import Fraction

import pytest
import torch

from clipper.benchmarks.data.hwf import hwf
from clipper.benchmarks.data.images import Images, digits
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.hwf import HWF_RULE, NO_FORMULA, UNIT, domains, published_formulas, published_value, value
from clipper.benchmarks.max import MAX_RULE
from clipper.benchmarks.sum import SUM_RULE
from clipper.candidates import Lattice
from clipper.candidates.abduction import run_on_columns
from clipper.errors import BudgetError, ClipperError
from clipper.rules import Rule
from clipper.training import Samples
from tests.benchmarks.published import needs

SYMBOLS = "123456789+-*/"


def python_says(labels: tuple[int, ...]) -> Fraction:
    """What Python makes of the formula, in exact fractions."""
    parts = [f"Fraction({SYMBOLS[label]})" if label < 9 else SYMBOLS[label] for label in labels]
    return Fraction(eval("".join(parts), {"Fraction": Fraction}))


def toy_symbols(copies: int = 5) -> Images:
    labels = torch.arange(12).repeat(copies)
    return Images("toy", torch.arange(12 * copies).view(-1, 1, 1, 1) / (12 * copies), labels, classes=12)


def sample_tuples(slots: int, symbols: int, number: int) -> list[tuple[int, ...]]:
    generator = random.Random(0)
    return [tuple(generator.choice(domain) for domain in domains(slots, symbols)) for _ in range(number)]


@pytest.mark.parametrize("slots", [1, 3])
def test_short_formulas_have_the_value_that_python_gives_them(slots: int) -> None:
    for labels in itertools.product(*domains(slots, 13)):
        assert Fraction(published_value(labels), UNIT) == python_says(labels)
    for labels in itertools.product(*domains(slots)):
        assert value(labels) == python_says(labels)


@pytest.mark.parametrize("slots", [5, 7])
def test_long_formulas_have_the_value_that_python_gives_them(slots: int) -> None:
    for labels in sample_tuples(slots, 13, 2_000):
        assert Fraction(published_value(labels), UNIT) == python_says(labels)
    for labels in sample_tuples(slots + 8, 12, 500):
        assert value(labels) == python_says(labels)


@pytest.mark.parametrize("rule", [value, published_value])
def test_the_rule_runs_on_all_combinations_at_once_with_the_same_result(rule) -> None:  # type: ignore[no-untyped-def]
    rows = torch.randint(0, 13, (500, 7), generator=torch.Generator().manual_seed(0))
    rows = torch.cat([rows, torch.tensor(sample_tuples(7, 13, 500))])
    columns = run_on_columns(rule, rows)
    assert columns is not None
    assert columns.tolist() == [rule(tuple(row)) for row in rows.tolist()]


def test_symbols_in_the_wrong_places_are_no_formula() -> None:
    assert value((9, 9, 0)) == value((0, 0, 0)) == value((0, 9, 11)) == NO_FORMULA


def test_candidates_are_all_formulas_with_the_target() -> None:
    task = draw(toy_symbols(), HWF_RULE, samples=20, slots=5)
    by_value: dict[int, set[tuple[int, ...]]] = {}
    for labels in itertools.product(*domains(5)):
        by_value.setdefault(int(python_says(labels)), set()).add(labels)
    for sample, target in enumerate(task.targets.tolist()):
        rows = task.candidates.labels[task.candidates.sample == sample].tolist()
        assert len(rows) == len(by_value[target])
        assert set(map(tuple, rows)) == by_value[target]
    assert bool(task.candidates.contains(task.gold).all())


def test_inputs_show_the_gold_labels_and_come_again_only_when_all_have_come() -> None:
    images = toy_symbols(copies=7)
    task = draw(images, HWF_RULE, samples=200, slots=3)
    shown = (task.inputs.flatten() * len(images)).round().long()
    assert torch.equal(images.labels[shown], task.gold.flatten())
    for label in range(12):
        times = Counter(shown[images.labels[shown] == label].tolist()).values()
        assert max(times) - min(times) <= 1


def test_some_candidates_may_be_drawn_instead_of_all() -> None:
    everything = draw(toy_symbols(), HWF_RULE, samples=600, slots=5, seed=3)
    some = draw(toy_symbols(), HWF_RULE, samples=600, slots=5, seed=3, per_sample=10)
    assert some.candidates.counts == [min(count, 10) for count in everything.candidates.counts]
    assert torch.equal(some.targets, everything.targets)
    values = [value(tuple(row)) for row in some.candidates.labels.tolist()]
    assert values == some.targets[some.candidates.sample].tolist()
    assert len(some.candidates.distinct()) == len(some.candidates)
    again = draw(toy_symbols(), HWF_RULE, samples=600, slots=5, seed=3, per_sample=10)
    assert torch.equal(again.candidates.labels, some.candidates.labels)


@pytest.mark.parametrize(("rule", "of"), [(SUM_RULE, sum), (MAX_RULE, max)])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_sum_and_max_say_what_python_says(rule: Rule, of, slots: int) -> None:  # type: ignore[no-untyped-def]
    task = draw(digits(), rule, samples=50, slots=slots)
    assert task.targets.tolist() == [of(row) for row in task.gold.tolist()]
    assert bool(task.candidates.contains(task.gold).all())


@pytest.mark.parametrize("name", ["digits", pytest.param("mnist", marks=needs("mnist"))])
def test_tasks_of_the_two_halves_share_no_image(name: str) -> None:
    tasks = [draw(part, SUM_RULE, samples=len(part) // 3, slots=3) for part in train_and_test(name)]
    assert not shared(*tasks)


@needs("hwf")
@pytest.mark.slow
def test_formulas_of_the_two_halves_share_no_image() -> None:
    generated = [draw(hwf(split), HWF_RULE, samples=1_500, slots=7, per_sample=5) for split in ("train", "test")]
    published = [published_formulas(split, per_sample=5) for split in ("train", "test")]
    assert not shared(generated[0], generated[1])
    assert not shared(published[0], published[1])
    assert not shared(generated[0], published[1])
    assert not shared(published[0], generated[1])


def shared(a: Samples, b: Samples) -> int:
    used = [{row.numpy().tobytes() for row in task.inputs[task.gold >= 0]} for task in (a, b)]
    return len(used[0] & used[1])


@needs("hwf")
def test_published_formulas_are_ragged_samples_with_their_gold_labels_among_the_candidates() -> None:
    task = published_formulas("train", samples=150, seed=1)
    lengths = (task.gold >= 0).sum(1)
    assert set(lengths.tolist()) == {1, 3, 5, 7}
    assert bool(task.candidates.contains(task.gold).all())
    assert bool((task.inputs[task.gold < 0] == 0).all())
    for row, target in zip(task.gold.tolist(), task.targets.tolist(), strict=True):
        assert Fraction(target, UNIT) == python_says(tuple(label for label in row if label >= 0))
    short = published_formulas("test", longest=4, samples=20)
    assert short.gold.shape == (20, 3)


def test_a_rule_gives_whole_numbers() -> None:
    task = draw(digits(), Rule("parity", parity), samples=30, slots=2)
    assert task.targets.tolist() == [sum(row) % 2 for row in task.gold.tolist()]
    with pytest.raises(ClipperError, match="'half' to give whole numbers"):
        draw(digits(), Rule("half", lambda labels: sum(labels) / 2), samples=1, slots=2)


def parity(labels: tuple[int, ...]) -> int:
    return sum(labels) % 2


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ClipperError, match="odd number of slots"):
        draw(toy_symbols(), HWF_RULE, samples=1, slots=4)
    with pytest.raises(ClipperError, match="images of label 9, but digits-like has none"):
        draw(Images("digits-like", torch.zeros(9, 1, 1, 1), torch.arange(9), 12), HWF_RULE, samples=50, slots=3)
    with pytest.raises(BudgetError, match="94,143,178,827 combinations"):
        draw(toy_symbols(), Rule("listed", value, domains), samples=1, slots=15)
    with pytest.raises(ClipperError, match="at least one sample"):
        draw(digits(), SUM_RULE, samples=0, slots=3)
    with pytest.raises(ClipperError, match="1 to 7 symbols"):
        published_formulas(longest=9)


@pytest.mark.parametrize(("rule", "slots"), [(SUM_RULE, 20), (MAX_RULE, 20)])
def test_too_many_candidates_are_drawn_from_the_lattice(rule: Rule, slots: int) -> None:
    task = draw(digits(), rule, samples=5, slots=slots, per_sample=30)
    assert task.candidates.counts == [30] * 5
    values = [rule.value(tuple(row)) for row in task.candidates.labels.tolist()]
    assert values == task.targets.repeat_interleave(30).tolist()


@pytest.mark.slow
def test_formulas_of_eleven_symbols_are_drawn_from_the_lattice() -> None:
    task = draw(toy_symbols(), HWF_RULE, samples=4, slots=11, per_sample=20)
    values = [value(tuple(row)) for row in task.candidates.labels.tolist()]
    assert values == task.targets[task.candidates.sample].tolist()
    assert len(task.candidates.distinct()) == len(task.candidates)


def test_the_lattice_of_a_task_holds_the_candidates_of_its_list() -> None:
    listed = draw(digits(), SUM_RULE, 20, 3, seed=4)
    lattice = SUM_RULE.lattice(listed.targets.tolist(), 3, 10)
    assert torch.equal(listed.candidates.labels, lattice.to_candidates().labels)


def test_a_long_task_keeps_all_its_candidates_as_a_lattice() -> None:
    task = draw(digits(), SUM_RULE, 20, 9, seed=4)
    assert isinstance(task.candidates, Lattice)
    assert bool(task.candidates.contains(task.gold).all())
    assert task.targets.tolist() == task.gold.sum(1).tolist()


def test_a_rule_without_a_machine_has_no_lattice() -> None:
    first = Rule("first", lambda labels: labels[0])
    with pytest.raises(ClipperError, match="give it machine="):
        first.lattice([1], 2, 10)
    with pytest.raises(BudgetError):
        draw(digits(), first, samples=2, slots=9, per_sample=5)
