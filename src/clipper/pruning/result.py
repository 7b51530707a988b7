"""Pruning: which candidates survived, because of which edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import gold_labels
from clipper.candidates.kinds import kind_of_label

EVERYTHING_POSSIBLE = "every label is possible in every slot, so that no neighbour rules out a candidate"


@dataclass(frozen=True, eq=False)
class Pruning:
    """What is left of some candidates. Every sample has kept at least one."""

    original: Candidates
    """What was pruned."""
    keep: Tensor
    """`(Ω,)` bool: the candidates that survive."""
    find_edges: Callable[[], Tensor] = field(repr=False)
    """Works out `edges` for those who ask: a training loop does not."""
    find_allowed: Callable[[Tensor], Tensor] = field(repr=False)
    """Works out `allowed` from `edges`."""

    @cached_property
    def edges(self) -> Tensor:
        """`(E,)` bool: the edges that were chosen; the survivors are consistent with all of them."""
        return self.find_edges()

    @cached_property
    def allowed(self) -> Tensor:
        """`(n*m, c)` bool: the labels that the chosen edges leave to each instance."""
        return self.find_allowed(self.edges)

    @cached_property
    def candidates(self) -> Candidates:
        """The survivors."""
        return self.original.subset(self.keep)

    def outside_inference(self) -> Candidates:
        """The survivors as ordinary tensors, for a pruning that was worked out in inference mode."""
        return self.original.subset(self.keep.clone())

    @property
    def discarded(self) -> int:
        """How many candidates went."""
        return len(self.keep) - int(self.keep.sum())

    @property
    def retained(self) -> float:
        """The share of the candidates that stayed."""
        return 1 - self.discarded / len(self.keep)

    def gold_retained(self, gold: Tensor) -> float:
        """The share of samples whose gold labels `(n, m)` were candidates and still are."""
        gold = as_labels(gold, self.original)
        return share_kept(self.original.contains(gold), self.candidates.contains(gold))

    @property
    def reason(self) -> str | None:
        """Why nothing could be discarded, where that holds for any graph; else None."""
        return why_nothing(self.original.support, self.original) if not self.discarded else None

    def __repr__(self) -> str:
        return (
            f"Pruning({self.discarded:,} of {len(self.keep):,} candidates discarded, "
            f"{int(self.edges.sum()):,} of {len(self.edges):,} edges chosen{because(self.reason)})"
        )


def why_nothing(support: Tensor, candidates: CandidateSet) -> str | None:
    """A sentence, if every label is possible in every used slot: then no neighbour rules out anything.

    Args:
        support: of all instances, `(n*m, c)` bool.
        candidates: whose they are.
    """
    label = kind_of_label(torch.arange(candidates.classes, device=support.device), candidates.kinds)
    other = label != candidates.kind.reshape(-1, 1)  # (n*m, c): of another kind, or the slot is unused
    return EVERYTHING_POSSIBLE if bool((support | other).all()) else None


def because(reason: str | None) -> str:
    """The end of a description."""
    return f"; {reason}" if reason else ""


def as_labels(gold: Any, candidates: CandidateSet) -> Tensor:
    """Gold labels `(n, m)` as a tensor beside the candidates; arrays and lists will do."""
    return gold_labels(gold, candidates)


def share_kept(before: Tensor, after: Tensor) -> float:
    """Of the samples where `before (n,)` holds, the share where `after (n,)` holds, too."""
    return float(after[before].double().mean()) if bool(before.any()) else float("nan")


def inside(candidates: Candidates, allowed: Tensor) -> Tensor:
    """The candidates whose every label is allowed, `(Ω,)` bool; `allowed (n*m, c)`."""
    table = torch.nn.functional.pad(allowed, (1, 0), value=True)  # label -1 is always allowed
    return torch.stack([candidates.take(table, slot) for slot in range(candidates.slots)]).all(0)
