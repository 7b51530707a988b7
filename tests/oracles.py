"""Brute force: slow, obvious, and written without a line of the library's own machinery."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Labels = tuple[int, ...]
Instance = tuple[int, int]  # (sample, slot)
Edge = tuple[Instance, Instance]


@dataclass(frozen=True)
class Problem:
    """Candidates as lists, edges as pairs of (sample, slot): the paper's own notation."""

    samples: Sequence[Sequence[Labels]]
    edges: Sequence[Edge]

    def support(self, instance: Instance) -> set[int]:
        sample, slot = instance
        return {candidate[slot] for candidate in self.samples[sample]}

    def consistent(self, sample: int, candidate: Labels, edge: Edge) -> bool:
        """Definition 3.2, for an edge that leaves the candidate's own sample or another one."""
        (source, slot), target = edge
        return source != sample or candidate[slot] in self.support(target)

    def survivors(self, chosen: Iterable[Edge]) -> list[list[bool]]:
        """Definition 3.4: what is left when the chosen edges have discarded what contradicts them."""
        chosen = list(chosen)
        return [
            [all(self.consistent(i, candidate, edge) for edge in chosen) for candidate in candidates]
            for i, candidates in enumerate(self.samples)
        ]

    def globally_consistent(self) -> list[list[bool]]:
        return self.survivors(self.edges)


def _subsets(items: Sequence[Edge]) -> Iterable[tuple[Edge, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(items, size) for size in range(len(items) + 1))


def fewest_survivors(problem: Problem) -> int:
    """Problem 3.6 by trying every sound choice of edges, sample by sample (each edge acts on one sample)."""
    total = 0
    for i in range(len(problem.samples)):
        own = [edge for edge in problem.edges if edge[0][0] == i]
        left = (sum(problem.survivors(chosen)[i]) for chosen in _subsets(own))
        total += min(count for count in left if count)
    return total


def fewest_survivors_of_the_printed_program(problem: Problem) -> int:
    """Equation (1) by trying every assignment of E; each inconsistent pair demands I = 1 - E."""
    total = 0
    for i, candidates in enumerate(problem.samples):
        own = [edge for edge in problem.edges if edge[0][0] == i]
        best = len(candidates)
        for bits in itertools.product([False, True], repeat=len(own)):
            demanded = [
                {not bit for bit, edge in zip(bits, own, strict=True) if not problem.consistent(i, candidate, edge)}
                for candidate in candidates
            ]  # the values that a candidate's I is forced to
            if any(len(values) == 2 for values in demanded):
                continue
            left = sum(values != {False} for values in demanded)
            if left:
                best = min(best, left)
        total += best
    return total


def inside(labels: Sequence[Sequence[int]], sample: Sequence[int], allowed: Sequence[Sequence[bool]]) -> list[bool]:
    """Which rows of `labels (Ω, m)` have none but allowed labels; -1 is always allowed, `allowed (n*m, c)`."""
    rows = zip(labels, sample, strict=True)
    return [all(y < 0 or allowed[i * len(row) + j][y] for j, y in enumerate(row)) for row, i in rows]


def namings_of(samples: Sequence[Sequence[Labels]], kinds: Sequence[range]) -> list[Labels]:
    """The permutations of the labels, within their kinds, that map every sample's candidates onto themselves."""
    sets = [set(candidates) for candidates in samples]
    choices = itertools.product(*(itertools.permutations(kind) for kind in kinds))
    every = (tuple(itertools.chain.from_iterable(parts)) for parts in choices)
    return [names for names in every if all({_named(row, names) for row in own} == own for own in sets)]


def maps_of(samples: Sequence[Sequence[Labels]], labels: Sequence[Labels], kinds: Sequence[range]) -> list[Labels]:
    """The maps of the labels, within their kinds, that make the labels of every sample one of its candidates again."""
    every = itertools.product(*(kind for kind in kinds for _ in kind))
    rows = list(zip(samples, labels, strict=True))
    return [names for names in every if all(_named(row, names) in own for own, row in rows)]


def fewest_that_settle(namings: Sequence[Labels]) -> int:
    """How many labels have to keep their names for the identity to be the only naming left."""
    classes = range(len(namings[0]))
    for size in range(len(classes) + 1):
        for known in itertools.combinations(classes, size):
            if sum(all(names[y] == y for y in known) for names in namings) == 1:
                return size
    raise AssertionError("the identity is no naming")


def _named(row: Labels, names: Labels) -> Labels:
    return tuple(names[label] for label in row)
