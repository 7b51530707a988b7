"""Unlisted: what sets of candidates that nobody lists have in common, whatever stands in for the list."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from clipper.candidates.checks import allowed_by_slot, check_nonempty, known_samples
from clipper.candidates.kinds import Kind
from clipper.errors import InputError


@dataclass(frozen=True, eq=False)
class Unlisted(ABC):
    """Samples that share one description, each with its own part of it and, where it was pruned, its own labels."""

    PER_SAMPLE: ClassVar[tuple[str, ...]] = ("template", "allowed")
    """The fields that have a row for each sample."""

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

    @abstractmethod
    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""

    @abstractmethod
    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): how probable it is that the labels satisfy each sample's formula, `(n,)`."""

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

    def batch(self, samples: Tensor | Sequence[int]) -> Self:
        """The same for the given samples, in the given order; a sample may come twice."""
        ids = known_samples(samples, self.samples, self.device)
        return self._taken(lambda rows: rows.index_select(0, ids))

    def span(self, first: int, last: int) -> Self:
        """The same for the samples `first` to `last - 1`."""
        return self._taken(lambda rows: rows[first:last])

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        return self._taken(lambda rows: rows.to(device))

    def _taken(self, take: Callable[[Tensor], Tensor]) -> Self:
        """The same with what is taken of every field that has a row for each sample."""
        found = ((name, getattr(self, name)) for name in self.PER_SAMPLE)
        changes: dict[str, Any] = {name: take(rows) for name, rows in found if rows is not None}
        return replace(self, **changes)

    def _check_gold(self, gold: Tensor) -> None:
        if gold.shape != (self.samples, self.slots):
            raise InputError(f"expected gold of shape ({self.samples}, {self.slots}), got {tuple(gold.shape)}")
