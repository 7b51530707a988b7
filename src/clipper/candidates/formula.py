"""Formula: candidate sets of any size, as the models of a compiled propositional formula.

This file knows nothing of embeddings, graphs of neighbours or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import as_list, shown, whole_number
from clipper.candidates.base import check_any_log_probs, check_log_probs, check_nonempty
from clipper.candidates.formulas.compiling import Compiled
from clipper.candidates.formulas.samples import CompiledSamples
from clipper.candidates.formulas.searching import best, drawn, listed
from clipper.candidates.formulas.writing import Clauses, Proposition, from_clauses, read_dimacs
from clipper.candidates.kinds import Classes, Kind, kind_of_label, kinds_of
from clipper.candidates.table import Candidates
from clipper.errors import BudgetError, InputError

BUDGET = 1_000_000
"""Size of the largest diagram to compile."""
_LITERAL = 10**18
"""No variable has a larger number."""
_SAMPLES = 100_000_000
"""Samples that share a formula, at most."""


@dataclass(frozen=True, eq=False)
class Formula(CompiledSamples):
    """What the labels of each sample could be: whatever satisfies a formula that was compiled once (extra `circuits`).

    Build one with `from_propositions` or `from_cnf`. Nothing is enumerated: probabilities and their gradients, supports
    and counts come from the circuit, and restricting it to allowed labels compiles nothing anew.

    Examples:
        >>> from clipper.candidates.formulas.writing import has_label
        >>> cat, dog = has_label(0, 1), has_label(0, 2)
        >>> formula = Formula.from_propositions([(cat | dog) >> has_label(1, 0)], slots=2, classes=3)
        >>> formula
        Formula(1 samples, 2 slots, 3 classes, 1 formulas)
        >>> formula.counts  # 0 with anything, 1 or 2 with 0
        [5]
        >>> formula.support.tolist()
        [[True, True, True], [True, True, True]]
    """

    LISTED: ClassVar[int] = 1_000_000

    @classmethod
    def from_propositions(
        cls,
        propositions: Sequence[Proposition],
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
    ) -> Formula:
        """One proposition for each sample; equal ones are compiled once.

        Args:
            propositions: what the labels of each of the `n` samples satisfy, see `clipper.candidates.has_label`.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: how many labels there are, or a mapping from kind to number.
            domains: the labels each slot may take, if not all of them; needed where slots are of different kinds.
            budget: size of the largest diagram to compile.
        """
        kinds = kinds_of(classes)
        budget = whole_number(budget, "budget", least=1)
        told = as_list(propositions, "propositions, one for each sample,")
        for wrong in (p for p in told if not isinstance(p, Proposition)):
            raise InputError(f"expected propositions such as has_label(0, 3) | has_label(1, 3), got {shown(wrong)}")
        lengths = _lengths(slots, len(told))
        pairs = list(zip(told, lengths, strict=True))
        _check_size(max(lengths), classes, budget)
        distinct = list(dict.fromkeys(pairs))
        taken = _domains(domains, max(lengths), kinds)
        _check(distinct, kinds)
        compiled = Compiled([p for p, _ in distinct], [taken[:length] for _, length in distinct], budget)
        place = {pair: i for i, pair in enumerate(distinct)}
        template = torch.tensor([place[pair] for pair in pairs])
        lengths_of = torch.tensor([length for _, length in distinct])
        made = cls(template, kinds, compiled=compiled, lengths_of=lengths_of)
        _check_possible(made)
        return made

    @classmethod
    def from_cnf(
        cls,
        cnf: str | Path | Clauses,
        *,
        samples: int = 1,
        variables: Sequence[tuple[int, int]] | None = None,
        slots: int | None = None,
        classes: Classes = 2,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
    ) -> Formula:
        """The same clauses for every sample: DIMACS text, a file of it, or lists of literals.

        Args:
            cnf: the clauses.
            samples: how many samples there are, `n`.
            variables: the slot and label that each variable stands for. By default every variable is a slot of its own
                with the labels 0, false, and 1, true.
            slots: how many inputs a sample has, if more than the variables speak of.
            classes: how many labels there are, or a mapping from kind to number.
            domains: the labels each slot may take, if not all of them.
            budget: size of the largest diagram to compile.

        Examples:
            >>> Formula.from_cnf("p cnf 3 2\\n1 2 0\\n-2 3 0\\n").counts
            [4]
        """
        samples = whole_number(samples, "samples", least=1, most=_SAMPLES)
        if isinstance(cnf, str | Path):
            clauses, count = read_dimacs(cnf)
        else:
            clauses = _literals(cnf)
            count = max((abs(n) for clause in clauses for n in clause), default=0)
        named = None if variables is None else _variables(variables)
        if named is not None and len(named) < count:
            raise InputError(f"expected a slot and a label for each of {count} variables from 1, got {len(named)}")
        width = max((slot for slot, _ in named), default=-1) + 1 if named is not None else count
        if slots is not None:
            width = whole_number(slots, "slots", least=1)
            if named is None and width < count:
                raise InputError(f"expected a slot for each of {count} variables, got slots={width}; see variables=")
        if named is None:
            _check_size(width, classes, budget)
            named = [(slot, 1) for slot in range(count)]
        proposition = from_clauses(clauses, named)
        one = cls.from_propositions([proposition], width, classes, domains=domains, budget=budget)
        return one.batch(torch.zeros(samples, dtype=torch.long))

    def output_probabilities(self, log_probs: Tensor) -> Tensor:
        """The probability of each of the samples' formulas under *any* samples' `log_probs (b, m, c)`, `(b, n)`.

        One pass serves all formulas; differentiable. Not for restricted ones.
        """
        if self.allowed is not None:
            raise InputError("expected the outputs' formulas as they were built, got restricted ones")
        check_any_log_probs(log_probs, self)
        values = self.compiled.values(log_probs.double(), "log").exp()
        return values.index_select(1, self.template).to(log_probs.dtype)

    def entropy(self, log_probs: Tensor) -> Tensor:
        """The entropy of the posterior over each sample's candidates, `(n,)`, in nats; differentiable."""
        check_log_probs(log_probs, self)
        logs = torch.where(self.mask, log_probs.double(), -torch.inf)
        return self.compiled.entropy(logs, self.template).to(log_probs.dtype)

    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        return self._rows(*best(self, log_probs, k))

    def _drawn(self, per_sample: int, generator: torch.Generator, log_probs: Tensor | None) -> Candidates:
        check_nonempty(self.possible().long())
        return self._rows(*drawn(self, per_sample, generator, log_probs))

    def _all(self) -> Candidates:
        return self._rows(*listed(self))

    def _rows(self, labels: Tensor, sample: Tensor) -> Candidates:
        """Candidates from `labels (rows, m)` and `sample (rows,)`, ascending."""
        rows = super()._rows(torch.where(self.kind.index_select(0, sample) < 0, -1, labels), sample)
        check_nonempty(rows.offsets.diff())
        return rows

    def __repr__(self) -> str:
        return (
            f"Formula({self.samples:,} samples, {self.slots} slots, {self.classes} classes, "
            f"{len(self.lengths_of):,} formulas)"
        )


