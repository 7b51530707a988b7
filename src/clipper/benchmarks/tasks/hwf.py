"""HWF-M: the value of a handwritten formula of exactly M symbols, digits 1–9 and + − × in turn."""

from __future__ import annotations

from typing import Any

from clipper.benchmarks.tasks.registry import register
from clipper.candidates.rules import HWF
from clipper.errors import InputError

NO_FORMULA = 10**17
"""What symbols in the wrong places give; no formula attains it."""


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


register("hwf", value, domains, machine=HWF)
