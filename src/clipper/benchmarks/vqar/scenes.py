"""Scenes: objects in boxes, their features, and their relative positions.

Generated scenes have the form of VQAR's. They replace VQAR's own if these are missing, and are marked as generated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.errors import InputError

_SMALLEST = 1e-6
"""The least width and height of a box, so that none is zero."""


@dataclass(frozen=True, eq=False)
class Scenes:
    """The objects of all scenes, one after the other; names and relations are gold, for sentences and measuring.

    Attributes:
        features: `(objects, d)`.
        boxes: `(objects, 4)`: left, top, width, height, as shares of the picture.
        name: `(objects,)`: indices into the vocabulary.
        scene: `(objects,)`: the number of each object's scene, ascending.
        subject: `(pairs,)`: object ids, ascending.
        object: `(pairs,)`: object ids of the same scene.
        relation: `(pairs,)`: indices into the vocabulary.
        generated: whether they were made here, instead of taken from VQAR.
    """

    features: Tensor
    boxes: Tensor
    name: Tensor
    scene: Tensor
    subject: Tensor
    object: Tensor
    relation: Tensor
    generated: bool

    def pair_inputs(self, subject: Tensor, object_: Tensor) -> Tensor:
        """The inputs of the relation classifier: features and boxes of both objects, `(pairs, 2·(d+4))`."""
        whole = torch.cat([self.features, self.boxes], 1)
        return torch.cat([whole[subject], whole[object_]], 1)

    def __repr__(self) -> str:
        scenes = int(self.scene[-1]) + 1 if len(self.scene) else 0
        kind = "generated " if self.generated else ""
        return f"Scenes({scenes:,} {kind}scenes, {len(self.name):,} objects, {len(self.relation):,} relations)"


def geometry(subject: Tensor, object_: Tensor) -> Tensor:
    """The relative position of two boxes: the offset in units of the subject's size, and the log of the relative size.

    Examples:
        >>> geometry(torch.tensor([[0.4, 0.4, 0.2, 0.2]]), torch.tensor([[0.6, 0.4, 0.2, 0.2]])).round().abs()
        tensor([[1., 0., 0., 0.]])
    """
    subject, object_ = (torch.cat([box[:, :2], box[:, 2:].clamp(min=_SMALLEST)], 1) for box in (subject, object_))
    size = subject[:, 2:].prod(1, keepdim=True).sqrt()
    centre, other = (box[:, :2] + box[:, 2:] / 2 for box in (subject, object_))
    return torch.cat([(other - centre) / size, (object_[:, 2:] / subject[:, 2:]).log()], 1)


LATENT = 24
"""Dimensions of the space in which each name is a point."""
_FEATURES = 32
"""How many features an object has."""
_SCATTER = 0.25
"""The deviation of boxes from the position that belongs to their relation."""
_WORLD = 20_260_207
"""Seed of what all scenes share: how names look and where relations lie."""
_ANGLES = (0, 180, 108, 288, 36, 216, 72, 252, 144, 324)
_DISTANCES = (1.5, 2.5, 0.6, 3.5, 4.5)
_SIZES = (1.0, 0.5, 2.0, 0.25, 4.0)


def placements(relations: int) -> Tensor:
    """The position of the object of each relation, relative to its subject, as in `geometry`: `(relations, 4)`.

    Examples:
        >>> placements(2)[:, 0].round()  # right, left
        tensor([ 2., -2.])
    """
    number = torch.arange(relations)
    angle = torch.tensor(_ANGLES)[number % 10] * (math.pi / 180)
    distance = torch.tensor(_DISTANCES)[(number // 10 + number // 50) % 5]
    size = torch.tensor(_SIZES)[(number // 10) % 5].log()
    offset = torch.stack([angle.cos(), -angle.sin()], 1) * distance[:, None]
    return torch.cat([offset, size[:, None].expand(-1, 2)], 1)


def generate(scenes: int, names: int, relations: int, seed: int = 0, *, overlap: float = 1.0) -> Scenes:
    """Scenes of a subject and a few objects around it; their relations follow from the boxes.

    A name is a point in `LATENT` dimensions, and an object is drawn around it. The features are a fixed linear map of
    that, with a little noise. A relation is a position relative to the subject. Each box is placed near one of these
    positions, and its relation is the nearest one.

    Args:
        scenes: how many.
        names: how many names to use, the first of the vocabulary, all equally frequent.
        relations: how many relations to use, the first of the vocabulary.
        seed: of the draws; how names look and where relations lie is the same for all seeds.
        overlap: the spread of objects of one name, in units of the distance between names.

    Examples:
        >>> generate(100, names=50, relations=20)
        Scenes(100 generated scenes, 256 objects, 156 relations)
    """
    if scenes < 1 or overlap < 0:
        raise InputError(f"expected at least one scene and an overlap of at least 0, got {scenes} and {overlap}")
    generator = torch.Generator().manual_seed(seed)
    count = 2 + torch.randint(2, (scenes,), generator=generator)  # (scenes,): a subject and one or two others
    scene = torch.repeat_interleave(torch.arange(scenes), count)
    first = count.cumsum(0) - count
    subject = first[scene]
    other = (torch.arange(len(scene)) != subject).nonzero()[:, 0]
    name = torch.randint(names, (len(scene),), generator=generator)
    boxes = _subjects(len(scene), generator)
    wanted = torch.randint(relations, (len(other),), generator=generator)
    boxes[other], relation = _placed(boxes[subject[other]], wanted, relations, generator)
    features = _features(name, names, overlap, generator)
    return Scenes(features, boxes, name, scene, subject[other], other, relation, generated=True)


def _subjects(count: int, generator: torch.Generator) -> Tensor:
    """Boxes near the middle, `(count, 4)`."""
    size = 0.04 + 0.02 * torch.rand(count, 2, generator=generator)
    corner = 0.5 + 0.2 * (torch.rand(count, 2, generator=generator) - 0.5) - size / 2
    return torch.cat([corner, size], 1)


def _placed(subject: Tensor, wanted: Tensor, relations: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A box for each wanted relation to a subject's box, and the relation that results."""
    places = placements(relations)
    position = places[wanted] + _SCATTER * torch.randn(len(wanted), 4, generator=generator)
    size = subject[:, 2:] * position[:, 2:].exp()
    centre = subject[:, :2] + subject[:, 2:] / 2 + position[:, :2] * subject[:, 2:].prod(1, keepdim=True).sqrt()
    boxes = torch.cat([centre - size / 2, size], 1)
    return boxes, torch.cdist(geometry(subject, boxes), places).argmin(1)


def _features(name: Tensor, names: int, overlap: float, generator: torch.Generator) -> Tensor:
    world = torch.Generator().manual_seed(_WORLD)
    looks = torch.randn(1000, LATENT, generator=world)[:names]  # 1,000, so that a name looks the same among 50 and 100
    image = torch.randn(LATENT, _FEATURES, generator=world) / math.sqrt(LATENT)
    latent = looks[name] + overlap * torch.randn(len(name), LATENT, generator=generator)
    return latent @ image + 0.1 * torch.randn(len(name), _FEATURES, generator=generator)
