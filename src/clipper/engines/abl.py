"""ABLSim: choose one labelling of the whole batch, by similarity and confidence, and train on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.arguments import as_tensor, real_number, whole_number, widened
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import check_satisfiable
from clipper.candidates.packed import candidate_log_probs, segment_max
from clipper.engines.base import Context, Engine, check_needs, checked_log_probs
from clipper.errors import InputError

_FLAT = 1e-9
"""Scores that vary less than this count as constant."""


class AblSim(Engine):
    """Abductive learning by similarity: cross-entropy to the labelling of the batch that fits similarity best.

    The options of a sample are its candidates that change the fewest predicted labels, or one more. The score of a
    labelling of the batch is 0.96 times the z-score of (mean cosine distance to differently labelled instances − to
    equally labelled ones), averaged over instances, plus 0.04 times the z-score of the confidence Π p. A beam is
    extended sample by sample, in the order of the batch. The loss is −Σ_j log p of the abduced labels.

    Args:
        beam: how many labellings to keep.
        similarity: weight of the similarity; the confidence has the weight 1 - similarity.
        revisions: how many more labels than the minimum an option may change.
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Attributes:
        beam: how many labellings to keep.
        similarity: weight of the similarity.
        revisions: how many more labels than the minimum an option may change.
        needs: `("embeddings",)`.

    Raises:
        InputError: an option is out of range; when called, if the embeddings do not fit the candidates.

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
        """The loss of each sample, see `Engine.losses`."""
        listed = candidates.to_candidates()
        rows = self._abduced_rows(log_probs, listed, context.embeddings)
        return -candidate_log_probs(log_probs, listed)[rows]

    def abduce(self, log_probs: Tensor, candidates: Candidates, embeddings: Tensor) -> Tensor:
        """The best labelling that the beam search finds.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.
            candidates: the possible labels of each sample.
            embeddings: the encoder's output, `(n, m, d)`.

        Returns:
            Its labels, `(n, m)`; -1 in unused slots.

        Raises:
            InputError: the log-probabilities or the embeddings do not fit the candidates, or a sample has none.
        """
        log_probs = checked_log_probs(log_probs, candidates)
        check_satisfiable(candidates)
        check_needs(self, Context(embeddings=embeddings))
        listed = candidates.to_candidates()
        if not listed.samples:
            return listed.labels.long()
        return listed.labels[self._abduced_rows(log_probs, listed, embeddings)].long()

    @torch.no_grad()
    def _abduced_rows(self, log_probs: Tensor, candidates: Candidates, embeddings: Tensor | None) -> Tensor:
        """The row of each sample's candidate in the best labelling, `(n,)`."""
        embeddings = _checked_embeddings(embeddings, candidates)
        values = widened(candidate_log_probs(log_probs, candidates))  # (Ω,)
        present, labels = torch.unique(candidates.labels, return_inverse=True)  # few classes make small tables
        beam = Beam.start(_cosine_distance(embeddings), len(present))
        options = self._options(log_probs, candidates)
        kinds = candidates.kind.tolist()
        for i, rows in enumerate(options):
            used = torch.tensor([slot for slot, kind in enumerate(kinds[i]) if kind >= 0]).to(labels.device)
            instances = candidates.slots * i + used
            beam = beam.extend(labels[rows][:, used], instances, values[rows], self.beam, self.similarity)
        chosen = zip(options, beam.choices[0].tolist(), strict=True)
        return torch.stack([rows[choice] for rows, choice in chosen])

    def _options(self, log_probs: Tensor, candidates: Candidates) -> list[Tensor]:
        """Each sample's rows that change at most `revisions` more predicted labels than the minimum."""
        prediction = log_probs.argmax(2)[candidates.sample]  # (Ω, m)
        distance = ((candidates.labels != prediction) & (candidates.labels >= 0)).sum(1)
        least = -segment_max(-distance, candidates)[candidates.sample]
        close = distance <= least + self.revisions
        counts = candidates.offsets_where(close).diff()
        return list(torch.split(close.nonzero()[:, 0], counts.tolist()))


