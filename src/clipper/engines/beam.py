"""Beam search for a batch labelling in which similar instances share labels: ABLSim's abduction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_FLAT = 1e-9
"""Scores that vary less than this do not vary."""


def similarity(within: Tensor, total: Tensor, count: Tensor) -> Tensor:
    """Mean over instances of (mean distance to differently labelled − to equally labelled ones), `(…,)`.

    Summed per label, so that a labelling costs `c` numbers and not a number per pair of instances. An instance
    that has nobody to compare with contributes 0 to that mean.

    Args:
        within: Σ of the distances between the instances of a label, each pair twice, `(…, c)`.
        total: Σ of the distances from the instances of a label to all instances, `(…, c)`.
        count: the instances of a label, `(…, c)`.
    """
    everyone = count.sum(-1, keepdim=True)
    different = (total - within) / (everyone - count).clamp(min=1)
    equal = within / (count - 1).clamp(min=1)
    return (different - equal).sum(-1) / everyone[..., 0]


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
    near: Tensor
    """Σ of the distances from the instances of a label to each instance, `(b, c, instances)`."""
    within: Tensor
    """`(b, c)`, as in `similarity`."""
    total: Tensor
    """`(b, c)`, as in `similarity`."""
    count: Tensor
    """`(b, c)`, as in `similarity`."""
    confidence: Tensor
    """log Π p of the labels, `(b,)`."""
    choices: Tensor
    """Which of its options each sample took, `(b, samples so far)`."""

    @classmethod
    def start(cls, distance: Tensor, classes: int) -> Beam:
        """One labelling, of nothing."""
        zeros = distance.new_zeros(1, classes)
        near = distance.new_zeros(1, classes, len(distance))
        none = torch.empty(1, 0, dtype=torch.long, device=distance.device)
        return cls(distance, near, zeros, zeros, zeros, distance.new_zeros(1), none)

    def extend(self, labels: Tensor, instances: Tensor, log_probs: Tensor, size: int, weight: float) -> Beam:
        """Try every option of one more sample with every labelling; the `size` best of these go on.

        Args:
            labels: the options, `(q, used slots)`.
            instances: the instances they label, `(used slots,)`.
            log_probs: log Π p of each option, `(q,)`.
            size: how many labellings to keep.
            weight: of the similarity; the confidence has the rest.
        """
        hot = torch.nn.functional.one_hot(labels, self.count.shape[1]).to(self.near.dtype)  # (q, slots, c)
        near = self.near[:, :, instances]  # (b, c, slots)
        among = self.distance[instances][:, instances]  # (slots, slots)
        count = self.count[:, None] + hot.sum(1)
        within = self.within[:, None] + 2 * torch.einsum("bcs,qsc->bqc", near, hot)
        within = within + torch.einsum("qsc,st,qtc->qc", hot, among, hot)
        reach = near.sum(1) + among.sum(1)  # (b, slots): to all instances, old and new
        total = (self.total + near.sum(2))[:, None] + torch.einsum("bs,qsc->bqc", reach, hot)
        confidence = self.confidence[:, None] + log_probs  # (b, q)
        score = weight * z_score(similarity(within, total, count)) + (1 - weight) * z_score(_scaled(confidence))
        best = score.flatten().argsort(descending=True, stable=True)[:size]
        parent, option = best // len(labels), best % len(labels)
        near = self.near[parent] + torch.einsum("bsc,si->bci", hot[option], self.distance[instances])
        choices = torch.cat([self.choices[parent], option[:, None]], dim=1)
        within, total, count = (table.flatten(0, 1)[best] for table in (within, total, count))
        return Beam(self.distance, near, within, total, count, confidence.flatten()[best], choices)


def _scaled(log_values: Tensor) -> Tensor:
    """exp, up to a factor that no z-score sees; a product over a batch would underflow."""
    highest = log_values.max()
    return (log_values - highest).exp() if highest > -torch.inf else torch.zeros_like(log_values)
