"""The benchmarks' rules as logic programs, beside the rules themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clipper.benchmarks.tasks import hwf
from clipper.candidates import Candidates, Lattice
from clipper.candidates.machines import HWF, MAX, SUM, Machine


@dataclass(frozen=True)
class Benchmark:
    """One rule in three forms."""

    rule: Callable[..., Any]
    machine: Machine
    theory: str
    labels: Sequence[str | int]
    slots: int
    targets: Sequence[int]
    domains: Sequence[Sequence[int]] | None = None

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


_DIGITS = tuple(range(10))
_FORMULA = """
value(A + B) :- label(0, A), label(1, plus), label(2, B).
value(A - B) :- label(0, A), label(1, minus), label(2, B).
value(A * B) :- label(0, A), label(1, times), label(2, B).
"""
BENCHMARKS = {
    "SUM-3": Benchmark(sum, SUM, "value(S) :- S = #sum { D,X : label(X, D) }.", _DIGITS, 3, (0, 8, 14, 26, 8)),
    "MAX-4": Benchmark(max, MAX, "value(M) :- M = #max { D : label(X, D) }.", _DIGITS, 4, (0, 3, 5, 3)),
    "HWF-3": Benchmark(
        hwf.value, HWF, _FORMULA, (*range(1, 10), "plus", "minus", "times"), 3, (12, -8, 81, 7), hwf.domains(3)
    ),
}
