"""Candidates of a formula, one by one: all of them, the most probable ones, and random ones.

All by asking the circuit about restricted domains, many restrictions at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from clipper.candidates.formula import Formula

_FEW = 4
"""Samples with fewer than so many times the wanted candidates are listed, and theirs are picked from the list."""


def listed(formula: Formula) -> tuple[Tensor, Tensor]:
    """All candidates, `labels (rows, m)` in lexicographic order and `sample (rows,)`, label by label."""
    sample = torch.arange(formula.samples, device=formula.device)
    allowed = formula.mask  # (rows, m, c)
    for slot in range(formula.slots):
        used = (formula.kind[sample, slot] >= 0)[:, None]
        could = formula.batch(sample).narrowed(allowed.flatten(0, 1)).support.view(allowed.shape)[:, slot]
        first = torch.zeros_like(could)
        first[:, 0] = True
        row, label = torch.where(used, could, first).nonzero(as_tuple=True)  # an unused slot is left as it is
        sample, allowed = sample[row], allowed[row]
        allowed[:, slot] = torch.where(used[row], _only(label, formula.classes), allowed[:, slot])
    return allowed.long().argmax(2), sample


def best(formula: Formula, log_probs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` best candidates of each sample, best first, by splitting what is left around each one found.

    What is left of a sample is kept as disjoint restrictions. The best of all their best candidates is the next one;
    its restriction is split, slot by slot, into those that differ from it first in this slot.
    """
    logs = _ranked(log_probs)
    sample = torch.arange(formula.samples, device=formula.device)
    allowed, found = formula.mask, []
    for _ in range(k):
        part = formula.batch(sample).narrowed(allowed.flatten(0, 1))
        used = part.kind >= 0
        weights = torch.where(used[..., None], logs[sample], 0)
        value, labels = part.compiled.best(torch.where(part.mask, weights, -torch.inf), part.template)
        winner = _first_of_largest(value, sample, formula.samples)
        taken = winner[value[winner] > -torch.inf]
        if not len(taken):
            break
        found.append((labels[taken], sample[taken]))
        rest = value > -torch.inf  # a restriction without a candidate is done with
        rest[taken] = False
        parts, owner = _split(allowed[taken], labels[taken], used[taken])
        allowed, sample = torch.cat([allowed[rest], parts]), torch.cat([sample[rest], sample[taken][owner]])
    labels = torch.cat([labels for labels, _ in found] or [allowed.new_zeros(0, formula.slots).long()])
    owner = torch.cat([owner for _, owner in found] or [sample[:0]])
    order = owner.argsort(stable=True)
    return labels[order], owner[order]


def _ranked(log_probs: Tensor) -> Tensor:
    """`log_probs (n, m, c)` in the same order, as numbers of which a candidate's sum is finite.

    A candidate that the classifier rules out is still one, and taken where there is no better one: a label of -inf
    counts for less than all finite labels of a candidate together. Powers of two leave all digits as they are.
    """
    slots = log_probs.shape[1]
    scale = 2.0 ** -math.ceil(math.log2(4 * slots**2))
    logs = log_probs.double() * scale
    return logs.clamp(min=-2 * slots * scale * torch.finfo(torch.float64).max)


def _first_of_largest(value: Tensor, sample: Tensor, samples: int) -> Tensor:
    """For each sample that occurs, the row with the largest value."""
    order = value.argsort(descending=True, stable=True)
    order = order[sample[order].argsort(stable=True)]
    first = torch.searchsorted(sample[order], torch.arange(samples, device=sample.device))
    winner: Tensor = torch.unique(order[first[first < len(order)]])
    return winner


