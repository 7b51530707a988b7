"""Compares known labels chosen by `posterior.ask` with as many random ones, by the labels right afterwards."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import StageProgress
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import embeddings_of
from clipper.errors import InputError
from clipper.pruning import Posterior, infer


def measure_asking(base: RunConfig, seeds: Sequence[int], labels: int, progress: StageProgress) -> dict[str, Any]:
    """Infer each pool without known labels, with the labels that it asks for, and with random ones.

    Args:
        base: the run whose samples are drawn.
        seeds: one for each pool.
        labels: how many are asked for.
        progress: called with what is done.

    Returns:
        The mean share of labels right of each, and a row for each pool.

    Raises:
        InputError: the benchmark has no gold labels.
    """
    rows = []
    for done, seed in enumerate(seeds):
        progress("pools", done, len(seeds))
        config = replace(base, seed=seed, objective="joint")
        benchmark = benchmark_named(config.rule)(config)
        gold, near = benchmark.samples.gold, embeddings_of(config, benchmark)
        if gold is None or near is None:
            raise InputError(f"expected samples whose gold labels are known, got the rule {base.rule!r} without them")
        before = infer(benchmark.samples.candidates, near, seed=seed)
        used = (gold.flatten() >= 0).nonzero()[:, 0]
        chance = used[torch.randperm(len(used), generator=torch.Generator().manual_seed(seed))[:labels]]
        row: dict[str, Any] = {"seed": seed, "none": _right(before, gold)}
        for name, chosen in (("asked", before.ask(labels)), ("random", chance)):
            known = torch.full_like(gold, -1)
            known.view(-1)[chosen] = gold.view(-1)[chosen]
            row[name] = _right(infer(benchmark.samples.candidates, near, known=known, seed=seed), gold)
        rows.append(row)
    progress("pools", len(seeds), len(seeds))
    return {name: statistics.fmean(row[name] for row in rows) for name in ("none", "asked", "random")} | {"rows": rows}


def _right(posterior: Posterior[Any], gold: Tensor) -> float:
    """The share of labels that are right."""
    return float((posterior.labels == gold)[gold >= 0].double().mean())
