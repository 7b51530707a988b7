"""Samples: images drawn into slots, the rule's value noted, the candidates worked out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.benchmarks.data.images import Images
from clipper.benchmarks.tasks.registry import DOMAINS, MACHINES, Rule, rule_named
from clipper.candidates import Candidates, Lattice
from clipper.candidates.abduction import BUDGET
from clipper.errors import InputError

ARCS = 20_000_000
"""Arcs of a rule's lattice to follow at most: enough for formulas of 15 symbols, in a minute and 1 GB."""
MOST_SLOTS = 1_000
"""Slots of a sample: more than any task here has, and few enough to multiply their labels out."""
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


@dataclass(frozen=True, eq=False)
class LatticeTask:
    """As `Task`, with a lattice for candidates: for rules with a state machine, however many candidates there are."""

    inputs: Tensor
    """`(n, m, channels, height, width)`."""
    gold: Tensor
    """`(n, m)`."""
    targets: Tensor
    """`(n,)`: what the rule gives."""
    candidates: Lattice


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
        per_sample: at most so many candidates of each sample, drawn at random; all if not given. Where there are
            too many to enumerate and the rule has a state machine, they are drawn from its lattice.

    Examples:
        >>> from clipper.benchmarks.datasets import digits
        >>> task = draw(digits(), "sum", samples=100, slots=3)
        >>> bool(task.candidates.contains(task.gold).all())
        True
        >>> draw(digits(), "sum", samples=10, slots=30, per_sample=50).candidates
        Candidates(10 samples, 500 candidates, 30 slots, 10 classes)
    """
    chosen, gold, targets, domains = _drawn(images, rule, samples, slots, seed)
    if per_sample is not None and needs_lattice(rule, slots, images.classes):
        candidates = lattice_of(rule, targets, slots, images.classes, domains).draw(per_sample, seed)
    else:
        candidates = candidates_of(rule_named(rule), targets, slots, images.classes, domains, per_sample, seed)
    return Task(images.pixels[chosen], gold, torch.tensor(targets), candidates)


def needs_lattice(rule: str, slots: int, classes: int) -> bool:
    """Whether a rule has too many label combinations to try them all, and a state machine that spares it.

    Examples:
        >>> needs_lattice("sum", slots=4, classes=10), needs_lattice("sum", slots=30, classes=10)
        (False, True)
    """
    _check_slots(slots)
    domains = DOMAINS[rule](slots) if rule in DOMAINS else [range(classes)] * slots
    return rule in MACHINES and math.prod(map(len, domains)) > BUDGET


def draw_lattice(images: Images, rule: str, samples: int, slots: int, seed: int = 0) -> LatticeTask:
    """The same samples as `draw` gives, with all their candidates as a lattice.

    Examples:
        >>> from clipper.benchmarks.datasets import digits
        >>> task = draw_lattice(digits(), "sum", samples=10, slots=30)
        >>> min(task.candidates.counts) > 10**20, bool(task.candidates.contains(task.gold).all())
        (True, True)
    """
    chosen, gold, targets, domains = _drawn(images, rule, samples, slots, seed)
    lattice = lattice_of(rule, targets, slots, images.classes, domains)
    return LatticeTask(images.pixels[chosen], gold, torch.tensor(targets), lattice)


def gold_of(images: Images, rule: str, samples: int, slots: int, seed: int = 0) -> Tensor:
    """The labels of the samples that `draw` gives, `(n, m)`, without their candidates."""
    return _drawn(images, rule, samples, slots, seed)[1]


def _drawn(
    images: Images, rule: str, samples: int, slots: int, seed: int
) -> tuple[Tensor, Tensor, list[int], Sequence[Sequence[int]] | None]:
    """Which images are drawn, `(n, m)`; their labels, `(n, m)`; the rule's values; the labels each slot may take."""
    of = rule_named(rule)
    _check_slots(slots)
    if samples < 1:
        raise InputError(f"expected at least one sample, got samples={samples}")
    generator = torch.Generator().manual_seed(seed)
    domains = DOMAINS[rule](slots) if rule in DOMAINS else None
    if domains is None:
        chosen = _shuffled(images, samples, slots, generator)  # (n, m)
    else:
        chosen = _dealt(images, samples, domains, generator)  # (n, m)
    gold = images.labels[chosen]
    return chosen, gold, [_whole(rule, of(row)) for row in map(tuple, gold.tolist())], domains


def lattice_of(
    rule: str,
    targets: Sequence[int],
    slots: int | Sequence[int],
    classes: int,
    domains: Sequence[Sequence[int]] | None = None,
) -> Lattice:
    """The lattice of a task's samples.

    Examples:
        >>> lattice_of("sum", [8, 135], [2, 30], classes=10)
        Lattice(2 samples, 30 slots, 10 classes, 2,056 states)
    """
    if rule not in MACHINES:
        raise InputError(
            f"expected one of the rules with a state machine, {', '.join(MACHINES)}, got {rule!r}; "
            "register it with machine=, or do without the lattice"
        )
    return Lattice.from_rule(*MACHINES[rule], targets, slots, classes, domains=domains, budget=ARCS)


def _whole(rule: str, value: object) -> int:
    if not isinstance(value, int):
        raise InputError(f"expected the rule {rule!r} to give whole numbers, got {value!r}; number its outcomes")
    return int(value)


def _check_slots(slots: int) -> None:
    if not 1 <= slots <= MOST_SLOTS:
        raise InputError(f"expected samples of 1 to {MOST_SLOTS:,} slots, got {slots}")


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
    parts = [shared.batch(ids).draw(per_sample, seed + i) for i, ids in enumerate(torch.split(which, _TOGETHER))]
    counts = torch.cat([part.offsets.diff() for part in parts])
    return Candidates.from_tensors(
        torch.cat([part.labels for part in parts]), torch.arange(len(counts)).repeat_interleave(counts), classes
    )
