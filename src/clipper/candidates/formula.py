"""Formula: candidate sets of any size, as the models of a compiled propositional formula.

This file does not depend on embeddings, graphs or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from clipper.arguments import as_list, shown, whole_number, widened
from clipper.candidates.base import TemplateSet, check_nonempty, gold_labels, outside_inference_mode
from clipper.candidates.circuits import Compiled
from clipper.candidates.kinds import Classes, Kind, kind_of_label, kinds_of
from clipper.candidates.lattice_sums import masked
from clipper.candidates.packed import chosen, equal_rows, ranked
from clipper.candidates.propositions import Clauses, Proposition, from_clauses, read_dimacs
from clipper.candidates.table import Candidates
from clipper.candidates.task import domains_of_slots, numbered, targets_and_lengths
from clipper.errors import BudgetError, InputError

BUDGET = 1_000_000
"""Size of the largest diagram to compile."""
_LITERAL = 10**18
"""Largest number of a variable."""
_SAMPLES = 100_000_000
"""Largest number of samples."""


@dataclass(frozen=True, eq=False)
class Formula(TemplateSet):
    """The possible labels of each sample: all that satisfy a compiled formula (extra `circuits`).

    Build it with `from_propositions` or `from_cnf`. Candidates are never enumerated: probabilities, gradients, supports
    and counts are computed on the circuit. Restricting it to allowed labels needs no new compilation.

    Examples:
        >>> from clipper.candidates.propositions import has_label
        >>> cat, dog = has_label(0, 1), has_label(0, 2)
        >>> formula = Formula.from_propositions([(cat | dog) >> has_label(1, 0)], slots=2, classes=3)
        >>> formula
        Formula(1 samples, 2 slots, 3 classes, 1 formulas)
        >>> formula.counts  # 0 with any label, 1 or 2 with 0
        [5]
        >>> formula.support.tolist()
        [[True, True, True], [True, True, True]]

    Attributes:
        template: `(n,)`: the formula of each sample, as a root of the circuit.
        kinds: the kinds of label; one, unless several classifiers are trained.
        allowed: `(n, m, c)` bool: the labels that restrictions leave each instance; None for all.
        compiled: the circuit, shared by all samples.
        lengths_of: `(formulas,)`: the number of slots of each formula.
    """

    LISTED: ClassVar[int] = 1_000_000

    compiled: Compiled = field(kw_only=True)
    lengths_of: Tensor = field(kw_only=True)

    @classmethod
    @outside_inference_mode
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
            propositions: the proposition that the labels of each of the `n` samples satisfy, see
                `clipper.candidates.has_label`.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: the number of labels, or a mapping from each kind of label to its number.
            domains: the labels that each slot may have; needed if slots have different kinds of label.
            budget: size of the largest diagram to compile.

        Returns:
            The formula of all samples.

        Raises:
            InputError: if no labels satisfy a proposition, or it names slots or labels that do not exist.
            BudgetError: if a diagram is larger than the budget.
        """
        kinds = kinds_of(classes)
        given = as_list(propositions, "propositions, one for each sample,")
        for wrong in (p for p in given if not isinstance(p, Proposition)):
            raise InputError(f"expected propositions such as has_label(0, 3) | has_label(1, 3), got {shown(wrong)}")
        _, lengths = targets_and_lengths(range(len(given)), slots)
        pairs = list(zip(given, lengths, strict=True))
        budget = _check_size(max(lengths), classes, budget)
        distinct, template = numbered(pairs)
        taken = domains_of_slots(domains, max(lengths), kinds[-1].stop)
        _check_kinds(taken, kinds)
        _check(distinct, kinds)
        compiled = Compiled([p for p, _ in distinct], [taken[:length] for _, length in distinct], budget)
        lengths_of = torch.tensor([length for _, length in distinct])
        made = cls(template, kinds, compiled=compiled, lengths_of=lengths_of)
        missing = (~made.possible()).nonzero()
        if len(missing):
            raise InputError(
                f"sample {int(missing[0])}: no labels satisfy its formula; correct it, or leave the sample out"
            )
        return made

    @classmethod
    @outside_inference_mode
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
            variables: the slot and label that each variable stands for. By default every variable is a slot with the
                labels 0 for false and 1 for true.
            slots: how many inputs a sample has, if more than the variables name.
            classes: the number of labels, or a mapping from each kind of label to its number.
            domains: the labels each slot may take, if not all of them.
            budget: size of the largest diagram to compile.

        Returns:
            The formula of all samples.

        Raises:
            InputError: if these are not clauses, or no labels satisfy them.
            FileError: if the file cannot be read.
            BudgetError: if a diagram is larger than the budget.

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

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return int(self.compiled.pairs[:, 0].max()) + 1

    @property
    def impossible(self) -> None:
        """None: a formula that no labels satisfy is refused when it is compiled."""
        return

    @property
    def states(self) -> int:
        """Numbers that one evaluation of the circuit holds."""
        return self.compiled.size

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""
        return self.lengths_of[self.template]

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that distinguish these candidates from others."""
        return self.template, self.support, self.log_counts

    @cached_property
    @outside_inference_mode
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        slot, label = self.compiled.pairs.to(self.device).unbind(1)
        of_slot = torch.zeros(self.slots, dtype=torch.long, device=self.device)
        of_slot[slot] = kind_of_label(label, self.kinds)
        used = torch.arange(self.slots, device=self.device) < self.lengths[:, None]
        return torch.where(used, of_slot, -1)

    @cached_property
    def counts(self) -> list[int]:
        """The exact number of candidates of each sample, as Python integers of any size."""
        with torch.no_grad():
            about = self.compiled.evaluate(widened(self.mask), self.template, "real")
        exact = 2 / torch.finfo(about.dtype).eps  # whole numbers below this have no rounding error
        found = zip(about.tolist(), self.template.tolist(), self.mask, strict=True)
        return [
            round(value) if value < exact else self.compiled.count(template, mask) for value, template, mask in found
        ]

    @cached_property
    @outside_inference_mode
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        return self.compiled.support(self.mask, self.template).flatten(0, 1)

    def _log_probability(self, log_probs: Tensor) -> Tensor:
        total = self.compiled.evaluate(masked(log_probs, self.mask), self.template, "log")
        return torch.where(total == -torch.inf, -torch.inf, total)  # a circuit of a single product has a gradient there

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        gold = gold_labels(gold, self)
        unused = self.kind < 0
        inside = unused | ((gold >= 0) & (gold < self.classes))
        just = torch.nn.functional.one_hot(gold.clamp(0, self.classes - 1), self.classes).bool()
        return inside.all(1) & self.narrowed((just | unused[..., None]).flatten(0, 1)).possible()

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        with torch.no_grad():
            return self.log_counts > -torch.inf

    @outside_inference_mode
    def to(self, device: torch.device | str) -> Self:
        """The same formula on another device."""
        return replace(super().to(device), lengths_of=self.lengths_of.to(device))

    @cached_property
    @outside_inference_mode
    def mask(self) -> Tensor:
        """The labels that each slot may take, `(n, m, c)` bool."""
        whole = torch.ones(self.samples, self.slots, self.classes, dtype=torch.bool, device=self.device)
        return whole if self.allowed is None else self.allowed

    def _template_outputs(self, log_probs: Tensor) -> Tensor:
        return self.compiled.values(widened(log_probs), "log").exp()

    def _entropy(self, log_probs: Tensor) -> Tensor:
        # Templates share a circuit, so another template may read a slot that is unused here, where anything may stand.
        log_probs = torch.where((self.kind < 0)[..., None], 0, log_probs)
        return self.compiled.entropy(masked(log_probs, self.mask), self.template)

    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        """The `k` best candidates, by Lawler's method.

        The remaining candidates of a sample are kept as disjoint restrictions. The best of their best candidates is the
        next result. Its restriction is then split: one part for each slot, with the candidates that differ from the
        result first in this slot.
        """
        logs = ranked(log_probs)
        sample = torch.arange(self.samples, device=self.device)
        allowed, found = self.mask, []
        for _ in range(k):
            part = self.select(sample).narrowed(allowed.flatten(0, 1))
            used = part.kind >= 0
            weights = torch.where(used[..., None], logs[sample], 0)
            value, labels = part.compiled.best(torch.where(part.mask, weights, -torch.inf), part.template)
            taken = _first_of_largest(value, sample, self.samples)
            if not len(taken):
                break
            found.append((labels[taken], sample[taken]))
            rest = value > -torch.inf  # drop restrictions without a candidate
            rest = rest.index_fill_(0, taken, False).nonzero()[:, 0]
            parts, owner = _split(allowed[taken], labels[taken], used[taken])
            allowed, sample = torch.cat([allowed[rest], parts]), torch.cat([sample[rest], sample[taken][owner]])
        labels = torch.cat([labels for labels, _ in found] or [allowed.new_zeros(0, self.slots).long()])
        owner = torch.cat([owner for _, owner in found] or [sample[:0]])
        order = owner.argsort(stable=True)
        return self._rows(labels[order], owner[order])

    def _draws(self, draws: int, generator: torch.Generator, log_probs: Tensor | None) -> tuple[Tensor, Tensor]:
        """Draw the label of each slot from its marginals given the labels of the slots before."""
        check_nonempty(self.possible().long())
        logs = widened(self.zeros() if log_probs is None else log_probs)
        ruled_out = self.log_probability(logs) == -torch.inf  # then draw uniformly
        sample = torch.arange(self.samples, device=self.device).repeat_interleave(draws)
        own, weights = self.select(sample), logs.masked_fill(ruled_out[:, None, None], 0)[sample]
        allowed = own.mask.clone()
        for slot in range(self.slots):
            share = own.narrowed(allowed.flatten(0, 1)).marginals(weights)[:, slot]  # (rows, c)
            noise = torch.rand(len(sample), generator=generator, dtype=torch.float64).to(share)
            label = torch.nn.functional.one_hot(chosen(share, noise), self.classes).bool()
            allowed[:, slot] = torch.where(own.kind[:, slot, None] >= 0, label, allowed[:, slot])
        labels = allowed.long().argmax(2)
        keep = equal_rows(labels, sample)[1].sort().values
        return labels[keep], sample[keep]

    def _all(self) -> Candidates:
        """All candidates, extended slot by slot, in lexicographic order."""
        sample = torch.arange(self.samples, device=self.device)
        allowed = self.mask  # (rows, m, c)
        for slot in range(self.slots):
            used = (self.kind[sample, slot] >= 0)[:, None]
            could = self.select(sample).narrowed(allowed.flatten(0, 1)).support.view(allowed.shape)[:, slot]
            first = torch.zeros_like(could)
            first[:, 0] = True
            row, label = torch.where(used, could, first).nonzero(as_tuple=True)  # an unused slot keeps its one row
            sample, allowed = sample[row], allowed[row]
            only = torch.nn.functional.one_hot(label, self.classes).bool()
            allowed[:, slot] = torch.where(used[row], only, allowed[:, slot])
        return self._rows(allowed.long().argmax(2), sample)

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


def _check_size(slots: int, classes: Classes, budget: Any) -> int:
    """The budget. Raises if even the variables of the labels exceed it."""
    size, most = slots * kinds_of(classes)[-1].stop, whole_number(budget, "budget", least=1)
    if size > most:
        raise BudgetError(
            f"{slots:,} slots have {size:,} labels, and a diagram of these takes more than the budget of {most:,}; "
            "correct the number of slots or variables, or raise budget= if memory and time allow"
        )
    return most


def _check_kinds(domains: Sequence[Sequence[int]], kinds: tuple[Kind, ...]) -> None:
    """The labels of a slot must be of one kind."""
    for slot, domain in enumerate(domains):
        first, last = kind_of_label(torch.tensor([domain[0], domain[-1]]), kinds).tolist()
        if first != last:
            raise InputError(
                f"expected labels of one kind in slot {slot}; narrow it with domains=, got {shown(domain)}"
            )


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
    given = [
        as_list(clause, "a clause", ordered=False)
        for clause in as_list(cnf, "clauses, lists of literals,", ordered=False)
    ]
    clauses = [[whole_number(literal, "a literal", -_LITERAL, _LITERAL) for literal in clause] for clause in given]
    if any(0 in clause for clause in clauses):
        raise InputError("expected literals such as 3 or -3, for a variable from 1 on or its negation, got 0")
    return clauses


def _variables(variables: Any) -> list[tuple[int, int]]:
    """The slot and the label of each variable."""
    pairs = [as_list(pair, "a slot and a label") for pair in as_list(variables, "variables")]
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise InputError(f"expected a slot and a label for each variable, got {shown(wrong)}")
    return [(whole_number(s, "a slot", least=0), whole_number(v, "a label", least=0)) for s, v in pairs]


def _first_of_largest(value: Tensor, sample: Tensor, samples: int) -> Tensor:
    """For each sample with a row above -inf, the row with the largest value."""
    if not len(value):
        return sample
    order = value.argsort(descending=True, stable=True)
    order = order[sample[order].argsort(stable=True)]
    every = torch.arange(samples, device=sample.device)
    row = order[torch.searchsorted(sample[order], every).clamp(max=len(order) - 1)]
    return row[(sample[row] == every) & (value[row] > -torch.inf)]


def _split(allowed: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Split each restriction without its best candidate into disjoint parts.

    Args:
        allowed: the restrictions, `(rows, m, c)` bool.
        labels: their best candidates, `(rows, m)`.
        used: the used slots, `(rows, m)` bool; there is a part for each.

    Returns:
        The parts, `(parts, m, c)` bool, and the row that each part belongs to, `(parts,)`.
    """
    _, slots, classes = allowed.shape
    just = torch.nn.functional.one_hot(labels, classes).bool()
    before = torch.ones(slots, slots, dtype=torch.bool, device=labels.device).tril(-1)[..., None]  # (part, slot, 1)
    at = torch.eye(slots, dtype=torch.bool, device=labels.device)[..., None]
    whole, just = allowed[:, None], just[:, None]
    parts = torch.where(before, just, torch.where(at, whole & ~just, whole))
    row, slot = used.nonzero(as_tuple=True)
    return parts[row, slot], row
