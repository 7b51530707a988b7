"""SUM-1024: the sum of 1,024 digits, in CTSketch's setting: 5,000 sums, in which images are reused.

The lattice of such a sum has 47 million arcs, and a step of the exact loss uses a thousand images for one number. But
a sum is linear in the labels. Images with similar outlines form 500 groups, and each sum counts how many of its images
are in each group. So 5,000 sums are 5,000 linear equations in the mean labels of 500 groups, which least squares
solves. If a group holds only one digit, its mean label is near a whole number. The images are grouped three times from
different starts. The network trains on the images for which all three groupings give the same digit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clipper.benchmarks import networks
from clipper.benchmarks.config import AUTO, RunConfig
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import DIGITS
from clipper.benchmarks.registry import Benchmark, register
from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.proximity import Outlines, embed
from clipper.training import Samples

DATA = {"mnist": ("LeNet", "MnistCnn"), "digits": DIGITS["digits"]}
EQUATIONS = 10
"""Sums for each group; with fewer, the mean labels are not well determined."""
GROUPINGS = 3
"""How often images are grouped, from different starts."""
_DIRECTIONS = 64
"""Principal directions of the outlines that images are grouped by."""
_ROUNDS = 10
"""Of k-means."""
_OFF = 0.25
"""How far a mean label, averaged over the groupings, may be from a whole number."""
_RIDGE = 1.0
"""Ridge of the least squares; a group that never occurs gets the mean label of all."""
_CHUNK = 5_000
"""Images compared with all groups at a time."""


def _of_small_digits(config: RunConfig) -> RunConfig:
    return replace(config, data="digits", slots=min(config.slots, 64), samples=min(config.samples, 1_000))


@register("long-sum", data=DATA, engines=("semantic",), quick=_of_small_digits)
def build(config: RunConfig) -> Benchmark:
    """The images whose digit follows from the sums of M images, with that digit."""
    images, test = train_and_test(config.data, config.data_root)
    if config.samples < EQUATIONS * images.classes:
        raise InputError(
            f"expected at least {EQUATIONS * images.classes} sums to form groups of images, got {config.samples}"
        )
    sums = Sums.drawn(images.labels, config.samples, config.slots, config.seed)
    places = principal(embed(Outlines(), images.pixels.unsqueeze(1))[:, 0])
    found = agreed_labels(places, sums, images.classes, config.seed)
    kept = (found >= 0).nonzero()[:, 0]
    if not len(kept):
        raise InputError("the sums determine the digit of no image; draw more sums, or shorter ones")
    name = DATA[config.data][0] if config.network == AUTO else config.network
    candidates = Candidates.from_tensors(found[kept, None], torch.arange(len(kept)), images.classes)
    return Benchmark(
        Samples(images.pixels[kept].unsqueeze(1), candidates, gold=images.labels[kept, None]),
        getattr(networks, name)(images.classes),
        (test.pixels, test.labels),
        encoder=Outlines(),
        label_names=images.label_names,
        note=f"{len(kept):,} of {len(images):,} images, whose digit the sums say.",
    )


@dataclass(frozen=True)
class Sums:
    """What is known: the images of each sum, and its value.

    Attributes:
        chosen: the images of each sum, `(n, m)`.
        totals: `(n,)` float64.
    """

    chosen: Tensor
    totals: Tensor

    @classmethod
    def drawn(cls, labels: Tensor, samples: int, slots: int, seed: int) -> Sums:
        """Draw all images into sums, each once, and repeat until there are enough sums.

        Examples:
            >>> sums = Sums.drawn(torch.arange(10), samples=20, slots=5, seed=0)
            >>> sums.chosen.flatten().bincount().tolist(), float(sums.totals.sum())
            ([10, 10, 10, 10, 10, 10, 10, 10, 10, 10], 450.0)
        """
        generator = torch.Generator().manual_seed(seed)
        decks = -(-samples * slots // len(labels))
        order = torch.cat([torch.randperm(len(labels), generator=generator) for _ in range(decks)])
        chosen = order[: samples * slots].view(samples, slots)
        return cls(chosen, labels[chosen].sum(1).double())


def agreed_labels(places: Tensor, sums: Sums, classes: int, seed: int) -> Tensor:
    """The label of each image if all groupings agree on it, else -1, `(images,)`.

    Args:
        places: the embedding of each image, `(images, d)`.
        sums: what is known.
        classes: how many labels there are.
        seed: of the groupings.
    """
    generator = torch.Generator().manual_seed(seed)
    groupings = [grouped(places, len(sums.totals) // EQUATIONS, generator) for _ in range(GROUPINGS)]
    means = torch.stack([mean_labels(group, sums, classes)[group] for group in groupings])  # (groupings, images)
    nearest, average = means.round(), means.mean(0)
    sure = (nearest == nearest[0]).all(0) & ((average - nearest[0]).abs() < _OFF)
    sure &= (nearest[0] >= 0) & (nearest[0] < classes)
    return torch.where(sure, nearest[0].long(), -1)


def mean_labels(group: Tensor, sums: Sums, classes: int) -> Tensor:
    """The mean label of each group, `(groups,)`, that fits the sums best, by least squares.

    Examples:
        >>> labels, group = torch.tensor([0, 1, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 2, 2, 2])
        >>> mean_labels(group, Sums.drawn(labels, samples=500, slots=4, seed=0), classes=3).round().tolist()
        [0.0, 1.0, 2.0]
    """
    groups, (samples, slots) = int(group.max()) + 1, sums.chosen.shape
    place = groups * torch.arange(samples)[:, None] + group[sums.chosen]
    often = place.flatten().bincount(minlength=samples * groups).view(samples, groups).double()
    middle = (classes - 1) / 2
    together = often.T @ often + _RIDGE * torch.eye(groups, dtype=torch.float64)
    means: Tensor = torch.linalg.solve(together, often.T @ (sums.totals - slots * middle)) + middle
    return means


def principal(vectors: Tensor) -> Tensor:
    """Vectors `(images, d)` along their principal directions, the first 64."""
    vectors = vectors - vectors.mean(0)
    _, directions = torch.linalg.eigh((vectors.T @ vectors).double())  # ascending
    placed: Tensor = vectors @ directions[:, -_DIRECTIONS:].to(vectors)
    return placed


def grouped(places: Tensor, groups: int, generator: torch.Generator) -> Tensor:
    """The group of each image, `(images,)`, by k-means from images drawn at random."""
    centres = places[torch.randperm(len(places), generator=generator)[:groups]]
    for _ in range(_ROUNDS):
        halves = (centres**2).sum(1) / 2
        group = torch.cat([(part @ centres.T - halves).argmax(1) for part in torch.split(places, _CHUNK)])
        size = group.bincount(minlength=len(centres)).clamp(min=1)
        centres = torch.zeros_like(centres).index_add_(0, group, places) / size[:, None]
    return group
