"""Pruning: which candidates are left, which edges were chosen, and what is proved about the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor

from clipper.arguments import number_in_words, usable_device
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import gold_labels
from clipper.candidates.kinds import kind_of_label
from clipper.proximity import ProximityGraph
from clipper.pruning.consistency import edge_rejects, labels_left

EVERYTHING_POSSIBLE = "every label is possible in every slot, so that no neighbour rules out a candidate"

Set = TypeVar("Set", bound=CandidateSet)
"""A type of candidate set; what is left of a set has the same type."""


class Pruning(Generic[Set]):
    """The result of pruning. Every sample that had a candidate keeps at least one.

    `prune`, `Clipper.prune` and `Posterior.prune` return it. `edges`, `allowed` and `candidates` are computed on first
    access.

    Attributes:
        original: the candidates that were pruned.
        graph: the edges along which they were pruned.
        candidates: the candidates that are left (survivors), a set of the same type as `original`.
        keep: `(Ω,)` bool: which rows of `original` survive. Only for listed candidates; others have `allowed`.
        edges: `(E,)` bool: the edges that were chosen; every survivor is consistent with all of them.
        allowed: `(n*m, c)` bool: the labels that are left to each instance. With "exact" and "paper", these are the
            labels that the chosen edges leave, and they determine the survivors. With "joint" and "random", they are
            the labels that occur in survivors.
        discarded: how many candidates were discarded, an exact integer.
        retained: the share of the candidates that are left.
        certified: `(n,)` bool: whether it is proved that no sound choice of edges leaves a sample fewer candidates
            (with "paper": no choice that satisfies equation (1)).
        bound: for each sample, a lower bound on the candidates that any sound choice of edges leaves, a list of `n`
            integers. Where `certified`, it is the number of candidates that are left.
        reason: why nothing can be discarded, if that is true for any graph; else None.

    Examples:
        >>> from clipper import prune
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)
        >>> pruning = prune(candidates, ProximityGraph.from_edges([0, 0], [2, 4]))
        >>> pruning.edges.tolist(), pruning.discarded, pruning.bound
        ([False, True], 7, [2, 3, 3])
    """

    def __init__(
        self,
        original: Set,
        graph: ProximityGraph,
        support: Tensor,
        *,
        keep: Tensor | None = None,
        edges: Tensor | None = None,
        allowed: Tensor | None = None,
        one_by_one: bool = False,
        open_bounds: Mapping[int, int] | None = None,
        unchanged: bool | None = None,
    ) -> None:
        """Hold a result; called by `prune`, not by users.

        Args:
            original: what was pruned.
            graph: the edges.
            support: `(N*m, c)` bool, of the instances that the edges lead to.
            keep: `(Ω,)` bool, for listed candidates.
            edges: `(E,)` bool, if these are not simply all edges that no survivor contradicts.
            allowed: `(n*m, c)` bool, where it is known; needed for candidates that are not listed.
            one_by_one: whether candidates were discarded one by one, so that the chosen edges do not determine the
                survivors.
            open_bounds: lower bounds by sample, for samples whose choice of edges is not proved optimal.
            unchanged: whether nothing was discarded; computed if not given.
        """
        self.original, self.graph = original, graph
        self._support, self._keep, self._one_by_one, self._unchanged = support, keep, one_by_one, unchanged
        self._open_bounds = open_bounds or {}
        known = {"edges": edges, "allowed": allowed}
        self.__dict__.update({name: tensor for name, tensor in known.items() if tensor is not None})

    @property
    def keep(self) -> Tensor:
        """`(Ω,)` bool: the listed candidates that are left.

        Raises:
            AttributeError: the candidates are not listed.
        """
        if self._keep is None:
            raise AttributeError(
                f"keep says which rows of a list survive, but {self.original!r} lists none: see allowed, or prune "
                "what to_candidates() lists"
            )
        return self._keep

    @cached_property
    def edges(self) -> Tensor:
        """`(E,)` bool: the edges that were chosen."""
        # Some survivor contradicts each dropped edge: a closed form drops the edges that a kept candidate contradicts.
        contradicted = self.candidates.support[self.graph.source] & edge_rejects(self._support, self.graph)
        return ~contradicted.any(1)

    @cached_property
    def allowed(self) -> Tensor:
        """`(n*m, c)` bool: the labels that are left to each instance."""
        if self._one_by_one:
            return self.candidates.support
        return labels_left(self.original, self.graph, self._support, self.edges)

    @cached_property
    def candidates(self) -> Set:
        """The candidates that are left."""
        return self._survivors(lambda tensor: tensor)

    def outside_inference(self) -> Set:
        """The candidates that are left, as ordinary tensors, if the pruning was computed in inference mode."""
        return self._survivors(lambda tensor: tensor.clone())

    def _survivors(self, own: Callable[[Tensor], Tensor]) -> Set:
        if self._keep is not None:
            return cast(Set, cast(Candidates, self.original).rows_where(own(self._keep), may_empty=False))
        if self._unchanged is None:
            self._unchanged = bool((self.allowed | ~self.original.support).all())
        if self._unchanged:
            return self.original
        return self.original.narrowed(own(self.allowed))

    def to(self, device: torch.device | str) -> Pruning[Set]:
        """The same on another device."""
        device = usable_device(device)
        moved = self._with(lambda tensor: tensor.to(device))
        moved.original, moved.graph = self.original.to(device), self.graph.to(device)
        return moved

    def among(self, graph: ProximityGraph, chosen_from: Tensor) -> Pruning[Set]:
        """The same pruning of a larger graph, of which it used the edges `chosen_from (E,)` bool."""
        edges = torch.zeros_like(chosen_from).masked_scatter_(chosen_from, self.edges)
        return Pruning(
            self.original, graph, self._support, keep=self._keep, edges=edges, allowed=self.allowed,
            open_bounds=self._open_bounds, unchanged=self._unchanged,
        )  # fmt: skip

    @cached_property
    def certified(self) -> Tensor:
        """`(n,)` bool: whether no sound choice of edges leaves a sample fewer candidates."""
        proved = torch.ones(self.original.samples, dtype=torch.bool, device=self.original.device)
        return proved.index_fill_(0, torch.tensor(sorted(self._open_bounds), dtype=torch.long).to(proved.device), False)

    @property
    def bound(self) -> list[int]:
        """A lower bound on the candidates that any sound choice leaves each sample; tight where `certified`."""
        return [self._open_bounds.get(i, count) for i, count in enumerate(self.candidates.counts)]

    @property
    def discarded(self) -> int:
        """How many candidates were discarded, an exact integer."""
        return sum(self.original.counts) - sum(self.candidates.counts)

    @property
    def retained(self) -> float:
        """The share of the candidates that are left; 1 if there were none."""
        total = sum(self.original.counts)
        return sum(self.candidates.counts) / total if total else 1.0

    def gold_retained(self, gold: Tensor) -> float:
        """The share of samples whose gold labels `(n, m)` were candidates and still are."""
        gold = gold_labels(gold, self.original)
        before, after = self.original.contains(gold), self.candidates.contains(gold)
        right, of = torch.stack([(after & before).sum(), before.sum()]).tolist()
        return right / of if of else float("nan")

    @property
    def reason(self) -> str | None:
        """Why nothing can be discarded, if that is true for any graph; else None."""
        if self.discarded:
            return None
        label = kind_of_label(torch.arange(self.original.classes, device=self.original.device), self.original.kinds)
        other = label != self.original.kind.reshape(-1, 1)  # (n*m, c): of another kind, or the slot is unused
        return EVERYTHING_POSSIBLE if bool((self.original.support | other).all()) else None

    def _with(self, change: Callable[[Tensor], Tensor]) -> Pruning[Set]:
        """The same with other tensors."""
        known: dict[str, Tensor | None] = {name: self.__dict__.get(name) for name in ("edges", "allowed")}
        known["keep"] = self._keep
        tensors = {name: None if tensor is None else change(tensor) for name, tensor in known.items()}
        return Pruning(
            self.original, self.graph, change(self._support), one_by_one=self._one_by_one,
            open_bounds=self._open_bounds, unchanged=self._unchanged, **tensors,
        )  # fmt: skip

    def __repr__(self) -> str:
        total, edges = sum(self.original.counts), self.edges
        kept = f"{self.discarded:,} of {total:,} candidates discarded"
        if total >= 10**15:
            kept = f"{1 - self.retained:.3%} of {number_in_words(total)} candidates discarded"
        proved = ""
        if self._open_bounds and not self._one_by_one:
            proved = f", {int(self.certified.sum()):,} of {self.original.samples:,} samples certified"
        reason = f"; {self.reason}" if self.reason else ""
        return f"Pruning({kept}, {int(edges.sum()):,} of {len(edges):,} edges chosen{proved}{reason})"