def _cosine_distance(embeddings: Tensor) -> Tensor:
    """The cosine distances between all instances, `(n*m, n*m)`, from `embeddings (n, m, d)`; 0 on the diagonal."""
    unit = torch.nn.functional.normalize(widened(embeddings.detach()).flatten(0, 1), dim=1)
    return (1 - unit @ unit.T).fill_diagonal_(0)


def _checked_embeddings(given: Tensor | None, candidates: Candidates) -> Tensor:
    embeddings = as_tensor(given, "embeddings").to(candidates.device)
    expected = (candidates.samples, candidates.slots)
    if embeddings.ndim != 3 or tuple(embeddings.shape[:2]) != expected or not embeddings.is_floating_point():
        raise InputError(
            f"expected embeddings of shape ({expected[0]}, {expected[1]}, d), floating point, "
            f"got {tuple(embeddings.shape)} of {embeddings.dtype}"
        )
    if len(candidates.kinds) > 1:
        raise InputError(
            "expected one kind of label, because ABLSim compares all instances with each other, "
            f"got {', '.join(kind.name for kind in candidates.kinds)}"
        )
    if not bool((embeddings.isfinite().all(2) | (candidates.kind < 0)).all()):
        raise InputError("expected finite embeddings, got NaN or infinity; check the encoder and its input")
    return embeddings


def likeness(within: Tensor, total: Tensor, count: Tensor, everyone: int) -> Tensor:
    """Σ over a label's instances of (mean distance to differently labelled ones − to equally labelled ones), `(…,)`.

    It needs three numbers for each label instead of one for each pair of instances. An instance without others to
    compare with contributes 0.

    Args:
        within: Σ of the distances between the instances of the label, each pair twice, `(…,)`.
        total: Σ of the distances from the instances of the label to all instances, `(…,)`.
        count: the number of instances of the label, `(…,)`.
        everyone: the number of instances of all labels.
    """
    different = (total - within) / (everyone - count).clamp(min=1)
    return different - within / (count - 1).clamp(min=1)


def z_score(values: Tensor) -> Tensor:
    """The values, shifted and scaled to mean 0 and deviation 1; zeros if all values are equal."""
    deviation = values.std(correction=0)
    centred = values - values.mean()
    return torch.where(deviation > _FLAT, centred / deviation.clamp(min=_FLAT), 0)


