"""Draws samples of images for a rule: images for the slots, the target, and the candidates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.images import Images
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.registry import Benchmark, network_of
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.abduction import BUDGET
from clipper.candidates.rules import Rule
from clipper.errors import InputError
from clipper.proximity import Outlines
from clipper.training import Samples

MOST_SLOTS = 1_000
"""The most slots of a sample."""
DIGITS = {
    "digits": ("DigitsMlp", "DigitsCnn", "LinearOnOutlines"),
    "mnist": ("MnistCnn", "LeNet", "LinearOnOutlines"),
    "cifar10": ("CifarResNet18", "CifarMobileNetV2"),
}
"""The data sets of ten classes, with the networks that fit each."""
HELD = ("fixed", "gold")
"""The kinds of draws that are made once, before training."""
_TOGETHER = 256
"""Candidates are drawn for this many samples at a time."""
_MOST_OUTPUTS = 100_000
"""If all outputs together have more candidates than this, engines get only those of the target."""


def image_benchmark(config: RunConfig, rule: Rule) -> Benchmark:
    """The benchmark of a rule on a data set of single images.

    Args:
        config: which data set, how many samples of how many slots, and which network.
        rule: what is known about a sample.
    """
    images, test = train_and_test(config.data, config.data_root)
    some = config.per_sample or None
    samples = draw(
        images, rule, config.samples, config.slots, config.seed, per_sample=some if config.draws in HELD else None
    )
    if config.draws == "gold" and isinstance(samples.candidates, Candidates) and samples.gold is not None:
        samples = replace(samples, candidates=with_gold(samples.candidates, samples.gold))
    return Benchmark(
        samples,
        network_of(config)(images.classes),
        (test.pixels, test.labels),
        encoder=Outlines(),
        outputs=None if some else outputs_of(rule, config.slots, images.classes),
        rule=rule.value,
        label_names=images.label_names,
    )


def with_gold(candidates: Candidates, gold: Tensor) -> Candidates:
    """The same candidates; if `gold (n, m)` is not among a sample's candidates, it replaces the first.

    Examples:
        >>> drawn = Candidates.from_lists([[(0, 2), (1, 1)], [(3, 0)]], classes=4)
        >>> with_gold(drawn, torch.tensor([[1, 1], [2, 1]])).labels.tolist()
        [[0, 2], [1, 1], [2, 1]]
    """
    missing = (~candidates.contains(gold)).nonzero()[:, 0]
    labels = candidates.labels.clone()
    labels[candidates.offsets[:-1][missing]] = gold[missing].to(labels.dtype)
    return Candidates.from_tensors(labels, candidates.sample, candidates.classes)


def on_digits(config: RunConfig) -> RunConfig:
    """The same task on scikit-learn's digits, with at most as many samples as their 1,198 training images allow."""
    return replace(config, data="digits", samples=min(config.samples, 100, 1_198 // config.slots))


def draw(
    images: Images, rule: Rule, samples: int, slots: int, seed: int = 0, *, per_sample: int | None = None
) -> Samples:
    """Draw samples of `slots` images, and compute the rule's value for each.

    If every slot can have every label, no image is drawn twice. If the rule restricts the labels of its slots (digits
    and operators alternate), the label of each slot is drawn first, and images are reused once every image of that
    label has been drawn. If there are too many candidates to list and the rule has a state machine, the candidates are
    a lattice.

    Args:
        images: what to draw from.
        rule: what is known about a sample.
        samples: how many, `n`.
        slots: images per sample, `m`.
        seed: of the draws.
        per_sample: at most this many random candidates of each sample; all if not given.

    Examples:
        >>> from clipper.benchmarks.data.images import digits
        >>> from clipper.benchmarks.sum import SUM_RULE
        >>> samples = draw(digits(), SUM_RULE, samples=100, slots=3)
        >>> bool(samples.candidates.contains(samples.gold).all())
        True
        >>> draw(digits(), SUM_RULE, samples=10, slots=30, per_sample=50).candidates
        Candidates(10 samples, 500 candidates, 30 slots, 10 classes)
        >>> min(draw(digits(), SUM_RULE, samples=10, slots=30).candidates.counts) > 10**20
        True
    """
    if not 1 <= slots <= MOST_SLOTS:
        raise InputError(f"expected samples of 1 to {MOST_SLOTS:,} slots, got {slots}")
    if samples < 1:
        raise InputError(f"expected at least one sample, got samples={samples}")
    generator = torch.Generator().manual_seed(seed)
    domains = rule.domains(slots) if rule.domains else None
    if domains is None:
        chosen = _draw_without_reuse(images, samples, slots, generator)  # (n, m)
    else:
        chosen = _draw_by_domain(images, samples, domains, generator)  # (n, m)
    gold = images.labels[chosen]
    targets = [_target(rule, row) for row in map(tuple, gold.tolist())]
    if per_sample is None:
        candidates = rule.candidates(targets, slots, images.classes)
    elif rule.machine is not None and _combinations(rule, slots, images.classes) > BUDGET:
        candidates = rule.lattice(targets, slots, images.classes).draw(per_sample, seed)
    else:
        candidates = candidates_of(rule.value, targets, slots, images.classes, domains, per_sample, seed)
    fit = max(map(abs, targets)) < 2**63  # larger targets, such as sums of long numbers, are in the lattice alone
    return Samples(images.pixels[chosen], candidates, gold=gold, targets=torch.tensor(targets) if fit else None)


def outputs_of(rule: Rule, slots: int, classes: int) -> CandidateSet | None:
    """The candidates of every value of a rule, in the order of the values.

    None if they are too many to list, or if the values are not 0, 1, 2 and so on.

    Examples:
        >>> from clipper import rules
        >>> outputs_of(rules.total(), slots=2, classes=10)
        Candidates(19 samples, 100 candidates, 2 slots, 10 classes)
    """
    if _combinations(rule, slots, classes) > _MOST_OUTPUTS:
        return None
    domains = rule.domains(slots) if rule.domains else [range(classes)] * slots
    values = sorted({rule.value(row) for row in itertools.product(*domains)})
    if values != list(range(len(values))):
        return None
    return rule.candidates(values, slots, classes)


def _combinations(rule: Rule, slots: int, classes: int) -> int:
    domains = rule.domains(slots) if rule.domains else [range(classes)] * slots
    return math.prod(map(len, domains))


def _target(rule: Rule, labels: tuple[int, ...]) -> int:
    value = rule.value(labels)
    if not isinstance(value, int):
        raise InputError(f"expected the rule {rule.name!r} to give whole numbers, got {value!r}; number its outcomes")
    return int(value)


def _draw_without_reuse(images: Images, samples: int, slots: int, generator: torch.Generator) -> Tensor:
    if samples * slots > len(images):
        raise InputError(
            f"{samples} samples of {slots} slots need {samples * slots} images, but {images.name} has {len(images)}"
        )
    return torch.randperm(len(images), generator=generator)[: samples * slots].view(samples, slots)


def _draw_by_domain(
    images: Images, samples: int, domains: Sequence[Sequence[int]], generator: torch.Generator
) -> Tensor:
    """Draw a label for each slot from the slot's domain, then an image of each label."""
    labels = [torch.tensor(list(domain)) for domain in domains]
    wanted = [label[torch.randint(len(label), (samples,), generator=generator)] for label in labels]
    return deal(images.labels, torch.stack(wanted, dim=1), generator, images.name)


def deal(labels: Tensor, gold: Tensor, generator: torch.Generator, name: str) -> Tensor:
    """Indices of images with the labels `gold (n, m)`; an image is reused only if no other of its label is left.

    Args:
        labels: of the images to choose from, `(instances,)`.
        gold: the label of each slot; -1 in unused slots, which get the index -1.
        generator: of the draws.
        name: of the data set, for the message.

    Raises:
        InputError: there is no image of some label.
    """
    chosen = torch.full_like(gold, -1)
    for label in sorted(set(gold.flatten().tolist()) - {-1}):
        pool = (labels == label).nonzero()[:, 0]
        if not len(pool):
            raise InputError(f"the task needs images of label {label}, but {name} has none")
        where = gold == label
        times = -(-int(where.sum()) // len(pool))
        order = torch.cat([pool[torch.randperm(len(pool), generator=generator)] for _ in range(times)])
        chosen[where] = order[: int(where.sum())]
    return chosen


def candidates_of(
    rule: Callable[..., Any],
    targets: Sequence[int],
    slots: int | Sequence[int],
    classes: int,
    domains: Sequence[Sequence[int]] | None,
    per_sample: int | None,
    seed: int,
) -> Candidates:
    """The candidates of each sample, or at most `per_sample` random ones, drawn without listing all.

    Args:
        rule: from the labels of a sample to its target.
        targets: of each sample.
        slots: of every sample, or of each.
        classes: how many labels there are.
        domains: the labels of each slot; None for all.
        per_sample: how many candidates to draw for each sample; None for all.
        seed: of the draws.
    """
    if per_sample is None:
        return Candidates.from_rule(rule, targets, slots, classes, domains=domains)
    lengths = [slots] * len(targets) if isinstance(slots, int) else slots
    tasks = list(zip(targets, lengths, strict=True))  # samples of one target and length share their candidates
    place = {task: i for i, task in enumerate(dict.fromkeys(tasks))}
    distinct, own = map(list, zip(*place, strict=True))
    shared = Candidates.from_rule(rule, distinct, own, classes, domains=domains)
    which = torch.tensor([place[task] for task in tasks])
    parts = [shared.batch(ids).draw(per_sample, seed + i) for i, ids in enumerate(torch.split(which, _TOGETHER))]
    counts = torch.cat([part.offsets.diff() for part in parts])
    return Candidates.from_tensors(
        torch.cat([part.labels for part in parts]), torch.arange(len(counts)).repeat_interleave(counts), classes
    )
