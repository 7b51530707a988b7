"""LatticePruning: which labels a pruning leaves to a lattice, and whether nothing better exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from clipper.candidates import CandidateSet
from clipper.pruning.result import as_labels, because, share_kept, why_nothing


@dataclass(frozen=True, eq=False)
class LatticePruning:
    """What is left of a lattice. Every sample has kept at least one candidate."""

    original: CandidateSet
    """What was pruned."""
    edges: Tensor
    """`(E,)` bool: the edges that were chosen; the survivors are consistent with all of them."""
    allowed: Tensor
    """`(n*m, c)` bool: the labels that the chosen edges leave to each instance."""
    open_bounds: Mapping[int, int] = field(default_factory=dict)
    """For samples whose choice is not proved best: the fewest candidates that any choice could leave."""

    @cached_property
    def candidates(self) -> CandidateSet:
        """The survivors; what lost nothing is as it was."""
        if bool((self.allowed | ~self.original.support).all()):
            return self.original
        return self.original.narrowed(self.allowed)

    def outside_inference(self) -> CandidateSet:
        """The survivors as ordinary tensors, for a pruning that was worked out in inference mode."""
        unchanged = self.candidates is self.original
        return self.original if unchanged else self.original.narrowed(self.allowed.clone())

    @property
    def lattice(self) -> CandidateSet:
        """The survivors: the same as `candidates`."""
        return self.candidates

    @cached_property
    def certified(self) -> Tensor:
        """`(n,)` bool: whether no sound choice of edges leaves a sample fewer candidates."""
        proved = torch.ones(self.original.samples, dtype=torch.bool, device=self.allowed.device)
        return proved.index_fill_(0, torch.tensor(sorted(self.open_bounds), dtype=torch.long).to(proved.device), False)

    @property
    def bound(self) -> list[int]:
        """How few candidates any choice could leave each sample; where `certified`, as many as are left."""
        return [self.open_bounds.get(i, count) for i, count in enumerate(self.candidates.counts)]

    @property
    def discarded(self) -> int:
        """How many candidates went, exactly."""
        return sum(self.original.counts) - sum(self.candidates.counts)

    @property
    def retained(self) -> float:
        """The share of the candidates that stayed."""
        return sum(self.candidates.counts) / sum(self.original.counts)

    def gold_retained(self, gold: Tensor) -> float:
        """The share of samples whose gold labels `(n, m)` were candidates and still are."""
        gold = as_labels(gold, self.original)
        return share_kept(self.original.contains(gold), self.candidates.contains(gold))

    @property
    def reason(self) -> str | None:
        """Why nothing could be discarded, where that holds for any graph; else None."""
        return why_nothing(self.original.support, self.original) if self.candidates is self.original else None

    def __repr__(self) -> str:
        return (
            f"LatticePruning({self.retained:.3%} of the candidates kept, "
            f"{int(self.edges.sum()):,} of {len(self.edges):,} edges chosen, "
            f"{int(self.certified.sum()):,} of {self.original.samples:,} samples certified"
            f"{because(self.reason)})"
        )
