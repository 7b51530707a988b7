"""Formula: candidate sets of any size, as the models of a compiled propositional formula.

This file knows nothing of embeddings, graphs of neighbours or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from clipper.candidates.checks import check_any_log_probs, check_log_probs, kind_of_label
from clipper.candidates.formulas.compiling import IMPOSSIBLE, Compiled
from clipper.candidates.formulas.samples import CompiledSamples
from clipper.candidates.formulas.searching import best, drawn, listed
from clipper.candidates.formulas.writing import Clauses, Proposition, from_clauses, read_dimacs
from clipper.candidates.kinds import Classes, Kind, kinds_of
from clipper.candidates.packing import offsets_of, smallest_type
from clipper.candidates.table import Candidates
from clipper.errors import InputError

BUDGET = 1_000_000
"""Size of the largest diagram to compile."""


@dataclass(frozen=True, eq=False)
class Formula(CompiledSamples):
    """What the labels of each sample could be: whatever satisfies a formula that was compiled once (extra `circuits`).

    Build one with `from_propositions` or `from_cnf`. Nothing is enumerated: probabilities and their gradients, supports
    and counts come from the circuit, and restricting it to allowed labels compiles nothing anew.

    Examples:
        >>> from clipper.candidates.formulas.writing import label
        >>> cat, dog = label(0, 1), label(0, 2)
        >>> formula = Formula.from_propositions([(cat | dog) >> label(1, 0)], slots=2, classes=3)
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
            propositions: what the labels of each of the `n` samples satisfy, see `clipper.candidates.label`.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: how many labels there are, or a mapping from kind to number.
            domains: the labels each slot may take, if not all of them; needed where slots are of different kinds.
            budget: size of the largest diagram to compile.
        """
        kinds = kinds_of(classes)
        lengths = [slots] * len(propositions) if isinstance(slots, int) else list(slots)
        pairs = list(zip(propositions, lengths, strict=True))
        if not pairs or min(lengths) < 1:
            raise InputError("expected at least one proposition, and slots for each")
        distinct = list(dict.fromkeys(pairs))
        taken = [list(domain) for domain in domains or [range(kinds[-1].stop)] * max(lengths)]
        _check(distinct, taken, kinds)
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
        if isinstance(cnf, str | Path):
            clauses, count = read_dimacs(cnf)
        else:
            clauses, count = [list(clause) for clause in cnf], max((abs(n) for c in cnf for n in c), default=0)
        named = list(variables) if variables is not None else [(slot, 1) for slot in range(count)]
        if len(named) < count or any(0 in clause for clause in clauses):
            raise InputError(f"expected a slot and a label for each of {count} variables from 1, got {len(named)}")
        width = slots or max((slot for slot, _ in named), default=-1) + 1
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
        values = self.compiled.values(log_probs.double().clamp(min=IMPOSSIBLE), "log").exp()
        return values.index_select(1, self.template).to(log_probs.dtype)

    def entropy(self, log_probs: Tensor) -> Tensor:
        """The entropy of the posterior over each sample's candidates, `(n,)`, in nats; differentiable."""
        check_log_probs(log_probs, self)
        logs = torch.where(self.mask, log_probs.double().clamp(min=IMPOSSIBLE), IMPOSSIBLE)
        with torch.enable_grad():
            inputs = logs if logs.requires_grad else logs.requires_grad_()
            total = self.compiled.evaluate(inputs, self.template, "log", twice=True)
            possible = total > IMPOSSIBLE / 2
            (share,) = torch.autograd.grad(total[possible].sum(), inputs, create_graph=True)  # (n, m, c)
            mean = (share * torch.where(share > 0, inputs, 0)).sum((1, 2))
            return torch.where(possible, total - mean, 0).to(log_probs.dtype)

    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        return self._rows(*best(self, log_probs.double(), k))

    def _drawn(self, per_sample: int, generator: torch.Generator, log_probs: Tensor | None) -> Candidates:
        return self._rows(*drawn(self, per_sample, generator, log_probs))

    def _all(self) -> Candidates:
        return self._rows(*listed(self))

    def _rows(self, labels: Tensor, sample: Tensor) -> Candidates:
        """Candidates from `labels (rows, m)` and `sample (rows,)`, ascending."""
        unused = self.kind.index_select(0, sample) < 0
        counts = torch.bincount(sample, minlength=self.samples)
        kept = torch.where(unused, -1, labels).to(smallest_type(self.kinds))
        return Candidates(kept, offsets_of(counts), self.kinds)

    def __repr__(self) -> str:
        return (
            f"Formula({self.samples:,} samples, {self.slots} slots, {self.classes} classes, "
            f"{len(self.lengths_of):,} formulas)"
        )


def _check(
    distinct: Sequence[tuple[Proposition, int]], domains: Sequence[Sequence[int]], kinds: tuple[Kind, ...]
) -> None:
    for proposition, length in distinct:
        for slot, value in proposition.labels():
            if not (0 <= slot < length and 0 <= value < kinds[-1].stop):
                raise InputError(
                    f"expected slots 0 … {length - 1} and labels 0 … {kinds[-1].stop - 1} in a proposition, got slot "
                    f"{slot} with label {value}"
                )
    for slot, domain in enumerate(domains):
        if not domain or len({int(k) for k in kind_of_label(torch.tensor(domain), kinds)}) > 1:
            raise InputError(f"expected labels of one kind in slot {slot}; narrow it with domains=, got {domain}")


def _check_possible(formula: Formula) -> None:
    missing = (~formula.possible()).nonzero()
    if len(missing):
        raise InputError(
            f"sample {int(missing[0])}: nothing satisfies its formula; correct it, or leave the sample out"
        )
