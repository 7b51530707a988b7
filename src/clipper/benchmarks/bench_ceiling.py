"""Upper bound of learning: which classes the samples identify, even with perfect embeddings.

If all images of a class get the same label, which assignments of labels to classes does every sample allow? If two
classes can be exchanged without contradicting any sample, no method can tell them apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.registry import benchmark_named
from clipper.errors import InputError
from clipper.labelling import Identification, identify


def measure_ceiling(base: RunConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """The share of held-out images whose class is identified, for each draw of the samples.

    Args:
        base: the run whose samples are drawn.
        seeds: one for each draw.

    Returns:
        The mean, the mean if distinct classes must get distinct labels, and a row for each draw.

    Raises:
        InputError: the benchmark has no gold labels.
    """
    build = benchmark_named(base.rule)
    build.check(base)
    _, test = train_and_test(base.data, base.data_root)
    share = torch.bincount(test.labels, minlength=test.classes) / len(test.labels)
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        samples = build(replace(base, seed=seed)).samples
        if samples.gold is None:
            raise InputError(f"expected samples whose gold labels are known, got the rule {base.rule!r} without them")
        found = identify(samples.candidates, samples.gold)
        distinct = identify(samples.candidates, samples.gold, one_to_one=True)
        rows.append({"seed": seed, **_left_open(found, share), "distinct": _left_open(distinct, share)})
    return {
        "mean": statistics.mean(row["identified"] for row in rows),
        "mean_distinct": statistics.mean(row["distinct"]["identified"] for row in rows),
        "rows": rows,
    }


def _left_open(found: Identification, share: Tensor) -> dict[str, Any]:
    return {
        "ways": found.order,
        "exhaustive": found.exhaustive,
        "open": (~found.identified).nonzero()[:, 0].tolist(),
        "identified": float(share[found.identified].sum()),
    }
