"""identify: which labels can the formulas tell apart at all?

This needs the candidates only: no embeddings, networks or losses.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import number_in_words, whole_number, whole_numbers, widened, yes_or_no
from clipper.candidates import CandidateSet, Kind
from clipper.candidates.base import must_be_candidates, outside_inference_mode
from clipper.candidates.comparison import distinct_samples
from clipper.errors import InputError
from clipper.labelling.shortcuts import Alternatives, Independent, common_maps, find_shortcuts
from clipper.labelling.symmetries import SymmetryGroup, find_symmetries
from clipper.pruning.objectives import listed_only

BUDGET = 3_000_000_000
"""Default limit of the search, in numbers read: about a minute. Past it, the result is a lower bound."""
LISTED = 1_000
"""Largest number of namings that are listed."""
_HITTING = 20_000
"""Steps of the exact search for the smallest set `settle`; past them, a greedy search finds a set."""
_WRITTEN = 10_000
"""Bits from which on a number is written in words, such as "about 10^3010"."""
_CELLS = 1 << 24
"""Largest number of tensor elements held at a time."""


@dataclass(frozen=True, eq=False)
class Identification:
    """Which labels the formulas identify. `print` it for a summary and a table. `identify` returns it.

    A naming gives each label a name: `naming[y]` is the name of `y`.

    Attributes:
        namings: `(≤ 1000, c)`: namings that satisfy all formulas, the identity first.
        order: the number of namings; a lower bound if the search was not exhaustive.
        generators: `(g, c)`: permutations that generate all namings; empty if labels were given, because those maps
            do not form a group.
        exhaustive: whether the search was completed.
        possible: `(c, c)` bool: the names that each label may have; if the search was not exhaustive, all names that it
            did not rule out.
        settle: labels to ask for: if the names of these are known, the identity is the only naming left.
        smallest: whether `settle` is proven to be a smallest such set; else a greedy search found it.
        instances: `(c,)`: how many instances have each label. If no labels were given, an instance counts in equal
            parts for each label of its support.
        given: whether labels were given.
        kinds: the kinds of label.
    """

    namings: Tensor
    order: int
    generators: Tensor
    exhaustive: bool
    possible: Tensor
    settle: tuple[int, ...]
    smallest: bool
    instances: Tensor
    given: bool
    kinds: tuple[Kind, ...]

    @property
    def identified(self) -> Tensor:
        """The labels that have the same name in every naming, `(c,)` bool."""
        return self.possible.sum(1) == 1

    @property
    def concerned(self) -> float:
        """How many instances have a label that is not identified; an expectation if no labels were given."""
        return float(self.instances[~self.identified].sum())

    @property
    def sentence(self) -> str:
        """A summary of the result in one or two sentences."""
        return " ".join(_sentences(self))

    def amount(self, instances: float) -> str:
        """A number of instances as text; if no labels were given, as a share of all instances, such as "about 40%"."""
        if self.given:
            return f"{instances:,.0f}"
        return f"about {instances / max(1.0, float(self.instances.sum())):.0%}"

    def rows(self) -> list[dict[str, Any]]:
        """A table with a row for each label: the names it may have, and how many instances have it."""
        identified = self.identified.tolist()
        return [
            {
                "label": label,
                "kind": kind.name,
                "identified": identified[label],
                "names": self.possible[label].nonzero()[:, 0].tolist(),
                "instances": float(self.instances[label]),
            }
            for kind in self.kinds
            for label in range(kind.start, kind.stop)
        ]

    def as_dict(self) -> dict[str, Any]:
        """The whole result as a dictionary, for JSON."""
        return {
            "sentence": self.sentence,
            "order": self.order if self.order.bit_length() < _WRITTEN else number_in_words(self.order),
            "exhaustive": self.exhaustive,
            "identified": self.identified.nonzero()[:, 0].tolist(),
            "instances": float(self.instances.sum()),
            "instances_not_identified": self.concerned,
            "settle": list(self.settle),
            "settle_is_smallest": self.smallest,
            "labels": self.rows(),
            "generators": self.generators.tolist(),
            "namings": self.namings.tolist(),
        }

    def __str__(self) -> str:
        lines = [["label", "may be called", "instances"]]
        lines += [[str(row["label"]), shortened(row["names"]), self.amount(row["instances"])] for row in self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = (
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )
        return "\n".join([self.sentence, *table])

    def __repr__(self) -> str:
        known, classes = int(self.identified.sum()), len(self.identified)
        return f"Identification({number_in_words(self.order)} namings, {known} of {classes} labels identified)"


@outside_inference_mode
def identify(
    candidates: CandidateSet, labels: Tensor | None = None, *, one_to_one: bool = False, budget: int = BUDGET
) -> Identification:
    """Find out which labels the formulas can tell apart, however good the embeddings are.

    Without `labels`, it finds all permutations of the labels, within their kinds, that map the candidates of every
    sample onto themselves. The formulas cannot distinguish such a naming from the true one. With `labels`, it finds all
    maps, many-to-one maps included, under which these labels still satisfy every formula. The literature calls them
    reasoning shortcuts: a classifier that has learned one of them satisfies every formula and is wrong.

    Args:
        candidates: the possible labels of each sample: listed, a lattice or a formula.
        labels: gold labels, or the labels of a posterior, `(n, m)`; unused slots are ignored.
        one_to_one: with labels, only maps that give different names to different labels.
        budget: limit of the search, in numbers read; the default takes about a minute. If the search stops there,
            `order` is a lower bound and `exhaustive` is false.

    Returns:
        The namings, their number, which labels are identified, and which labels to ask for to identify the others.

    Raises:
        InputError: there is no sample, or the labels of a sample are not among its candidates.

    Examples:
        >>> from clipper import Candidates
        >>> def distance(labels):
        ...     return abs(labels[0] - labels[1])
        >>> found = identify(Candidates.from_rule(distance, targets=range(4), slots=2, classes=4))
        >>> found.namings.tolist(), found.settle  # 3 2 1 0 fits as well as 0 1 2 3; one known name decides
        ([[0, 1, 2, 3], [3, 2, 1, 0]], (0,))
        >>> maxima = Candidates.from_rule(max, targets=[2, 2, 1], slots=2, classes=3)
        >>> found = identify(maxima, torch.tensor([[0, 2], [1, 2], [1, 1]]))
        >>> found.namings.tolist(), found.identified.tolist()  # 0 was never the largest
        ([[0, 1, 2], [1, 1, 2], [2, 1, 2]], [False, True, True])
    """
    sets = must_be_candidates(candidates)
    budget = whole_number(budget, "budget")
    one_to_one = yes_or_no(one_to_one, "one_to_one")
    if not sets.samples:
        raise InputError("expected the candidates of at least one sample, got none")
    distinct, which = distinct_samples(sets)
    if labels is None:
        return _by_symmetry(distinct, which, budget)
    return _by_labels(sets, distinct, which, _checked(labels, sets), one_to_one, budget)


def _by_symmetry(distinct: CandidateSet, which: Tensor, budget: int) -> Identification:
    group = find_symmetries(distinct, budget)
    namings = list(itertools.islice(group.elements(), LISTED))
    possible = torch.zeros(distinct.classes, distinct.classes, dtype=torch.bool)
    for label, names in enumerate(group.possible):
        possible[label, list(names)] = True
    settle, smallest = _base(group, namings)
    support = widened(distinct.support.view(distinct.samples, distinct.slots, -1))
    share = (support / support.sum(2, keepdim=True).clamp(min=1)).sum(1)  # (sets, c)
    times = torch.bincount(which, minlength=distinct.samples).to(share)
    return Identification(
        namings=torch.tensor(sorted(namings), device=which.device),
        order=group.order,
        generators=torch.tensor(group.generators, dtype=torch.long, device=which.device).view(-1, distinct.classes),
        exhaustive=group.exhaustive,
        possible=possible.to(which.device),
        settle=settle,
        smallest=smallest,
        instances=times @ share,
        given=False,
        kinds=distinct.kinds,
    )


def _by_labels(
    candidates: CandidateSet, distinct: CandidateSet, which: Tensor, labels: Tensor, one_to_one: bool, budget: int
) -> Identification:
    patterns = torch.unique(torch.cat([which[:, None], labels], dim=1), dim=0)
    which, rows = patterns[:, 0], patterns[:, 1:]
    found = find_shortcuts(distinct, which, rows, one_to_one=one_to_one, budget=budget)
    classes = candidates.classes
    possible = torch.zeros(classes, classes, dtype=torch.bool)
    for label, name in found.possible():
        possible[label, name] = True
    possible.fill_diagonal_(True)
    identity = tuple(range(classes))
    namings = {tuple(names[y] for y in identity) for names in itertools.islice(found.maps(), LISTED)} | {identity}
    if not found.complete:
        tried = common_maps(possible, [(kind.start, kind.stop) for kind in candidates.kinds])
        fits = tried[_satisfying(tried.to(rows.device), distinct, which, rows).cpu()].tolist()
        namings |= {tuple(names) for names in fits if not one_to_one or len(set(names)) == classes}
    order = max(found.count(), len(namings))
    listed = sorted(namings, key=lambda names: (names != identity, names))[:LISTED]
    settle, smallest = _deciding_labels(found, possible)
    return Identification(
        namings=torch.tensor(listed, device=which.device),
        order=order,
        generators=torch.zeros(0, classes, dtype=torch.long, device=which.device),
        exhaustive=found.complete,
        possible=possible.to(which.device),
        settle=settle,
        smallest=smallest,
        instances=widened(torch.bincount(labels[labels >= 0], minlength=classes)),
        given=True,
        kinds=candidates.kinds,
    )


def _checked(labels: Any, candidates: CandidateSet) -> Tensor:
    """Labels `(n, m)` that satisfy every sample's formula, -1 in unused slots."""
    given = whole_numbers(labels, "labels").to(candidates.device).long()
    shape = candidates.samples, candidates.slots
    if given.shape != shape:
        raise InputError(f"expected labels of shape (samples, slots) = {shape}, got {tuple(given.shape)}")
    wrong = (~candidates.contains(given)).nonzero()[:, 0].tolist()
    if wrong:
        raise InputError(
            f"expected labels that satisfy every sample's formula, but {len(wrong)} of {candidates.samples} have "
            f"labels that are not among their candidates (sample {shortened(wrong)}); correct them, or leave "
            "these samples out: right = candidates.contains(labels), identify(candidates.batch(right), labels[right])"
        )
    return torch.where(candidates.kind < 0, -1, given)


