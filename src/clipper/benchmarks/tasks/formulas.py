"""The classic HWF benchmark: the published formulas of up to M symbols, with ÷, samples of different lengths."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from clipper.benchmarks.data.hwf import SYMBOLS, formulas
from clipper.benchmarks.tasks import hwf
from clipper.benchmarks.tasks.drawing import Task, candidates_of
from clipper.errors import InputError

UNIT = 2520**3
"""Every quotient of three digits is a whole multiple of 1/UNIT, since each digit divides 2520."""

value = partial(hwf.value, unit=UNIT)
"""The rule: a formula's value in whole multiples of 1/`UNIT`."""


def published_formulas(
    split: str = "train",
    longest: int = 7,
    samples: int | None = None,
    seed: int = 0,
    *,
    per_sample: int | None = None,
    root: str | Path | None = None,
) -> Task:
    """HWF's own formulas of at most `longest` symbols; targets are exact, in whole multiples of 1/`UNIT`.

    Args:
        split: `"train"` (10,000) or `"test"` (2,000); no image is in both.
        longest: the largest number of symbols, up to 7.
        samples: how many formulas to draw; all if not given.
        seed: of the draws.
        per_sample: at most so many candidates of each sample, drawn at random; all if not given.
        root: the folder with the data sets.
    """
    if not 1 <= longest <= 7:
        raise InputError(f"expected formulas of at most 1 to 7 symbols, as published, got longest={longest}")
    found = formulas(split, longest, root)
    if samples is not None and not 1 <= samples <= len(found.text):
        raise InputError(f"expected 1 to {len(found.text):,} samples, as many as there are formulas, got {samples}")
    order = torch.randperm(len(found.text), generator=torch.Generator().manual_seed(seed))[:samples]
    image = found.image[order]  # (n, m)
    used = image >= 0
    gold = torch.where(used, found.images.labels[image.clamp(min=0)], -1)
    inputs = found.images.pixels[image.clamp(min=0)] * used[..., None, None, None]
    lengths = used.sum(1).tolist()
    targets = [value(tuple(row[:length])) for row, length in zip(gold.tolist(), lengths, strict=True)]
    domains = hwf.domains(longest | 1, len(SYMBOLS))
    candidates = candidates_of(value, targets, lengths, len(SYMBOLS), domains, per_sample, seed)
    return Task(inputs, gold, torch.tensor(targets), candidates)
