"""Visual Sudoku: boards of handwritten digits, known to be right or wrong (the setting of ViSudo-PC).

A board is right if every row, column and box holds all labels, 0 … 3 or 0 … 8. A wrong board is a right one with some
cells exchanged or replaced. With 4 × 4 cells, a sample is a board, right or wrong. With 9 × 9 cells, a right board has
too many candidates for one lattice. There a sample is a row, column or box of a right board, which holds nine
different labels; each cell is in three samples. Wrong boards are not used for training.

All labels play the same part in the rule, so any renaming of them fits as well. The network learns one of the
renamings. Afterwards, the known labels of the first row of the first right board give its labels their names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from clipper import rules
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.images import Images
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import DIGITS
from clipper.benchmarks.registry import Benchmark, network_of, register
from clipper.benchmarks.statistics import auroc
from clipper.candidates import CandidateSet, Lattice
from clipper.errors import InputError, require
from clipper.proximity import Outlines
from clipper.training import Samples
from clipper.training.adapters import predict

DATA = {name: DIGITS[name] for name in ("mnist", "digits")}
_TESTED = 100
"""Number of right boards to test on, and of wrong ones."""
_ONE_MORE_CHANGE = 0.5
"""After each change to a wrong board, the probability of another one."""
_MOST_CHANGES = 10


def _small(config: RunConfig) -> RunConfig:
    return replace(config, data="digits", slots=16, samples=60, batch=8, lr=1e-3, schedule="constant")


@register("sudoku", data=DATA, engines=("semantic", "sampled"), quick=_small)
def build(config: RunConfig) -> Benchmark:
    """Boards of M cells, half of them right."""
    size, half = side_of(config.slots), -(-config.samples // 2)
    images, held_out = train_and_test(config.data, config.data_root)
    train, validation = Boards.drawn(images, size, half + _TESTED, config.seed).parted(half)
    test = Boards.drawn(held_out, size, _TESTED, config.seed)
    return Benchmark(
        _whole_boards(images, train) if size == 4 else _units(images, train),
        network_of(config)(size),
        BoardAccuracy(
            *(held_out.pixels[test.image], test.labels, test.right),
            validation=(images.pixels[validation.image], validation.right),
            known=(images.pixels[train.image[0, :size]], train.labels[0, :size]),
        ),
        encoder=Outlines(),
        target_names=["right" if right else "wrong" for right in train.right.tolist()] if size == 4 else None,
        slot="cell",
    )


def side_of(cells: int) -> int:
    """How many rows a board with this many cells has."""
    if cells not in (16, 81):
        raise InputError(f"expected boards of 16 or 81 slots, four or nine rows, got {cells}")
    return isqrt(cells)


@cache
def units(size: int) -> list[list[int]]:
    """The cells of each row, then of each column, then of each box.

    Examples:
        >>> units(4)[0], units(4)[4], units(4)[8]
        ([0, 1, 2, 3], [0, 4, 8, 12], [0, 1, 4, 5])
    """
    box, side = isqrt(size), range(size)
    cells = [[size * i + j for j in side] for i in side]
    boxes = [[box * (i // box) + j // box, box * (i % box) + j % box] for i in side for j in side]
    inside = [size * row + column for row, column in boxes]
    return cells + [list(column) for column in zip(*cells, strict=True)] + [inside[size * i :][:size] for i in side]


@cache
def units_of_cells(size: int) -> list[list[int]]:
    """The numbers of each cell's row, column and box among all units."""
    return [[unit for unit, cells in enumerate(units(size)) if cell in cells] for cell in range(size * size)]


def is_right(labels: Sequence[int], size: int) -> bool:
    """Whether every row, column and box holds all labels."""
    return all(len({labels[cell] for cell in unit}) == size for unit in units(size))


