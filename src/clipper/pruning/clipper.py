"""Clipper: the object that a training loop holds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from clipper.arguments import real_number, seed_number, shown, whole_number
from clipper.candidates import CandidateSet, Kind
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.proximity import Encoder, Pool, ProximityGraph, embed
from clipper.proximity.encoders import check_encoder
from clipper.proximity.graph import Metric, Search
from clipper.proximity.index import METHODS, search_named
from clipper.proximity.instances import Embeddings
from clipper.pruning.controls import random_edges
from clipper.pruning.distributed import prune_share
from clipper.pruning.graphs import as_embeddings, neighbours_of
from clipper.pruning.objectives import (
    NEIGHBOURS,
    POOLED,
    Objective,
    Solver,
    check_options,
    listed_only,
    prune,
    prune_along,
    prune_at_random,
)
from clipper.pruning.result import Pruning, Set

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Clipper:
    """How to prune, settled once; call it with each batch.

    `kept = clip(candidates, embeddings)` gives the survivors, a set of the same kind as `candidates`;
    `clip.prune(candidates, embeddings)` gives a `Pruning` with all that is known about them.

    Attributes:
        k: neighbours per instance. None for all within `radius` if that is given, else for the objective's usual
            number: 1 for "exact", "paper" and "random", 8 for "joint" and "em".
        radius: neighbours must be nearer than this.
        mutual: whether to use only pairs of instances that are each other's neighbours.
        share: use only the closest share of all edges, 0.5 for the closer half.
        metric: "l2", "cosine", or a function `(a, d), (b, d) -> (a, b)`.
        objective: "exact" discards as much as any sound choice of edges can; "paper" solves the paper's equation (1)
            as printed; "joint" lets the whole pool decide, "em" does so by
            expectation-maximisation; "random" is the control: it discards as many candidates of
            each sample as "exact" would, or, if candidates are not listed, prunes along edges drawn at random.
        solver: "closed-form", or "highs" or "cp-sat" for the same optimum by integer programming.
        mass: with "joint" and "em", the share of the probability that the survivors hold.
        encoder: turns inputs `(n, m, …)` into embeddings; None if the loop has embeddings already.
        search: how to find neighbours, as in `ProximityGraph.from_embeddings`; a mapping for one per kind of label.

    Raises:
        InputError: an option has no such value.

    Examples:
        >>> from clipper import Candidates
        >>> clip = Clipper(k=1, objective="exact")
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> import torch
        >>> embeddings = torch.tensor([[[1.0], [7.0]], [[1.1], [2.0]]])  # (samples, slots, d)
        >>> clip(candidates, embeddings)
        Candidates(2 samples, 6 candidates, 2 slots, 10 classes)
    """

    k: int | None = None
    radius: float | None = None
    mutual: bool = False
    share: float | None = None
    metric: Metric = "l2"
    objective: Objective = "exact"
    solver: Solver = "closed-form"
    mass: float = 0.95
    encoder: Encoder | None = None
    search: Search | None = None

    def __post_init__(self) -> None:
        """Refuse what no batch could be pruned with."""
        check_options(self.objective, self.solver, self.mass)
        if self.k is not None:
            whole_number(self.k, "k (None for all within radius, or for the objective's usual number)")
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
        if self.search is not None and any(search_named(search) is None for search in searches):
            names = ", ".join(f'"{name}"' for name in METHODS)
            raise InputError(
                f"expected the search {names}, an Index, one such as ExactSearch(), or a mapping to some, "
                f"got {shown(self.search)}"
            )

    @property
    def neighbours(self) -> int | None:
        """How many neighbours each instance gets: `k`, or what None stands for; None for all within `radius`."""
        if self.k is not None or self.radius is not None:
            return self.k
        return NEIGHBOURS if self.objective in POOLED else 1

    def __call__(self, candidates: Set, inputs: Embeddings, *, group: ProcessGroup | None = None) -> Set:
        """The surviving candidates of a batch.

        Args:
            candidates: what the labels of the batch could be.
            inputs: the batch's embeddings `(n, m, d)`, or its inputs `(n, m, …)` if there is an encoder; a mapping by
                the names of the kinds of label if each has its own, in any order; a list for several encoders.
            group: processes that prune together, as in `prune`.

        Returns:
            The survivors, a set of the same kind; every sample keeps at least one candidate.

        Raises:
            InputError: the inputs do not fit the candidates.
        """
        if self.objective in POOLED:
            return self.prune(candidates, inputs, group=group).candidates
        with torch.inference_mode():  # the many small steps of a pruning are a fifth faster so
            pruning = self.prune(candidates, inputs, group=group)
        return pruning.outside_inference()

    def prune(
        self,
        candidates: Set,
        inputs: Embeddings,
        *,
        pool: Pool | None = None,
        pool_candidates: CandidateSet | None = None,
        seed: int = 0,
        group: ProcessGroup | None = None,
    ) -> Pruning[Set]:
        """As a call, but with all that is known about the pruning; a batch may look for neighbours in a pool.

        With a process group of `torch.distributed`, each rank passes samples of its own, and the batch is that of all
        ranks, one after the other: the survivors are those that one process would keep of it. All ranks must call
        this; a rank may have no samples. The edges of the pruning lead to instances of the whole batch.

        Args:
            candidates: what the labels of the batch could be.
            inputs: as in a call.
            pool: embeddings to find neighbours among, if not the batch's own; an encoder does not see them.
            pool_candidates: what the pool's labels could be, if the pool is not the batch itself.
            seed: of "joint" and "random".
            group: the processes that prune together, such as `torch.distributed.group.WORLD`; None for this one alone.

        Returns:
            The `Pruning`.

        Raises:
            InputError: the inputs or the pool do not fit the candidates, on this rank or another.
            RankError: another rank has ended, or does not answer.
        """
        if group is not None:
            if pool is not None or pool_candidates is not None:
                raise InputError(
                    "expected no pool with a group, whose ranks find neighbours among the samples of all; leave pool "
                    "out, or let clipper.training.train(bank=..., group=...) remember earlier samples"
                )
            must_be_candidates(candidates)
            if self.objective in POOLED:
                self._warn_if_asked_again()
            return prune_share(self, candidates, inputs, group, seed)
        graph = self.graph(candidates, inputs, pool=pool)
        if pool is None and pool_candidates is not None:
            raise InputError("got pool_candidates without pool=, the embeddings to find neighbours among: pass both")
        whose = None if pool is None else candidates if pool_candidates is None else pool_candidates
        return self.along(candidates, graph, pool=whose, samples=None if pool is None else pool.samples, seed=seed)

    def along(
        self,
        candidates: Set,
        graph: ProximityGraph,
        *,
        pool: CandidateSet | None = None,
        samples: Tensor | None = None,
        seed: int = 0,
    ) -> Pruning[Set]:
        """As `prune`, along the edges of a graph that `graph` gave.

        Args:
            candidates: what the labels of the batch could be.
            graph: the edges.
            pool: whom their targets belong to, if others.
            samples: which of those each sample is, `(n,)`, as in `Pool`.
            seed: of "joint" and "random".

        Returns:
            The `Pruning`.

        Raises:
            InputError: the graph does not fit the candidates.
        """
        seed = seed_number(seed)
        if self.objective in POOLED:
            self._warn_if_asked_again()
            return prune(candidates, graph, self.objective, pool=pool, mass=self.mass, seed=seed)
        objective: Objective = "exact" if self.objective == "random" else self.objective
        listed = listed_only(candidates)
        if self.objective == "random" and listed is None:
            others = candidates if pool is None else pool
            place = None if samples is None else torch.as_tensor(samples)
            if place is None and pool is not None:
                place = torch.full((candidates.samples,), -1)
            kind = others.kind.flatten() if len(others.kinds) > 1 else None
            graph = random_edges(graph, candidates.slots, seed, place=place, kind=kind)
        if pool is None:  # the edges were just built for these candidates: nothing to check
            pruning = prune_along(candidates, graph, candidates.support, objective, self.solver)
        else:
            pruning = prune(candidates, graph, objective, self.solver, pool=pool)
        if self.objective == "random" and listed is not None:
            return cast(Pruning[Set], prune_at_random(listed, graph, None, pruning, seed))
        return pruning

    def _warn_if_asked_again(self) -> None:
        """Joint inference looks at a whole pool: who asks for it again probably asks for every batch."""
        asked = self.__dict__.get("_asked", 0) + 1
        object.__setattr__(self, "_asked", asked)
        if asked == 2:
            warnings.warn(
                'this Clipper(objective="joint") was asked a second time; joint inference looks at a whole pool, not '
                "at a batch: prune all samples once, then take kept.batch(ids) of what is left",
                stacklevel=4,
            )

    def graph(self, candidates: CandidateSet, inputs: Embeddings, *, pool: Pool | None = None) -> ProximityGraph:
        """The proximity graph of a batch. A batch too small for k neighbours gets the edges that there are.

        Args:
            candidates: what the labels of the batch could be.
            inputs: as in a call.
            pool: embeddings to find neighbours among, if not the batch's own.

        Returns:
            The edges along which `prune` prunes.

        Raises:
            InputError: the inputs or the pool do not fit the candidates.
        """
        must_be_candidates(candidates)
        if pool is not None and not isinstance(pool, Pool):
            raise InputError(f"expected pool to be a Pool of embeddings, got {shown(pool)}")
        embeddings = self.embeddings(candidates, inputs)
        return self.connect(embeddings, candidates.kind, candidates.kinds, plain=candidates.plain, pool=pool)

    def embeddings(self, candidates: CandidateSet, inputs: Embeddings) -> Embeddings:
        """The embeddings of a batch: its inputs, encoded if there is an encoder, if they fit the candidates."""
        embeddings = as_embeddings(inputs, candidates)
        return embeddings if self.encoder is None else _encoded(self.encoder, embeddings)

    def connect(
        self,
        embeddings: Embeddings,
        kind: Tensor,
        kinds: Sequence[Kind],
        *,
        plain: bool | None = None,
        pool: Pool | None = None,
    ) -> ProximityGraph:
        """As `graph`, of embeddings that were checked, given the `kind (n, m)` of each slot.

        `plain`: whether all are used and of the first kind; looked up if None.
        """
        if isinstance(self.search, Mapping) and isinstance(embeddings, Tensor):
            embeddings = {kind.name: embeddings for kind in kinds}
        return neighbours_of(
            embeddings,
            kind,
            kinds,
            not bool(kind.any()) if plain is None else plain,
            k=self.neighbours,
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
