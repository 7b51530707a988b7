"""Label tuples as numbers: which of them are equal, which are candidates, and what a program gives for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.abduction import run_on_columns, run_on_row


def row_numbers(labels: Tensor) -> Tensor:
    """Numbers from 0 that are equal where the rows of `labels (rows, m)` are, `(rows,)`."""
    width = int(labels.max()) + 2 if labels.numel() else 1
    if width ** labels.shape[1] < 2**62:
        weight = width ** torch.arange(labels.shape[1], device=labels.device)
        _, numbers = torch.unique(((labels.long() + 1) * weight).sum(1), return_inverse=True)
    else:
        _, numbers = torch.unique(labels, dim=0, return_inverse=True)
    return numbers  # type: ignore[no-any-return]


def distinct_rows(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of `labels (rows, m)`, and the place of each row among them, `(rows,)`."""
    place = row_numbers(labels)
    one_of = torch.empty(int(place.max()) + 1, dtype=torch.long, device=labels.device)
    one_of.scatter_(0, place, torch.arange(len(labels), device=labels.device))
    return labels[one_of], place


def are_candidates(labels: Tensor, sample: Tensor, candidates: CandidateSet) -> Tensor:
    """Whether each row of `labels (rows, m)` is a candidate of its `sample (rows,)`, bool."""
    if not isinstance(candidates, Candidates):
        return candidates.batch(sample).contains(labels)
    both = row_numbers(torch.cat([candidates.labels.long(), labels.long()]))
    codes = both * candidates.samples + torch.cat([candidates.sample, sample])
    return torch.isin(codes[len(candidates) :], codes[: len(candidates)])


def run_program(rule: Callable[..., Any], labels: Tensor) -> tuple[Tensor, list[Hashable]]:
    """What `rule` gives for each row of `labels (rows, m)`, called once per distinct row.

    Returns:
        `output (rows,)`: the place of each row's value among the distinct values, -1 where the rule gives None;
        and these values.

    Examples:
        >>> run_program(sum, torch.tensor([[1, 2], [3, -1], [4, 4]]))
        (tensor([0, 0, 1]), [3, 8])
    """
    place: dict[Hashable, int] = {}
    output = torch.empty(len(labels), dtype=torch.long)
    patterns, pattern = distinct_rows((labels >= 0).long())
    for i, used in enumerate(patterns.bool()):  # samples of different lengths give the rule different tuples
        rows = (pattern == i).nonzero()[:, 0]
        distinct, inverse = distinct_rows(labels[rows][:, used])
        values = _values(rule, distinct.cpu())
        numbers = [-1 if value is None else place.setdefault(value, len(place)) for value in values]
        output[rows.cpu()] = torch.tensor(numbers)[inverse.cpu()]
    return output.to(labels.device), list(place)


def _values(rule: Callable[..., Any], labels: Tensor) -> list[Hashable]:
    together = run_on_columns(rule, labels)
    if together is not None:
        return list(together.tolist())
    return [run_on_row(rule, tuple(row)) for row in labels.tolist()]
