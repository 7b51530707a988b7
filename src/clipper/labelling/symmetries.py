"""The symmetry group of candidate sets: permutations of the labels that map every sample's candidates onto themselves.

The method is individualisation and refinement, as in programs for graph isomorphism. Every label gets a colour that no
symmetry can change: the weighted counts of the sets if this label is marked. If several labels have the same colour,
one of them is fixed and the others get new colours. The order of the group is the product of the orbit sizes along a
chain of stabilisers, so the symmetries need not be listed.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.candidates import CandidateSet
from clipper.candidates.comparison import PRIME, weighted_count_size, weighted_counts
from clipper.candidates.kinds import kind_of_label

Permutation = tuple[int, ...]
"""A permutation of the labels: the image of each label."""
Colour = tuple[int, ...]
"""The colour of a label, an invariant of the symmetries."""

_POINTS = 2
"""Number of random weightings by which sets are compared; different sets agree on all with a negligible probability."""
_DEEPEST = 200
"""Number of fixed labels at which a search stops."""
_CELLS = 1 << 22
"""Largest number of tensor elements held at a time."""


class _OutOfBudgetError(Exception):
    """The search has reached its budget."""


@dataclass(frozen=True)
class Level:
    """A level of a stabiliser chain: the symmetries that fix the bases of all earlier levels.

    Attributes:
        base: the label that the next level fixes, too.
        to: for each label of its orbit, a symmetry that maps the base to it.
    """

    base: int
    to: dict[int, Permutation]


@dataclass(frozen=True)
class SymmetryGroup:
    """The symmetries of candidate sets, as a stabiliser chain.

    Attributes:
        classes: the number of labels, `c`.
        levels: the chain, the largest orbit first; only the identity fixes all bases.
        generators: symmetries that generate the group.
        possible: for each label, the labels that a symmetry may map it to, itself included: its orbit or, if the
            search was not completed, the labels that were not ruled out.
        exhaustive: whether the search was completed; if not, there may be more symmetries.
    """

    classes: int
    levels: tuple[Level, ...]
    generators: tuple[Permutation, ...]
    possible: tuple[frozenset[int], ...]
    exhaustive: bool

    @property
    def order(self) -> int:
        """How many symmetries there are; a lower bound if the search was not exhaustive."""
        return math.prod(len(level.to) for level in self.levels)

    def elements(self) -> Iterator[Permutation]:
        """All symmetries one after the other, the identity first."""
        identity = tuple(range(self.classes))
        for steps in itertools.product(*(level.to.values() for level in self.levels)):
            whole = identity
            for step in reversed(steps):
                whole = composed(step, whole)
            yield whole


def composed(second: Permutation, first: Permutation) -> Permutation:
    """The composition of two permutations: `first`, then `second`.

    Examples:
        >>> composed((1, 2, 0), (1, 0, 2))
        (2, 1, 0)
    """
    return tuple(second[label] for label in first)


def find_symmetries(candidates: CandidateSet, budget: int) -> SymmetryGroup:
    """The permutations of the labels, within their kinds, that map every sample's candidates onto themselves.

    The search finds every symmetry unless it reaches the budget. Sets are compared by weighted counts modulo a prime,
    so a permutation that is not a symmetry is accepted with a probability below 10⁻¹².

    Args:
        candidates: no candidate may occur twice; of samples with the same candidates, one is enough.
        budget: limit of the search, in numbers read.

    Returns:
        The group; a subgroup, with `exhaustive` false, if the search reached the budget.
    """
    return _Search(candidates, budget).group()


class _Search:
    def __init__(self, candidates: CandidateSet, budget: int) -> None:
        self.candidates, self.left, self.size = candidates, budget, weighted_count_size(candidates)
        self.labels = range(candidates.classes)
        slots, classes, device = candidates.slots, candidates.classes, candidates.device
        self.kind = kind_of_label(torch.arange(classes, device=device), candidates.kinds)  # (c,)
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randint(1, PRIME, shape, generator=generator).to(device)

        self.mark = drawn(_POINTS, slots, classes)  # weights of fixed labels, by their position
        self.probe = drawn(_POINTS, slots)  # weights of the label that gets a colour
        self.rest = drawn(_POINTS, slots, len(candidates.kinds))[:, :, self.kind]  # weights of all other labels
        self.factor = drawn(candidates.samples, 1)
        self.twins = _Orbits(self.labels)  # labels that can be exchanged while all others stay fixed
        self.seen: dict[tuple[int, ...], list[Colour]] = {}
        self.unchanged = weighted_counts(candidates, self.mark)  # (n, points)

    def group(self) -> SymmetryGroup:
        fixed: tuple[int, ...] = ()
        generators: list[Permutation] = []
        levels: list[Level] = []
        possible: tuple[frozenset[int], ...] = ()
        exhaustive = True
        before = [list(self.labels)]  # the orbits of the previous level; each orbit is a subset of one of these
        while True:
            orbits = _Orbits(self.labels, (g for g in generators if all(g[label] == label for label in fixed)))
            try:
                self._complete(orbits, before, fixed, generators)
            except _OutOfBudgetError:
                exhaustive = False
            if not fixed:
                possible = tuple(self._possible(orbits, exhaustive))
            largest = max(orbits.of, key=len)
            if len(largest) == 1:
                return SymmetryGroup(len(self.labels), tuple(levels), tuple(generators), possible, exhaustive)
            base = min(largest)
            levels.append(Level(base, _transversal(base, orbits.generators)))
            fixed = (*fixed, base)
            before = [sorted(own - {base}) for label, own in enumerate(orbits.of) if label == min(own)]

    def _complete(
        self, orbits: _Orbits, before: list[list[int]], fixed: tuple[int, ...], generators: list[Permutation]
    ) -> None:
        """Complete the orbits under the symmetries that fix the labels `fixed`, and collect generators of these.

        Args:
            orbits: the orbits under the symmetries that are known; changed in place.
            before: lists of labels; labels in different lists are in different orbits.
            fixed: the labels to fix.
            generators: new symmetries are appended to this list.
        """
        if any(self.twins.of[label] is not self.twins.of[cell[0]] for cell in before for label in cell):
            colours = self._colours(fixed)
            before = [[cell[i] for i in part] for cell in before for part in _cells([colours[y] for y in cell])]
        for cell in before:
            separate: list[int] = []  # a label of each orbit
            for label in cell:
                if not any(self._join(orbits, other, label, fixed, generators) for other in separate):
                    separate.append(label)

    def _join(
        self, orbits: _Orbits, one: int, other: int, fixed: tuple[int, ...], generators: list[Permutation]
    ) -> bool:
        """Whether a symmetry that fixes the labels `fixed` maps one label to the other; if so, join their orbits."""
        if orbits.of[one] is orbits.of[other]:
            return True
        exchange = list(self.labels)
        exchange[one], exchange[other] = other, one
        found: Permutation | None = tuple(exchange)
        if self.twins.of[one] is not self.twins.of[other]:
            if self._is_symmetry(tuple(exchange)):
                self.twins.join(tuple(exchange))
            else:
                found = self._carrying((*fixed, one), (*fixed, other))
            if found is not None:
                generators.append(found)
        if found is not None:
            orbits.join(found)
        return found is not None

    def _possible(self, orbits: _Orbits, exhaustive: bool) -> Iterator[frozenset[int]]:
        if exhaustive:
            yield from map(frozenset, orbits.of)
            return
        colours = self.seen.get((), [(kind,) for kind in self.kind.tolist()])
        for colour in colours:
            yield frozenset(label for label in self.labels if colours[label] == colour)

    def _carrying(self, left: tuple[int, ...], right: tuple[int, ...]) -> Permutation | None:
        """A symmetry that maps the labels `left` to the labels `right`; None if there is none."""
        if len(left) > _DEEPEST:
            raise _OutOfBudgetError
        before, after = self._colours(left), self._colours(right)
        if sorted(before) != sorted(after):
            return None
        guess = _matched(before, after)
        if self._is_symmetry(guess):
            return guess
        cells = [cell for cell in _cells(before) if len(cell) > 1]
        if not cells:
            return None
        label = min(cells, key=len)[0]
        for image in (y for y in self.labels if after[y] == before[label]):
            found = self._carrying((*left, label), (*right, image))
            if found is not None:
                return found
        return None

    def _colours(self, apart: tuple[int, ...]) -> list[Colour]:
        """A colour for each label that is invariant under all symmetries that fix the labels `apart`."""
        if apart in self.seen:
            return self.seen[apart]
        self._spend(len(self.labels) - len(apart))
        base = self.rest.clone()  # (points, m, c)
        base[:, :, list(apart)] = self.mark[:, :, : len(apart)]
        rest = [label for label in self.labels if label not in apart]
        together = max(1, _CELLS // base.numel())
        values: list[list[int]] = []
        for start in range(0, len(rest), together):
            some = torch.tensor(rest[start : start + together], device=base.device)
            weights = base[:, None].repeat(1, len(some), 1, 1)  # (points, labels, m, c)
            weights[:, torch.arange(len(some)), :, some] = self.probe[None]
            counts = weighted_counts(self.candidates, weights.flatten(0, 1))  # (n, points * labels)
            values += (counts * self.factor % PRIME).sum(0).remainder_(PRIME).view(_POINTS, -1).T.tolist()
        colours: list[Colour] = [()] * len(self.labels)
        for place, label in enumerate(apart):
            colours[label] = (-1, place)
        for label, kind, value in zip(rest, self.kind[rest].tolist(), values, strict=True):
            colours[label] = (kind, *value)
        self.seen[apart] = colours
        return colours

    def _is_symmetry(self, permutation: Permutation) -> bool:
        self._spend(1)
        moved = torch.empty_like(self.mark)
        moved[:, :, list(permutation)] = self.mark
        return torch.equal(weighted_counts(self.candidates, moved), self.unchanged)

    def _spend(self, weights: int) -> None:
        if self.left <= 0:
            raise _OutOfBudgetError
        self.left -= weights * _POINTS * self.size


class _Orbits:
    """The orbits of the labels under some permutations: `of[y]` is the orbit of `y`."""

    def __init__(self, labels: Sequence[int], generators: Iterable[Permutation] = ()) -> None:
        self.of: list[set[int]] = [{label} for label in labels]
        self.generators: list[Permutation] = []
        for generator in generators:
            self.join(generator)

    def join(self, generator: Permutation) -> None:
        """Add a permutation."""
        self.generators.append(generator)
        for label, image in enumerate(generator):
            if self.of[label] is not self.of[image]:
                self.of[label] |= self.of[image]
                for other in self.of[image]:
                    self.of[other] = self.of[label]


def _transversal(base: int, generators: Sequence[Permutation]) -> dict[int, Permutation]:
    """For each label in the orbit of `base`, a product of the generators that maps `base` to it."""
    found, ends = {base: tuple(range(len(generators[0])))}, [base]
    for label in ends:
        for generator in generators:
            image = generator[label]
            if image not in found:
                found[image] = composed(generator, found[label])
                ends.append(image)
    return found


def _cells(colours: Sequence[Colour]) -> list[list[int]]:
    """The labels of each colour."""
    cells: dict[Colour, list[int]] = defaultdict(list)
    for label, colour in enumerate(colours):
        cells[colour].append(label)
    return list(cells.values())


def _matched(before: Sequence[Colour], after: Sequence[Colour]) -> Permutation:
    """A permutation that maps each label to one of the same colour, and to itself if its colour stays the same."""
    free: dict[Colour, list[int]] = defaultdict(list)
    for label in reversed(range(len(after))):
        if before[label] != after[label]:
            free[after[label]].append(label)
    pairs = enumerate(zip(before, after, strict=True))
    return tuple(label if old == new else free[old].pop() for label, (old, new) in pairs)
