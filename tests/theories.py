"""The benchmarks' rules as Python, as state machines, as logic programs and as propositions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clipper.benchmarks import hwf
from clipper.candidates import Candidates, Formula, Lattice, Proposition, all_of, any_of, has_label
from clipper.candidates.rules import HWF, MAX, SUM, Machine


@dataclass(frozen=True)
class Benchmark:
    """One rule in four forms."""

    rule: Callable[..., Any]
    machine: Machine
    theory: str
    labels: Sequence[str | int]
    slots: int
    targets: Sequence[int]
    domains: Sequence[Sequence[int]] | None = None
    proposition: Callable[[Benchmark, int], Proposition] | None = None

    @property
    def sentences(self) -> list[str]:
        return [f"value({target})" for target in self.targets]

    @property
    def label_atoms(self) -> list[str]:
        return [f"label({slot}, _)" for slot in range(self.slots)]

    def by_rule(self) -> Candidates:
        return Candidates.from_rule(
            self.rule, self.targets, self.slots, {"label": len(self.labels)}, domains=self.domains
        )

    def by_program(self) -> Candidates:
        return Candidates.from_program(self.theory, self.sentences, {"label": self.labels}, slots=self.label_atoms)

    def by_lattice(self) -> Lattice:
        classes = {"label": len(self.labels)}
        return Lattice.from_rule(*self.machine, self.targets, self.slots, classes, domains=self.domains)

    def by_formula(self) -> Formula:
        write = self.proposition or _any_row
        propositions = [write(self, target) for target in self.targets]
        classes = {"label": len(self.labels)}
        return Formula.from_propositions(propositions, self.slots, classes, domains=self.domains)


def _any_row(benchmark: Benchmark, target: int) -> Proposition:
    """One of the label combinations that give the target."""
    domains = benchmark.domains or [range(len(benchmark.labels))] * benchmark.slots
    rows = [row for row in itertools.product(*domains) if benchmark.rule(row) == target]
    return any_of(all_of(has_label(slot, value) for slot, value in enumerate(row)) for row in rows)


def _largest(benchmark: Benchmark, target: int) -> Proposition:
    """No label above the target, and one that is the target."""
    slots = range(benchmark.slots)
    below = all_of(any_of(has_label(slot, value) for value in range(target + 1)) for slot in slots)
    return below & any_of(has_label(slot, target) for slot in slots)


_DIGITS = tuple(range(10))
_FORMULA = """
value(A + B) :- label(0, A), label(1, plus), label(2, B).
value(A - B) :- label(0, A), label(1, minus), label(2, B).
value(A * B) :- label(0, A), label(1, times), label(2, B).
"""
BENCHMARKS = {
    "SUM-3": Benchmark(sum, SUM, "value(S) :- S = #sum { D,X : label(X, D) }.", _DIGITS, 3, (0, 8, 14, 26, 8)),
    "MAX-4": Benchmark(
        max, MAX, "value(M) :- M = #max { D : label(X, D) }.", _DIGITS, 4, (0, 3, 5, 3), proposition=_largest
    ),
    "HWF-3": Benchmark(
        hwf.value, HWF, _FORMULA, (*range(1, 10), "plus", "minus", "times"), 3, (12, -8, 81, 7), hwf.domains(3)
    ),
}
