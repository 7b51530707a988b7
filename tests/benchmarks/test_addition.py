"""MNIST-Add and the published formulas: what is measured, against sums and fractions worked out by hand."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from torch import nn

from clipper import Lattice, rules
from clipper.benchmarks.addition import SumAccuracy, most_probable_sums
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.hwf import formulas
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.formulas import FormulaAccuracy
from clipper.benchmarks.hwf import published_formulas, published_value
from clipper.benchmarks.networks import LeNet
from clipper.benchmarks.registry import benchmark_named
from clipper.errors import InputError
from tests.benchmarks.published import needs


@pytest.mark.parametrize("digits", [1, 2])
def test_the_most_probable_sum_adds_up_all_pairs_of_numbers(digits):
    generator = torch.Generator().manual_seed(digits)
    shares = torch.randn(5, 2 * digits, 10, generator=generator).softmax(-1)
    for row, found in zip(shares, most_probable_sums(shares), strict=True):
        sums: Counter[int] = Counter()
        for labels in product(range(10), repeat=2 * digits):
            first, second = (int("".join(map(str, half))) for half in (labels[:digits], labels[digits:]))
            chance = 1.0
            for place, label in enumerate(labels):
                chance *= float(row[place, label])
            sums[first + second] += chance  # type: ignore[assignment]
        assert found == sums.most_common(1)[0][0]


def test_held_out_images_are_drawn_once_and_a_wrong_digit_spoils_its_sum_alone():
    _, test = train_and_test("digits")
    measure = SumAccuracy.drawn(test, rules.addition(3), 6, seed=1)
    assert measure.chosen.shape == (99, 6)
    assert len(set(measure.chosen.flatten().tolist())) == 594
    wrong = measure.chosen[[4, 7], [0, 5]]

    class Reader(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            place = (images[:, None] == test.pixels[None]).flatten(2).all(2).int().argmax(1)
            label = torch.where(torch.isin(place, wrong), (test.labels[place] + 1) % 10, test.labels[place])
            return torch.eye(10)[label].log()

    scores = measure(Reader())
    assert scores["sums"] == pytest.approx(97 / 99)
    assert scores["accuracy"] == pytest.approx(1 - 2 / len(test))
    assert "likeliest" not in scores  # a million sums


def test_more_slots_than_held_out_images_are_refused():
    _, test = train_and_test("digits")
    with pytest.raises(InputError, match="at most 299 digits"):
        SumAccuracy.drawn(test, rules.addition(300), 600, seed=0)


@pytest.mark.parametrize(("slots", "samples"), [(2, 50), (30, 20), (200, 5)])
def test_two_numbers_of_any_length_are_samples_of_their_sum(slots, samples):
    made = benchmark_named("addition")(RunConfig(rule="addition", slots=slots, samples=samples, objective="none"))
    assert bool(made.samples.candidates.contains(made.samples.gold).all())
    assert isinstance(made.samples.candidates, Lattice) == (slots > 2)
    assert (made.samples.targets is None) == (slots == 200)  # sums of a hundred digits fit into no tensor


def test_an_odd_number_of_digits_is_refused():
    with pytest.raises(InputError, match="even number of slots"):
        benchmark_named("addition")(RunConfig(rule="addition", slots=3, samples=5))


def test_lenet_is_as_small_as_deepproblogs():
    assert sum(weight.numel() for weight in LeNet().parameters()) == 156 + 2_416 + 30_840 + 10_164 + 850


def test_a_formula_is_right_by_its_value_and_wrong_if_it_is_none():
    gold = torch.tensor([[2, 11, 1], [0, 9, 3], [5, -1, -1]])  # 3 × 2, 1 + 4, 6
    read = torch.tensor([[1, 11, 2], [0, 9, 10], [5, -1, -1]])  # 2 × 3, 1 + -, 6
    targets = torch.tensor([published_value((2, 11, 1)), published_value((0, 9, 3)), published_value((5,))])
    inputs = torch.eye(13)[read.clamp(min=0)]
    scores = FormulaAccuracy(inputs, gold, targets)(nn.Identity())
    assert scores == {"accuracy": pytest.approx(4 / 7), "formulas": pytest.approx(2 / 3)}


@needs("hwf")
@pytest.mark.slow
def test_the_published_split_shows_the_published_images_and_shares_many():
    splits = [formulas(split, distinct=False) for split in ("train", "test")]
    for found in splits:
        used = found.image >= 0
        labels = found.images.labels[found.image.clamp(min=0)]
        for text, row, length in zip(found.text, labels.tolist(), used.sum(1).tolist(), strict=True):
            assert text == "".join("123456789+-*/"[label] for label in row[:length])
    first, second = (set(found.image[found.image >= 0].tolist()) for found in splits)
    assert len(first & second) > len(second) / 2
    assert len(published_formulas("test", samples=50, distinct=False, per_sample=2)) == 50
