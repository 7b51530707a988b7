"""From lists of different lengths to packed tensors, in types no larger than needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import wraps
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from clipper.arguments import as_list, seeded, shown, whole_number
from clipper.candidates.checks import check_nonempty
from clipper.candidates.kinds import Kind
from clipper.errors import InputError

Result = TypeVar("Result")


def padded(samples: Sequence[Sequence[Sequence[int]]]) -> tuple[Tensor, Tensor]:
    """`labels (Ω, m)`, unused slots filled with -1, and `counts (n,)` of samples given as lists of label tuples."""
    lists = [
        [_listed(row, f"candidate {j} of sample {i}") for j, row in enumerate(_listed(rows, f"sample {i}"))]
        for i, rows in enumerate(_listed(samples, "samples"))
    ]
    counts = torch.tensor([len(rows) for rows in lists], dtype=torch.long)
    check_nonempty(counts)
    slots = max((len(rows[0]) for rows in lists), default=0)
    if not slots:
        raise InputError(f"expected samples with at least one slot each, got {len(lists)} samples without any")
    flat: list[list[int]] = []
    for i, rows in enumerate(lists):
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise InputError(f"expected candidates of one length in sample {i}, got lengths {set(map(len, rows))}")
        if not set(map(type, chain.from_iterable(rows))) <= {int}:
            rows = [[_label(label, i) for label in row] for row in rows]
        flat.extend([*row, *[-1] * (slots - width)] for row in rows)
    try:
        return torch.tensor(flat, dtype=torch.long).reshape(-1, slots), counts
    except (RuntimeError, ValueError, OverflowError) as error:
        raise InputError(f"expected labels below 2^63, got larger ones: {error}") from error


def _listed(values: Any, what: str) -> Sequence[Any]:
    """`values` as something that can be counted and gone through."""
    if isinstance(values, list | tuple):
        return values
    expected = f"label tuples for each sample, [[(0, 8), (1, 7)], [(0, 2)]] say, as {what},"
    if isinstance(values, Set):
        raise InputError(f"expected {expected} as a list, got {shown(values)}")
    return as_list(values, expected)


def _label(value: Any, sample: int) -> int:
    return whole_number(value, f"labels in sample {sample}", least=-1)


def offsets_of(counts: Tensor) -> Tensor:
    """Where each sample's rows begin, `(n+1,)`, from how many it has, `(n,)`."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


def smallest_type(kinds: tuple[Kind, ...]) -> torch.dtype:
    """The smallest signed integer type that holds every label."""
    types = (torch.int8, torch.int16, torch.int32)
    return next(t for t in types if kinds[-1].stop <= torch.iinfo(t).max)


def shuffled_places(sample: Tensor, offsets: Tensor, seed: int) -> Tensor:
    """Each row's place when the rows of its sample are shuffled, `(Ω,)`; `sample (Ω,)`, `offsets (n+1,)`."""
    noise = torch.rand(len(sample), generator=seeded(seed), dtype=torch.float64)
    order = (sample + noise.to(sample.device)).argsort()
    place = torch.arange(len(sample), device=order.device) - offsets[sample]
    return torch.empty_like(order).scatter_(0, order, place)


def trainable(function: Callable[..., Result]) -> Callable[..., Result]:
    """Run a function outside of inference mode, so that a gradient may use what it makes; free where there is none."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Result:
        if not torch.is_inference_mode_enabled():
            return function(*arguments, **options)
        with torch.inference_mode(False):
            return function(*arguments, **options)

    return run
