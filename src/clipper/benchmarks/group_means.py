"""Labels of single images from the sums of many: least squares over groups of similar images.

A sum is linear in its labels. Images with similar outlines form groups, and each sum counts how many of its images are
in each group. So the sums are linear equations in the mean labels of the groups, which least squares solves. If a group
holds only one digit, its mean label is near a whole number. The images are grouped three times from different starts,
and an image has a label if all three groupings give the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.proximity import Outlines, embed
from clipper.training import Samples

EQUATIONS = 10
"""Sums per group; with fewer, the sums do not determine the mean labels well."""
GROUPINGS = 3
"""How often images are grouped, from different starts."""
_DIRECTIONS = 64
"""Images are grouped by this many principal directions of their outlines."""
_ROUNDS = 10
"""Rounds of k-means."""
_TOLERANCE = 0.25
"""How far a mean label, averaged over the groupings, may be from a whole number."""
_RIDGE = 1.0
"""Ridge penalty of the least squares; a group that never occurs gets the mean of all labels."""
_CHUNK = 5_000
"""Images compared with all groups at a time."""


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
        times = -(-samples * slots // len(labels))
        order = torch.cat([torch.randperm(len(labels), generator=generator) for _ in range(times)])
        chosen = order[: samples * slots].view(samples, slots)
        return cls(chosen, labels[chosen].sum(1).double())


def labelled_images(pixels: Tensor, sums: Sums, classes: int, seed: int, gold: Tensor | None = None) -> Samples:
    """The images whose label follows from the sums, each a sample of its own with this label as its candidate.

    Args:
        pixels: all images, `(images, *shape)`.
        sums: what is known of them.
        classes: how many labels there are.
        seed: of the groupings.
        gold: the label of each image, `(images,)`; used only to measure how many of the labels found are right.

    Raises:
        InputError: the sums are too few, or determine no label.
    """
    if len(sums.totals) < EQUATIONS * classes:
        raise InputError(
            f"expected at least {EQUATIONS * classes} sums to form groups of images, got {len(sums.totals)}"
        )
    found = agreed_labels(principal(embed(Outlines(), pixels.unsqueeze(1))[:, 0]), sums, classes, seed)
    kept = (found >= 0).nonzero()[:, 0]
    if not len(kept):
        raise InputError("the sums determine the label of no image; draw more sums, or shorter ones")
    candidates = Candidates.from_tensors(found[kept, None], torch.arange(len(kept)), classes)
    return Samples(pixels[kept].unsqueeze(1), candidates, gold=None if gold is None else gold[kept, None])


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
    agreed = (nearest == nearest[0]).all(0) & ((average - nearest[0]).abs() < _TOLERANCE)
    agreed &= (nearest[0] >= 0) & (nearest[0] < classes)
    return torch.where(agreed, nearest[0].long(), -1)


def mean_labels(group: Tensor, sums: Sums, classes: int) -> Tensor:
    """The mean label of each group, `(groups,)`, that fits the sums best, by least squares.

    Args:
        group: the group of each image, `(images,)`.
        sums: what is known.
        classes: how many labels there are.

    Examples:
        >>> labels, group = torch.tensor([0, 1, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 2, 2, 2])
        >>> mean_labels(group, Sums.drawn(labels, samples=500, slots=4, seed=0), classes=3).round().tolist()
        [0.0, 1.0, 2.0]
    """
    groups, (samples, slots) = int(group.max()) + 1, sums.chosen.shape
    place = groups * torch.arange(samples)[:, None] + group[sums.chosen]
    counts = place.flatten().bincount(minlength=samples * groups).view(samples, groups).double()
    middle = (classes - 1) / 2
    normal = counts.T @ counts + _RIDGE * torch.eye(groups, dtype=torch.float64)
    means: Tensor = torch.linalg.solve(normal, counts.T @ (sums.totals - slots * middle)) + middle
    return means


def principal(vectors: Tensor) -> Tensor:
    """The first 64 principal components of vectors `(images, d)`."""
    vectors = vectors - vectors.mean(0)
    _, directions = torch.linalg.eigh((vectors.T @ vectors).double())  # ascending
    components: Tensor = vectors @ directions[:, -_DIRECTIONS:].to(vectors)
    return components


def grouped(places: Tensor, groups: int, generator: torch.Generator) -> Tensor:
    """The group of each image, `(images,)`, by k-means from images drawn at random."""
    centres = places[torch.randperm(len(places), generator=generator)[:groups]]
    for _ in range(_ROUNDS):
        halves = (centres**2).sum(1) / 2
        group = torch.cat([(part @ centres.T - halves).argmax(1) for part in torch.split(places, _CHUNK)])
        size = group.bincount(minlength=len(centres)).clamp(min=1)
        centres = torch.zeros_like(centres).index_add_(0, group, places) / size[:, None]
    return group
