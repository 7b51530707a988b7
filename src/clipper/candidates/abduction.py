"""Abduction: the label combinations that a rule maps to a target. This module does not depend on `Candidates`."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

import torch
from torch import Tensor

from clipper.arguments import number_in_words, one_of, shown
from clipper.candidates.base import Impossible
from clipper.candidates.task import called, read_task
from clipper.errors import BudgetError, InputError

BUDGET = 20_000_000
"""Default limit of the label combinations that `Candidates.from_rule` tries."""

_CHUNK = 1 << 20
"""Combinations that are evaluated at a time."""

_SHOWN = 8
"""Values of a rule that an error message shows."""

Value = Callable[..., Any]
"""A rule as a function: from a tuple of labels to the target."""


@dataclass(frozen=True, eq=False)
class Templates:
    """The candidates of each distinct pair of length and target.

    Attributes:
        labels: `(rows, m)`: the candidates, template by template, padded with -1.
        counts: `(templates,)`: the number of candidates of each template.
        typical: `(templates, m)`: one label of each slot, which shows its kind even if a template has no candidates.
        shared: the template of each sample.
    """

    labels: Tensor
    counts: Tensor
    typical: Tensor
    shared: list[int]


def templates(
    rule: Value,
    targets: Any,
    slots: int | Sequence[int],
    classes: int,
    domains: Sequence[Sequence[int]] | None = None,
    budget: int = BUDGET,
    impossible: Impossible = "refuse",
) -> Templates:
    """Enumerate the candidates of each distinct pair of length and target once, because many samples share one.

    Args:
        rule: a function from a tuple of labels to the target.
        targets: the target of each sample.
        slots: how many inputs a sample has; a list for samples of different lengths.
        classes: the number of labels.
        domains: the labels that each slot may have; all labels if not given.
        budget: the largest number of label combinations to try.
        impossible: "refuse" a target that no labels satisfy, or "keep" its sample without candidates.

    Raises:
        InputError: if no labels give the target of a sample, or the rule fails.
        BudgetError: if there are more combinations than the budget.
    """
    one_of(impossible, "impossible", get_args(Impossible))
    wanted, lengths, domain = read_task(targets, slots, domains, classes, budget)
    longest = max(lengths)
    place: dict[tuple[int, Hashable], int] = {}
    labels, counts, typical = list[Tensor](), list[Tensor](), list[Tensor]()
    for length in sorted(set(lengths)):
        distinct = list(dict.fromkeys(t for t, own in zip(wanted, lengths, strict=True) if own == length))
        rows, found = satisfying(rule, distinct, domain[:length], budget)
        refused = impossible == "refuse" or all(isinstance(target, str) for target in distinct)
        if refused and not bool(found.all()):
            missing = distinct[int((found == 0).nonzero()[0])]
            sample = next(i for i, t in enumerate(wanted) if t == missing and lengths[i] == length)
            check_not_text(missing, sample, rule, tuple(own[0] for own in domain[:length]))
        if impossible == "refuse" and not bool(found.all()):
            raise InputError(
                f"sample {sample}: no labels of {length} slots give the target {shown(missing)}; "
                f"the rule gives {_attainable(rule, domain[:length])}. Correct the target, leave the sample out, or "
                "keep it without candidates with impossible='keep'"
            )
        place.update({(length, target): len(place) + i for i, target in enumerate(distinct)})
        row = torch.tensor([own[0] for own in domain[:length]]).repeat(len(distinct), 1)
        row[found > 0] = rows[(found.cumsum(0) - found)[found > 0]]
        for parts, part in ((labels, rows), (typical, row)):
            parts.append(torch.nn.functional.pad(part, (0, longest - length), value=-1))
        counts.append(found)
    shared = [place[length, target] for length, target in zip(lengths, wanted, strict=True)]
    return Templates(torch.cat(labels), torch.cat(counts), torch.cat(typical), shared)


def check_not_text(target: Hashable, sample: int, rule: Value, labels: tuple[int, ...]) -> None:
    """Refuse a target that is text if the rule gives numbers, as it does for these labels.

    Raises:
        InputError: the target is text and the rule gives a number.
    """
    if not isinstance(target, str):
        return
    try:
        value = run_on_row(rule, labels)
    except InputError:  # these labels have no value, which says nothing about the target
        return
    if isinstance(value, int | float):
        raise InputError(
            f"sample {sample}: the target {shown(target)} is text, and the rule gives numbers; convert the targets, "
            "for example by [int(target) for target in targets]"
        )


def satisfying(
    rule: Value, targets: Sequence[Hashable], domains: Sequence[Sequence[int]], budget: int = BUDGET
) -> tuple[Tensor, Tensor]:
    """All label combinations that give one of the distinct `targets`, in lexicographic order per target.

    Args:
        rule: any callable on a tuple of labels, one per slot.
        targets: distinct values that the rule should give.
        domains: the labels that each slot may take.
        budget: how many combinations may be tried.

    Returns:
        `labels (rows, slots)`, grouped by target, and `counts (targets,)`.

    Examples:
        >>> labels, counts = satisfying(sum, [1, 2], [range(3)] * 2)
        >>> labels.tolist(), counts.tolist()
        ([[0, 1], [1, 0], [0, 2], [1, 1], [2, 0]], [2, 3])
    """
    tries = math.prod(len(domain) for domain in domains)
    if tries > budget:
        raise BudgetError(
            f"{len(domains)} slots with {max(map(len, domains))} labels each make {number_in_words(tries)} "
            f"combinations, more than the budget of {budget:,}. Narrow the slots with domains=, list the candidates "
            f"you know with Candidates.from_lists or from_tensors, or raise budget= if memory and time allow"
        )
    labels, which = [], []
    for chunk in _combinations(domains):
        target_of = _target_of(rule, chunk, targets)  # (combinations,), -1 where it gives another value
        labels.append(chunk[target_of >= 0])
        which.append(target_of[target_of >= 0])
    grouped, order = torch.cat(which).sort(stable=True)
    return torch.cat(labels)[order], torch.bincount(grouped, minlength=len(targets))


def _combinations(domains: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """The product of the domains in lexicographic order, `(combinations, slots)` at a time."""
    values, sizes = [torch.tensor(list(domain)) for domain in domains], [len(domain) for domain in domains]
    total = math.prod(sizes)
    for start in range(0, total, _CHUNK):
        places = torch.unravel_index(torch.arange(start, min(start + _CHUNK, total)), sizes)
        yield torch.stack([value[place] for value, place in zip(values, places, strict=True)], dim=1)


def _target_of(rule: Value, labels: Tensor, targets: Sequence[Hashable]) -> Tensor:
    """The index of the target that each row of `labels` gives, `(combinations,)`; -1 for none."""
    whole = all(isinstance(target, int) and abs(target) < 2**62 for target in targets)
    values = run_on_columns(rule, labels) if whole else None
    if values is None:
        index = {target: i for i, target in enumerate(targets)}
        return torch.tensor([index.get(run_on_row(rule, row), -1) for row in map(tuple, labels.tolist())])
    known, order = torch.tensor([int(target) for target in targets if isinstance(target, int)]).sort()
    place = torch.searchsorted(known, values).clamp_(max=len(known) - 1)
    return torch.where(known[place] == values, order[place], -1)


def _attainable(rule: Value, domains: Sequence[Sequence[int]]) -> str:
    """A short list of values that the rule takes, numbers first and sorted, for error messages."""
    values = {run_on_row(rule, row) for row in itertools.islice(itertools.product(*domains), 2_000)}
    numbers = sorted(value for value in values if isinstance(value, int | float) and value == value)
    others = sorted(shown(value) for value in values.difference(numbers))
    listed = [*map(shown, numbers), *others][:_SHOWN]
    return ", ".join(listed) + (", …" if len(values) > _SHOWN else "")


_LARGEST = 2**62
"""Results that could exceed this are computed with Python's unbounded integers."""


