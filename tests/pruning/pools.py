"""Small pools for the tests of joint inference, and the joint distribution written out in full."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from clipper import Candidates, ProximityGraph


def brute_force_marginals(
    candidates: Candidates, graph: ProximityGraph, error: float, confused: Tensor | None = None
) -> Tensor:
    """The marginals `(n, m, c)` of the joint distribution, by trying every combination of candidates."""
    n, m, c = candidates.samples, candidates.slots, candidates.classes
    times = torch.ones(c, c) if confused is None else confused
    rows = [candidates.labels[candidates.sample == i].tolist() for i in range(n)]
    marginals = torch.zeros(n, m, c, dtype=torch.float64)
    for world in itertools.product(*rows):
        labels = [label for row in world for label in row]
        weight = 1.0
        for a, b in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
            weight *= 1 - error if labels[a] == labels[b] else error / (c - 1) * float(times[labels[a], labels[b]])
        for i, row in enumerate(world):
            for j, label in enumerate(row):
                if label >= 0:
                    marginals[i, j, label] += weight
    return marginals / marginals.sum(2, keepdim=True).clamp(min=1e-300)


def clustered(
    samples: int, slots: int = 3, classes: int = 10, spread: float = 0.25, seed: int = 0
) -> tuple[Candidates, Tensor, Tensor]:
    """Sums of clustered points: candidates, embeddings `(n, m, d)` and gold `(n, m)`."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 8, generator=generator)
    gold = torch.randint(0, classes, (samples, slots), generator=generator)
    embeddings = centres[gold] + spread * torch.randn(samples, slots, 8, generator=generator)
    return Candidates.from_rule(sum, gold.sum(1), slots, classes), embeddings, gold


def shuffled(embeddings: Tensor, seed: int = 0) -> Tensor:
    """The same vectors, each with another instance."""
    flat = embeddings.flatten(0, 1)
    return flat[torch.randperm(len(flat), generator=torch.Generator().manual_seed(seed))].view_as(embeddings)
