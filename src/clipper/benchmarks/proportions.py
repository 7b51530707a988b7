"""Learning from label proportions: it is known how often each class occurs in a bag, but not where.

"proportions" uses the exact likelihood of a bag. With ten classes and bags of 32 this has too many states. "counts"
makes one sample for each bag and class instead, with the same instances: how often does this class occur? Each of
these likelihoods is exact. Their product is not the likelihood of the bag, because it treats the counts of different
classes as independent (a composite likelihood).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from clipper import rules
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.images import Images, embedded_table
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.networks import FeaturesMlp
from clipper.benchmarks.registry import Benchmark, network_of, register
from clipper.candidates import CandidateSet, Lattice
from clipper.candidates.rules import itself
from clipper.errors import InputError
from clipper.proximity import Encoder, Outlines
from clipper.training import Samples

DATA = {"digits": ("DigitsMlp", "DigitsCnn"), "breast-cancer": ("FeaturesMlp",)}
"""The data sets, which both come with scikit-learn, and their networks."""
_THIRD = 3
"""Every third instance is held out."""


def _in_small_bags(config: RunConfig) -> RunConfig:
    return replace(config, rule="counts", data="digits", slots=8, samples=40, batch=10)


@register("proportions", data=DATA, engines=("semantic", "sampled"), quick=_in_small_bags)
def build(config: RunConfig) -> Benchmark:
    """Bags of M instances, and how often each class occurs in each."""
    train, test = halves(config.data)
    chosen = drawn(len(train), config)
    gold = train.labels[chosen]
    counts = [row.bincount(minlength=train.classes).tolist() for row in gold]
    candidates = rules.proportions().candidates(counts, config.slots, train.classes)
    return _benchmark(config, train, test, chosen, candidates)


@register("counts", data=DATA, engines=("semantic", "sampled"), quick=_in_small_bags)
def build_counts(config: RunConfig) -> Benchmark:
    """The same bags, one sample for each bag and class: how often does this class occur?"""
    train, test = halves(config.data)
    chosen = drawn(len(train), config)
    candidates = counts_of_classes(train.labels[chosen], train.classes)
    return _benchmark(config, train, test, chosen.repeat_interleave(train.classes, 0), candidates)


def counts_of_classes(gold: Tensor, classes: int) -> Lattice:
    """One sample for each bag and class: the labellings in which the class occurs as often as in the bag.

    Args:
        gold: the labels in each bag, `(bags, m)`.
        classes: how many there are.

    Returns:
        `bags * classes` samples, the classes of a bag in their order.

    Examples:
        >>> counts_of_classes(torch.tensor([[0, 2]]), classes=3).counts  # one 0, no 1, one 2
        [4, 4, 4]
    """
    which = torch.arange(classes).repeat(len(gold))  # (n,)
    often = (gold.repeat_interleave(classes, 0) == which[:, None]).sum(1)
    unknown = torch.full((len(which), gold.shape[1]), -1)
    return Lattice.from_rule(
        (),
        _count,
        itself,
        targets=list(zip(which.tolist(), often.tolist(), strict=True)),
        slots=gold.shape[1] + 1,
        classes=classes,
        observed=torch.cat([which[:, None], unknown], 1),  # the class comes first, and is known
    )


def _count(state: tuple[int, ...], label: int) -> tuple[int, int]:
    """The class in question and how often it occurred: the first label says which class it is."""
    return (label, 0) if not state else (state[0], state[1] + (label == state[0]))


def halves(data: str) -> tuple[Images, Images]:
    """The instances to draw bags from, and those to measure accuracy on: every third.

    Examples:
        >>> [len(half) for half in halves("breast-cancer")]
        [380, 189]
    """
    if data == "digits":
        return train_and_test(data)
    tumours = Images(data, *embedded_table("breast_cancer"), 2, ("malignant", "benign"))
    held_out = torch.arange(len(tumours)) % _THIRD == _THIRD - 1
    return tumours.part(~held_out), tumours.part(held_out)


def drawn(instances: int, config: RunConfig) -> Tensor:
    """The instances of each bag, `(samples, slots)`; none is in two bags."""
    needed = config.samples * config.slots
    if needed > instances:
        raise InputError(
            f"{config.samples} bags of {config.slots} need {needed} instances, but {config.data} has {instances} to "
            f"learn from; at most {instances // config.slots} bags"
        )
    order = torch.randperm(instances, generator=torch.Generator().manual_seed(config.seed))
    return order[:needed].view(config.samples, config.slots)


def _benchmark(config: RunConfig, train: Images, test: Images, chosen: Tensor, candidates: CandidateSet) -> Benchmark:
    encoder: Encoder = Outlines()
    if config.data == "digits":
        network = network_of(config)(train.classes)
    else:
        network = FeaturesMlp(train.pixels, train.classes)
        encoder = network.standardised
    return Benchmark(
        Samples(train.pixels[chosen], candidates, gold=train.labels[chosen]),
        network,
        (test.pixels, test.labels),
        encoder=encoder,
        label_names=train.label_names,
        slot="image" if config.data == "digits" else "tumour",
    )