class NotVectorisableError(TypeError):
    """The rule uses an operation that works on a single label only, not on a column."""


class LabelColumn:
    """The labels of one slot in many combinations, `values (combinations,)`; no absolute value exceeds `bound`.

    Whatever fails is recorded in `refused`, a list that all columns of a call share, because the rule may catch the
    error and return something else than it returns for labels.
    """

    __slots__ = ("bound", "refused", "values")

    def __init__(self, values: Tensor, bound: int, refused: list[str]) -> None:
        self.refused = refused
        if bound > _LARGEST:
            self._refuse("results may overflow 64 bits")
        self.values, self.bound = values, bound

    def __neg__(self) -> LabelColumn:
        return LabelColumn(-self.values, self.bound, self.refused)

    def __abs__(self) -> LabelColumn:
        return LabelColumn(self.values.abs(), self.bound, self.refused)

    def __getattr__(self, name: str) -> Any:
        self._refuse(f"a column has no {name}")

    def _refuse(self, reason: str) -> NoReturn:
        self.refused.append(reason)
        raise NotVectorisableError(reason)


def _values_and_bound(operand: object) -> tuple[Tensor | int, int]:
    if isinstance(operand, LabelColumn):
        return operand.values, operand.bound
    if isinstance(operand, int) and abs(operand) <= _LARGEST:
        return int(operand), abs(operand)
    raise NotVectorisableError(f"cannot combine a column with {operand!r}")


