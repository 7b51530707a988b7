"""The symmetry group of candidate sets: permutations of the labels that map every sample's candidates onto themselves.

A symmetry takes each label to one that looks the same, so labels get colours that no symmetry can change: the weighted
counts of the sets if one label is marked. Where that leaves a choice, labels are marked one by one and the others get
new colours (individualisation and refinement, as programs for graph isomorphism do it). The group's order is the
product of the orbit sizes along a chain of stabilisers, so nothing has to be listed.
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
"""The name of each label."""
Colour = tuple[int, ...]

_POINTS = 2
"""Random weights at which sets are compared; they would have to agree at all of them by chance."""
_DEEPEST = 200
"""Labels that are told apart before a search is given up."""
_CELLS = 1 << 22
"""Numbers held at a time."""


class _OutOfBudgetError(Exception):
    """The search has taken all the steps that it may take."""


@dataclass(frozen=True)
class Level:
    """A step of a stabiliser chain: the symmetries that keep all bases before.

    Attributes:
        base: the label that the next level keeps as well.
        to: for each label of its orbit, a symmetry that takes the base there.
    """

    base: int
    to: dict[int, Permutation]


@dataclass(frozen=True)
class SymmetryGroup:
    """The symmetries of candidate sets, as a stabiliser chain.

    Attributes:
        classes: the number of labels, `c`.
        levels: the chain, the largest orbit first; only the identity keeps all bases.
        generators: symmetries that generate the group.
        possible: for each label, the labels that a symmetry may take it to, itself among them: its orbit or, if the
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
    """One permutation after the other.

    Examples:
        >>> composed((1, 2, 0), (1, 0, 2))
        (2, 1, 0)
    """
    return tuple(second[label] for label in first)


def find_symmetries(candidates: CandidateSet, budget: int) -> SymmetryGroup:
    """The permutations of the labels, within their kinds, that map every sample's candidates onto themselves.

    No symmetry is overlooked, unless the budget ends the search. Sets are compared by weighted counts modulo a prime,
    so a permutation that is none is taken for one with a probability below 10⁻¹².

    Args:
        candidates: no candidate twice; samples with the same candidates are needed once.
        budget: numbers to look at, after which the search is given up.
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

        self.mark = drawn(_POINTS, slots, classes)  # of the labels that are told apart, by their place
        self.probe = drawn(_POINTS, slots)  # of the label that is coloured
        self.rest = drawn(_POINTS, slots, len(candidates.kinds))[:, :, self.kind]  # of all others
        self.factor = drawn(candidates.samples, 1)
        self.twins = _Orbits(self.labels)  # labels that may change places while all others stay
        self.seen: dict[tuple[int, ...], list[Colour]] = {}
        self.unchanged = weighted_counts(candidates, self.mark)  # (n, points)

    def group(self) -> SymmetryGroup:
        fixed: tuple[int, ...] = ()
        generators: list[Permutation] = []
        levels: list[Level] = []
        possible: tuple[frozenset[int], ...] = ()
        exhaustive = True
        before = [list(self.labels)]  # the orbits of the level before, which only fall apart
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
        """Join the orbits of the symmetries that keep the `fixed` labels, and note those that generate them.

        Args:
            orbits: of the symmetries that are known.
            before: labels that different lists hold are in different orbits.
            fixed: the labels to keep.
            generators: where symmetries that were found are noted.
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
        """Whether a symmetry that keeps the `fixed` labels takes one label to another; then their orbits are joined."""
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
        """A symmetry that takes the labels `left` to the labels `right`, if there is one."""
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
        """A colour for each label, which no symmetry that keeps the labels `apart` can change."""
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
    """The orbits of the labels under some permutations: `of[y]` holds the labels that `y` is taken to."""

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
    """For each label that the generators take `base` to, a product of them that does."""
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
    """A permutation that keeps colours and, as far as that allows it, labels."""
    free: dict[Colour, list[int]] = defaultdict(list)
    for label in reversed(range(len(after))):
        if before[label] != after[label]:
            free[after[label]].append(label)
    pairs = enumerate(zip(before, after, strict=True))
    return tuple(label if old == new else free[old].pop() for label, (old, new) in pairs)
