"""What weak labels identify: if all images of a class got one label, which labels would every sample allow?

With perfect embeddings this is all that is left to find out, so it bounds what any method can learn from the samples.
Two classes that may change places without a sample noticing are told apart by nobody.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.registry import benchmark_named
from clipper.errors import BudgetError, InputError

MOST = 100_000
"""Ways to name the classes that are listed before it is too many."""

Names = tuple[int, ...]
"""The label of each class."""


def measure_ceiling(base: RunConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """The share of held-out images whose class is identified, for each draw of the samples.

    Args:
        base: the run whose samples are drawn.
        seeds: one for each draw.

    Returns:
        The mean, the mean for who can see that classes differ, and a row for each draw.

    Raises:
        InputError: the benchmark has no rule on single labels, or no gold labels.
    """
    build = benchmark_named(base.rule)
    build.check(base)
    _, test = train_and_test(base.data, base.data_root)
    share = torch.bincount(test.labels, minlength=test.classes) / len(test.labels)
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        benchmark = build(replace(base, seed=seed))
        if benchmark.rule is None or benchmark.samples.gold is None:
            raise InputError(f"expected a rule on single labels, with gold labels, got {base.rule!r}")
        names = consistent_names(benchmark.rule, benchmark.samples.gold, test.classes)
        rows.append({"seed": seed, **_left_open(names, share), "distinct": _left_open(distinct(names), share)})
    return {
        "mean": statistics.mean(row["identified"] for row in rows),
        "mean_distinct": statistics.mean(row["distinct"]["identified"] for row in rows),
        "rows": rows,
    }


def _left_open(names: Sequence[Names], share: Tensor) -> dict[str, Any]:
    known = identified(names)
    return {"ways": len(names), "open": (~known).nonzero()[:, 0].tolist(), "identified": float(share[known].sum())}


def consistent_names(rule: Callable[..., object], gold: Tensor, classes: int) -> list[Names]:
    """Every way to name the classes that gives all samples the values that they have.

    Args:
        rule: from a tuple of labels to a value.
        gold: each sample's labels, `(n, m)`.
        classes: how many labels there are.

    Examples:
        >>> consistent_names(max, torch.tensor([[0, 2], [1, 2], [1, 1]]), classes=3)  # 0 was never the largest
        [(0, 1, 2), (1, 1, 2), (2, 1, 2)]
        >>> consistent_names(sum, torch.tensor([[0, 2], [1, 2], [1, 1]]), classes=3)
        [(0, 1, 2)]
    """
    rows = {tuple(row) for row in gold.tolist()}
    settled: list[list[Names]] = [[] for _ in range(classes)]  # by the last class that a row waits for
    for row in sorted(rows):
        settled[max(row)].append(row)
    found = []
    for names in _extended((), rule, settled):
        found.append(names)
        if len(found) > MOST:
            raise BudgetError(f"more than {MOST:,} ways to name the classes fit all samples: these identify little")
    return found


def _extended(names: Names, rule: Callable[..., object], settled: list[list[Names]]) -> Iterator[Names]:
    """The ways to name the remaining classes, one class after the other."""
    if len(names) == len(settled):
        yield names
        return
    for label in range(len(settled)):
        longer = (*names, label)
        if all(rule(tuple(longer[i] for i in row)) == rule(row) for row in settled[len(names)]):
            yield from _extended(longer, rule, settled)


def distinct(names: Sequence[Names]) -> list[Names]:
    """Those in which no two classes share a label: what is left if it is known that classes differ.

    Examples:
        >>> distinct([(0, 1, 2), (1, 1, 2), (2, 1, 2)])
        [(0, 1, 2)]
    """
    return [name for name in names if len(set(name)) == len(name)]


def identified(names: Sequence[Names]) -> Tensor:
    """Which classes have the same label in every way to name them, `(c,)` bool.

    Examples:
        >>> identified([(0, 1, 2), (1, 1, 2), (2, 1, 2)])
        tensor([False,  True,  True])
    """
    table = torch.tensor(names)
    return (table == table[0]).all(0)
