"""Scenes: objects in boxes, their features, and how they lie to one another. Knows no sentence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SMALLEST = 1e-6
"""Width and height of a box that has none."""


@dataclass(frozen=True, eq=False)
class Scenes:
    """The objects of all scenes, one after the other; names and relations are gold, for sentences and measuring."""

    features: Tensor
    """`(objects, d)`"""
    boxes: Tensor
    """`(objects, 4)`: left, top, width, height, as shares of the picture."""
    name: Tensor
    """`(objects,)`: places in the vocabulary."""
    scene: Tensor
    """`(objects,)`, ascending."""
    subject: Tensor
    """`(pairs,)`: object ids, ascending."""
    object: Tensor
    """`(pairs,)`: object ids of the same scene."""
    relation: Tensor
    """`(pairs,)`: places in the vocabulary."""
    generated: bool
    """Whether they were made here, instead of taken from VQAR."""

    def pair_inputs(self, subject: Tensor, object_: Tensor) -> Tensor:
        """What a relation is read from: both features and boxes, `(pairs, 2·(d+4))`."""
        whole = torch.cat([self.features, self.boxes], 1)
        return torch.cat([whole[subject], whole[object_]], 1)

    def __repr__(self) -> str:
        scenes = int(self.scene[-1]) + 1 if len(self.scene) else 0
        kind = "generated " if self.generated else ""
        return f"Scenes({scenes:,} {kind}scenes, {len(self.name):,} objects, {len(self.relation):,} relations)"


def geometry(subject: Tensor, object_: Tensor) -> Tensor:
    """How a box lies to another, whatever their place and size: offset in widths and heights, and relative size.

    Examples:
        >>> geometry(torch.tensor([[0.4, 0.4, 0.2, 0.2]]), torch.tensor([[0.6, 0.4, 0.2, 0.2]])).round().abs()
        tensor([[1., 0., 0., 0.]])
    """
    subject, object_ = (torch.cat([box[:, :2], box[:, 2:].clamp(min=_SMALLEST)], 1) for box in (subject, object_))
    size = subject[:, 2:].prod(1, keepdim=True).sqrt()
    centre, other = (box[:, :2] + box[:, 2:] / 2 for box in (subject, object_))
    return torch.cat([(other - centre) / size, (object_[:, 2:] / subject[:, 2:]).log()], 1)
