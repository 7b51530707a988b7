"""Whole numbers and words that a caller passes, checked where they come in."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable
from typing import Any

from clipper.errors import InputError

SEEDS = -(2**63), 2**64 - 1
"""The seeds that PyTorch takes."""


def whole_number(value: Any, what: str, least: int, most: int | None = None) -> int:
    """A whole number within bounds; numpy's and PyTorch's are as welcome as Python's, True and 1.5 are not.

    Examples:
        >>> whole_number(3, "k", least=1)
        3
    """
    bounds = f"of at least {least}" if most is None else f"in {least} … {most}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except (TypeError, RuntimeError, ValueError):
        number = None
    if number is None or number < least or (most is not None and number > most):
        raise InputError(f"expected {what} as a whole number {bounds}, got {shown(value)}")
    return number


def listed(values: Any, what: str) -> list[Any]:
    """What was passed as a list; a single text is no list of its letters."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"expected {what} as a list, got {shown(values)}")
    try:
        return list(values)
    except TypeError as error:  # a tensor without dimensions says that it can be iterated over
        raise InputError(f"expected {what} as a list, got {shown(values)}") from error


def shown(value: Any) -> str:
    """A value for a message, however large.

    Examples:
        >>> shown([1, 2]), len(shown("x" * 1000)) < 100
        ('[1, 2]', True)
    """
    try:
        text = repr(value) if not isinstance(value, str | bytes | int) else reprlib.repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        text = f"a {type(value).__name__}"
    return text if len(text) <= 120 else f"{text[:117]}…"
