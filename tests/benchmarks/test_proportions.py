"""Learning from label proportions: bags, and their classes one by one."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from clipper.benchmarks import RunConfig, benchmark_named, run
from clipper.benchmarks.proportions import counts_of_classes, halves
from clipper.errors import InputError


def config(**changes: object) -> RunConfig:
    values = {"rule": "proportions", "slots": 8, "samples": 40, "epochs": 1, "objective": "none"}
    return RunConfig(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["proportions", "counts"])
@pytest.mark.parametrize("data", ["digits", "breast-cancer"])
def test_every_bag_has_its_gold_labels_among_its_candidates(rule: str, data: str) -> None:
    samples = benchmark_named(rule)(config(rule=rule, data=data)).samples
    assert samples.gold is not None
    assert bool(samples.candidates.contains(samples.gold).all())
    other = samples.gold.clone()
    other[:, 0] = (other[:, 0] + 1) % 2  # one label more or fewer of the first classes
    assert not bool(samples.candidates.contains(other).all())


def test_a_class_and_its_count_leave_just_the_labels_in_which_it_comes_so_often() -> None:
    gold = torch.tensor([[0, 2, 2], [1, 1, 1]])
    lattice = counts_of_classes(gold, classes=3)
    found = lattice.to_candidates()
    listed = {sample: set() for sample in range(6)}  # type: dict[int, set[tuple[int, ...]]]
    for sample, labels in zip(found.sample.tolist(), found.labels.tolist(), strict=True):
        listed[sample].add(tuple(labels))
    for bag, label in product(range(2), range(3)):
        often = int((gold[bag] == label).sum())
        wanted = {labels for labels in product(range(3), repeat=3) if labels.count(label) == often}
        assert listed[3 * bag + label] == wanted


def test_all_classes_of_a_bag_show_the_same_instances() -> None:
    samples = benchmark_named("counts")(config(rule="counts", samples=5)).samples
    assert samples.inputs.shape == (50, 8, 1, 8, 8)
    assert samples.inputs[10:11].expand(10, -1, -1, -1, -1).equal(samples.inputs[10:20])
    assert not samples.inputs[9].equal(samples.inputs[10])


def test_no_instance_is_in_two_bags_or_held_out() -> None:
    train, test = halves("breast-cancer")
    bags = benchmark_named("proportions")(config(data="breast-cancer", samples=47)).samples.inputs.flatten(0, 1)
    seen = {tuple(row) for row in bags.tolist()}
    assert len(seen) == 376
    assert not seen & {tuple(row) for row in test.pixels.tolist()}
    assert len(train) + len(test) == 569


def test_more_bags_than_instances_are_refused() -> None:
    with pytest.raises(InputError, match="at most 149 bags"):
        benchmark_named("counts")(config(rule="counts", samples=150))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["proportions", "counts"])
def test_counts_teach_digits(rule: str) -> None:
    last = run(config(rule=rule, samples=149, epochs=8, batch=4 if rule == "proportions" else 10, lr=3e-3)).last
    assert last.accuracy is not None
    assert last.accuracy > 0.9
