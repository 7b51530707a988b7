"""ABLSim: abduce one labelling of the whole batch, by similarity and confidence, and learn it."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.arguments import as_tensor, real_number, whole_number
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.listing import must_be_listed
from clipper.engines.base import Context, Engine, check_needs
from clipper.engines.beam import Beam
from clipper.engines.checks import checked
from clipper.engines.packed import candidate_log_probs, segment_max
from clipper.errors import InputError


class AblSim(Engine):
    """Abductive learning by similarity: cross-entropy to the batch labelling in which similar inputs agree best.

    A sample's options are its candidates that revise the prediction least, or one label more. A labelling of the
    batch scores 0.96 times the z-score of (mean cosine distance to differently labelled instances − to equally
    labelled ones), averaged over instances, plus 0.04 times the z-score of the confidence Π p. A beam is extended
    sample by sample, in the order of the batch. The loss is −Σ_j log p of the abduced labels.

    Args:
        beam: how many labellings to keep.
        similarity: weight of the similarity; the confidence has the rest.
        revisions: how many labels beyond the smallest revision an option may change.
        entropy: weight of the posterior's entropy, see `posterior_entropy`.

    Examples:
        >>> candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(0, 0), (1, 1)]], classes=2)
        >>> embeddings = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.1], [0.9, 0.0]]])
        >>> log_probs = torch.tensor([[[0.6, 0.4], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]).log()
        >>> engine = AblSim()
        >>> engine.abduce(log_probs, candidates, embeddings)
        tensor([[0, 1],
                [0, 0]])
        >>> engine(log_probs, candidates, Context(embeddings=embeddings))
        tensor([1.2040, 1.3863])
    """

    needs = ("embeddings",)

    def __init__(self, beam: int = 600, *, similarity: float = 0.96, revisions: int = 1, entropy: float = 0.0) -> None:
        super().__init__(entropy=entropy)
        self.beam, self.revisions = whole_number(beam, "beam"), whole_number(revisions, "revisions", 0)
        self.similarity = real_number(similarity, "similarity", least=0, most=1)

    def losses(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """As in `Engine.losses`."""
        listed = must_be_listed(candidates, "AblSim")
        rows = self._abduced_rows(log_probs, listed, context.embeddings)
        return -candidate_log_probs(log_probs, listed)[rows]

    def abduce(self, log_probs: Tensor, candidates: Candidates, embeddings: Tensor) -> Tensor:
        """The labels of the best labelling found, `(n, m)`; -1 in unused slots."""
        log_probs = checked(log_probs, candidates)
        check_needs(self, Context(embeddings=embeddings))
        listed = must_be_listed(candidates, "AblSim")
        if not listed.samples:
            return listed.labels.long()
        return listed.labels[self._abduced_rows(log_probs, listed, embeddings)].long()

    @torch.no_grad()
    def _abduced_rows(self, log_probs: Tensor, candidates: Candidates, embeddings: Tensor | None) -> Tensor:
        """The row of each sample's candidate in the best labelling, `(n,)`."""
        embeddings = _checked_embeddings(embeddings, candidates)
        values = candidate_log_probs(log_probs, candidates).double()  # (Ω,)
        present, labels = torch.unique(candidates.labels, return_inverse=True)  # few classes make small tables
        beam = Beam.start(_cosine_distance(embeddings), len(present))
        options = self._options(log_probs, candidates)
        for i, rows in enumerate(options):
            used = candidates.kind[i] >= 0
            instances = (candidates.slots * i + torch.arange(candidates.slots, device=labels.device))[used]
            beam = beam.extend(labels[rows][:, used], instances, values[rows], self.beam, self.similarity)
        chosen = zip(options, beam.choices[0].tolist(), strict=True)
        return torch.stack([rows[choice] for rows, choice in chosen])

    def _options(self, log_probs: Tensor, candidates: Candidates) -> list[Tensor]:
        """Each sample's rows within the smallest revision of the prediction, plus `revisions`."""
        prediction = log_probs.argmax(2)[candidates.sample]  # (Ω, m)
        distance = ((candidates.labels != prediction) & (candidates.labels >= 0)).sum(1)
        least = -segment_max(-distance, candidates)[candidates.sample]
        close = distance <= least + self.revisions
        counts = torch.bincount(candidates.sample[close], minlength=candidates.samples)
        return list(torch.split(close.nonzero()[:, 0], counts.tolist()))


def _cosine_distance(embeddings: Tensor) -> Tensor:
    """Between all instances, `(n*m, n*m)`, from `embeddings (n, m, d)`; 0 on the diagonal."""
    unit = torch.nn.functional.normalize(embeddings.detach().double().flatten(0, 1), dim=1)
    return (1 - unit @ unit.T).fill_diagonal_(0)


def _checked_embeddings(given: Tensor | None, candidates: Candidates) -> Tensor:
    embeddings = as_tensor(given, "embeddings", candidates.device)
    expected = (candidates.samples, candidates.slots)
    if embeddings.ndim != 3 or tuple(embeddings.shape[:2]) != expected or not embeddings.is_floating_point():
        raise InputError(
            f"expected embeddings of shape ({expected[0]}, {expected[1]}, d), floating point, "
            f"got {tuple(embeddings.shape)} of {embeddings.dtype}"
        )
    if len(candidates.kinds) > 1:
        raise InputError(
            "expected one kind of label, because ABLSim compares all instances with one another, "
            f"got {', '.join(kind.name for kind in candidates.kinds)}"
        )
    if embeddings.device != candidates.device:
        raise InputError(f"expected embeddings on {candidates.device} like the candidates, got {embeddings.device}")
    if not bool(embeddings[candidates.kind >= 0].isfinite().all()):
        raise InputError("expected finite embeddings, got NaN or infinity; check the encoder and its input")
    return embeddings
