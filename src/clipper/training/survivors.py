"""Which candidates a batch learns from: all of them, those pruned once for the pool, or those pruned per batch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.proximity import embed
from clipper.pruning import Clipper
from clipper.training.bank import MemoryBank
from clipper.training.samples import Samples, fingerprint


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
        self._once: Candidates | None = None
        if once and self.clip is not None and embeddings is not None:
            start = time.perf_counter()
            self._once = self.clip.prune(self._all, embeddings, seed=seed).candidates
            self.seconds = time.perf_counter() - start
        elif self.clip is not None:
            _ = self._all.support  # each batch then takes its share of it

    @property
    def needs_embedding(self) -> bool:
        """Whether the classifier has to give its embedding: the encoder is being trained."""
        return self.clip is not None and self.embeddings is None

    def of_batch(self, ids: Tensor, embedding: Tensor | None, seed: int) -> tuple[Candidates, Candidates]:
        """The candidates of the samples `ids (n,)` before and after pruning.

        Args:
            ids: the batch's samples.
            embedding: the classifier's own, `(n, m, d)`; not used if the encoder is frozen.
            seed: for the random control.
        """
        before = self._all.batch(ids)
        start = time.perf_counter()
        kept = self._kept(ids, before, embedding, seed)
        self.seconds += time.perf_counter() - start
        return before, kept

    def _kept(self, ids: Tensor, before: Candidates, embedding: Tensor | None, seed: int) -> Candidates:
        if self.clip is None:
            return before
        if self._once is not None:
            return self._once.batch(ids)
        vectors = self.embeddings[ids] if self.embeddings is not None else embedding
        if vectors is None:
            raise InputError("expected the classifier to return (log_probs, embedding), got log_probs alone")
        if self.bank is None:
            return self.clip.prune(before, vectors.detach(), seed=seed).candidates
        pool, pool_candidates = self.bank.pool(ids, vectors, self._all)
        self.bank.remember(ids, vectors)
        pruning = self.clip.prune(before, vectors.detach(), pool=pool, pool_candidates=pool_candidates, seed=seed)
        return pruning.candidates

    def spent(self) -> float:
        """Seconds since this was asked last."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def identity(self) -> dict[str, Any]:
        """How this prunes, in words that a checkpoint can compare."""
        if self.clip is None:
            return {"pruning": "none"}
        names = ("k", "radius", "mutual", "share", "metric", "objective", "solver")
        how = {name: str(getattr(self.clip, name)) for name in names if not callable(getattr(self.clip, name))}
        bank = self.bank.size if self.bank else 0
        encoder = "trainable" if self.embeddings is None else f"frozen {fingerprint(self.embeddings)}"
        return {**how, "pruning": "once" if self._once is not None else "batch", "bank": bank, "encoder": encoder}


def _check(samples: Samples, clip: Clipper | None, embeddings: Tensor | None, once: bool, bank: int) -> None:
    if clip is None and (once or bank or embeddings is not None):
        raise InputError("got once, bank or embeddings but nothing to prune with; pass clip=Clipper(...) too")
    if once and embeddings is None:
        raise InputError(
            "pruning once, before training, needs a frozen encoder: pass clip=Clipper(encoder=...) or embeddings=; "
            "the classifier's own embedding means something only while it is trained"
        )
    if bank and (once or (clip is not None and clip.mutual)):
        raise InputError("a memory bank serves pruning per batch with one-way edges: drop once and mutual, or the bank")
    if embeddings is not None and tuple(embeddings.shape[:2]) != tuple(samples.inputs.shape[:2]):
        raise InputError(
            f"expected embeddings of shape ({samples.inputs.shape[0]}, {samples.inputs.shape[1]}, d), "
            f"got {tuple(embeddings.shape)}"
        )
