"""Clipper: the object that a training loop holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, overload

import torch
from torch import Tensor

from clipper.candidates import Candidates, CandidateSet, Implicit
from clipper.errors import InputError
from clipper.proximity import Encoder, Pool, ProximityGraph, embed
from clipper.proximity.graph import Metric, Search
from clipper.proximity.instances import Embeddings, one_table
from clipper.pruning.chance import scattered
from clipper.pruning.joint import NEIGHBOURS
from clipper.pruning.lattice_result import LatticePruning
from clipper.pruning.objectives import Objective, Solver, prune, prune_against
from clipper.pruning.result import Pruning

Set = TypeVar("Set", Candidates, Implicit)


@dataclass(frozen=True)
class Clipper:
    """How to prune, settled once; call it with each batch.

    Examples:
        >>> clip = Clipper(k=1, objective="exact")
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> import torch
        >>> embeddings = torch.tensor([[[1.0], [7.0]], [[1.1], [2.0]]])  # (samples, slots, d)
        >>> clip(candidates, embeddings)
        Candidates(2 samples, 6 candidates, 2 slots, 10 classes)
    """

    k: int | None = 1
    """Neighbours per instance; None for all within `radius`. One is too few for "joint", which then takes eight."""
    radius: float | None = None
    """Neighbours must be nearer than this."""
    mutual: bool = False
    """Only neighbours that are each other's."""
    share: float | None = None
    """Only the closest share of the edges."""
    metric: Metric = "l2"
    """"l2", "cosine" or a distance function."""
    objective: Objective = "exact"
    """"exact", "paper", "joint", or "random" for the control that discards as many as "exact" would; on lattices, for
    "exact" along as many edges between instances drawn at random."""
    solver: Solver = "closed-form"
    """"closed-form", "highs" or "cp-sat"."""
    mass: float = 0.95
    """The share of the probability that the survivors of "joint" hold."""
    encoder: Encoder | None = None
    """Turns inputs `(n, m, …)` into embeddings; None if the loop has embeddings already."""
    search: Search | None = None
    """"exact", "faiss" or a neighbour search; a mapping for one per kind of label."""

    def __call__(self, candidates: Set, inputs: Embeddings) -> Set:
        """The surviving candidates of a batch, given its embeddings `(n, m, d)` or, with an encoder, its inputs."""
        return self.prune(candidates, inputs).candidates

    @overload
    def prune(
        self,
        candidates: Candidates,
        inputs: Embeddings,
        *,
        pool: Pool | None = ...,
        pool_candidates: CandidateSet | None = ...,
        seed: int = ...,
    ) -> Pruning: ...
    @overload
    def prune(
        self,
        candidates: Implicit,
        inputs: Embeddings,
        *,
        pool: Pool | None = ...,
        pool_candidates: CandidateSet | None = ...,
        seed: int = ...,
    ) -> LatticePruning: ...
    def prune(
        self,
        candidates: CandidateSet,
        inputs: Embeddings,
        *,
        pool: Pool | None = None,
        pool_candidates: CandidateSet | None = None,
        seed: int = 0,
    ) -> Pruning | LatticePruning:
        """As a call, but with all that is known about the pruning; a batch may look for neighbours in a pool."""
        graph = self.graph(candidates, inputs, pool=pool)
        whose = None if pool is None else pool_candidates or candidates
        return self.along(candidates, graph, pool=whose, samples=None if pool is None else pool.samples, seed=seed)

    def along(
        self,
        candidates: CandidateSet,
        graph: ProximityGraph,
        *,
        pool: CandidateSet | None = None,
        samples: Tensor | None = None,
        seed: int = 0,
    ) -> Pruning | LatticePruning:
        """As `prune`, along the edges of a graph that `graph` gave.

        `pool`: whom its targets belong to, if others; `samples (n,)`: which of those each sample is, as in `Pool`.
        """
        listed = isinstance(candidates, Candidates)
        if self.objective == "joint":
            return prune(candidates, graph, "joint", pool=pool, mass=self.mass, seed=seed)
        objective = "exact" if self.objective == "random" else self.objective
        if self.objective == "random" and not listed:
            others = candidates if pool is None else pool
            place = None if samples is None else torch.as_tensor(samples)
            if place is None and pool is not None:
                place = torch.full((candidates.samples,), -1)
            kind = others.kind.flatten() if len(others.kinds) > 1 else None
            graph = scattered(graph, candidates.slots, seed, place=place, kind=kind)
        if pool is None:  # the edges were just built for these candidates: nothing to check
            pruning = prune_against(candidates, graph, candidates.support, objective, self.solver)
        else:
            pruning = prune(candidates, graph, objective, self.solver, pool=pool)
        if self.objective == "random" and isinstance(candidates, Candidates) and isinstance(pruning, Pruning):
            return prune(candidates, graph, "random", imitate=pruning, pool=pool, seed=seed)
        return pruning

    def graph(self, candidates: CandidateSet, inputs: Embeddings, *, pool: Pool | None = None) -> ProximityGraph:
        """The proximity graph of a batch. A batch too small for k neighbours gets the edges that there are."""
        embeddings = one_table(inputs)
        if self.encoder is not None and isinstance(embeddings, Tensor):
            embeddings = embed(self.encoder, embeddings)
        _check_samples(embeddings, candidates)
        if isinstance(self.search, Mapping) and isinstance(embeddings, Tensor):
            embeddings = {kind.name: embeddings for kind in candidates.kinds}
        return ProximityGraph.from_embeddings(
            embeddings,
            k=NEIGHBOURS if self.objective == "joint" and self.k == 1 else self.k,
            radius=self.radius,
            mutual=self.mutual,
            metric=self.metric,
            share=self.share,
            kind=candidates.kind if _needs_kinds(candidates) or isinstance(embeddings, Mapping) else None,
            kinds=[kind.name for kind in candidates.kinds],
            pool=pool,
            search=self.search,
            allow_fewer=True,
        )


def _check_samples(embeddings: Embeddings, candidates: CandidateSet) -> None:
    if isinstance(embeddings, Mapping | list):
        for part in embeddings.values() if isinstance(embeddings, Mapping) else embeddings:
            _check_samples(one_table(part), candidates)
    if isinstance(embeddings, Tensor) and tuple(embeddings.shape[:2]) != (candidates.samples, candidates.slots):
        raise InputError(
            f"expected embeddings of shape ({candidates.samples}, {candidates.slots}, d) for the candidates, "
            f"got {tuple(embeddings.shape)}"
        )


def _needs_kinds(candidates: CandidateSet) -> bool:
    """Whether some slots are unused or hold another kind than others."""
    return bool((candidates.kind != 0).any())
