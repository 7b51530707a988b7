"""Lattice: candidate sets of any size, as ways through the states of a rule instead of a list.

This file knows nothing of embeddings, graphs of neighbours or losses.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from clipper.candidates.checks import check_log_probs, check_nonempty
from clipper.candidates.kinds import Classes, Kind, kinds_of
from clipper.candidates.lattices.best import best
from clipper.candidates.lattices.building import graph_of, kind_of_slots
from clipper.candidates.lattices.counting import count, whole_numbers, words_for
from clipper.candidates.lattices.draws import by_weight, uniform
from clipper.candidates.lattices.expansion import BUDGET, Accept, Step
from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.logarithms import log_entropy
from clipper.candidates.lattices.reach import support, viable
from clipper.candidates.lattices.rows import followed, listed
from clipper.candidates.lattices.sums import log_probability, masked, output_probabilities, posterior
from clipper.candidates.packing import offsets_of, smallest_type
from clipper.candidates.table import Candidates
from clipper.errors import BudgetError, InputError

LISTED = 20_000_000
"""Candidates that `Lattice.to_candidates` lists before it asks for another way."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """What the labels of each sample could be, for rules that read one label after the other.

    Build one with `from_rule`. Nothing is enumerated: counts, probabilities, the best candidates and random ones are
    worked out on the layered graph of the rule's states, exactly, for all samples together.

    Examples:
        >>> lattice = Lattice.from_rule(0, lambda total, label: total + label, lambda total: total,
        ...                             targets=[8, 2, 180], slots=[2, 2, 40], classes=10)
        >>> lattice
        Lattice(3 samples, 40 slots, 10 classes, 3,641 states)
        >>> lattice.counts[:2], len(str(lattice.counts[2]))
        ([9, 3], 39)
        >>> lattice.batch([0]).top_k(torch.randn(1, 40, 10), k=3)
        Candidates(1 samples, 3 candidates, 40 slots, 10 classes)
    """

    graph: StateGraph
    """The states of the rule, shared by all samples."""
    template: Tensor
    """`(n,)`: which target and length each sample has."""
    kinds: tuple[Kind, ...]
    """The kinds of label; one, unless several classifiers are trained."""
    allowed: Tensor | None = None
    """`(n, m, c)` bool: the labels that a restriction has left to each instance; None for all."""

    @classmethod
    def from_rule(
        cls,
        start: Hashable,
        step: Step,
        accept: Accept,
        targets: Sequence[Hashable] | Tensor,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
    ) -> Lattice:
        """All label combinations that a state machine maps to each sample's target.

        Args:
            start: the state before the first label; any hashable value.
            step: from a state and a label to the next state, or None where the label cannot follow.
            accept: from a state to the target of a sample that ends there.
            targets: what the rule gives for each of the `n` samples.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: how many labels there are, or a mapping from kind to number.
            domains: the labels each slot may take, if not all of them.
            budget: arcs to follow at most; equal states are followed once.
        """
        kinds = kinds_of(classes)
        graph, template = graph_of(start, step, accept, targets, slots, kinds, domains, budget)
        kind_of_slots(graph, kinds)  # refuses slots that mix kinds
        return cls(graph, template, kinds)

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.template)

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return self.graph.slots

    @property
    def classes(self) -> int:
        """The length of the label axis, `c`."""
        return self.graph.classes

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.template.device

    def prepare(self) -> None:
        """Work out now what an engine will need, so that it is not first worked out in inference mode."""
        _ = self.kind, self._mask

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that tell this lattice from others."""
        layers = [layer.next for layer in self.graph.layers]
        return self.template, *layers, *self.graph.ends, *(() if self.allowed is None else (self.allowed,))

    @property
    def ragged(self) -> bool:
        """Whether some slots are unused."""
        return self.graph.ragged and bool((self.lengths < self.slots).any())

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""
        return self.graph.lengths[self.template]

    @property
    def targets(self) -> list[Hashable]:
        """What the rule gives for each sample."""
        return [self.graph.targets[i] for i in self.template.tolist()]

    @cached_property
    def counts(self) -> list[int]:
        """How many candidates each sample has, exactly, however many."""
        if self.allowed is None:
            return whole_numbers(self.graph.counts[self.template])
        return whole_numbers(self.count_words())

    def count(self) -> list[int]:
        """How many candidates each sample has, exactly: the same as `counts`."""
        return list(self.counts)

    def count_words(self) -> Tensor:
        """As `counts`, in words of 38 bits, the lowest first, `(n, words)`: numbers that tensors can compare."""
        pieces, columns = self.graph.pieces(self.samples, each=words_for(self.graph)), self._columns
        return torch.cat([count(self.graph, self.template[part], columns[..., part]) for part in pieces])

    @cached_property
    def log_count(self) -> Tensor:
        """The log of how many candidates each sample has, `(n,)` in double precision."""
        return self.log_probability(torch.zeros(self.samples, self.slots, self.classes, device=self.device).double())

    @cached_property
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        if self.allowed is None:
            return self.graph.support.index_select(0, self.template).flatten(0, 1)
        columns = self._columns
        parts = [support(self.graph, self.template[part], columns[..., part]) for part in self._pieces()]
        return torch.cat(parts).flatten(0, 1)

    @cached_property
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        return kind_of_slots(self.graph, self.kinds).index_select(0, self.template)

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): how probable it is that the labels satisfy each sample's formula, `(n,)`.

        Differentiable in `log_probs (n, m, c)`. -inf, with zero gradient, where the classifier rules out every
        candidate; any finite log-probability is no trouble.
        """
        check_log_probs(log_probs, self)
        mask, pieces = self._mask, self._pieces()
        if len(pieces) == 1:
            return log_probability(self.graph, self.template, log_probs, mask)
        parts = [
            log_probability(self.graph, self.template[part], log_probs[part], None if mask is None else mask[part])
            for part in pieces
        ]
        return torch.cat(parts)

    def output_probabilities(self, log_probs: Tensor) -> Tensor:
        """The probability of each of this lattice's targets under *any* samples' `log_probs (b, m, c)`, `(b, n)`.

        One forward pass serves all targets; differentiable. Not for a restricted lattice.
        """
        if self.allowed is not None:
            raise InputError("expected the outputs' lattice as it was built, got a restricted one; pass it unpruned")
        parts = [output_probabilities(self.graph, log_probs[part]) for part in self.graph.pieces(len(log_probs))]
        return torch.cat(parts).index_select(1, self.template)

    def marginals(self, log_probs: Tensor) -> Tensor:
        """The posterior probability of each label in each slot, given the formula, `(n, m, c)`, without gradient."""
        check_log_probs(log_probs, self)
        mask = self._mask
        parts = [
            posterior(self.graph, self.template[part], log_probs[part], None if mask is None else mask[part])
            for part in self._pieces()
        ]
        return torch.cat(parts)

    def entropy(self, log_probs: Tensor) -> Tensor:
        """The entropy of the posterior over each sample's candidates, `(n,)`, in nats; differentiable."""
        check_log_probs(log_probs, self)
        logs = masked(log_probs, self._mask)
        parts = [log_entropy(self.graph, self.template[part], logs[part]) for part in self._pieces()]
        return torch.cat(parts).to(log_probs.dtype)

    def top_k(self, log_probs: Tensor, k: int) -> Candidates:
        """The `k` most probable candidates of each sample, best first; all of them where there are fewer."""
        check_log_probs(log_probs, self)
        if k < 1:
            raise InputError(f"expected k of at least 1, got {k}")
        logs = masked(log_probs.detach(), self._mask, forbidden=-torch.inf)
        pieces = self.graph.pieces(self.samples, each=k)
        parts = [best(self.graph, self.template[part], logs[part], k) for part in pieces]
        widest = max(found.shape[1] for _, found in parts)
        padded = [(_padded(labels, widest), _padded(found, widest)) for labels, found in parts]
        labels, found = (torch.cat(column) for column in zip(*padded, strict=True))
        return self._rows(labels[found], found.sum(1))

    def sample(self, per_sample: int, seed: int = 0, log_probs: Tensor | None = None) -> Candidates:
        """At most `per_sample` different candidates of each sample, drawn at random.

        Args:
            per_sample: how many.
            seed: of the draws.
            log_probs: `(n, m, c)`: draw so many times from the classifier's distribution over the candidates, and
                keep each candidate once. Without it, draw uniformly and without replacement.

        Examples:
            >>> from clipper.candidates.machines import SUM
            >>> lattice = Lattice.from_rule(*SUM, targets=[8, 150], slots=[2, 30], classes=10)
            >>> lattice.sample(100).counts
            tensor([  9, 100])
        """
        if per_sample < 1:
            raise InputError(f"expected per_sample of at least 1, got {per_sample}")
        if log_probs is not None:
            check_log_probs(log_probs, self)
        generator = torch.Generator().manual_seed(seed)
        if log_probs is None:
            labels, sample = uniform(self, per_sample, generator)
        else:
            labels, sample = by_weight(self, per_sample, generator, log_probs.detach())
        order = sample.argsort(stable=True)
        return self._rows(labels[order], torch.bincount(sample, minlength=self.samples))

    def sample_at_random(self, per_sample: int, seed: int = 0) -> Candidates:
        """At most `per_sample` candidates of each sample, drawn uniformly without replacement."""
        return self.sample(per_sample, seed)

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        if gold.shape != (self.samples, self.slots):
            raise InputError(f"expected gold of shape ({self.samples}, {self.slots}), got {tuple(gold.shape)}")
        inside = followed(self.graph, self.template, gold)
        if self.allowed is None:
            return inside
        taken = self.allowed.gather(2, gold.clamp(0, self.classes - 1).long()[..., None])[..., 0]
        return inside & (taken | (self.kind < 0)).all(1)

    def restrict(self, allowed: Tensor) -> Lattice:
        """Only the candidates whose every label is in `allowed (n*m, c)` bool; every sample must keep one."""
        restricted = self.narrowed(allowed)
        check_nonempty(restricted.possible().long(), what="would lose their last candidate")
        return restricted

    def narrowed(self, allowed: Tensor) -> Lattice:
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
        columns = self._columns
        return torch.cat([viable(self.graph, self.template[p], columns[..., p])[0][0] for p in self._pieces()])

    def batch(self, samples: Tensor | Sequence[int]) -> Lattice:
        """The lattice of the given samples, in the given order; a sample may come twice."""
        ids = torch.as_tensor(samples, dtype=torch.long, device=self.device)
        if ids.ndim != 1 or (len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= self.samples)):
            raise InputError(f"expected sample ids in 0 … {self.samples - 1} as one row, got {samples!r}")
        allowed = None if self.allowed is None else self.allowed.index_select(0, ids)
        return replace(self, template=self.template.index_select(0, ids), allowed=allowed)

    def span(self, first: int, last: int) -> Lattice:
        """The lattice of the samples `first` to `last - 1`."""
        allowed = None if self.allowed is None else self.allowed[first:last]
        return replace(self, template=self.template[first:last], allowed=allowed)

    def to_candidates(self, budget: int = LISTED) -> Candidates:
        """Every candidate as a row, in the order of `Candidates.from_rule`; a `BudgetError` if there are too many."""
        total = sum(self.counts)
        if total > budget:
            raise BudgetError(
                f"the lattice holds {total:,} candidates, more than the budget of {budget:,}. Use it as it is, take "
                "some with sample() or top_k(), or raise budget= if memory and time allow"
            )
        labels, sample = listed(self.graph, self.template, self._columns)
        return self._rows(labels, torch.bincount(sample, minlength=self.samples))

    @cached_property
    def first(self) -> Tensor:
        """One candidate of each sample, `(n, m)`; -1 in unused slots."""
        return self.top_k(torch.zeros(self.samples, self.slots, self.classes, device=self.device), 1).labels.long()

    def to(self, device: torch.device | str) -> Lattice:
        """The same lattice on another device."""
        allowed = None if self.allowed is None else self.allowed.to(device)
        return Lattice(self.graph.to(device), self.template.to(device), self.kinds, allowed)

    def weights(self, log_probs: Tensor | None, samples: Tensor) -> Tensor:
        """What the labels of some samples weigh in logarithms, `(samples, m, c)` double; finite; all equal if None."""
        shape = (len(samples), self.slots, self.classes)
        logs = torch.zeros(shape, device=self.device) if log_probs is None else log_probs.index_select(0, samples)
        return masked(logs, None if self._mask is None else self._mask.index_select(0, samples))

    @cached_property
    def _mask(self) -> Tensor | None:
        """The labels that each slot may take, `(n, m, c)` bool; None where all samples may take all of them."""
        if not self.graph.ragged:
            return self.allowed
        used = (torch.arange(self.slots, device=self.device) < self.lengths[:, None])[..., None]
        return used.expand(-1, -1, self.classes) if self.allowed is None else used & self.allowed

    @property
    def _columns(self) -> Tensor:
        """As `_mask`, `(m, c, n)`."""
        if self._mask is not None:
            return self._mask.permute(1, 2, 0)
        return torch.ones(self.slots, self.classes, self.samples, dtype=torch.bool, device=self.device)

    def _pieces(self) -> list[slice]:
        return self.graph.pieces(self.samples)

    def _rows(self, labels: Tensor, counts: Tensor) -> Candidates:
        return Candidates(labels.to(smallest_type(self.kinds)), offsets_of(counts), self.kinds)

    def __repr__(self) -> str:
        return (
            f"Lattice({self.samples:,} samples, {self.slots} slots, {self.classes} classes, "
            f"{self.graph.states:,} states)"
        )


def _padded(values: Tensor, width: int) -> Tensor:
    missing = width - values.shape[1]
    return torch.nn.functional.pad(values, (0, missing) if values.ndim == 2 else (0, 0, 0, missing))
