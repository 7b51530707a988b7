"""Select the smallest entries of the rows of a wide matrix without sorting them."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

_GROUP = 64
"""Columns in a group: the k smallest entries of a row are in the k groups with the smallest minima."""

_LARGE = 1 << 17
"""In a matrix with more entries, the wanted ones are counted before they are listed."""

WIDE = 2048
"""Rows shorter than this are searched entry by entry."""


def kth_smallest(values: Tensor, k: int) -> Tensor:
    """The k-th smallest entry of each row of `values (rows, columns)`, `(rows,)`.

    Examples:
        >>> kth_smallest(torch.tensor([[3.0, 1.0, 2.0]]), 2)
        tensor([2.])
    """
    rows, columns = values.shape
    if columns % _GROUP or columns < max(WIDE, 4 * k * _GROUP):
        return values.amin(1) if k == 1 else values.topk(k, dim=1, largest=False).values[:, -1]
    grouped = values.view(rows, -1, _GROUP)
    best = grouped.amin(2).topk(k, dim=1, largest=False, sorted=False).indices  # (rows, k)
    inside = grouped[torch.arange(rows, device=values.device)[:, None], best]  # (rows, k, _GROUP)
    return inside.view(rows, -1).topk(k, dim=1, largest=False).values[:, -1]


@overload
def entries_up_to(values: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]: ...
@overload
def entries_up_to(values: Tensor, bound: Tensor, most: int) -> tuple[Tensor, Tensor] | None: ...
def entries_up_to(values: Tensor, bound: Tensor, most: int | None = None) -> tuple[Tensor, Tensor] | None:
    """Row and column of every entry of `values (rows, columns)` not above its row's `bound (rows,)`.

    None if they are more than `most`.
    """
    rows, columns = values.shape
    if columns % _GROUP or columns < WIDE:
        within = values <= bound[:, None]
        if most is not None and values.numel() > _LARGE and int(within.count_nonzero()) > most:
            return None
        row, column = within.nonzero(as_tuple=True)
        return None if most is not None and row.shape[0] > most else (row, column)
    grouped = values.view(rows, -1, _GROUP)
    row, group = (grouped.amin(2) <= bound[:, None]).nonzero(as_tuple=True)
    if most is not None and len(row) > most:
        return None
    within = grouped[row, group] <= bound[row, None]  # (groups, _GROUP)
    if most is not None and within.numel() > most and int(within.count_nonzero()) > most:
        return None
    hit, lane = within.nonzero(as_tuple=True)
    return row[hit], group[hit] * _GROUP + lane


def in_doubt(values: Tensor, bound: Tensor, slack: Tensor, allowed: int) -> Tensor:
    """Rows with more than `allowed` entries up to their `bound (rows,)`, most of them less than `2 slack` from it."""
    within = (values <= bound[:, None]).float().sum(1)  # several times as fast as a sum of booleans
    return (within > allowed) & (within > 2 * (values < (bound - 2 * slack)[:, None]).float().sum(1))


def by_row_then_value(row: Tensor, value: Tensor, column: Tensor) -> Tensor:
    """The order that sorts entries by row, then value, then column; the same on every device."""
    order = column.argsort(stable=True)
    order = order[value[order].argsort(stable=True)]
    return order[row[order].argsort(stable=True)]


def one_per_row(row: Tensor) -> bool:
    """Whether `row (entries,)` is strictly ascending, so that nothing needs to be sorted."""
    return bool((row[1:] > row[:-1]).all())


def first_of_each_row(row: Tensor, k: int) -> Tensor:
    """Which of the entries, sorted by `row`, are among the first k of their row, `(entries,)` bool."""
    start = torch.searchsorted(row, row)
    return torch.arange(len(row), device=row.device) - start < k


def mask_of_smallest(values: Tensor, k: int) -> Tensor:
    """Which entries of `values (rows, columns)` are the k smallest of their row, of equal ones the first.

    Examples:
        >>> mask_of_smallest(torch.tensor([[2.0, 1.0, 2.0, 2.0]]), 2)
        tensor([[ True,  True, False, False]])
    """
    if k >= values.shape[1]:
        return torch.ones_like(values, dtype=torch.bool)
    bound = kth_smallest(values, k)[:, None]
    less, equal = values < bound, values == bound
    spare = k - less.sum(1, keepdim=True)
    return less | (equal & (equal.cumsum(1, dtype=torch.int32) <= spare))
