"""Which candidates a batch learns from: all of them, those pruned once for the pool, or those pruned per batch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.proximity import embed
from clipper.pruning import Clipper
from clipper.training.ahead import prune_together
from clipper.training.bank import MemoryBank
from clipper.training.distances import MOST_INSTANCES, KnownDistances
from clipper.training.samples import Samples, fingerprint, mixed

AHEAD = 16
"""Batches pruned together where the encoder is frozen: samples do not interact, so the result is the same."""


class Survivors:
    """The pruning of a run, and the time it has taken.

    Args:
        samples: what the run learns from.
        clip: how to prune; None for not at all. Its encoder, if it has one, is frozen.
        embeddings: those of a frozen encoder, `(n, m, d)`, where they are known already.
        once: prune the pool as a whole before training, instead of each batch.
        bank: how many samples' earlier embeddings a batch may find neighbours among; 0 for none.
        seed: for the random control.
    """

    def __init__(
        self, samples: Samples, clip: Clipper | None, embeddings: Tensor | None, once: bool, bank: int, seed: int
    ) -> None:
        if clip is not None and clip.encoder is not None and embeddings is None:
            embeddings = embed(clip.encoder, samples.inputs)
        _check(samples, clip, embeddings, once, bank)
        self.clip = replace(clip, encoder=None) if clip else None
        self.embeddings = embeddings if clip else None
        self.bank = MemoryBank(bank) if bank else None
        self.seconds = 0.0
        self._all = samples.candidates
        self._batches: list[Tensor] = []
        self._seed = seed
        self._ahead: tuple[int, list[CandidateSet]] | None = None
        self._once: CandidateSet | None = None
        self._frozen: tuple[Clipper, Tensor] | None = None
        start = time.perf_counter()
        if self.clip is not None:
            self._prepare(self.clip, once, seed)
        self.seconds = time.perf_counter() - start

    def _prepare(self, clip: Clipper, once: bool, seed: int) -> None:
        """What can be done before the first batch."""
        _ = self._all.support, self._all.kind  # each batch then takes its share of them
        if self.embeddings is None or self.bank is not None:
            return
        if once:
            self._once = clip.prune(self._all, self.embeddings, seed=seed).candidates
        elif (
            clip.search is None
            and clip.metric == "l2"
            and self.embeddings.shape[0] * self.embeddings.shape[1] <= MOST_INSTANCES
        ):
            known = KnownDistances(self.embeddings)
            self._frozen = replace(clip, metric=known), known.rows
        else:
            self._frozen = clip, self.embeddings

    def begin(self, batches: list[Tensor], seed: int) -> None:
        """Note the sample ids of the epoch's batches; a frozen encoder lets several of them be pruned at once."""
        self._batches, self._seed, self._ahead = batches, seed, None

    def of_batch(self, step: int, embedding: Tensor | None) -> tuple[CandidateSet, CandidateSet]:
        """The candidates of a batch of the epoch before and after pruning.

        Args:
            step: which batch, counted from 0.
            embedding: the classifier's own, `(n, m, d)`; not used if the encoder is frozen.
        """
        before = self._all.batch(self._batches[step])
        start = time.perf_counter()
        kept = self._kept(step, before, embedding)
        self.seconds += time.perf_counter() - start
        return before, kept

    def _kept(self, step: int, before: CandidateSet, embedding: Tensor | None) -> CandidateSet:
        ids = self._batches[step]
        if self.clip is None:
            return before
        if self._once is not None:
            return self._once.batch(ids)
        if self._frozen is not None:
            return self._looked_up(*self._frozen, step)
        vectors = self.embeddings[ids] if self.embeddings is not None else embedding
        if vectors is None:
            raise InputError("expected the classifier to return (log_probs, embedding), got log_probs alone")
        pool, pool_candidates = self.bank.pool(ids, vectors, self._all) if self.bank else (None, None)
        if self.bank:
            self.bank.remember(ids, vectors)
        with torch.inference_mode():  # the many small steps of a pruning are a fifth faster so
            seed = mixed(self._seed, step)
            pruning = self.clip.prune(before, vectors, pool=pool, pool_candidates=pool_candidates, seed=seed)
        return pruning.outside_inference()

    def _looked_up(self, clip: Clipper, embeddings: Tensor, step: int) -> CandidateSet:
        """From the survivors of the batches pruned together; which are, depends on the step alone."""
        group = step // AHEAD
        if self._ahead is None or self._ahead[0] != group:
            batches = self._batches[group * AHEAD : (group + 1) * AHEAD]
            self._ahead = group, prune_together(clip, self._all, embeddings, batches, mixed(self._seed, group))
        return self._ahead[1][step % AHEAD]

    def spent(self) -> float:
        """Seconds since this was asked last."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def identity(self) -> dict[str, Any]:
        """How this prunes, in words that a checkpoint can compare."""
        if self.clip is None:
            return {"pruning": "none"}
        names: tuple[str, ...] = ("radius", "mutual", "share", "metric", "objective", "solver")
        names += ("mass",) if self.clip.objective == "joint" else ()
        how = {name: str(getattr(self.clip, name)) for name in names if not callable(getattr(self.clip, name))}
        bank = self.bank.size if self.bank else 0
        encoder = "trainable" if self.embeddings is None else f"frozen {fingerprint(self.embeddings)}"
        how["k"] = str(self.clip.neighbours)
        return {**how, "pruning": "once" if self._once is not None else "batch", "bank": bank, "encoder": encoder}


def _check(samples: Samples, clip: Clipper | None, embeddings: Tensor | None, once: bool, bank: int) -> None:
    if clip is None and (once or bank or embeddings is not None):
        raise InputError("got once, bank or embeddings but nothing to prune with; pass clip=Clipper(...) too")
    if once and embeddings is None:
        raise InputError(
            "pruning once, before training, needs a frozen encoder: pass clip=Clipper(encoder=...) or embeddings=; "
            "the classifier's own embedding means something only while it is trained"
        )
    if clip is not None and clip.objective == "joint" and not once:
        raise InputError(
            "joint inference looks at the whole pool, not at a batch: pass once=True and a frozen encoder's embeddings"
        )
    if bank and (once or (clip is not None and clip.mutual)):
        raise InputError("a memory bank serves pruning per batch with one-way edges: drop once and mutual, or the bank")
    if embeddings is not None:
        check_embeddings(embeddings, samples)


def check_embeddings(embeddings: Tensor, samples: Samples) -> None:
    """Refuse embeddings that are not a vector of finite numbers for each slot."""
    n, m = samples.inputs.shape[:2]
    if embeddings.ndim != 3 or tuple(embeddings.shape[:2]) != (n, m) or not embeddings.is_floating_point():
        raise InputError(
            f"expected embeddings of shape ({n}, {m}, d), got {tuple(embeddings.shape)} of {embeddings.dtype}"
        )
    used = embeddings if samples.used is None else embeddings[samples.used]
    if not bool(torch.isfinite(used).all()):
        raise InputError("expected embeddings of finite numbers, got NaN or infinity among them")


def check_neighbours(clip: Clipper, samples: Samples, among: int) -> None:
    """Refuse more neighbours than there can be: the instances of the other samples that a batch looks among.

    The last batch of an epoch may be smaller, and takes as many neighbours as it has.

    Args:
        clip: how to prune.
        samples: what the run learns from.
        among: samples that are looked among: a full batch and the memory bank, or the whole pool.
    """
    most = (among - 1) * samples.candidates.slots
    if clip.k is not None and clip.k > max(1, most):
        raise InputError(
            f"expected k of at most {max(1, most)}, the instances in {among} samples but one, got {clip.k}; "
            "lower k, or raise the batch or the number of samples"
        )