@dataclass(frozen=True)
class Boards:
    """Right boards and a wrong one made of each.

    Attributes:
        image: which image is in each cell, `(boards, cells)`.
        labels: `(boards, cells)`.
        right: `(boards,)` bool; right ones come first.
    """

    image: Tensor
    labels: Tensor
    right: Tensor

    @classmethod
    def drawn(cls, images: Images, size: int, boards: int, seed: int) -> Boards:
        """Draw a number of right boards, and a wrong one from each.

        Images are reused once every image of their label has been drawn. A wrong board shows the same images as its
        right one, except in changed cells.
        """
        rng = random.Random(seed)
        decks = [_in_random_order((images.labels == label).nonzero()[:, 0].tolist(), rng) for label in range(size)]
        right, wrong = [], []
        for _ in range(boards):
            labels = filled(size, rng)
            right.append([(label, next(decks[label])) for label in labels])
            wrong.append(_wrong_board(right[-1], size, decks, rng))
        cells = torch.tensor(right + wrong)  # (boards, cells, 2)
        return cls(cells[..., 1], cells[..., 0], torch.arange(2 * boards) < boards)

    def parted(self, boards: int) -> tuple[Boards, Boards]:
        """Split into a number of right boards with their wrong ones, and the rest."""
        number = torch.arange(len(self.right)) % (len(self.right) // 2)
        first, rest = number < boards, number >= boards
        return self._part(first), self._part(rest)

    def _part(self, chosen: Tensor) -> Boards:
        return Boards(self.image[chosen], self.labels[chosen], self.right[chosen])


def _in_random_order(images: list[int], rng: random.Random) -> Iterator[int]:
    """All images, then all again in another order, without end."""
    while True:
        rng.shuffle(images)
        yield from images


def filled(size: int, rng: random.Random) -> list[int]:
    """The labels of a random right board, filled cell by cell; the cell with the fewest choices comes first.

    Examples:
        >>> is_right(filled(9, random.Random(0)), 9)
        True
    """
    of_cell = units_of_cells(size)
    board, used = [-1] * size * size, [0] * 3 * size  # the labels of each unit so far, as bits

    def complete() -> bool:
        free = [cell for cell, label in enumerate(board) if label < 0]
        if not free:
            return True
        taken = {cell: used[a] | used[b] | used[c] for cell in free for a, b, c in [of_cell[cell]]}
        most = max(bits.bit_count() for bits in taken.values())
        cell = rng.choice([cell for cell, bits in taken.items() if bits.bit_count() == most])
        labels = [label for label in range(size) if not taken[cell] >> label & 1]
        for label in rng.sample(labels, len(labels)):
            board[cell] = label
            for unit in of_cell[cell]:
                used[unit] ^= 1 << label
            if complete():
                return True
            for unit in of_cell[cell]:
                used[unit] ^= 1 << label
        board[cell] = -1
        return False

    complete()
    return board


def _wrong_board(
    board: list[tuple[int, int]], size: int, decks: list[Iterator[int]], rng: random.Random
) -> list[tuple[int, int]]:
    """A right board with some cells exchanged, or replaced by other labels, so that it is wrong.

    Args:
        board: the label and the image of each cell.
        size: how many rows it has.
        decks: by label, where the next image comes from.
        rng: of all draws.
    """
    exchange = rng.random() < 1 / 2
    while True:
        cells = list(board)
        places = rng.sample(range(len(cells)), len(cells))
        for change in range(min(_MOST_CHANGES, len(cells) // 2)):
            first, second = places[2 * change : 2 * change + 2]
            if exchange:
                cells[first], cells[second] = cells[second], cells[first]
            else:
                label = rng.choice([label for label in range(size) if label != cells[first][0]])
                cells[first] = label, next(decks[label])
            if rng.random() >= _ONE_MORE_CHANGE:
                break
        if not is_right([label for label, _ in cells], size):
            return cells


def board_lattice(right: Sequence[bool]) -> Lattice:
    """The labels that make a board of 4 × 4 cells right, and those that make it wrong.

    Examples:
        >>> board_lattice([True, False]).counts  # of 4 ** 16
        [288, 4294967008]
    """
    size = 4
    of_cell = units_of_cells(size)
    last_cell = [max(unit) for unit in units(size)]

    def step(state: tuple[int, tuple[int, ...] | None], label: int) -> tuple[int, tuple[int, ...] | None]:
        """The cell that comes next, and the labels so far of each unit that is not complete, as bits; None if wrong."""
        cell, seen = state
        if seen is None or any(seen[unit] >> label & 1 for unit in of_cell[cell]):
            return cell + 1, None
        bits = [bits | 1 << label if unit in of_cell[cell] else bits for unit, bits in enumerate(seen)]
        return cell + 1, tuple(0 if last_cell[unit] == cell else bits for unit, bits in enumerate(bits))

    start = 0, (0,) * len(units(size))
    return Lattice.from_rule(start, step, lambda state: state[1] is not None, list(right), size * size, size)


def _whole_boards(images: Images, boards: Boards) -> Samples:
    candidates = board_lattice(boards.right.tolist())
    return Samples(images.pixels[boards.image], candidates, gold=boards.labels, targets=boards.right.long())


def _units(images: Images, boards: Boards) -> Samples:
    """Rows, columns and boxes of the right boards, `(n, 9)`."""
    cells = torch.tensor(units(9))
    image, labels = (part[boards.right][:, cells].flatten(0, 1) for part in (boards.image, boards.labels))
    candidates = different(len(labels), 9)
    return Samples(images.pixels[image], candidates, gold=labels)


def different(samples: int, size: int) -> CandidateSet:
    """All permutations of `size` labels, for each sample; as a lattice, because 9 labels have 362,880."""
    return rules.all_different().lattice([True] * samples, size, size)


@dataclass(frozen=True)
class BoardAccuracy:
    """Accuracy on held-out cells, as they are and up to a renaming of labels, and on held-out boards.

    Attributes:
        inputs: `(boards, cells, *shape)`.
        labels: `(boards, cells)`.
        right: `(boards,)` bool.
        validation: inputs of other boards that were not used for training, and whether they are right; used to choose
            the score above which a board is called right.
        known: inputs with each label once, `(c, *shape)`, and these labels, `(c,)`; used to name the network's labels.
    """

    inputs: Tensor
    labels: Tensor
    right: Tensor
    validation: tuple[Tensor, Tensor]
    known: tuple[Tensor, Tensor]

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Accuracies and the area under the ROC curve.

        Returns:
            `accuracy` of cells, where the known cells name the labels; `cells`, the same by the best renaming;
            `boards`, the accuracy of calling boards right or wrong; `auroc`, the area under their ROC curve.
        """
        log_probs = predict(network, self.inputs, chunk=16)  # (boards, cells, c)
        predicted, scores = log_probs.argmax(-1), board_scores(log_probs)
        names = names_by(predict(network, self.known[0].unsqueeze(1))[:, 0], self.known[1])
        threshold = best_split(board_scores(predict(network, self.validation[0], chunk=16)), self.validation[1])
        return {
            "accuracy": float((names[predicted] == self.labels).double().mean()),
            "cells": up_to_renaming(predicted, self.labels, len(names)),
            "boards": float(((scores > threshold) == self.right).double().mean()),
            "auroc": auroc(scores, self.right),
        }


def board_scores(log_probs: Tensor) -> Tensor:
    """Scores of boards, `(boards,)`, higher if more probably right, from `log_probs (boards, cells, c)`.

    With 4 × 4 cells, the logarithm of the probability that the board is right. With 9 × 9 cells, the sum of those of
    its rows, columns and boxes.
    """
    boards, _, size = log_probs.shape
    log_probs = log_probs.double()
    if size == 4:
        return board_lattice([True] * boards).log_probability(log_probs)
    of_units = log_probs[:, torch.tensor(units(size))].flatten(0, 1)  # (boards * units, 9, 9)
    return different(len(of_units), size).log_probability(of_units).view(boards, -1).sum(1)


def best_split(scores: Tensor, right: Tensor) -> float:
    """The threshold that best separates right boards, above it, from wrong ones: midway between two scores.

    Examples:
        >>> best_split(torch.tensor([-1.0, -2.0, -6.0, -9.0]), torch.tensor([True, True, False, False]))
        -4.0
    """
    scores, order = scores.sort()
    above = right[order].long()
    wrong_below = torch.cat([torch.zeros(1, dtype=torch.long), (1 - above).cumsum(0)])
    right_above = above.sum() - torch.cat([torch.zeros(1, dtype=torch.long), above.cumsum(0)])
    middles = torch.cat([scores[:1] - 1, (scores[:-1] + scores[1:]) / 2, scores[-1:] + 1])
    return float(middles[(wrong_below + right_above).argmax()])


def names_by(log_probs: Tensor, known: Tensor) -> Tensor:
    """The name of each of the network's labels, `(c,)`, that makes the known labels most probable.

    Args:
        log_probs: of instances of which each label is known, `(c, c)`.
        known: these labels, each of them once, `(c,)`.

    Examples:
        >>> names_by(torch.tensor([[0.9, 0.1], [0.4, 0.6]]).log(), torch.tensor([1, 0])).tolist()
        [1, 0]
    """
    instances, labels = _best_pairs(log_probs.double().clamp(min=-1e3))
    names = torch.empty_like(known)
    names[labels] = known[instances]
    return names


def up_to_renaming(read: Tensor, labels: Tensor, classes: int) -> float:
    """The accuracy under the best renaming of the predicted labels.

    Examples:
        >>> up_to_renaming(torch.tensor([2, 2, 0, 1]), torch.tensor([0, 0, 1, 1]), classes=3)
        0.75
    """
    together = (classes * read + labels).flatten().bincount(minlength=classes**2).view(classes, classes)
    return float(together[_best_pairs(together)].sum()) / labels.numel()


def _best_pairs(worth: Tensor) -> tuple[Tensor, Tensor]:
    """The best assignment of columns to the rows of a square table (the largest sum)."""
    optimise: Any = require("scipy.optimize", extra="benchmarks")
    rows, columns = optimise.linear_sum_assignment(worth.numpy(), maximize=True)
    return torch.from_numpy(rows), torch.from_numpy(columns)
