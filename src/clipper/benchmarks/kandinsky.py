"""Kand-Logic: do three pictures of three coloured shapes follow one pattern? After rsbench (arXiv 2406.10368).

A primitive is one coloured shape. A picture has three primitives, and its pattern says how many different shapes and
how many different colours they have. A sample is three pictures; it is known whether they have the same pattern. The
shapes and colours of the nine primitives, two kinds of label, are the concepts to learn. Each primitive is drawn in an
image of its own, so that the network need not find it in the picture.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.networks import LeNet
from clipper.benchmarks.registry import Benchmark, register
from clipper.benchmarks.shortcuts import HELD_OUT, ConceptQuality, Outputs, Shortcuts, check_slots
from clipper.candidates import Lattice
from clipper.proximity import Outlines
from clipper.training import Classifiers, Encoders, Packing, Samples

SHAPES = ("square", "circle", "triangle")
COLOURS = {"red": (0.9, 0.1, 0.1), "yellow": (0.9, 0.8, 0.1), "blue": (0.1, 0.2, 0.9)}
KINDS = {"shape": 3, "colour": 3}
"""Labels 0 to 2 are shapes, 3 to 5 are colours."""
PICTURES, PRIMITIVES = 3, 3
"""Pictures of a sample, and primitives of a picture. A picture's slots are its shapes, then its colours."""
SLOTS = PICTURES * PRIMITIVES * len(KINDS)
SIDE = 28
"""Pixels of a primitive's side."""
_HELD_OUT_SEED = 2**31 - 1
"""Seed of the held-out samples; no run uses it."""
_DIFFERENT = (0, 0)
"""Stands for a pattern if the pictures so far have different ones."""

State = tuple[tuple[int, int] | None, int, frozenset[int], int]
"""After some slots of a sample: the pattern of the pictures read so far. Then, for the picture that is being read: its
number of shapes (0 until all are read), and of the present kind, the labels read and the number of slots read."""


def _fewer(config: RunConfig) -> RunConfig:
    return replace(config, slots=SLOTS, samples=min(config.samples, 60))


@register("kand-logic", data=("primitives",), encoders=("trainable", "auto"), engines=("semantic",), quick=_fewer)
def build(config: RunConfig) -> Benchmark:
    """Samples of nine primitives, and whether the three pictures that they make follow one pattern."""
    check_slots(config, SLOTS)
    gold, test = draw_labels(config.samples, config.seed), draw_labels(HELD_OUT, _HELD_OUT_SEED)
    same = SamePattern.of_pictures()
    targets = same.value(gold)
    candidates = pattern_candidates(targets.tolist())
    drawn, held_out = (draw_primitives(*seeded) for seeded in ((gold, config.seed), (test, _HELD_OUT_SEED)))
    packing = Packing.of(dict.fromkeys(KINDS, drawn), candidates)
    shown = packing.pack(dict.fromkeys(KINDS, held_out), candidates.kind[:1].expand(len(test), -1))
    return Benchmark(
        Samples(packing.pack(dict.fromkeys(KINDS, drawn), candidates.kind), candidates, gold=gold, targets=targets),
        Classifiers({kind: LeNet(size, channels=3) for kind, size in KINDS.items()}, packing),
        ConceptQuality(
            shown.flatten(0, 1),
            test.flatten(),
            torch.arange(test.numel()).view_as(test),
            None,
            same,
            Shortcuts.of(candidates, gold),
        ),
        encoder=Encoders({"shape": lambda pictures: Outlines()(_darkness(pictures)), "colour": mean_colour}, packing),
        label_names=[*SHAPES, *COLOURS],
        target_names=[("different patterns", "one pattern")[target] for target in targets.tolist()],
        slot="primitive",
        pictures=lambda ids: drawn[ids],
    )


def pattern_candidates(targets: Sequence[int]) -> Lattice:
    """The shapes and colours of samples whose pictures follow one pattern (target 1), or do not (0).

    Examples:
        >>> pattern_candidates([0, 1]).counts[1] < pattern_candidates([0]).counts[0]
        True
    """
    return Lattice.from_rule(
        (None, 0, frozenset(), 0),
        _step,
        lambda state: int(state[0] != _DIFFERENT),
        targets,
        SLOTS,
        KINDS,
        domains=([range(3)] * PRIMITIVES + [range(3, 6)] * PRIMITIVES) * PICTURES,
    )


def _step(state: State, label: int) -> State:
    so_far, shapes, seen, slot = state
    seen, slot = seen | {label}, slot + 1
    if slot < PRIMITIVES:
        return so_far, shapes, seen, slot
    if not shapes:
        return so_far, len(seen), frozenset(), 0
    own = shapes, len(seen)
    return own if so_far in (None, own) else _DIFFERENT, 0, frozenset(), 0