def _binary(op: Callable[[Any, Any], Any], bound: Callable[[int, int], int], *, swap: bool) -> Any:
    def method(self: LabelColumn, other: object) -> LabelColumn:
        try:
            (a, a_bound), (b, b_bound) = _values_and_bound(self), _values_and_bound(other)
            if swap:
                a, b, a_bound, b_bound = b, a, b_bound, a_bound
            result = op(a, b).long()
        except Exception as error:
            self.refused.append(str(error))
            raise
        return LabelColumn(result, bound(a_bound, b_bound), self.refused)  # raises if it may have overflowed

    return method


def _refusing(name: str) -> Any:
    def method(self: LabelColumn, *_: object) -> NoReturn:
        self._refuse(f"a column has no {name}")

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
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):  # a comparison's column holds 0 and 1, as Python's bool does
    setattr(LabelColumn, f"__{_name}__", _binary(getattr(operator, _name), lambda *_: 1, swap=False))
for _name in (
    "bool", "hash", "index", "int", "float", "complex", "str", "repr", "format", "len", "iter", "getitem", "contains",
    "pow", "rpow", "truediv", "rtruediv", "divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "lshift",
    "rlshift", "rshift", "rrshift", "matmul", "rmatmul", "invert", "pos", "round", "trunc", "floor", "ceil",
):  # fmt: skip
    setattr(LabelColumn, f"__{_name}__", _refusing(_name))


def run_on_columns(rule: Value, labels: Tensor) -> Tensor | None:
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
    if rule is max or rule is min:
        return labels.amax(1) if rule is max else labels.amin(1)
    bound = int(labels.abs().max()) if labels.numel() else 0
    refused: list[str] = []
    columns = tuple(LabelColumn(column, bound, refused) for column in labels.unbind(1))
    try:
        result = rule(columns)
        if refused or not isinstance(result, LabelColumn) or result.values.ndim != 1:
            return None
        some = sorted({0, len(labels) // 2, len(labels) - 1}) if len(labels) else []
        same = all(rule(tuple(labels[i].tolist())) == int(result.values[i]) for i in some)
    except Exception:  # on any failure, the caller evaluates row by row, and the rule's own error shows
        return None
    return result.values if same else None


def run_on_row(rule: Value, row: tuple[int, ...]) -> Hashable:
    """The rule's value for one tuple of labels, or an error that names the tuple."""
    return called(rule, row, what="the rule", returns="a hashable value, or None where there is none")