def _satisfying(maps: Tensor, distinct: CandidateSet, which: Tensor, rows: Tensor) -> Tensor:
    """Which of the `maps (k, c)` make every row of labels a candidate again, `(k,)` bool."""
    result = []
    size = rows.numel()  # elements held for one map
    if (listed := listed_only(distinct)) is not None:
        size += int(listed.offsets.diff()[which].sum())
    for some in torch.split(maps, max(1, _CELLS // size)):
        named = torch.where(rows < 0, -1, some[:, rows.clamp(min=0)])  # (k, r, m)
        inside = distinct.batch(which.repeat(len(some))).contains(named.flatten(0, 1))
        result.append(inside.view(len(some), -1).all(1))
    return torch.cat(result) if result else maps.new_zeros(0, dtype=torch.bool)


def _base(group: SymmetryGroup, namings: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], bool]:
    """A base of the group (only the identity fixes all these labels), and whether it is proven to be a smallest one."""
    if not group.exhaustive:
        still_open = tuple(label for label, names in enumerate(group.possible) if len(names) > 1)
        return still_open, not still_open
    greedy = tuple(level.base for level in group.levels)
    if group.order == len(namings):
        smallest = smallest_hitting_set(_moved(enumerate(names)) for names in namings)
        return (greedy, False) if smallest is None else (smallest, True)
    # A symmetry is determined by the images of a base. k labels have at most as many images as the product of the k
    # largest factors |orbit|, |orbit| - 1, …, 2 over all orbits; so a base needs at least `fewest` labels.
    orbits = set(group.possible)
    factors = sorted((left for orbit in orbits for left in range(2, len(orbit) + 1)), reverse=True)
    images = itertools.accumulate(factors, lambda a, b: a * b)
    fewest = next(number for number, most in enumerate(images, start=1) if most >= group.order)
    return tuple(sorted(greedy)), len(greedy) == fewest


def _deciding_labels(found: Independent, possible: Tensor) -> tuple[tuple[int, ...], bool]:
    """Labels such that only the identity keeps all of them, and whether they are proven to be as few as possible."""
    settle = {label for label, names in found.free.items() if len(names) > 1}
    smallest = True
    for part in found.parts:
        own, best = _deciding_labels_of_part(part, possible)
        settle.update(own)
        smallest &= best
    return tuple(sorted(settle)), smallest


def _deciding_labels_of_part(part: Alternatives, possible: Tensor) -> tuple[Collection[int], bool]:
    labels = sorted({label for label, _ in part.possible()})
    if not part.complete:
        still_open = [label for label in labels if int(possible[label].sum()) > 1]
        return still_open, not still_open
    if part.count() <= LISTED:
        smallest = smallest_hitting_set(_moved(names.items()) for names in part.maps())
        if smallest is not None:
            return smallest, True
    known: list[int] = []
    while part.count(known) > 1:
        known.append(min(labels, key=lambda label: part.count([*known, label])))
    return known, False


def _moved(names: Iterable[tuple[int, int]]) -> frozenset[int]:
    return frozenset(label for label, name in names if label != name)


def smallest_hitting_set(sets: Iterable[frozenset[int]]) -> tuple[int, ...] | None:
    """A smallest set of labels that has a label in common with each set that is not empty.

    Args:
        sets: sets of labels.

    Returns:
        The labels in ascending order; None if the exact search takes too many steps.

    Examples:
        >>> smallest_hitting_set([frozenset({0, 1}), frozenset({1, 2}), frozenset({3})])
        (1, 3)
    """
    minimal: list[frozenset[int]] = []
    for own in sorted({own for own in sets if own}, key=lambda own: (len(own), sorted(own))):
        if not any(other <= own for other in minimal):
            minimal.append(own)
    steps = itertools.count()

    def hit(left: list[frozenset[int]], size: int) -> tuple[int, ...] | None:
        if not left or not size or next(steps) > _HITTING:
            return None if left else ()
        first: frozenset[int] = min(left, key=len)
        for label in sorted(first):
            rest = hit([own for own in left if label not in own], size - 1)
            if rest is not None:
                return (label, *rest)
        return None

    for size in range(len(minimal) + 1):
        found = hit(minimal, size)
        if found is not None or next(steps) > _HITTING:
            return None if found is None else tuple(sorted(found))
    return None


def shortened(values: Sequence[object], most: int = 8) -> str:
    """The first few values.

    Examples:
        >>> shortened([0, 1, 2]), shortened(range(20), most=3)
        ('0, 1, 2', '0, 1, 2, …')
    """
    return ", ".join([*map(str, values[:most]), *(["…"] if len(values) > most else [])])


def _sentences(found: Identification) -> list[str]:
    classes, missing = len(found.identified), (~found.identified).nonzero()[:, 0].tolist()
    known, what = classes - len(missing), "map" if found.given else "naming"
    sentences = []
    if found.order > 1:
        number = number_in_words(found.order) if found.exhaustive else f"at least {number_in_words(found.order)}"
        fit = "satisfy" if found.given else "fit"
        changes = found.namings != found.namings[0]  # (k, c)
        example = found.namings[1 + int(changes[1:].sum(1).argmin())].tolist()  # one with few changes
        moved = [f"{label} → {name}" for label, name in enumerate(example) if label != name]
        sentences.append(
            f"{number.capitalize()} {what}s of the labels {fit} every formula, for example {shortened(moved, 4)}."
        )
    if not found.exhaustive:
        none = "" if found.order > 1 else f"No other {what} of the labels was found, but "
        sentences.append(f"{none}the search was not exhaustive; a larger budget searches longer.")
    if not missing:
        sentences.append(f"The formulas identify all {classes:,} labels.")
    elif found.exhaustive and not known:
        sentences.append(f"The formulas identify none of the {classes:,} labels.")
    elif found.exhaustive:
        sentences.append(f"The formulas identify {known:,} of {classes:,} labels: not {shortened(missing)}.")
    else:
        sentences.append(
            f"So far {known:,} of {classes:,} labels are known to be identified: not {shortened(missing)}."
        )
    if missing:
        most = "" if found.exhaustive else "at most "
        total = f"{found.instances.sum():,.0f}" if found.given else "the"
        have = "has" if found.given and found.concerned == 1 else "have"
        number = found.amount(found.concerned)
        sentences.append(f"{most}{number} of {total} instances {have} a label that is not identified.")
        labels = f"label{'s' * (len(found.settle) > 1)} {shortened(found.settle)}"
        sentences.append(f"Knowing {labels} would settle it{'' if found.smallest else '; fewer labels may be enough'}.")
    return [text[0].upper() + text[1:] for text in sentences]
