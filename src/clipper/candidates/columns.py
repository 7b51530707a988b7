"""Label columns: run a user's rule on all label combinations at once, or refuse.

A rule is written for one tuple of labels. Given columns instead, arithmetic and comparisons act on every
combination together. Whatever could silently mean something else for columns (truth values, hashing, integer
overflow) raises, and the caller falls back to calling the rule once per tuple: vectorised or not, the answer is
the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor

from clipper.candidates.checks import called
from clipper.errors import InputError

_LARGEST = 2**62
"""Results that could pass this are left to Python's unbounded integers."""


class NotVectorisableError(TypeError):
    """The rule does something to a column that only works on one label."""


class LabelColumn:
    """The labels of one slot in many combinations, `values (combinations,)`, none larger than `bound`."""

    __slots__ = ("bound", "values")
    __hash__ = None  # type: ignore[assignment]  # a set of columns is not a set of labels

    def __init__(self, values: Tensor, bound: int) -> None:
        if bound > _LARGEST:
            raise NotVectorisableError("results may overflow 64 bits")
        self.values, self.bound = values, bound

    def __bool__(self) -> bool:
        raise NotVectorisableError("a column has no single truth value")

    def __neg__(self) -> LabelColumn:
        return LabelColumn(-self.values, self.bound)

    def __abs__(self) -> LabelColumn:
        return LabelColumn(self.values.abs(), self.bound)


def _values_and_bound(operand: object) -> tuple[Tensor | int, int]:
    if isinstance(operand, LabelColumn):
        return operand.values, operand.bound
    if isinstance(operand, int) and abs(operand) <= _LARGEST:
        return int(operand), abs(operand)
    raise NotVectorisableError(f"cannot combine a column with {operand!r}")


def _binary(op: Callable[[Any, Any], Any], bound: Callable[[int, int], int], *, swap: bool) -> Any:
    def method(self: LabelColumn, other: object) -> LabelColumn:
        (a, a_bound), (b, b_bound) = _values_and_bound(self), _values_and_bound(other)
        if swap:
            a, b, a_bound, b_bound = b, a, b_bound, a_bound
        limit = bound(a_bound, b_bound)
        if limit > _LARGEST:
            raise NotVectorisableError("results may overflow 64 bits")
        return LabelColumn(op(a, b).long(), limit)

    return method


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {  # operator -> bound of its result
    "add": operator.add,
    "sub": operator.add,
    "mul": operator.mul,
    "floordiv": lambda a, _: a + 1,
    "mod": lambda _, b: b,
}
for _name, _bound in _ARITHMETIC.items():
    setattr(LabelColumn, f"__{_name}__", _binary(getattr(operator, _name), _bound, swap=False))
    setattr(LabelColumn, f"__r{_name}__", _binary(getattr(operator, _name), _bound, swap=True))
for _name in (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
):  # a comparison's column holds 0 and 1, as Python's bool does
    setattr(LabelColumn, f"__{_name}__", _binary(getattr(operator, _name), lambda *_: 1, swap=False))

_REDUCTIONS: tuple[tuple[Any, Callable[[Tensor], Tensor]], ...] = (
    (max, lambda labels: labels.amax(1)),
    (min, lambda labels: labels.amin(1)),
)


def run_on_columns(rule: Callable[..., Any], labels: Tensor) -> Tensor | None:
    """The rule's value for each row of `labels (combinations, slots)`, or None if it must be called row by row.

    Examples:
        >>> import torch
        >>> pairs = torch.tensor([[1, 2], [3, 4]])
        >>> run_on_columns(sum, pairs)
        tensor([3, 7])
        >>> run_on_columns(lambda t: 10 * t[0] + t[1], pairs)
        tensor([12, 34])
        >>> run_on_columns(lambda t: len(set(t)), pairs) is None
        True
    """
    for builtin, reduction in _REDUCTIONS:
        if rule is builtin:
            return reduction(labels)
    bound = int(labels.abs().max()) if labels.numel() else 0
    columns = tuple(LabelColumn(column, bound) for column in labels.unbind(1))
    try:
        result = rule(columns)
    except Exception:  # any failure means: call it row by row, where its own error will show
        return None
    return result.values if isinstance(result, LabelColumn) and result.values.ndim == 1 else None


def run_on_row(rule: Callable[..., Any], row: tuple[int, ...]) -> Hashable:
    """The rule's value for one tuple of labels, or an error that names the tuple."""
    try:
        value: Hashable = called(rule, row)
    except Exception as error:
        raise InputError(
            f"the rule failed on labels {row}: {type(error).__name__}: {error}. "
            "A rule must return a hashable value for every combination (None where there is none)"
        ) from error
    return value