def _split(allowed: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """What is left of each restriction without its best candidate: `(parts, m, c)`, and the row that each is of.

    Args:
        allowed: the restrictions, `(rows, m, c)` bool.
        labels: their best candidates, `(rows, m)`.
        used: which slots count, `(rows, m)` bool: a part for each.
    """
    _, slots, classes = allowed.shape
    just = torch.nn.functional.one_hot(labels, classes).bool()
    before = torch.ones(slots, slots, dtype=torch.bool, device=labels.device).tril(-1)[..., None]  # (part, slot, 1)
    at = torch.eye(slots, dtype=torch.bool, device=labels.device)[..., None]
    whole, just = allowed[:, None], just[:, None]
    parts = torch.where(before, just, torch.where(at, whole & ~just, whole))
    return parts[used], used.nonzero()[:, 0]


def drawn(
    formula: Formula, per_sample: int, generator: torch.Generator, log_probs: Tensor | None
) -> tuple[Tensor, Tensor]:
    """At most `per_sample` different candidates of each sample: `labels (rows, m)`, `sample (rows,)`, ascending."""
    if log_probs is not None:
        logs = log_probs.detach().double()
        ruled_out = formula.log_probability(logs) == -torch.inf  # nothing to go by: each candidate is as good
        labels, sample = _draws(formula, per_sample, generator, logs.masked_fill(ruled_out[:, None, None], 0))
        return _distinct(labels, sample)
    few = torch.tensor([count < _FEW * per_sample for count in formula.counts], device=formula.device)
    parts = []
    if bool(few.any()):
        ids = few.nonzero()[:, 0]
        seed = int(torch.randint(2**62, (), generator=generator))
        picked = formula.batch(ids).to_candidates(budget=_FEW * per_sample * len(ids))
        picked = picked.draw(per_sample, seed)
        parts.append((picked.labels.long(), ids[picked.sample]))
    left, draws = (~few).nonzero()[:, 0], 2 * per_sample + 8
    while len(left):  # a sample that drew too few different ones draws anew, and more: all sets stay equally likely
        labels, sample = _distinct(*_draws(formula.batch(left), draws, generator, None))
        place = torch.arange(len(sample), device=sample.device) - torch.searchsorted(sample, sample)
        enough = torch.bincount(sample, minlength=len(left)) >= per_sample
        keep = (place < per_sample) & enough[sample]
        parts.append((labels[keep], left[sample[keep]]))
        left, draws = left[~enough], 2 * draws
    labels, sample = (torch.cat(column) for column in zip(*parts, strict=True))
    order = sample.argsort(stable=True)
    return labels[order], sample[order]


def _draws(formula: Formula, draws: int, generator: torch.Generator, logs: Tensor | None) -> tuple[Tensor, Tensor]:
    """`draws` candidates of each sample with replacement, slot by slot from what the labels before leave."""
    sample = torch.arange(formula.samples, device=formula.device).repeat_interleave(draws)
    own = formula.batch(sample)
    weights = torch.zeros(len(sample), formula.slots, formula.classes, device=formula.device).double()
    weights = weights if logs is None else logs[sample]
    allowed = own.mask
    for slot in range(formula.slots):
        share = own.narrowed(allowed.flatten(0, 1)).marginals(weights)[:, slot]  # (rows, c)
        noise = torch.rand(len(sample), generator=generator, dtype=torch.float64).to(share.device)
        steps = share.cumsum(1)
        last = formula.classes - 1 - (share > 0).flip(1).long().argmax(1)  # rounding must not choose what is impossible
        label = torch.minimum((steps <= noise[:, None] * steps[:, -1:]).sum(1), last)
        used = (own.kind[:, slot] >= 0)[:, None]
        allowed = allowed.clone()
        allowed[:, slot] = torch.where(used, _only(label, formula.classes), allowed[:, slot])
    return allowed.long().argmax(2), sample


def _distinct(labels: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """Each candidate once, where it came first."""
    rows = torch.cat([sample[:, None], labels], 1)
    _, inverse = torch.unique(rows, dim=0, return_inverse=True)
    place = torch.arange(len(rows), device=rows.device)
    first = torch.full_like(place, len(rows)).scatter_reduce_(0, inverse, place, "amin")
    keep = first[inverse] == place
    return labels[keep], sample[keep]


def _only(label: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(label, classes).bool()
