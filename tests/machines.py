"""Random state machines, and what brute force says of them: every label combination, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor

from clipper.candidates import Candidates, Lattice
from clipper.candidates.rules import Machine, run

Row = tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """A machine, and samples of it."""

    machine: Machine
    targets: Sequence[Hashable]
    lengths: Sequence[int]
    classes: int
    domains: Sequence[Sequence[int]] | None = None

    def rows(self, sample: int) -> list[Row]:
        """The candidates of a sample in lexicographic order."""
        length = self.lengths[sample]
        domains = [range(self.classes)] * length if self.domains is None else self.domains[:length]
        every = itertools.product(*(sorted(set(domain)) for domain in domains))
        return [row for row in every if run(self.machine, row) == self.targets[sample]]

    def lattice(self) -> Lattice:
        return Lattice.from_rule(*self.machine, self.targets, self.lengths, self.classes, domains=self.domains)

    def candidates(self) -> Candidates:
        return Candidates.from_lists([self.rows(i) for i in range(len(self.targets))], self.classes)


@st.composite
def tasks(draw: st.DrawFn, samples: int = 4, length: int | None = None) -> Task:
    """Machines with dead ends and merging states; mixed lengths, unless one is given, and targets; narrowed domains."""
    classes, states, longest = draw(st.integers(1, 4)), draw(st.integers(1, 4)), length or draw(st.integers(1, 4))
    after = draw(_tables(states, classes))
    ends = draw(st.lists(st.sampled_from(["a", "b", None, 3]), min_size=states, max_size=states))
    machine = Machine(0, lambda state, label: after[state][label], lambda state: ends[state])
    labels = st.lists(st.integers(0, classes - 1), min_size=1, max_size=classes, unique=True)
    domains = draw(st.none() | st.lists(labels, min_size=longest, max_size=longest))
    known = [
        (length, target)
        for length in range(length or 1, longest + 1)
        for target in ("a", "b", 3)
        if Task(machine, [target], [length], classes, domains).rows(0)
    ]
    assume(known)
    pairs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=samples))
    return Task(machine, [target for _, target in pairs], [length for length, _ in pairs], classes, domains)


def _tables(states: int, classes: int) -> st.SearchStrategy[list[list[int | None]]]:
    row = st.lists(st.none() | st.integers(0, states - 1), min_size=classes, max_size=classes)
    return st.lists(row, min_size=states, max_size=states)


@st.composite
def restricted(draw: st.DrawFn) -> tuple[Lattice, Candidates]:
    """A lattice and its candidates, both restricted to the same labels or not at all."""
    task = draw(tasks())
    lattice, candidates = task.lattice(), task.candidates()
    slots = max(task.lengths)
    if draw(st.booleans()):
        flat = lattice.samples * slots * task.classes
        allowed = torch.tensor(draw(st.lists(st.booleans(), min_size=flat, max_size=flat)))
        allowed = allowed.view(-1, slots, task.classes)
        for sample in range(lattice.samples):  # a row drawn at random stays, so that no sample is emptied
            row = draw(st.sampled_from(task.rows(sample)))
            allowed[sample, range(len(row)), row] = True
        lattice = lattice.restrict(allowed.flatten(0, 1))
        keep = [bool(allowed[i][list(range(len(r))), list(r)].all()) for i, r in _pairs(task)]
        candidates = candidates.subset(torch.tensor(keep))
    return lattice, candidates


def _pairs(task: Task) -> list[tuple[int, Row]]:
    return [(i, row) for i in range(len(task.targets)) for row in task.rows(i)]


def log_probs_for(lattice: Lattice, seed: int, scale: float = 2.0) -> Tensor:
    """`(n, m, c)` in double precision."""
    shape = (lattice.samples, lattice.slots, lattice.classes)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * noise).log_softmax(-1)
