"""PruningSchedule: when a run prunes (never, once for the whole pool, or each batch), with or without a memory bank."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import whole_number, widened, yes_or_no
from clipper.candidates import Candidates, CandidateSet
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning import Clipper, Posterior, Pruning, infer
from clipper.pruning.distributed import reduced_to, survivors_of
from clipper.pruning.objectives import POOLED
from clipper.pruning.ranks import Ranks
from clipper.training.inspection import Inspector
from clipper.training.memory_bank import MemoryBank
from clipper.training.samples import Samples, fingerprint, mixed

GROUP = 16
"""Batches pruned together if the encoder is frozen. The result is the same as for one batch at a time."""
MOST_INSTANCES = 4096
"""The largest pool whose distances are kept in a table; a larger table would leave the processor's caches."""


@dataclass(frozen=True)
class Draws:
    """Draws some candidates of each sample for every batch, if a sample has too many candidates to use all.

    Attributes:
        per_sample: how many candidates to draw.
        own: whether to draw from the classifier's distribution over the candidates (and keep each candidate once)
            instead of uniformly.

    Raises:
        InputError: the number is not positive.

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> Draws(2)(candidates, torch.zeros(2, 2, 10).log_softmax(-1), seed=0).counts
        [2, 2]
    """

    per_sample: int
    own: bool = False

    def __post_init__(self) -> None:
        whole_number(self.per_sample, "per_sample")
        yes_or_no(self.own, "own")

    def __call__(self, candidates: CandidateSet, log_probs: Tensor, seed: int) -> Candidates:
        """The drawn candidates of a batch.

        Args:
            candidates: the candidates of the batch.
            log_probs: the classifier's output for the batch, `(n, m, c)`.
            seed: the seed of the draws.
        """
        return candidates.draw(self.per_sample, seed, log_probs.detach() if self.own else None)


