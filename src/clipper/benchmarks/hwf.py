"""HWF-M: the value of a handwritten formula of exactly M symbols, digits 1–9 and + − × in turn."""

from __future__ import annotations

from typing import Any

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.hwf import CLASSES
from clipper.benchmarks.drawing import ImageRule, image_benchmark
from clipper.benchmarks.registry import Benchmark, register
from clipper.candidates import rules
from clipper.errors import InputError

NO_FORMULA = 10**17
"""What symbols in the wrong places give; no formula attains it."""


def value(labels: tuple[Any, ...]) -> Any:
    """The formula's value, × before + and −; works on columns of labels, too.

    Labels 0–8 are the digits 1–9, then come + − ×.

    Examples:
        >>> value((1, 9, 2, 11, 3))  # 2 + 3 × 4
        14
    """
    formed, total, term = labels[0] < 9, 0, labels[0] + 1
    for symbol, digit in zip(labels[1::2], labels[2::2], strict=True):
        plus, minus, times = (symbol == label for label in (9, 10, 11))
        formed, number = formed * (symbol > 8) * (digit < 9), digit + 1
        total = total + (plus + minus) * term
        term = (plus - minus) * number + times * term * number
    return formed * (total + term) + (1 - formed) * NO_FORMULA


def domains(slots: int) -> list[range]:
    """Digits in even slots, operators in odd ones.

    Examples:
        >>> domains(3)
        [range(0, 9), range(9, 12), range(0, 9)]
    """
    if slots % 2 == 0:
        raise InputError(f"expected a formula with an odd number of slots, digits and operators in turn, got {slots}")
    return [range(9, CLASSES) if slot % 2 else range(9) for slot in range(slots)]


HWF_RULE = ImageRule("hwf", value, domains, rules.HWF)


@register("hwf", data={"hwf": ("HwfCnn",)})
def build(config: RunConfig) -> Benchmark:
    """Formulas of M symbols, and their value."""
    return image_benchmark(config, HWF_RULE)
