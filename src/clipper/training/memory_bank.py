"""MemoryBank: the embeddings of recent samples, among which a batch also finds its neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.arguments import MOST, whole_number
from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.proximity import Pool


class MemoryBank:
    """The embeddings of the most recent samples; a new embedding of a sample replaces its older one.

    Args:
        size: how many samples to remember.

    Examples:
        >>> bank = MemoryBank(size=3)
        >>> bank.remember(torch.tensor([0, 1]), torch.zeros(2, 1, 4))
        >>> bank.remember(torch.tensor([1, 2, 3]), torch.ones(3, 1, 4))
        >>> bank.ids.tolist()
        [1, 2, 3]
    """

    def __init__(self, size: int) -> None:
        self.size = whole_number(size, "the size of a memory bank", most=MOST)
        self.ids = torch.empty(0, dtype=torch.long)
        self.embeddings = torch.empty(0)

    def pool(self, ids: Tensor, embedding: Tensor, candidates: CandidateSet) -> tuple[Tensor, Pool, CandidateSet]:
        """Where the batch `ids (n,)` looks for neighbours: itself, and the bank's other samples.

        Args:
            ids: the batch's samples.
            embedding: their embeddings, `(n, m, d)`.
            candidates: those of all samples, not only of the batch.

        Returns:
            The samples in the pool `(N,)`, the batch's first; their embeddings; and their candidates.
        """
        others, remembered = self._without(ids)
        members = torch.cat([ids, others])  # (N,)
        pool_candidates = candidates.batch(members)
        vectors = torch.cat([embedding.detach(), remembered]) if len(others) else embedding.detach()  # (N, m, d)
        own = torch.arange(len(ids), device=ids.device)
        return members, Pool(vectors, pool_candidates.kind, samples=own), pool_candidates

    def remember(self, ids: Tensor, embedding: Tensor) -> None:
        """Add embeddings, and drop the oldest ones if there are too many.

        Args:
            ids: the samples, `(n,)`.
            embedding: their embeddings, `(n, m, d)`.
        """
        others, remembered = self._without(ids)
        kept = embedding.detach().clone()
        self.ids = torch.cat([others, ids])[-self.size :]
        self.embeddings = (torch.cat([remembered, kept]) if len(others) else kept)[-self.size :]

    def _without(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The ids and embeddings in the bank of samples outside the batch."""
        if not len(self.ids):
            return self.ids.to(ids.device), self.embeddings
        other = (self.ids[:, None] != ids).all(1).nonzero()[:, 0]
        return self.ids[other], self.embeddings[other]

    def state_dict(self) -> dict[str, Tensor]:
        """The state for a checkpoint."""
        return {"ids": self.ids, "embeddings": self.embeddings}

    def load_state_dict(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Continue from a checkpoint.

        Args:
            state: what `state_dict` returned.
            device: the device of the embeddings.

        Raises:
            InputError: the state is not that of a memory bank of this size.
        """
        ids, embeddings = state["ids"], state["embeddings"]
        if ids.ndim != 1 or ids.dtype != torch.long or len(ids) > self.size or len(ids) != len(embeddings):
            raise InputError(f"expected a memory bank of at most {self.size} samples with an embedding each")
        self.ids, self.embeddings = ids.to(device), embeddings.to(device)
