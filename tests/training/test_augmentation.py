"""Augmentation: each transform against torch's own turns and shifts, and new images in every epoch of a run."""

from __future__ import annotations

import pytest
import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import learned_samples, run
from clipper.errors import InputError
from clipper.training import RandomAffine, RandomFlipShift

IMAGES = torch.rand(3, 2, 9, 9, generator=torch.Generator().manual_seed(0))


def drawing(monkeypatch, turn=0.0, size=0.0, right=0.0, down=0.0) -> None:
    """Let the next transform draw these shares of what it may do, the same for all images."""
    drawn = torch.tensor([turn, size, right, down])[:, None].expand(4, len(IMAGES))
    monkeypatch.setattr(torch, "rand", lambda *_, **__: (drawn + 1) / 2)


def test_a_full_turn_of_ninety_degrees_is_torchs_own(monkeypatch):
    drawing(monkeypatch, turn=1.0)
    turned = RandomAffine(degrees=90, shift=0, scale=0)(IMAGES)
    assert torch.allclose(turned, torch.rot90(IMAGES, -1, (2, 3)), atol=1e-5) or torch.allclose(
        turned, torch.rot90(IMAGES, 1, (2, 3)), atol=1e-5
    )


@pytest.mark.parametrize(("axis", "name"), [(3, "right"), (2, "down")])
def test_a_shift_moves_whole_pixels_and_fills_up_with_zeros(monkeypatch, axis, name):
    drawing(monkeypatch, **{name: 1.0})
    moved = RandomAffine(degrees=0, shift=2 / 9, scale=0)(IMAGES)
    expected = torch.roll(IMAGES, -2, axis)
    expected.narrow(axis, 7, 2).zero_()
    assert torch.allclose(moved, expected, atol=1e-5)


def test_a_smaller_image_keeps_its_centre_and_gains_a_border(monkeypatch):
    drawing(monkeypatch, size=-1.0)
    small = RandomAffine(degrees=0, shift=0, scale=0.5)(torch.ones(3, 1, 9, 9))
    assert torch.equal(small[:, 0, 3:6, 3:6], torch.ones(3, 3, 3))
    assert float(small[:, 0, 0].abs().max()) == 0


def test_images_of_a_batch_are_changed_each_in_its_own_way():
    torch.manual_seed(0)
    one, two = RandomAffine()(IMAGES[:1].expand(2, -1, -1, -1))
    assert not torch.allclose(one, two, atol=1e-3)


def test_a_photograph_is_mirrored_or_not_and_shifted_with_its_border_repeated():
    torch.manual_seed(0)
    one = IMAGES[:1]
    padded = torch.nn.functional.pad(one, (1, 1, 1, 1), mode="replicate")[0]
    shifts = [padded[:, row : row + 9, column : column + 9] for row in range(3) for column in range(3)]
    possible = shifts + [image.flip(2) for image in shifts]
    found = [
        [i for i, image in enumerate(possible) if torch.equal(image, changed)]
        for changed in RandomFlipShift(pixels=1)(one.expand(500, -1, -1, -1))
    ]
    assert all(len(each) == 1 for each in found)
    assert {each[0] for each in found} == set(range(18))  # each image in its own way, and all ways occur


@pytest.mark.parametrize("transform", [RandomAffine(), RandomFlipShift()])
@pytest.mark.parametrize("images", [torch.rand(9, 9), torch.zeros(1, 1, 9, 9, dtype=torch.uint8)])
def test_what_is_no_batch_of_images_is_refused(images, transform):
    with pytest.raises(InputError, match="instances, channels, height, width"):
        transform(images)


@pytest.mark.parametrize("augment", ["affine", "flip-shift"])
def test_a_run_learns_from_changed_images_and_is_measured_on_the_others(augment):
    config = RunConfig(samples=20, slots=2, objective="none", epochs=2, augment=augment, schedule="one-cycle")
    benchmark = benchmark_named("sum")(config)
    samples = learned_samples(config, benchmark)
    assert samples.gold is benchmark.samples.gold
    assert not torch.allclose(samples.load(torch.arange(3)), benchmark.samples.inputs[:3], atol=1e-3)
    first, second = run(config), run(config)
    assert [epoch.loss for epoch in first.epochs] == [epoch.loss for epoch in second.epochs]


def test_a_data_set_without_images_in_memory_is_not_augmented():
    with pytest.raises(InputError, match="images in memory"):
        run(RunConfig(rule="bags", data="biopsies", slots=8, samples=20, epochs=1, augment="affine"))


def test_several_passes_take_no_schedule():
    with pytest.raises(InputError, match="one-cycle"):
        RunConfig(objective="joint", passes=2, schedule="one-cycle")
