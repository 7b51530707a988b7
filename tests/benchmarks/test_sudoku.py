"""Visual Sudoku: boards, what makes them right, and how labels without names are named."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
import torch
from torch import nn

from clipper.benchmarks import RunConfig, benchmark_named, run
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.sudoku import (
    BoardAccuracy,
    Boards,
    best_split,
    board_lattice,
    board_scores,
    different,
    filled,
    is_right,
    names_by,
    units,
    up_to_renaming,
)
from clipper.errors import InputError


def config(**changes: object) -> RunConfig:
    values = {"rule": "sudoku", "data": "digits", "slots": 16, "samples": 20, "epochs": 1, "objective": "none"}
    return RunConfig(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [4, 9])
def test_every_cell_is_in_one_row_one_column_and_one_box(size: int) -> None:
    found = units(size)
    assert len(found) == 3 * size
    for part in (found[:size], found[size : 2 * size], found[2 * size :]):
        assert sorted(cell for unit in part for cell in unit) == list(range(size * size))
    box = {divmod(cell, size) for cell in found[2 * size + 1]}
    assert {row for row, _ in box} == set(range(int(size**0.5)))


@pytest.mark.parametrize("size", [4, 9])
def test_right_boards_come_first_and_wrong_ones_keep_most_of_their_images(size: int) -> None:
    images, _ = train_and_test("digits")
    boards = Boards.drawn(images, size, 10, seed=0)
    told = [is_right(labels, size) for labels in boards.labels.tolist()]
    assert told == boards.right.tolist() == [True] * 10 + [False] * 10
    assert images.labels[boards.image].equal(boards.labels)
    for right, wrong in zip(boards.image[:10].tolist(), boards.image[10:].tolist(), strict=True):
        assert len(set(right) - set(wrong)) <= 10


def test_exchanged_and_replaced_cells_both_come() -> None:
    images, _ = train_and_test("digits")
    boards = Boards.drawn(images, 4, 40, seed=1)
    exchanged = [set(a) == set(b) for a, b in zip(boards.image[:40].tolist(), boards.image[40:].tolist(), strict=True)]
    assert 5 < sum(exchanged) < 35


@pytest.fixture(scope="module")
def all_boards() -> torch.Tensor:
    """Every board that was drawn, `(288, 16)`."""
    chance = random.Random(0)
    return torch.tensor(sorted({tuple(filled(4, chance)) for _ in range(3_000)}))


def test_all_288_boards_can_be_drawn(all_boards: torch.Tensor) -> None:
    assert all_boards.shape == (288, 16)
    assert all(is_right(board, 4) for board in all_boards.tolist())


def test_a_board_is_right_with_the_probability_of_the_288_boards(all_boards: torch.Tensor) -> None:
    log_probs = torch.randn(3, 16, 4, generator=torch.Generator().manual_seed(0)).double().log_softmax(-1)
    expected = log_probs.exp()[:, torch.arange(16), all_boards].prod(2).sum(1)  # (3,)
    assert board_scores(log_probs).exp().allclose(expected)
    wrong = board_lattice([False] * 3).log_probability(log_probs).exp()
    assert wrong.allclose(1 - expected)


def test_a_unit_has_all_orders_of_its_labels() -> None:
    assert set(map(tuple, different(1, 4).to_candidates().labels.tolist())) == set(permutations(range(4)))
    assert different(2, 9).counts == [362_880] * 2


def test_a_board_of_nine_is_as_right_as_its_rows_columns_and_boxes() -> None:
    labels = torch.tensor([filled(9, random.Random(3))])
    sure = nn.functional.one_hot(labels, 9).double()
    log_probs = (0.91 * sure + 0.01).log()
    right = board_scores(log_probs)
    labels[0, 0] = labels[0, 1]
    wrong = board_scores((0.91 * nn.functional.one_hot(labels, 9).double() + 0.01).log())
    assert float(right) > float(wrong) + 3  # three units are spoilt


def test_known_cells_name_labels_that_were_learned_under_other_names() -> None:
    names = torch.tensor([2, 0, 3, 1])  # what the network calls each digit
    labels = torch.tensor([filled(4, random.Random(seed)) for seed in range(6)])
    right = torch.tensor([True] * 3 + [False] * 3)
    labels[3:, 0] = labels[3:, 1]
    inputs = torch.eye(4)[names[labels]] * 0.9 + 0.025
    known = torch.eye(4)[names] * 0.9 + 0.025, torch.arange(4)
    measure = BoardAccuracy(inputs, labels, right, (inputs, right), known)

    class Logarithm(nn.Module):
        def forward(self, shares: torch.Tensor) -> torch.Tensor:
            return shares.log()

    assert measure(Logarithm()) == {"accuracy": 1.0, "cells": 1.0, "boards": 1.0, "auroc": 1.0}
    swapped = (known[0], torch.tensor([1, 0, 2, 3]))
    scores = BoardAccuracy(inputs, labels, right, (inputs, right), swapped)(Logarithm())
    assert scores["cells"] == 1
    assert scores["accuracy"] == pytest.approx(float((labels > 1).double().mean()))


def test_two_known_cells_that_look_alike_get_different_names() -> None:
    alike = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.0, 0.0, 1.0]]).log()
    assert sorted(names_by(alike, torch.tensor([2, 1, 0])).tolist()) == [0, 1, 2]
    assert names_by(alike, torch.tensor([2, 1, 0])).tolist() == [2, 1, 0]


def test_a_renaming_is_one_to_one() -> None:
    assert up_to_renaming(torch.zeros(4, dtype=torch.long), torch.tensor([0, 0, 1, 1]), classes=2) == 0.5


def test_a_split_makes_the_fewest_mistakes() -> None:
    scores, right = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), torch.tensor([False, True, False, True, True])
    least = best_split(scores, right)
    assert int(((scores > least) == right).sum()) == 4


def test_of_nine_rows_every_cell_is_in_three_samples_of_right_boards() -> None:
    samples = benchmark_named("sudoku")(config(slots=81, samples=4)).samples
    assert samples.inputs.shape[:2] == (2 * 27, 9)
    assert samples.gold is not None
    assert bool((samples.gold.sort(1).values == torch.arange(9)).all())
    assert bool(samples.candidates.contains(samples.gold).all())


def test_boards_of_other_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="16 or 81 slots"):
        benchmark_named("sudoku")(config(slots=25))


@pytest.mark.slow
def test_boards_teach_digits_without_one_label() -> None:
    last = run(config(samples=120, epochs=10, batch=8)).last
    assert last.scores["cells"] > 0.95
    assert last.accuracy == last.scores["cells"]
    assert last.scores["auroc"] > 0.95