def _lengths(slots: Any, samples: int) -> list[int]:
    """How many slots each sample has."""
    if not samples:
        raise InputError("expected at least one proposition, got none")
    if isinstance(slots, Sequence | np.ndarray) or (isinstance(slots, Tensor) and slots.ndim):
        lengths = [whole_number(length, "slots", least=1) for length in as_list(slots, "slots")]
        if len(lengths) != samples:
            raise InputError(f"expected slots of each of {samples} samples, got {len(lengths)}")
        return lengths
    return [whole_number(slots, "slots", least=1)] * samples


def _check_size(slots: int, classes: Classes, budget: Any) -> None:
    size, most = slots * kinds_of(classes)[-1].stop, whole_number(budget, "budget", least=1)
    if size > most:
        raise BudgetError(
            f"{slots:,} slots have {size:,} labels, which take a diagram of more than the budget of {most:,}; correct "
            "the number of slots or variables, or raise budget= if memory and time allow"
        )


def _domains(domains: Any, slots: int, kinds: tuple[Kind, ...]) -> list[list[int]]:
    """The labels that each slot may take: some, all of one kind."""
    if domains is None:
        taken = [list(range(kinds[-1].stop))] * slots
    else:
        taken = [
            [whole_number(v, "a label in domains=", 0, kinds[-1].stop - 1) for v in as_list(own, "a slot's domain")]
            for own in as_list(domains, "domains")
        ]
    if len(taken) < slots:
        raise InputError(f"expected domains of {slots} slots, got {len(taken)}")
    for slot, domain in enumerate(taken):
        if not domain or len({int(k) for k in kind_of_label(torch.tensor(domain), kinds)}) > 1:
            raise InputError(
                f"expected labels of one kind in slot {slot}; narrow it with domains=, got {shown(domain)}"
            )
    return taken


def _check(distinct: Sequence[tuple[Proposition, int]], kinds: tuple[Kind, ...]) -> None:
    for proposition, length in distinct:
        for slot, value in proposition.labels():
            if not (slot < length and value < kinds[-1].stop):
                raise InputError(
                    f"expected slots 0 … {length - 1} and labels 0 … {kinds[-1].stop - 1} in a proposition, got slot "
                    f"{shown(slot)} with label {shown(value)}"
                )


def _literals(cnf: Any) -> list[list[int]]:
    """Clauses given as lists of literals."""
    clauses = [as_list(clause, "a clause") for clause in as_list(cnf, "clauses, lists of literals,")]
    for clause in clauses:
        for i, literal in enumerate(clause):
            clause[i] = whole_number(literal, "a literal", -_LITERAL, _LITERAL)
            if not clause[i]:
                raise InputError("expected literals as variables from 1, negated if negative, got 0")
    return clauses


def _variables(variables: Any) -> list[tuple[int, int]]:
    """The slot and the label of each variable."""
    pairs = [as_list(pair, "a slot and a label") for pair in as_list(variables, "variables")]
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise InputError(f"expected a slot and a label for each variable, got {shown(wrong)}")
    return [(whole_number(s, "a slot", least=0), whole_number(v, "a label", least=0)) for s, v in pairs]


def _check_possible(formula: Formula) -> None:
    missing = (~formula.possible()).nonzero()
    if len(missing):
        raise InputError(
            f"sample {int(missing[0])}: nothing satisfies its formula; correct it, or leave the sample out"
        )
