"""SUM-1024: what a thousand equations say about groups of images, and what they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clipper.benchmarks import RunConfig, benchmark_named, run
from clipper.benchmarks.group_means import Sums, agreed_labels, grouped, mean_labels, principal
from clipper.errors import InputError


def config(**changes: object) -> RunConfig:
    values = {"rule": "long-sum", "data": "digits", "slots": 64, "samples": 1_000, "epochs": 1, "objective": "none"}
    return RunConfig(**(values | changes))  # type: ignore[arg-type]


def clusters(per_label: int, seed: int, apart: float = 20.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Places around ten centres, and the label of each."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(10).repeat_interleave(per_label)
    centres = apart * torch.randn(10, 70, generator=generator)
    return centres[labels] + torch.randn(len(labels), 70, generator=generator), labels


def test_every_image_comes_equally_often_and_a_sum_is_that_of_its_labels() -> None:
    labels = torch.arange(30) % 10
    sums = Sums.drawn(labels, samples=40, slots=9, seed=3)
    assert sums.chosen.flatten().bincount().tolist() == [12] * 30
    assert sums.totals.tolist() == [sum(row) for row in labels[sums.chosen].tolist()]


def test_pure_groups_get_their_label_and_a_mixed_one_a_mean() -> None:
    labels = torch.tensor([3] * 50 + [8] * 50 + [0] * 30 + [7] * 30)
    group = torch.tensor([0] * 50 + [1] * 50 + [2] * 60)
    means = mean_labels(group, Sums.drawn(labels, samples=2_000, slots=16, seed=0), classes=10)
    assert means.tolist() == pytest.approx([3, 8, 3.5], abs=0.3)


def test_clear_clusters_are_labelled_by_their_sums_alone() -> None:
    places, labels = clusters(60, seed=0)
    found = agreed_labels(places, Sums.drawn(labels, 1_000, 128, seed=1), classes=10, seed=2)
    assert float((found >= 0).double().mean()) > 0.9
    assert found[found >= 0].equal(labels[found >= 0])


def test_where_places_say_nothing_hardly_an_image_is_labelled() -> None:
    _, labels = clusters(60, seed=0)
    places = torch.randn(len(labels), 70, generator=torch.Generator().manual_seed(5))
    found = agreed_labels(places, Sums.drawn(labels, 1_000, 128, seed=1), classes=10, seed=2)
    assert float((found >= 0).double().mean()) < 0.1


def test_groups_are_of_close_images_and_principal_directions_keep_them_apart() -> None:
    places, labels = clusters(40, seed=4)
    short = principal(places)
    assert short.shape == (400, 64)
    group = grouped(short, 60, torch.Generator().manual_seed(0))
    pure = [labels[group == g].unique().numel() == 1 for g in group.unique().tolist()]
    assert sum(pure) > 0.9 * len(pure)


def test_the_network_learns_images_and_nothing_that_the_sums_do_not_say() -> None:
    made = benchmark_named("long-sum")(config())
    assert made.samples.candidates.counts == [1] * len(made.samples)
    assert 500 < len(made.samples) < 1_198
    assert f"{len(made.samples)} of 1,198" in made.note.replace(f"{len(made.samples):,}", str(len(made.samples)))


def test_too_few_sums_are_refused() -> None:
    with pytest.raises(InputError, match="at least 100 sums"):
        benchmark_named("long-sum")(config(samples=50))


@pytest.mark.slow
def test_sums_of_sixty_four_teach_digits() -> None:
    last = run(config(epochs=20, batch=16, lr=3e-3, schedule="one-cycle")).last
    assert last.accuracy is not None
    assert last.gold is not None
    assert last.accuracy > 0.9
    assert last.gold > 0.98


def test_a_warm_up_trains_on_what_the_sums_say_before_the_run_begins() -> None:
    sums = RunConfig(rule="sum", data="digits", slots=4, samples=299, objective="none", epochs=1, batch=32)
    warm = run(replace(sums, warm_up=10)).last.accuracy
    cold = run(sums).last.accuracy
    assert cold is not None
    assert warm is not None
    assert warm > cold + 0.2
    labelled = benchmark_named("sum")(replace(sums, warm_up=1)).warm_up
    assert labelled is not None
    assert labelled.gold is not None
    right = labelled.candidates.contains(labelled.gold).double().mean()
    assert right > 0.9
    with pytest.raises(InputError, match="expected the rule sum with a warm-up of 1"):
        RunConfig(rule="max", warm_up=1)
    with pytest.raises(InputError, match="at least 100 sums"):
        run(replace(sums, samples=99, warm_up=1))
