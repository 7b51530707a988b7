"""Beam search for a batch labelling in which similar instances share labels: ABLSim's abduction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_FLAT = 1e-9
"""Scores that vary less than this do not vary."""


def likeness(within: Tensor, total: Tensor, count: Tensor, everyone: int) -> Tensor:
    """Σ over a label's instances of (mean distance to differently labelled ones − to equally labelled ones), `(…,)`.

    So a labelling costs a number per label, not one per pair of instances. An instance that has nobody to compare
    with contributes 0.

    Args:
        within: Σ of the distances between the instances of the label, each pair twice, `(…,)`.
        total: Σ of the distances from the instances of the label to all instances, `(…,)`.
        count: the instances of the label, `(…,)`.
        everyone: the instances of all labels.
    """
    different = (total - within) / (everyone - count).clamp(min=1)
    return different - within / (count - 1).clamp(min=1)


def z_score(values: Tensor) -> Tensor:
    """Shifted and scaled to mean 0 and deviation 1; all 0 where the values are equal."""
    deviation = values.std(correction=0)
    centred = values - values.mean()
    return torch.where(deviation > _FLAT, centred / deviation.clamp(min=_FLAT), 0)


@dataclass(frozen=True, eq=False)
class Beam:
    """The best labellings of the samples so far, `b` of them."""

    distance: Tensor
    """Between all instances of the batch, `(instances, instances)`, 0 on the diagonal."""
    instances: Tensor
    """Those that are labelled so far, `(i,)`."""
    labels: Tensor
    """Their labels, `(b, i)`."""
    within: Tensor
    """`(b, c)`, as in `likeness`."""
    total: Tensor
    """`(b, c)`, as in `likeness`."""
    count: Tensor
    """`(b, c)`, as in `likeness`."""
    confidence: Tensor
    """log Π p of the labels, `(b,)`."""
    choices: Tensor
    """Which of its options each sample took, `(b, samples so far)`."""

    @classmethod
    def start(cls, distance: Tensor, classes: int) -> Beam:
        """One labelling, of nothing."""
        zeros = distance.new_zeros(1, classes)
        none = torch.empty(1, 0, dtype=torch.long, device=distance.device)
        return cls(distance, none[0], none, zeros, zeros, zeros, distance.new_zeros(1), none)

    def extend(self, labels: Tensor, instances: Tensor, log_probs: Tensor, size: int, weight: float) -> Beam:
        """Try every option of one more sample with every labelling; the `size` best of these go on.

        Args:
            labels: the options, `(q, used slots)`.
            instances: the instances they label, `(used slots,)`.
            log_probs: log Π p of each option, `(q,)`.
            size: how many labellings to keep.
            weight: of the similarity; the confidence has the rest.
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
        """How alike equally labelled instances are with each option, `(b, q)`; and the new tables.

        Of each table: what it is for labels that an option does not give, `(b, c)`, and what it becomes for those
        that it gives, `(b, q, slots)`.
        """
        everyone = len(self.instances) + len(instances)
        near = self._near(instances)  # (b, c, slots)
        among = self.distance[instances][:, instances]  # (slots, slots)
        own = (labels[:, :, None] == labels[:, None]).to(near.dtype)  # (q, slots, slots): slots that share a label
        beside = torch.einsum("qst,qsu,tu->qs", own, own, among)
        reach = near.sum(1) + among.sum(1)  # (b, slots): to all instances, old and new
        total = self.total + near.sum(2)  # (b, c): to all instances, by those that have labels already
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
    """`(b, q, slots)`: the columns `labels (q, slots)` of a `table (b, c)`."""
    return table.index_select(1, labels.flatten()).view(len(table), *labels.shape)


def _highest(score: Tensor, size: int) -> Tensor:
    """The places of the `size` highest of `score (rows,)`, the highest first, the earlier one of equals."""
    least = score.topk(min(size, len(score)), sorted=False).values.min()
    places = (~(score < least)).nonzero()[:, 0]
    return places[score[places].argsort(descending=True, stable=True)][:size]


def _scaled(log_values: Tensor) -> Tensor:
    """exp, up to a factor that no z-score sees; a product over a batch would underflow."""
    highest = log_values.max()
    return (log_values - highest).exp() if highest > -torch.inf else torch.zeros_like(log_values)
