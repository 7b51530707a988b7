"""Clipper: pruning with fixed options, for use in a training loop."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clipper.arguments import real_number, seed_number, seeded, shown, whole_number
from clipper.candidates import CandidateSet, Kind
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.proximity import Encoder, Pool, ProximityGraph, embed
from clipper.proximity.encoders import check_encoder
from clipper.proximity.graph import Metric, Search
from clipper.proximity.index import METHODS, search_named
from clipper.proximity.instances import Embeddings
from clipper.pruning.distributed import prune_share
from clipper.pruning.graphs import as_embeddings, check_edges, neighbours_of
from clipper.pruning.objectives import (
    NEIGHBOURS,
    POOLED,
    Objective,
    Solver,
    check_options,
    prune,
    prune_along,
    random_pruning,
)
from clipper.pruning.result import Pruning, Set

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Clipper:
    """Prunes batches of candidates with the same options; call it once per batch.

    `kept = clip(candidates, embeddings)` returns the candidates that are left, a set of the same type as `candidates`.
    `clip.prune(candidates, embeddings)` returns a `Pruning`, which also says which edges were used and what is proved.

    Attributes:
        k: neighbours per instance. None means all within `radius` if that is given, else the default of the objective:
            1 for "exact", "paper" and "random", 8 for "joint" and "em".
        radius: neighbours must be nearer than this.
        mutual: whether to use only pairs of instances that are each other's neighbours.
        share: use only this share of the edges, the shortest ones; 0.5 for the shorter half.
        metric: "l2", "cosine", or a function `(a, d), (b, d) -> (a, b)`.
        objective: "exact" discards as many candidates as a sound choice of edges can. "paper" solves the paper's
            equation (1) as printed. "joint" infers the labels of the whole pool together, and "em" does so by
            expectation-maximisation. "random" is the control: it discards as many candidates of each sample as "exact"
            would, at random; if candidates are not listed, it forbids labels at random instead, and keeps at least as
            many candidates.
        solver: "closed-form", or "highs" or "cp-sat" for the same optimum by integer programming.
        mass: with "joint" and "em", the posterior probability that the kept candidates of a sample must add up to.
        encoder: turns inputs `(n, m, …)` into embeddings; None if the loop has embeddings already.
        search: how to find neighbours, as in `ProximityGraph.from_embeddings`; a mapping has one for each kind of
            label.

    Raises:
        InputError: an option has an invalid value.

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
        """Check the options."""
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
                f"expected search to be {names}, an Index, a search such as ExactSearch(), or a mapping from kinds to "
                f"these, got {shown(self.search)}"
            )

    @property
    def neighbours(self) -> int | None:
        """Neighbours per instance: `k`, or the default of the objective; None for all within `radius`."""
        if self.k is not None or self.radius is not None:
            return self.k
        return NEIGHBOURS if self.objective in POOLED else 1

    def __call__(self, candidates: Set, inputs: Embeddings, *, group: ProcessGroup | None = None) -> Set:
        """Prune a batch.

        Args:
            candidates: what the labels of the batch could be.
            inputs: the embeddings `(n, m, d)` of the batch, or its inputs `(n, m, …)` if there is an encoder. A
                mapping from the name of a kind of label to its embeddings if kinds have their own; a list for several
                encoders.
            group: processes that prune together, as in `prune`.

        Returns:
            The candidates that are left, a set of the same type; every sample keeps at least one.

        Raises:
            InputError: the inputs do not fit the candidates.
        """
        if self.objective in POOLED:
            return self.prune(candidates, inputs, group=group).candidates
        with torch.inference_mode():  # makes the many small steps of a pruning a fifth faster
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
        """Prune a batch and return the full result; neighbours may also come from a larger pool.

        With a process group of `torch.distributed`, each rank passes its own samples. The batch consists of the
        samples of all ranks, and the result is the same as in one process. All ranks must call this method; a rank may
        have no samples. The edges of the result lead to instances of the whole batch.

        Args:
            candidates: what the labels of the batch could be.
            inputs: as in a call.
            pool: embeddings to find neighbours among, instead of the batch's own. They are not passed to the encoder.
            pool_candidates: what the labels of the pool could be; with a pool, the default is `candidates`.
            seed: the seed of "joint" and "random".
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
                    "expected no pool with a group: its ranks find neighbours among the samples of all ranks; leave "
                    "out pool, or let clipper.training.train(bank=..., group=...) remember earlier samples"
                )
            must_be_candidates(candidates)
            if self.objective in POOLED:
                self._warn_if_asked_again()
            return prune_share(self, candidates, inputs, group, seed)
        graph = self.graph(candidates, inputs, pool=pool)
        if pool is None and pool_candidates is not None:
            raise InputError("got pool_candidates without pool=, the embeddings to find neighbours among: pass both")
        whose = None if pool is None else candidates if pool_candidates is None else pool_candidates
        return self._along(candidates, graph, whose, seed)

    def along(
        self,
        candidates: Set,
        graph: ProximityGraph,
        *,
        pool: CandidateSet | None = None,
        seed: int = 0,
    ) -> Pruning[Set]:
        """Like `prune`, but along the edges of a given graph, such as one from `graph`.

        Args:
            candidates: what the labels of the batch could be.
            graph: the edges.
            pool: the candidates of the instances that edges lead to, if these are not in `candidates`.
            seed: the seed of "joint" and "random".

        Returns:
            The `Pruning`.

        Raises:
            InputError: the graph does not fit the candidates.
        """
        must_be_candidates(candidates)
        if not isinstance(graph, ProximityGraph):
            raise InputError(
                f"expected a ProximityGraph, such as from graph(candidates, inputs), got {shown(graph)}; embeddings go "
                "to prune(candidates, inputs)"
            )
        if pool is None:  # else prune checks
            check_edges(candidates, graph, candidates)
        return self._along(candidates, graph, pool, seed)

    def _along(self, candidates: Set, graph: ProximityGraph, pool: CandidateSet | None, seed: int) -> Pruning[Set]:
        """As `along`; without a pool, edges are not checked, because they were just built for these candidates."""
        seed = seed_number(seed)
        if self.objective in POOLED:
            self._warn_if_asked_again()
            return prune(candidates, graph, self.objective, pool=pool, mass=self.mass, seed=seed)
        objective: Objective = "exact" if self.objective == "random" else self.objective
        if pool is None:
            pruning = prune_along(candidates, graph, candidates.support, objective, self.solver)
        else:
            pruning = prune(candidates, graph, objective, self.solver, pool=pool)
        return random_pruning(candidates, graph, pruning, seeded(seed)) if self.objective == "random" else pruning

    def _warn_if_asked_again(self) -> None:
        """Warn at the second call: joint inference is meant for a whole pool, not for each batch."""
        asked = self.__dict__.get("_asked", 0) + 1
        object.__setattr__(self, "_asked", asked)
        if asked == 2:
            warnings.warn(
                'this Clipper(objective="joint") was asked a second time; joint inference looks at a whole pool, not '
                "at a batch: prune all samples once, then take kept.batch(ids) of what is left",
                stacklevel=4,
            )

    def graph(self, candidates: CandidateSet, inputs: Embeddings, *, pool: Pool | None = None) -> ProximityGraph:
        """The proximity graph of a batch. If there are fewer than k neighbours, all of them are used.

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
        """The embeddings of a batch, encoded if there is an encoder, and checked against the candidates."""
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
        """Like `graph`, for embeddings that were checked.

        Args:
            embeddings: as from `embeddings`.
            kind: the kind of label in each slot, `(n, m)`; -1 in unused slots.
            kinds: the kinds of label.
            plain: whether all slots are used and of the first kind; computed if None.
            pool: embeddings to find neighbours among, if not the batch's own.
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
    """The embeddings of inputs, in the same form: a tensor, one per kind of label, or a list for several encoders."""
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
