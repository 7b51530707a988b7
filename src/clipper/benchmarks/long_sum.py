"""SUM-1024: the sum of 1,024 digits, as in CTSketch (arXiv 2503.24123): 5,000 sums, in which images are reused.

The lattice of such a sum has 47 million arcs, and a step of the exact loss uses a thousand images for one number. So
the network trains on the images whose label follows from the sums by least squares (`group_means`).
"""

from __future__ import annotations

from dataclasses import replace

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import DIGITS
from clipper.benchmarks.group_means import Sums, labelled_images
from clipper.benchmarks.registry import Benchmark, network_of, register
from clipper.proximity import Outlines

DATA = {"mnist": ("LeNet", "MnistCnn"), "digits": DIGITS["digits"]}


def _on_small_digits(config: RunConfig) -> RunConfig:
    return replace(config, data="digits", slots=min(config.slots, 64), samples=min(config.samples, 1_000))


@register("long-sum", data=DATA, engines=("semantic",), quick=_on_small_digits)
def build(config: RunConfig) -> Benchmark:
    """The images whose digit follows from the sums of M images, with that digit."""
    images, test = train_and_test(config.data, config.data_root)
    sums = Sums.drawn(images.labels, config.samples, config.slots, config.seed)
    samples = labelled_images(images.pixels, sums, images.classes, config.seed, images.labels)
    return Benchmark(
        samples,
        network_of(config)(images.classes),
        (test.pixels, test.labels),
        encoder=Outlines(),
        label_names=images.label_names,
        note=f"{len(samples):,} of {len(images):,} images, whose digits follow from the sums.",
    )
