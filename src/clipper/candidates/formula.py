"""Formula: candidate sets of any size, as the models of a compiled propositional formula.

This file knows nothing of embeddings, graphs of neighbours or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from clipper.candidates.checks import check_log_probs, kind_of_label
from clipper.candidates.formulas.compiling import IMPOSSIBLE, Compiled
from clipper.candidates.formulas.samples import CompiledSamples
from clipper.candidates.formulas.searching import best, drawn, listed
from clipper.candidates.formulas.writing import Clauses, Proposition, from_clauses, read_dimacs
from clipper.candidates.kinds import Classes, Kind, kinds_of
from clipper.candidates.packing import offsets_of, smallest_type
from clipper.candidates.table import Candidates
from clipper.errors import BudgetError, InputError

BUDGET = 1_000_000
"""Size of the largest diagram to compile."""
LISTED = 1_000_000
"""Candidates that `Formula.to_candidates` lists before it asks for another way."""


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
        if log_probs.ndim != 3 or tuple(log_probs.shape[1:]) != (self.slots, self.classes):
            raise InputError(
                f"expected log_probs of shape (b, {self.slots}, {self.classes}), got {tuple(log_probs.shape)}"
            )
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

    def top_k(self, log_probs: Tensor, k: int) -> Candidates:
        """The `k` most probable candidates of each sample, best first; all of them where there are fewer."""
        check_log_probs(log_probs, self)
        if k < 1:
            raise InputError(f"expected k of at least 1, got {k}")
        labels, sample = best(self, log_probs.detach().double(), k)
        return self._rows(labels, sample)

    def sample(self, per_sample: int, seed: int = 0, log_probs: Tensor | None = None) -> Candidates:
        """At most `per_sample` different candidates of each sample, drawn at random.

        Args:
            per_sample: how many.
            seed: of the draws.
            log_probs: `(n, m, c)`: draw so many times from the classifier's distribution over the candidates, and
                keep each candidate once. Without it, draw uniformly and without replacement.
        """
        if per_sample < 1:
            raise InputError(f"expected per_sample of at least 1, got {per_sample}")
        if log_probs is not None:
            check_log_probs(log_probs, self)
        labels, sample = drawn(self, per_sample, torch.Generator().manual_seed(seed), log_probs)
        return self._rows(labels, sample)

    def sample_at_random(self, per_sample: int, seed: int = 0) -> Candidates:
        """At most `per_sample` candidates of each sample, drawn uniformly without replacement."""
        return self.sample(per_sample, seed)

    def to_candidates(self, budget: int = LISTED) -> Candidates:
        """Every candidate as a row, in the order of `Candidates.from_rule`; a `BudgetError` if there are too many."""
        total = sum(self.counts)
        if total > budget:
            raise BudgetError(
                f"the formula has {total:,} candidates, more than the budget of {budget:,}. Use it as it is, take "
                "some with sample() or top_k(), or raise budget= if memory and time allow"
            )
        return self._rows(*listed(self))

    @cached_property
    def first(self) -> Tensor:
        """One candidate of each sample, `(n, m)`; -1 in unused slots."""
        return self.top_k(self.zeros(), 1).labels.long()

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
