"""Formula: candidate sets of any size, as the models of a compiled propositional formula.

This file knows nothing of embeddings, graphs of neighbours or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from clipper.candidates.checks import check_log_probs, check_nonempty, kind_of_label
from clipper.candidates.formulas.compiling import IMPOSSIBLE, Compiled
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
_EXACT = 2**53
"""Below this, whole numbers in double precision are exact."""


@dataclass(frozen=True, eq=False)
class Formula:
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

    compiled: Compiled
    """The circuit, shared by all samples."""
    template: Tensor
    """`(n,)`: which of the circuit's formulas each sample satisfies."""
    lengths_of: Tensor
    """`(formulas,)`: how many slots each formula is about."""
    kinds: tuple[Kind, ...]
    """The kinds of label; one, unless several classifiers are trained."""
    allowed: Tensor | None = None
    """`(n, m, c)` bool: the labels that a restriction has left to each instance; None for all."""

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
        made = cls(compiled, template, torch.tensor([length for _, length in distinct]), kinds)
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

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.template)

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return int(self.compiled.pairs[:, 0].max()) + 1

    @property
    def classes(self) -> int:
        """The length of the label axis, `c`."""
        return self.kinds[-1].stop

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.template.device

    @property
    def states(self) -> int:
        """Numbers that one evaluation of the circuit holds."""
        return self.compiled.size

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""
        return self.lengths_of[self.template]

    @property
    def ragged(self) -> bool:
        """Whether some slots are unused."""
        return bool((self.lengths < self.slots).any())

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that tell these candidates from others."""
        return self.template, self.support

    def prepare(self) -> None:
        """Work out now what an engine will need, so that it is not first worked out in inference mode."""
        _ = self.kind, self.mask

    @cached_property
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        slot, label = self.compiled.pairs.to(self.device).unbind(1)
        of_slot = torch.zeros(self.slots, dtype=torch.long, device=self.device)
        of_slot[slot] = kind_of_label(label, self.kinds)
        used = torch.arange(self.slots, device=self.device) < self.lengths[:, None]
        return torch.where(used, of_slot, -1)

    @cached_property
    def counts(self) -> list[int]:
        """How many candidates each sample has, exactly, however many."""
        with torch.no_grad():
            about = self.compiled.evaluate(self.mask.double(), self.template, "real")
        words = zip(about.tolist(), self.template.tolist(), strict=True)
        few = [value < _EXACT for value in about.tolist()]
        return [
            round(value) if few[i] else self.compiled.count(template, None if self.allowed is None else self.mask[i])
            for i, (value, template) in enumerate(words)
        ]

    @cached_property
    def log_count(self) -> Tensor:
        """The log of how many candidates each sample has, `(n,)` in double precision."""
        return self.log_probability(torch.zeros(self.samples, self.slots, self.classes, device=self.device).double())

    @cached_property
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        zeros = torch.zeros(self.samples, self.slots, self.classes, device=self.device).double()
        return (self.marginals(zeros) > 0).flatten(0, 1)

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): how probable it is that the labels satisfy each sample's formula, `(n,)`.

        Differentiable in `log_probs (n, m, c)`. -inf, with zero gradient, where every candidate is ruled out.
        """
        check_log_probs(log_probs, self)
        logs = torch.where(self.mask, log_probs.double().clamp(min=IMPOSSIBLE), IMPOSSIBLE)
        total = self.compiled.evaluate(logs, self.template, "log")
        possible = total > IMPOSSIBLE / 2
        return torch.where(possible, total, -torch.inf).to(log_probs.dtype)

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

    def marginals(self, log_probs: Tensor) -> Tensor:
        """The posterior probability of each label in each slot, given the formula, `(n, m, c)`, without gradient."""
        check_log_probs(log_probs, self)
        with torch.inference_mode(False), torch.enable_grad():  # whoever prunes may be in inference mode
            own = replace(self, template=self.template.clone(), allowed=self.mask.clone())
            logs = log_probs.detach().clone().double().requires_grad_()
            total = own.log_probability(logs)
            return torch.autograd.grad(total[total > -torch.inf].sum(), logs)[0].to(log_probs.dtype)

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
        return self.top_k(torch.zeros(self.samples, self.slots, self.classes, device=self.device), 1).labels.long()

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        if gold.shape != (self.samples, self.slots):
            raise InputError(f"expected gold of shape ({self.samples}, {self.slots}), got {tuple(gold.shape)}")
        inside = (gold >= 0) == (self.kind >= 0)
        just = torch.nn.functional.one_hot(gold.clamp(min=0).long(), self.classes).bool()
        return inside.all(1) & self.narrowed(just.flatten(0, 1)).possible()

    def restrict(self, allowed: Tensor) -> Self:
        """Only the candidates whose every label is in `allowed (n*m, c)` bool; every sample must keep one."""
        restricted = self.narrowed(allowed)
        check_nonempty(restricted.possible().long(), what="would lose their last candidate")
        return restricted

    def narrowed(self, allowed: Tensor) -> Self:
        """As `restrict`, but samples may be left without a candidate: ask `possible`."""
        if allowed.shape != (self.samples * self.slots, self.classes) or allowed.dtype != torch.bool:
            raise InputError(
                f"expected allowed of shape ({self.samples * self.slots}, {self.classes}) bool, "
                f"got {tuple(allowed.shape)} of {allowed.dtype}"
            )
        narrowed = allowed.view(self.samples, self.slots, self.classes)
        return replace(self, allowed=narrowed if self.allowed is None else narrowed & self.allowed)

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        with torch.no_grad():
            return self.log_count > -torch.inf

    def batch(self, samples: Tensor | Sequence[int]) -> Self:
        """The formula of the given samples, in the given order; a sample may come twice."""
        ids = torch.as_tensor(samples, dtype=torch.long, device=self.device)
        if ids.ndim != 1 or (len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= self.samples)):
            raise InputError(f"expected sample ids in 0 … {self.samples - 1} as one row, got {samples!r}")
        allowed = None if self.allowed is None else self.allowed.index_select(0, ids)
        return replace(self, template=self.template.index_select(0, ids), allowed=allowed)

    def span(self, first: int, last: int) -> Self:
        """The formula of the samples `first` to `last - 1`."""
        return self.batch(torch.arange(first, last))

    def to(self, device: torch.device | str) -> Self:
        """The same formula on another device."""
        allowed = None if self.allowed is None else self.allowed.to(device)
        return replace(self, template=self.template.to(device), lengths_of=self.lengths_of.to(device), allowed=allowed)

    @cached_property
    def mask(self) -> Tensor:
        """The labels that each slot may take, `(n, m, c)` bool."""
        whole = torch.ones(self.samples, self.slots, self.classes, dtype=torch.bool, device=self.device)
        return whole if self.allowed is None else self.allowed

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
