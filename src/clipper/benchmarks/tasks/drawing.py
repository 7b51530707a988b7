"""Samples: images drawn into slots, the rule's value noted, the candidates worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.benchmarks.data.images import Images
from clipper.benchmarks.tasks.registry import DOMAINS, Rule, rule_named
from clipper.candidates import Candidates
from clipper.errors import InputError

_TOGETHER = 256
"""Samples whose candidates are held in full while some of them are drawn."""


@dataclass(frozen=True, eq=False)
class Task:
    """Samples to learn from. The gold labels are for measuring only."""

    inputs: Tensor
    """`(n, m, channels, height, width)`; zero in unused slots."""
    gold: Tensor
    """`(n, m)`; -1 in unused slots."""
    targets: Tensor
    """`(n,)`: what the rule gives."""
    candidates: Candidates

    def batches(self, size: int, seed: int) -> list[Tensor]:
        """One epoch's shuffled batches of sample ids."""
        order = torch.randperm(len(self.gold), generator=torch.Generator().manual_seed(seed))
        return list(torch.split(order, size))


def draw(images: Images, rule: str, samples: int, slots: int, seed: int = 0, *, per_sample: int | None = None) -> Task:
    """Draw images into samples of `slots`, and note what the rule gives for each.

    Where every slot takes every label, no image is drawn twice. Where a rule says what its slots take, such as digits
    and operators in turn, each slot's label is drawn first, and an image comes again once all of its label have come.

    Args:
        images: what to draw from.
        rule: the task's name, one of `RULES`.
        samples: how many, `n`.
        slots: images per sample, `m`.
        seed: of the draws.
        per_sample: at most so many candidates of each sample, drawn at random; all if not given.

    Examples:
        >>> from clipper.benchmarks.datasets import digits
        >>> task = draw(digits(), "sum", samples=100, slots=3)
        >>> bool(task.candidates.contains(task.gold).all())
        True
    """
    of = rule_named(rule)
    if samples < 1 or slots < 1:
        raise InputError(f"expected at least one sample of at least one slot, got samples={samples} and slots={slots}")
    generator = torch.Generator().manual_seed(seed)
    domains = DOMAINS[rule](slots) if rule in DOMAINS else None
    if domains is None:
        chosen = _shuffled(images, samples, slots, generator)  # (n, m)
    else:
        chosen = _dealt(images, samples, domains, generator)  # (n, m)
    gold = images.labels[chosen]
    targets = [_whole(rule, of(row)) for row in map(tuple, gold.tolist())]
    candidates = candidates_of(of, targets, slots, images.classes, domains, per_sample, seed)
    return Task(images.pixels[chosen], gold, torch.tensor(targets), candidates)


def _whole(rule: str, value: object) -> int:
    if not isinstance(value, int):
        raise InputError(f"expected the rule {rule!r} to give whole numbers, got {value!r}; number its outcomes")
    return int(value)


def _shuffled(images: Images, samples: int, slots: int, generator: torch.Generator) -> Tensor:
    if samples * slots > len(images):
        raise InputError(
            f"{samples} samples of {slots} slots need {samples * slots} images, but {images.name} has {len(images)}"
        )
    return torch.randperm(len(images), generator=generator)[: samples * slots].view(samples, slots)


def _dealt(images: Images, samples: int, domains: Sequence[Sequence[int]], generator: torch.Generator) -> Tensor:
    labels = [torch.tensor(list(domain)) for domain in domains]
    wanted = [label[torch.randint(len(label), (samples,), generator=generator)] for label in labels]
    gold = torch.stack(wanted, dim=1)  # (n, m)
    chosen = torch.empty_like(gold)
    for label in sorted(set(gold.flatten().tolist())):
        pool = (images.labels == label).nonzero()[:, 0]
        if not len(pool):
            raise InputError(f"the task needs images of label {label}, but {images.name} has none")
        where = gold == label
        decks = -(-int(where.sum()) // len(pool))
        dealt = torch.cat([pool[torch.randperm(len(pool), generator=generator)] for _ in range(decks)])
        chosen[where] = dealt[: int(where.sum())]
    return chosen


def candidates_of(
    rule: Rule,
    targets: Sequence[int],
    slots: int | Sequence[int],
    classes: int,
    domains: Sequence[Sequence[int]] | None = None,
    per_sample: int | None = None,
    seed: int = 0,
) -> Candidates:
    """The candidates of each sample, or at most `per_sample` of them, drawn without holding all at once."""
    if per_sample is None:
        return Candidates.from_rule(rule, targets, slots, classes, domains=domains)
    lengths = [slots] * len(targets) if isinstance(slots, int) else list(slots)
    kinds = list(dict.fromkeys(zip(lengths, targets, strict=True)))  # samples of one kind share their candidates
    place = {kind: i for i, kind in enumerate(kinds)}
    shared = Candidates.from_rule(rule, [t for _, t in kinds], [s for s, _ in kinds], classes, domains=domains)
    which = torch.tensor([place[kind] for kind in zip(lengths, targets, strict=True)])
    parts = [
        shared.batch(ids).sample_at_random(per_sample, seed + i) for i, ids in enumerate(torch.split(which, _TOGETHER))
    ]
    counts = torch.cat([part.counts for part in parts])
    return Candidates.from_tensors(
        torch.cat([part.labels for part in parts]), torch.arange(len(counts)).repeat_interleave(counts), classes
    )