@dataclass(frozen=True, eq=False)
class Beam:
    """The best labellings of the samples so far, `b` of them.

    Attributes:
        distance: the distances between all instances of the batch, `(instances, instances)`, 0 on the diagonal.
        instances: the instances labelled so far, `(i,)`.
        labels: their labels, `(b, i)`.
        within: `(b, c)`, as in `likeness`.
        total: `(b, c)`, as in `likeness`.
        count: `(b, c)`, as in `likeness`.
        confidence: log Π p of the labels, `(b,)`.
        choices: the index of each sample's chosen option, `(b, samples so far)`.
    """

    distance: Tensor
    instances: Tensor
    labels: Tensor
    within: Tensor
    total: Tensor
    count: Tensor
    confidence: Tensor
    choices: Tensor

    @classmethod
    def start(cls, distance: Tensor, classes: int) -> Beam:
        """The beam before the first sample: one labelling of no instances."""
        zeros = distance.new_zeros(1, classes)
        none = torch.empty(1, 0, dtype=torch.long, device=distance.device)
        return cls(distance, none[0], none, zeros, zeros, zeros, distance.new_zeros(1), none)

    def extend(self, labels: Tensor, instances: Tensor, log_probs: Tensor, size: int, weight: float) -> Beam:
        """The beam after one more sample: every labelling with every option of the sample, reduced to the best.

        Args:
            labels: the options, `(q, used slots)`.
            instances: the instances they label, `(used slots,)`.
            log_probs: log Π p of each option, `(q,)`.
            size: how many labellings to keep.
            weight: the weight of the similarity; the confidence has the weight 1 - `weight`.
        """
        alike, tables = self._tried(labels, instances)
        confidence = self.confidence[:, None] + log_probs  # (b, q)
        score = weight * z_score(alike) + (1 - weight) * z_score(_scaled(confidence))
        best = _highest(score.flatten(), size)
        parent, option = best // len(labels), best % len(labels)
        taken = labels[option]  # (b, slots)
        within, total, count = (old[parent].scatter_(1, taken, new.flatten(0, 1)[best]) for old, new in tables)
        return Beam(
            self.distance,
            torch.cat([self.instances, instances]),
            torch.cat([self.labels[parent], taken], dim=1),
            within,
            total,
            count,
            confidence.flatten()[best],
            torch.cat([self.choices[parent], option[:, None]], dim=1),
        )

    def _tried(self, labels: Tensor, instances: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The similarity of the labelling with each option, `(b, q)`; and the old and new entries of each table.

        For each table: its entries for labels that are not in the option, `(b, c)`, and its new entries for the labels
        of the option, `(b, q, slots)`.
        """
        everyone = len(self.instances) + len(instances)
        near = self._near(instances)  # (b, c, slots)
        among = self.distance[instances][:, instances]  # (slots, slots)
        own = (labels[:, :, None] == labels[:, None]).to(near.dtype)  # (q, slots, slots): slots that share a label
        beside = torch.einsum("qst,qsu,tu->qs", own, own, among)
        reach = near.sum(1) + among.sum(1)  # (b, slots): from each new instance to all instances, old and new
        total = self.total + near.sum(2)  # (b, c): from the old instances of each label to all instances
        hot = torch.nn.functional.one_hot(labels, self.count.shape[1])  # (q, slots, c)
        pull = (hot[..., None] * own[:, :, None]).flatten(2).flatten(0, 1)  # (q * slots, c * slots)
        new_within = _at(self.within, labels) + 2 * (near.flatten(1) @ pull.T).view(-1, *labels.shape) + beside
        new_total = _at(total, labels) + torch.einsum("bt,qst->bqs", reach, own)
        new_count = _at(self.count, labels) + own.sum(2)
        before = likeness(self.within, total, self.count, everyone)  # (b, c)
        gain = likeness(new_within, new_total, new_count, everyone) - _at(before, labels)
        first = own.argmax(2) == torch.arange(len(instances), device=own.device)  # (q, slots): each label once
        alike = (before.sum(1, keepdim=True) + (gain * first).sum(2)) / everyone
        return alike, [(self.within, new_within), (total, new_total), (self.count, new_count)]

    def _near(self, instances: Tensor) -> Tensor:
        """Σ of the distances from the instances of each label to the given ones, `(b, c, slots)`."""
        distance = self.distance[self.instances][:, instances].expand(len(self.labels), -1, -1)  # (b, i, slots)
        none = distance.new_zeros(len(self.labels), self.count.shape[1], len(instances))
        return none.scatter_add_(1, self.labels[:, :, None].expand_as(distance), distance)


def _at(table: Tensor, labels: Tensor) -> Tensor:
    """The columns `labels (q, slots)` of a `table (b, c)`, `(b, q, slots)`."""
    return table.index_select(1, labels.flatten()).view(len(table), *labels.shape)


def _highest(score: Tensor, size: int) -> Tensor:
    """The indices of the `size` highest of `score (rows,)`, the highest first; of equal ones, the earlier first."""
    least = score.topk(min(size, len(score)), sorted=False).values.min()
    places = (~(score < least)).nonzero()[:, 0]
    return places[score[places].argsort(descending=True, stable=True)][:size]


def _scaled(log_values: Tensor) -> Tensor:
    """exp of the values up to a factor, which the z-score cancels; the exact products over a batch would underflow."""
    highest = log_values.max()
    return torch.where(highest > -torch.inf, (log_values - highest).exp(), 0)
