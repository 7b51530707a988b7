"""TemplateSet: candidate sets that nobody lists, because many samples share one description of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from clipper.arguments import usable_device
from clipper.candidates.base import CandidateSet, allowed_by_slot, gold_labels, known_samples, outside_inference_mode
from clipper.candidates.kinds import Kind


@dataclass(frozen=True, eq=False)
class TemplateSet(CandidateSet):
    """Samples that share one description; each has a template of it and, where it was pruned, its own labels.

    Attributes:
        template: `(n,)`: which of the described sets is each sample's.
        kinds: the kinds of label; one, unless several classifiers are trained.
        allowed: `(n, m, c)` bool: the labels that a restriction has left to each instance; None for all.
    """

    PER_SAMPLE: ClassVar[tuple[str, ...]] = ("template", "allowed")
    """The fields that have a row for each sample."""

    template: Tensor
    kinds: tuple[Kind, ...]
    allowed: Tensor | None = None

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.template)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.template.device

    def narrowed(self, allowed: Tensor) -> Self:
        """As `restrict`, but samples may be left without a candidate: ask `possible`."""
        narrowed = allowed_by_slot(allowed, self)
        return replace(self, allowed=narrowed if self.allowed is None else narrowed & self.allowed)

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        gold = gold_labels(gold, self)
        unused = self.kind < 0
        inside = unused | ((gold >= 0) & (gold < self.classes))
        just = torch.nn.functional.one_hot(gold.clamp(0, self.classes - 1), self.classes).bool()
        return inside.all(1) & self.narrowed((just | unused[..., None]).flatten(0, 1)).possible()

    @outside_inference_mode
    def batch(self, samples: Tensor | Sequence[int] | slice) -> Self:
        """The same for the given samples: ids in the given order, a mask or a slice; a sample may come twice."""
        ids = known_samples(samples, self)
        return self._taken(lambda rows: rows.index_select(0, ids))

    def span(self, first: int, last: int) -> Self:
        """The same for the samples `first` to `last - 1`."""
        return self._taken(lambda rows: rows[first:last])

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        device = usable_device(device)
        return self._taken(lambda rows: rows.to(device))

    def _taken(self, take: Callable[[Tensor], Tensor]) -> Self:
        """The same with what is taken of every field that has a row for each sample."""
        found = ((name, getattr(self, name)) for name in self.PER_SAMPLE)
        changes: dict[str, Any] = {name: take(rows) for name, rows in found if rows is not None}
        return replace(self, **changes)
