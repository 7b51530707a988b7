"""Tasks: images drawn into samples, and the rule that their labels satisfy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.datasets import Images
from clipper.candidates import Candidates
from clipper.errors import InputError

RULES: dict[str, Callable[..., Any]] = {"sum": sum, "max": max}
"""The rules that a task may be named after."""


@dataclass(frozen=True, eq=False)
class Task:
    """Samples to learn from. The gold labels are for measuring only."""

    inputs: Tensor
    """`(n, m, channels, height, width)`"""
    gold: Tensor
    """`(n, m)`"""
    targets: Tensor
    """`(n,)`: what the rule gives."""
    candidates: Candidates

    def batches(self, size: int, seed: int) -> list[Tensor]:
        """One epoch's shuffled batches of sample ids."""
        order = torch.randperm(len(self.gold), generator=torch.Generator().manual_seed(seed))
        return list(torch.split(order, size))


def draw(images: Images, rule: str, samples: int, slots: int, seed: int = 0) -> Task:
    """Draw images into samples of `slots`, none twice, and note what the rule gives for each.

    Examples:
        >>> from clipper.benchmarks.datasets import digits
        >>> task = draw(digits(), "sum", samples=100, slots=3)
        >>> bool(task.candidates.contains(task.gold).all())
        True
    """
    if rule not in RULES:
        raise InputError(f"expected one of the rules {', '.join(RULES)}, got {rule!r}")
    if samples * slots > len(images):
        raise InputError(
            f"{samples} samples of {slots} slots need {samples * slots} images, but {images.name} has {len(images)}"
        )
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[: samples * slots]
    gold = images.labels[order].view(samples, slots)
    targets = gold.sum(1) if rule == "sum" else gold.amax(1)
    candidates = Candidates.from_rule(RULES[rule], targets, slots, images.classes)
    return Task(images.pixels[order].view(samples, slots, *images.pixels.shape[1:]), gold, targets, candidates)
