"""Clipper: the object that a training loop holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, overload

import torch
from torch import Tensor

from clipper.arguments import real_number, seed_number, shown, whole_number
from clipper.candidates import Candidates, CandidateSet, Formula, Lattice
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.proximity import Encoder, Pool, ProximityGraph, embed
from clipper.proximity.encoders import check_encoder
from clipper.proximity.graph import Metric, Search
from clipper.proximity.instances import Embeddings
from clipper.pruning.chance import scattered
from clipper.pruning.graphs import as_embeddings, neighbours_of
from clipper.pruning.lattice_result import LatticePruning
from clipper.pruning.objectives import NEIGHBOURS, Objective, Solver, check_options, prune, prune_against
from clipper.pruning.result import Pruning

Set = TypeVar("Set", bound=CandidateSet)


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

    def __post_init__(self) -> None:
        """Refuse what no batch could be pruned with."""
        check_options(self.objective, self.solver, self.mass)
        if self.k is not None:
            whole_number(self.k, "k (None for all within radius)")
        elif self.radius is None:
            raise InputError("expected k, radius or both, got neither; k=1 is the paper's choice")
        if self.radius is not None:
            real_number(self.radius, "radius", above=0, finite=False)
        if self.share is not None:
            real_number(self.share, "share of edges", above=0, most=1)
        if not callable(self.metric) and self.metric not in ("l2", "cosine"):
            raise InputError(f'expected the metric "l2", "cosine" or a function, got {shown(self.metric)}')
        if not isinstance(self.mutual, bool):
            raise InputError(f"expected mutual to be True or False, got {shown(self.mutual)}")
        if self.encoder is not None:
            check_encoder(self.encoder)
        searches = self.search.values() if isinstance(self.search, Mapping) else [self.search]
        known = (
            search in ("exact", "faiss") if isinstance(search, str) else hasattr(search, "find") for search in searches
        )
        if self.search is not None and not all(known):
            raise InputError(
                'expected the search "exact", "faiss", one such as ExactSearch(), or a mapping to some, '
                f"got {shown(self.search)}"
            )

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
        candidates: Lattice | Formula,
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
        if pool is None and pool_candidates is not None:
            raise InputError("got pool_candidates without pool=, the embeddings to find neighbours among: pass both")
        whose = None if pool is None else candidates if pool_candidates is None else pool_candidates
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
        listed, seed = isinstance(candidates, Candidates), seed_number(seed)
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
        must_be_candidates(candidates)
        if pool is not None and not isinstance(pool, Pool):
            raise InputError(f"expected pool to be a Pool of embeddings, got {shown(pool)}")
        embeddings = as_embeddings(inputs, candidates)
        if self.encoder is not None:
            embeddings = _encoded(self.encoder, embeddings)
        if isinstance(self.search, Mapping) and isinstance(embeddings, Tensor):
            embeddings = {kind.name: embeddings for kind in candidates.kinds}
        return neighbours_of(
            candidates,
            embeddings,
            k=NEIGHBOURS if self.objective == "joint" and self.k == 1 else self.k,
            radius=self.radius,
            mutual=self.mutual,
            metric=self.metric,
            share=self.share,
            pool=pool,
            search=self.search,
        )


def _encoded(encoder: Encoder, inputs: Embeddings) -> Embeddings:
    """The embeddings of inputs, in the same form: one table, one for each kind of label, or several of either."""
    if isinstance(inputs, Tensor):
        return embed(encoder, inputs)
    if isinstance(inputs, Mapping):
        return {kind: embed(encoder, table) for kind, table in inputs.items()}
    return [
        {kind: embed(encoder, table) for kind, table in part.items()}
        if isinstance(part, Mapping)
        else embed(encoder, part)
        for part in inputs
    ]