class PruningSchedule:
    """Prunes the candidates of each batch, and measures the time that pruning takes.

    Args:
        samples: the samples to learn from.
        clip: how to prune; None for no pruning. Its encoder is not used: see `embeddings`.
        embeddings: those of a frozen encoder, `(n, m, d)`; None to prune by the classifier's own embedding.
        once: prune the pool as a whole before training, instead of each batch.
        bank: look for neighbours also among the most recent embeddings of this many samples; 0 for none.
        seed: seed of the random control.
        inspector: collects data about the pruning in the first epoch; None for nothing.
        ranks: the processes that share each batch; each has all of `samples`.
        draws: draws some candidates of each batch before pruning; None to use all candidates.

    Raises:
        InputError: if these options do not fit together.
    """

    def __init__(
        self,
        samples: Samples,
        clip: Clipper | None,
        embeddings: Tensor | None,
        once: bool,
        bank: int,
        seed: int,
        inspector: Inspector | None = None,
        ranks: Ranks | None = None,
        draws: Draws | None = None,
    ) -> None:
        _check(samples, clip, embeddings, once, bank)
        self.ranks, self.draws = Ranks() if ranks is None else ranks, draws
        if draws is not None and (once or bank or self.ranks.size > 1):
            raise InputError("candidates that are drawn anew are pruned batch by batch: drop once, bank and group")
        self.clip = replace(clip, encoder=None) if clip else None
        self.embeddings, self.inspector = embeddings, inspector
        self.bank = MemoryBank(bank) if bank else None
        self._all, self._gold, self._seed = samples.candidates, samples.gold, seed
        self._batches: list[Tensor] = []
        self._group: tuple[int, list[CandidateSet]] | None = None
        self._once: CandidateSet | None = None
        self._frozen: tuple[Clipper, Tensor] | None = None
        if inspector is not None:
            inspector.begin(samples)
        self.seconds, start = 0.0, time.perf_counter()
        if self.clip is not None:
            _ = self._all.support, self._all.kind, self._all.plain  # computed once; batches take their rows
            if embeddings is not None and not bank and draws is None:
                self._prepare(self.clip, embeddings, once)
            self.seconds += time.perf_counter() - start

    def _prepare(self, clip: Clipper, embeddings: Tensor, once: bool) -> None:
        """Preparations that are possible with a frozen encoder: prune the pool, or compute its distances."""
        if once and self.ranks.size == 1:
            self._once = self._pruned_once(clip, embeddings).candidates
        elif once:
            found = self.ranks.from_first(lambda: survivors_of(self._pruned_once(clip, embeddings)))
            self._once = reduced_to(self._all, found)
        elif clip.search is None and clip.metric == "l2" and self._all.kind.numel() <= MOST_INSTANCES:
            known = KnownDistances(embeddings)
            self._frozen = replace(clip, metric=known), known.rows
        else:
            self._frozen = clip, embeddings

    def _pruned_once(self, clip: Clipper, embeddings: Tensor) -> Pruning[Any]:
        """The pool, pruned as a whole."""
        posterior = None
        if clip.objective == "joint" and self.inspector is not None:
            posterior = infer(self._all, clip.graph(self._all, embeddings), seed=self._seed)
            pruning = posterior.prune(clip.mass)
            if self._gold is not None:
                self.inspector.calibrate(posterior.calibration(self._gold))
        else:
            pruning = clip.prune(self._all, embeddings, seed=self._seed)
        self._show(pruning, torch.arange(self._all.samples), posterior=posterior)
        return pruning

    def begin(self, batches: list[Tensor], seed: int) -> None:
        """Begin an epoch.

        Args:
            batches: the sample ids of each batch; with a frozen encoder several of them are pruned at once.
            seed: seed of the random control.
        """
        self._batches, self._seed, self._group = batches, seed, None

    def of_batch(
        self, step: int, embedding: Tensor | None, log_probs: Tensor | None = None
    ) -> tuple[CandidateSet, CandidateSet]:
        """The candidates of this rank's share of a batch of the epoch, before and after pruning.

        Args:
            step: which batch, counted from 0.
            embedding: the classifier's own, `(n, m, d)`; not used if the encoder is frozen.
            log_probs: the classifier's output, `(n, m, c)`; used if candidates are drawn.

        Returns:
            Two sets of the share's samples: the candidates, or those drawn of them, before and after pruning.

        Raises:
            InputError: the classifier gave no embedding, and the run prunes by it.
        """
        before: CandidateSet = self._all.select(self.ranks.share(self._batches[step]))
        if self.draws is not None and log_probs is not None:
            before = self.draws(before, log_probs, mixed(self._seed, step))
        start = time.perf_counter()
        kept = self._kept(step, before, embedding)
        if self.clip is not None:
            self.seconds += time.perf_counter() - start
        return before, kept

    def _kept(self, step: int, before: CandidateSet, embedding: Tensor | None) -> CandidateSet:
        ids = self._batches[step]
        if self._once is not None:
            return self._once.select(self.ranks.share(ids))
        if self._frozen is not None:
            return self._share_of(self._of_group(*self._frozen, step))
        seen = self.inspector is not None and self.inspector.wants(ids)
        seed = mixed(self._seed, step)
        if self.ranks.size > 1 and self.clip is not None and embedding is not None and not (self.bank or seen):
            with torch.inference_mode():
                return self.clip.prune(before, embedding, seed=seed, group=self.ranks.group).outside_inference()
        if self.clip is None and not seen:
            return before
        whole = before if self.ranks.size == 1 else self._all.batch(ids)
        vectors = self._vectors_of(ids, embedding)
        if self.clip is None:
            if vectors is not None and self.inspector is not None:
                self.inspector.add(Clipper().prune(whole, vectors), ids)  # for the inspector only
            return before
        if vectors is None:
            raise InputError("expected the classifier to return (log_probs, embedding), got only log_probs")
        members = pool = pool_candidates = None
        if self.bank:
            members, pool, pool_candidates = self.bank.pool(ids, vectors, self._all)
            self.bank.remember(ids, vectors)
        with torch.inference_mode():  # makes the many small steps of pruning a fifth faster
            pruning = self.clip.prune(whole, vectors, pool=pool, pool_candidates=pool_candidates, seed=seed)
            self._show(pruning, ids, members)
        return self._share_of(pruning.outside_inference())

    def _vectors_of(self, ids: Tensor, embedding: Tensor | None) -> Tensor | None:
        """The embeddings of a whole batch, of which each rank has a share if they are the classifier's own."""
        if self.embeddings is not None:
            return self.embeddings[ids]
        return None if embedding is None else self.ranks.rows(embedding, self.ranks.sizes(len(ids)))

    def _share_of(self, kept: CandidateSet) -> CandidateSet:
        """This rank's share of the remaining candidates of a whole batch."""
        return kept if self.ranks.size == 1 else kept.span(*self.ranks.span(kept.samples))

    def _of_group(self, clip: Clipper, embeddings: Tensor, step: int) -> CandidateSet:
        """The remaining candidates of a batch, from a group of batches that are pruned together."""
        group = step // GROUP
        if self._group is None or self._group[0] != group:
            batches = self._batches[group * GROUP : (group + 1) * GROUP]
            pruning, kept = prune_together(clip, self._all, embeddings, batches, mixed(self._seed, group))
            self._show(pruning, torch.cat(batches))
            self._group = group, kept
        return self._group[1][step % GROUP]

    def _show(
        self, pruning: Pruning[Any], ids: Tensor, members: Tensor | None = None, posterior: Posterior[Any] | None = None
    ) -> None:
        """Pass a pruning to the inspector; `members (N,)` are the samples that its edges may lead to."""
        if self.inspector is not None and self.inspector.wants(ids):
            start = time.perf_counter()
            self.inspector.add(pruning, ids, members, posterior)
            self.seconds -= time.perf_counter() - start  # inspection does not count as pruning

    def spent(self) -> float:
        """Seconds that pruning took since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def identity(self) -> dict[str, Any]:
        """The options of pruning as text that a checkpoint can compare."""
        drawn = {} if self.draws is None else {"draws": str(self.draws)}
        if self.clip is None:
            return {"pruning": "none", **drawn}
        bank = self.bank.size if self.bank else 0
        encoder = "trainable" if self.embeddings is None else f"frozen {fingerprint(self.embeddings)}"
        how = options_of(self.clip) | {"objective": self.clip.objective, "solver": self.clip.solver}
        if self.clip.objective not in POOLED:
            del how["mass"]
        when = "once" if self._once is not None else "batch"
        return {**how, "pruning": when, "bank": bank, "encoder": encoder, **drawn}

    def notes(self, batch: int) -> list[str]:
        """Notes for the pruning inspector: where and by which encoder neighbours were found."""
        where, encoder = f"within the first epoch's batches of {batch}", "a frozen encoder"
        if self._once is not None:
            where = "among all samples, once, before training"
        if self.embeddings is None:
            encoder = "the classifier's own embedding in the first epoch"
        notes = [f"Neighbours were searched {where}.", f"They are found by {encoder}."]
        if self.bank:
            notes.append("A memory bank of earlier embeddings was searched, too.")
        if self.clip is None:
            notes.append("The run pruned nothing: this is what the objective exact would have discarded.")
        return notes


def options_of(clip: Clipper) -> dict[str, str]:
    """The options of the graph and the kept mass, as text that a checkpoint can compare.

    Examples:
        >>> options_of(Clipper(radius=2.0, search="ivf"))["search"]
        'ivf'
    """
    names = ("radius", "mutual", "share", "metric", "mass")
    how = {name: str(getattr(clip, name)) for name in names if not callable(getattr(clip, name))}
    by_kind = clip.search if isinstance(clip.search, Mapping) else {"": clip.search}
    searches = {
        f"search {kind}".strip(): search if isinstance(search, str) else type(search).__name__
        for kind, search in by_kind.items()
        if search is not None
    }
    return {"k": str(clip.neighbours), **how, **searches}


def prune_together(
    clip: Clipper, candidates: CandidateSet, embeddings: Tensor, batches: Sequence[Tensor], seed: int = 0
) -> tuple[Pruning[Any], list[CandidateSet]]:
    """Prune several batches at once: neighbours are found within each batch, the rest is done for all batches together.

    Args:
        clip: how to prune.
        candidates: those of all samples.
        embeddings: those of all samples, `(n, m, d)`.
        batches: the sample ids of each batch.
        seed: seed of the random control.

    Returns:
        The pruning of all batches, one after the other; and the survivors of each, as if they had been pruned alone.

    Examples:
        >>> import torch
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2, 4, 1], slots=2, classes=10)
        >>> embeddings = torch.tensor([[[1.0], [7.0]], [[1.1], [2.0]], [[5.0], [9.0]], [[5.1], [0.0]]])
        >>> batches = [torch.tensor([0, 1]), torch.tensor([2, 3])]
        >>> [len(kept) for kept in prune_together(Clipper(), candidates, embeddings, batches)[1]]
        [6, 4]
        >>> [len(Clipper()(candidates.batch(ids), embeddings[ids])) for ids in batches]
        [6, 4]
    """
    starts, graphs = [0], []
    whole = candidates.batch(torch.cat(list(batches)))
    for ids in batches:
        graph = clip.graph(candidates.select(ids), embeddings[ids])
        shift = starts[-1] * candidates.slots
        graphs.append(ProximityGraph(graph.source + shift, graph.target + shift, graph.distance))
        starts.append(starts[-1] + len(ids))
    pruning = clip._along(whole, ProximityGraph.joined(graphs), None, seed)  # edges that were just built
    return pruning, [pruning.candidates.span(first, last) for first, last in pairwise(starts)]


class KnownDistances:
    """A metric that reads Euclidean distances from a table; its "vectors" are row numbers of the table.

    The distances of a frozen encoder never change, so they are computed once for the pool.

    Args:
        embeddings: the embeddings of all samples, `(n, m, d)`.

    Attributes:
        rows: `(n, m, 1)`: the row numbers, to use in place of the embeddings in a search.

    Examples:
        >>> known = KnownDistances(torch.tensor([[[0.0], [9.0]], [[0.5], [5.0]]]))
        >>> known(known.rows[0], known.rows[1])
        tensor([[0.5000, 5.0000],
                [8.5000, 4.0000]])
    """

    def __init__(self, embeddings: Tensor) -> None:
        flat = widened(embeddings.detach().flatten(0, 1))  # double precision keeps rounding errors small
        flat = flat - flat.mean(0)
        self._table = torch.cdist(flat, flat).float()  # (n*m, n*m)
        row = torch.arange(len(flat), device=flat.device, dtype=torch.float32)
        self.rows = row.view(*embeddings.shape[:2], 1)

    def __call__(self, queries: Tensor, pool: Tensor) -> Tensor:
        """`(queries, 1), (pool, 1) -> (queries, pool)`"""
        return self._table.index_select(0, queries[:, 0].long()).index_select(1, pool[:, 0].long())


def _check(samples: Samples, clip: Clipper | None, embeddings: Tensor | None, once: bool, bank: int) -> None:
    if clip is None and (once or bank):
        raise InputError("got once or bank but nothing to prune with; pass clip=Clipper(...) too")
    if once and embeddings is None:
        raise InputError(
            "pruning once, before training, needs a frozen encoder: pass clip=Clipper(encoder=...) or embeddings=; "
            "the classifier's own embedding is not yet meaningful before training"
        )
    if clip is not None and clip.objective in POOLED and not once:
        raise InputError(
            "joint inference needs the whole pool, not a batch: pass once=True and a frozen encoder's embeddings"
        )
    if bank and (once or (clip is not None and clip.mutual)):
        raise InputError(
            "a memory bank needs pruning batch by batch, along one-way edges: drop once and mutual, or the bank"
        )
    if embeddings is not None:
        check_embeddings(embeddings, samples)


def check_embeddings(embeddings: Tensor, samples: Samples) -> None:
    """Check that embeddings have a vector of finite numbers for each slot.

    Raises:
        InputError: they have not.
    """
    n, m = len(samples), samples.candidates.slots
    if embeddings.ndim != 3 or tuple(embeddings.shape[:2]) != (n, m) or not embeddings.is_floating_point():
        raise InputError(
            f"expected embeddings of shape ({n}, {m}, d), got {tuple(embeddings.shape)} of {embeddings.dtype}"
        )
    used = embeddings if samples.used is None else embeddings[samples.used]
    if not bool(torch.isfinite(used).all()):
        raise InputError("expected embeddings of finite numbers, got NaN or infinity among them")


def check_neighbours(clip: Clipper, samples: Samples, among: int) -> None:
    """Check that there are at least k neighbours: instances of other samples in a full batch or pool.

    The last batch of an epoch may be smaller; it uses as many neighbours as there are.

    Args:
        clip: how to prune.
        samples: the samples to learn from.
        among: the number of samples to search: a full batch and the memory bank, or the whole pool.

    Raises:
        InputError: k is larger.
    """
    most = (among - 1) * samples.candidates.slots
    if clip.k is not None and clip.k > max(1, most):
        raise InputError(
            f"expected k of at most {max(1, most)}, the instances in {among} samples but one, got {clip.k}; "
            "lower k, or raise the batch or the number of samples"
        )
