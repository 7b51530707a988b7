"""Unlisted: what sets of candidates that nobody lists have in common, whatever stands in for the list."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from clipper.arguments import number_in_words, seeded, usable_device, whole_number
from clipper.candidates.checks import (
    allowed_by_slot,
    check_choosable,
    check_log_probs,
    check_nonempty,
    gold_labels,
    known_samples,
)
from clipper.candidates.kinds import Kind
from clipper.candidates.packing import smallest_type, trainable
from clipper.candidates.table import Candidates
from clipper.errors import BudgetError


@dataclass(frozen=True, eq=False)
class Unlisted(ABC):
    """Samples that share one description, each with its own part of it and, where it was pruned, its own labels."""

    PER_SAMPLE: ClassVar[tuple[str, ...]] = ("template", "allowed")
    """The fields that have a row for each sample."""
    LISTED: ClassVar[int]
    """Candidates that `to_candidates` lists before it asks for another way."""

    template: Tensor
    """`(n,)`: which of the described sets is each sample's."""
    kinds: tuple[Kind, ...]
    """The kinds of label; one, unless several classifiers are trained."""
    allowed: Tensor | None = None
    """`(n, m, c)` bool: the labels that a restriction has left to each instance; None for all."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""

    @property
    @abstractmethod
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""

    @property
    @abstractmethod
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""

    @property
    @abstractmethod
    def counts(self) -> list[int]:
        """How many candidates each sample has, exactly, however many."""

    @abstractmethod
    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""

    @abstractmethod
    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): how probable it is that the labels satisfy each sample's formula, `(n,)`."""

    @abstractmethod
    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        """The `k` most probable candidates of each sample, best first."""

    @abstractmethod
    def _drawn(self, per_sample: int, generator: torch.Generator, log_probs: Tensor | None) -> Candidates:
        """Different candidates of each sample at random: uniformly, or from what the classifier says."""

    @abstractmethod
    def _all(self) -> Candidates:
        """Every candidate."""

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.template)

    @property
    def classes(self) -> int:
        """The length of the label axis, `c`."""
        return self.kinds[-1].stop

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.template.device

    @property
    def ragged(self) -> bool:
        """Whether some slots are unused."""
        return bool((self.lengths < self.slots).any())

    @cached_property
    def log_count(self) -> Tensor:
        """The log of how many candidates each sample has, `(n,)` in double precision."""
        return self.log_probability(self.zeros().double())

    def zeros(self) -> Tensor:
        """Log-probabilities that prefer nothing, `(n, m, c)`."""
        return torch.zeros(self.samples, self.slots, self.classes, device=self.device)

    def restrict(self, allowed: Tensor) -> Self:
        """Only the candidates whose every label is in `allowed (n*m, c)` bool; every sample must keep one."""
        restricted = self.narrowed(allowed)
        check_nonempty(restricted.possible().long(), what="would lose their last candidate")
        return restricted

    def narrowed(self, allowed: Tensor) -> Self:
        """As `restrict`, but samples may be left without a candidate: ask `possible`."""
        narrowed = allowed_by_slot(allowed, self.samples, self.slots, self.classes)
        return replace(self, allowed=narrowed if self.allowed is None else narrowed & self.allowed)

    @trainable
    def batch(self, samples: Tensor | Sequence[int] | slice) -> Self:
        """The same for the given samples: ids in the given order, a mask or a slice; a sample may come twice."""
        ids = known_samples(samples, self.samples, self.device)
        return self._taken(lambda rows: rows.index_select(0, ids))

    def span(self, first: int, last: int) -> Self:
        """The same for the samples `first` to `last - 1`."""
        return self._taken(lambda rows: rows[first:last])

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        device = usable_device(device)
        return self._taken(lambda rows: rows.to(device))

    def top_k(self, log_probs: Tensor, k: int) -> Candidates:
        """The `k` most probable candidates of each sample, best first; all of them where there are fewer."""
        check_log_probs(log_probs, self)
        check_choosable(log_probs, self.kind)
        k = self._affordable(whole_number(k, "k"))
        return self._best(log_probs.detach(), k) if self.samples else self._none()

    @cached_property
    def first(self) -> Tensor:
        """One candidate of each sample, `(n, m)`; -1 in unused slots."""
        return self.top_k(self.zeros(), 1).labels.long()

    def sample(self, per_sample: int, seed: int = 0, log_probs: Tensor | None = None) -> Candidates:
        """At most `per_sample` different candidates of each sample, drawn at random.

        Args:
            per_sample: how many.
            seed: of the draws.
            log_probs: `(n, m, c)`: draw so many times from the classifier's distribution over the candidates, and
                keep each candidate once. Without it, draw uniformly and without replacement.

        Examples:
            >>> from clipper import Lattice
            >>> from clipper.candidates.machines import SUM
            >>> lattice = Lattice.from_rule(*SUM, targets=[8, 150], slots=[2, 30], classes=10)
            >>> lattice.sample(100).counts
            tensor([  9, 100])
        """
        per_sample, generator = whole_number(per_sample, "per_sample"), seeded(seed)
        if not self.samples:
            return self._none()
        if log_probs is None:
            return self._drawn(self._affordable(per_sample), generator, None)
        check_log_probs(log_probs, self)
        check_choosable(log_probs, self.kind)
        self._check_rows(per_sample * self.samples)
        return self._drawn(per_sample, generator, log_probs.detach())

    def sample_at_random(self, per_sample: int, seed: int = 0) -> Candidates:
        """At most `per_sample` candidates of each sample, drawn uniformly without replacement."""
        return self.sample(per_sample, seed)

    def to_candidates(self, budget: int | None = None) -> Candidates:
        """Every candidate as a row, in the order of `Candidates.from_rule`.

        Args:
            budget: rows at most, past which there is a `BudgetError`; by default so many as take some seconds.
        """
        self._check_rows(sum(self.counts), None if budget is None else whole_number(budget, "budget", least=0))
        return self._all() if self.samples else self._none()

    def _none(self) -> Candidates:
        """The candidates of no sample at all."""
        nothing = torch.zeros(0, self.slots, dtype=smallest_type(self.kinds), device=self.device)
        return Candidates(nothing, torch.zeros(1, dtype=torch.long, device=self.device), self.kinds)

    def _affordable(self, per_sample: int) -> int:
        """No more of each sample than there are, if the rows of all of them fit."""
        if per_sample * self.samples > self.LISTED:
            per_sample = min(per_sample, max(self.counts, default=1))
            self._check_rows(sum(min(per_sample, count) for count in self.counts))
        return per_sample

    def _check_rows(self, rows: int, budget: int | None = None) -> None:
        budget = self.LISTED if budget is None else budget
        if rows > budget:
            raise BudgetError(
                f"there are {number_in_words(rows)} candidates, more than the budget of {budget:,}. Use the set as it "
                "is, take fewer with sample() or top_k(), or raise budget= of to_candidates if memory and time allow"
            )

    def _taken(self, take: Callable[[Tensor], Tensor]) -> Self:
        """The same with what is taken of every field that has a row for each sample."""
        found = ((name, getattr(self, name)) for name in self.PER_SAMPLE)
        changes: dict[str, Any] = {name: take(rows) for name, rows in found if rows is not None}
        return replace(self, **changes)

    def _gold(self, gold: Tensor) -> Tensor:
        return gold_labels(gold, self.samples, self.slots, self.device)
