"""SUM-M: the sum of M digits."""

from __future__ import annotations

from dataclasses import replace

import torch

from clipper import rules
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.drawing import DIGITS, image_benchmark, on_digits
from clipper.benchmarks.group_means import Sums, labelled_images
from clipper.benchmarks.registry import Benchmark, register
from clipper.training import Samples

SUM_RULE = rules.total()


@register("sum", data=DIGITS, quick=on_digits)
def build(config: RunConfig) -> Benchmark:
    """Samples of M images, and the sum of their labels."""
    benchmark = image_benchmark(config, SUM_RULE)
    return replace(benchmark, warm_up=_labelled_images(benchmark.samples, config.seed)) if config.warm_up else benchmark


def _labelled_images(samples: Samples, seed: int) -> Samples:
    """The single images whose label follows from all sums together."""
    assert samples.in_memory
    assert samples.targets is not None
    images = samples.inputs.flatten(0, 1)
    chosen = torch.arange(len(images)).view(samples.inputs.shape[:2])
    gold = None if samples.gold is None else samples.gold.flatten()
    return labelled_images(images, Sums(chosen, samples.targets.double()), samples.candidates.classes, seed, gold)