class SamePattern(Outputs):
    """Whether all pictures of a sample follow one pattern: as many shapes in each, and as many colours."""

    @classmethod
    def of_pictures(cls) -> SamePattern:
        """All combinations of three labels of a kind, and how many different labels each has."""
        rows = list(itertools.product(range(3), repeat=PRIMITIVES))
        return cls(torch.tensor(rows), torch.tensor([len(set(row)) - 1 for row in rows]))

    def probability(self, concepts: Tensor) -> Tensor:
        """As in `Outputs`: the probability of different patterns, and of the same pattern."""
        slots = concepts.reshape(len(concepts), PICTURES, len(KINDS), PRIMITIVES, -1)
        same = concepts.new_ones(len(concepts))
        for kind in range(len(KINDS)):
            labels = slots[:, :, kind, :, 3 * kind : 3 * kind + 3]
            number = super().probability(labels.flatten(0, 1)).view(len(concepts), PICTURES, -1)
            same = same * number.prod(1).sum(1)
        return torch.stack([1 - same, same], dim=1)

    def value(self, concepts: Tensor) -> Tensor:
        """As in `Outputs`."""
        return self.probability(torch.nn.functional.one_hot(concepts, sum(KINDS.values())).float()).argmax(1)


def draw_labels(samples: int, seed: int) -> Tensor:
    """The shapes and colours of some samples, `(samples, 18)`; the pictures of every second one follow one pattern.

    Examples:
        >>> labels = draw_labels(100, seed=0)
        >>> labels.shape, int(SamePattern.of_pictures().value(labels).sum()) >= 50
        (torch.Size([100, 18]), True)
    """
    generator = torch.Generator().manual_seed(seed)
    triples = SamePattern.of_pictures()
    chosen = torch.randint(len(triples.rows), (samples, PICTURES, len(KINDS)), generator=generator)
    for number in range(PRIMITIVES):  # the number of different labels among three, minus one
        alike = (triples.output == number).nonzero()[:, 0]
        others = alike[torch.randint(len(alike), (samples, PICTURES, len(KINDS)), generator=generator)]
        wanted = (triples.output[chosen[:, :1]] == number) & (torch.arange(samples) % 2 == 0)[:, None, None]
        chosen = torch.where(wanted.expand_as(chosen), others, chosen)
    labels = triples.rows[chosen]  # (samples, pictures, kinds, primitives)
    return (labels + 3 * torch.arange(len(KINDS))[:, None]).flatten(1)


def draw_primitives(labels: Tensor, seed: int) -> Tensor:
    """Each slot's primitive, `(n, 18, 3, side, side)` in 0 … 1: a coloured shape of any size on white, in noise.

    Examples:
        >>> draw_primitives(draw_labels(2, seed=0), seed=0).shape
        torch.Size([2, 18, 3, 28, 28])
    """
    generator = torch.Generator().manual_seed(seed)
    both = labels.view(-1, PICTURES, len(KINDS), PRIMITIVES)
    shape, colour = both[:, :, 0].flatten(), both[:, :, 1].flatten() - 3

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(len(shape), 1, 1, generator=generator)

    line = torch.linspace(-1, 1, SIDE).expand(SIDE, SIDE)
    size = between(0.45, 0.8)
    x, y = ((axis + between(-0.15, 0.15)) / size for axis in (line, line.T))
    square, circle = torch.maximum(x.abs(), y.abs()) - 0.85, (x * x + y * y).sqrt() - 1
    triangle = torch.maximum(0.87 * x.abs() - 0.5 * y - 0.5, y - 0.6)  # all three are negative inside
    edge = torch.stack([square, circle, triangle], 1)[torch.arange(len(shape)), shape]
    inside = torch.sigmoid(-edge * size * SIDE)[:, None]
    paint = torch.tensor(list(COLOURS.values()))[colour]
    paint = (paint + 0.08 * torch.randn(paint.shape, generator=generator))[:, :, None, None]
    noise = 0.05 * torch.randn(len(shape), 3, SIDE, SIDE, generator=generator)
    drawn = (inside * paint + (1 - inside) + noise).clamp(0, 1)
    primitives = drawn.view(-1, PICTURES, 1, PRIMITIVES, 3, SIDE, SIDE)
    return primitives.expand(-1, -1, len(KINDS), -1, -1, -1, -1).flatten(1, 3)


def _darkness(pictures: Tensor) -> Tensor:
    """How far each pixel is from white, `(instances, 1, side, side)`."""
    return 1 - pictures.amin(1, keepdim=True)


def mean_colour(pictures: Tensor) -> Tensor:
    """The mean colour of what is drawn, `(instances, 3)`.

    Examples:
        >>> red = torch.ones(1, 3, 4, 4)
        >>> red[0, 1:, 1:3, 1:3] = 0
        >>> mean_colour(red)
        tensor([[1., 0., 0.]])
    """
    dark = _darkness(pictures)
    return (pictures * dark).sum((2, 3)) / dark.sum((2, 3)).clamp(min=1e-6)
