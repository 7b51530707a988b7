"""HWF-M: the value of a handwritten formula of exactly M symbols; digits 1–9 and operators + − × alternate."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.hwf import SYMBOLS, formulas
from clipper.benchmarks.drawing import candidates_of, image_benchmark
from clipper.benchmarks.registry import Benchmark, register
from clipper.candidates.rules import HWF, Rule
from clipper.errors import InputError
from clipper.training import Samples

NO_FORMULA = 10**17
"""Stands for the value of symbols that form no formula; no formula has this value."""


def value(labels: tuple[Any, ...], unit: int = 1) -> Any:
    """The formula's value in whole multiples of 1/`unit`, × and ÷ before + and −; works on columns of labels, too.

    Labels 0–8 are the digits 1–9, then come + − × ÷. Division is exact if the unit is a multiple of the divisors.

    Examples:
        >>> value((1, 9, 2, 11, 3))  # 2 + 3 × 4
        14
        >>> value((0, 12, 1), unit=10)  # 1 ÷ 2 in tenths
        5
    """
    formed, total, term = labels[0] < 9, 0, unit * (labels[0] + 1)
    for symbol, digit in zip(labels[1::2], labels[2::2], strict=True):
        plus, minus, times, over = (symbol == label for label in (9, 10, 11, 12))
        formed, number = formed * (symbol > 8) * (digit < 9), digit + 1
        total = total + (plus + minus) * term
        term = (plus - minus) * unit * number + times * term * number + over * (term // number)
    return formed * (total + term) + (1 - formed) * NO_FORMULA


def domains(slots: int, symbols: int = 12) -> list[range]:
    """Digits in even slots, operators in odd ones.

    Examples:
        >>> domains(3)
        [range(0, 9), range(9, 12), range(0, 9)]
    """
    if slots % 2 == 0:
        raise InputError(f"expected a formula with an odd number of slots, digits and operators in turn, got {slots}")
    return [range(9, symbols) if slot % 2 else range(9) for slot in range(slots)]


HWF_RULE = Rule("hwf", value, domains, HWF)


@register("hwf", data={"hwf": ("HwfCnn", "LinearOnOutlines")})
def build(config: RunConfig) -> Benchmark:
    """Formulas of M symbols, and their value."""
    return image_benchmark(config, HWF_RULE)


UNIT = 2520**3
"""Every quotient of three digits is a whole multiple of 1/UNIT, since each digit divides 2520."""

published_value = partial(value, unit=UNIT)
"""The rule of the published formulas: a formula's value in whole multiples of 1/`UNIT`."""


def published_formulas(
    split: str = "train",
    longest: int = 7,
    samples: int | None = None,
    seed: int = 0,
    *,
    per_sample: int | None = None,
    root: str | Path | None = None,
    distinct: bool = True,
) -> Samples:
    """HWF's own formulas of at most `longest` symbols; targets are exact, in whole multiples of 1/`UNIT`.

    Args:
        split: `"train"` (10,000) or `"test"` (2,000).
        longest: the largest number of symbols, up to 7.
        samples: how many formulas to draw; all if not given.
        seed: of the draws.
        per_sample: at most this many random candidates of each sample; all if not given.
        root: the folder with the data sets.
        distinct: let no image be in both splits; if False, use the published images, of which the splits share many.
    """
    if not 1 <= longest <= 7:
        raise InputError(f"expected formulas of at most 1 to 7 symbols, as published, got longest={longest}")
    found = formulas(split, longest, root, distinct=distinct)
    if samples is not None and not 1 <= samples <= len(found.text):
        raise InputError(f"expected 1 to {len(found.text):,} samples, as many as there are formulas, got {samples}")
    order = torch.randperm(len(found.text), generator=torch.Generator().manual_seed(seed))[:samples]
    image = found.image[order]  # (n, m)
    used = image >= 0
    gold = torch.where(used, found.images.labels[image.clamp(min=0)], -1)
    inputs = found.images.pixels[image.clamp(min=0)] * used[..., None, None, None]
    lengths = used.sum(1).tolist()
    targets = [published_value(tuple(row[:length])) for row, length in zip(gold.tolist(), lengths, strict=True)]
    candidates = candidates_of(
        published_value, targets, lengths, len(SYMBOLS), domains(longest | 1, len(SYMBOLS)), per_sample, seed
    )
    return Samples(inputs, candidates, gold=gold, targets=torch.tensor(targets))
