"""Comparing candidate sets without listing them: which samples have equal sets, and is a relabelled set equal?

A set of candidates corresponds to the polynomial Σ_σ Π_j w(j, σ(j)) in one weight for each slot and label. Two sets are
equal if and only if their polynomials are equal. Two different polynomials of degree m agree at random weights modulo a
prime p with a probability of at most m / p (Schwartz–Zippel). So a few weighted counts decide whether two sets of any
size are equal.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from clipper.candidates.base import CandidateSet, TemplateSet, outside_inference_mode
from clipper.candidates.formula import Formula
from clipper.candidates.graph_building import templates_of
from clipper.candidates.lattice import Lattice
from clipper.candidates.state_graph import StateGraph, weights_of
from clipper.candidates.table import Candidates

PRIME = 2**31 - 1
"""Weighted counts are computed modulo this prime: the product of two remainders fits into 64 bits."""
_CELLS = 1 << 22
"""Largest number of tensor elements held at a time."""


@outside_inference_mode
def distinct_samples(candidates: CandidateSet) -> tuple[CandidateSet, Tensor]:
    """One sample for each different set of candidates, and the index of each sample's set, `(n,)`.

    The order and the repetition of listed candidates do not matter. Lattices and formulas are compared by their
    templates and restrictions, so some of the returned sets may be equal.

    Args:
        candidates: any set.

    Examples:
        >>> listed = Candidates.from_lists([[(0,), (1,)], [(1,)], [(1,), (0,), (0,)]], classes=2)
        >>> some, which = distinct_samples(listed)
        >>> some.counts, which.tolist()
        ([2, 1], [0, 1, 0])
    """
    if isinstance(candidates, TemplateSet):
        which, firsts = _equal_rows(candidates)
        return candidates.batch(firsts), which
    if not isinstance(candidates, Candidates):
        return candidates, torch.arange(candidates.samples, device=candidates.device)
    which, firsts = templates_of(candidates)
    some = candidates.batch(firsts).distinct()
    again, firsts = templates_of(some)
    return some.batch(firsts), again[which]


def _equal_rows(candidates: TemplateSet) -> tuple[Tensor, Tensor]:
    """The description of each sample by number, `(n,)`, and the first sample with each description."""
    fields = (getattr(candidates, name) for name in candidates.PER_SAMPLE)
    parts = [[row.tobytes() for row in rows.cpu().numpy()] for rows in fields if rows is not None]
    place: dict[tuple[bytes, ...], int] = {}
    which = [place.setdefault(row, len(place)) for row in zip(*parts, strict=True)]
    firsts = np.unique(which, return_index=True)[1]
    return torch.tensor(which, device=candidates.device), torch.from_numpy(firsts).to(candidates.device)


@outside_inference_mode
def weighted_counts(candidates: CandidateSet, weights: Tensor) -> Tensor:
    """Σ_σ Π_j w(j, σ(j)) over each sample's candidates, modulo `PRIME`.

    Args:
        candidates: any set of `n` samples.
        weights: whole numbers from 0 to `PRIME` - 1 for each slot and label, `(b, m, c)`.

    Returns:
        `(n, b)`; a listed candidate that occurs twice counts twice.

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[2, 3], slots=2, classes=3)
        >>> ones = torch.ones(1, 2, 3, dtype=torch.long)
        >>> weighted_counts(candidates, torch.cat([ones, 2 * ones])).tolist()
        [[3, 12], [2, 8]]
    """
    if isinstance(candidates, Lattice | Formula):
        if _one_pass(candidates):
            return _of_templates(candidates, weights).index_select(0, candidates.template)
        together = max(1, _CELLS // weights[0].numel() // len(weights))
        ids = torch.arange(candidates.samples, device=candidates.device)
        return torch.cat([_of_samples(candidates.batch(some), weights) for some in torch.split(ids, together)])
    listed = candidates.to_candidates()
    together = max(1, _CELLS // max(1, len(listed)))
    return torch.cat([_of_listed(listed, part) for part in torch.split(weights, together)], dim=1)


def _one_pass(candidates: TemplateSet) -> bool:
    """Whether samples differ only in their template, so that one pass is enough for all of them."""
    return [name for name in candidates.PER_SAMPLE if getattr(candidates, name) is not None] == ["template"]


def numbers_in(candidates: CandidateSet) -> int:
    """The average number of tensor elements that describe one sample's candidates: the cost of reading them.

    Examples:
        >>> numbers_in(Candidates.from_rule(sum, targets=[2, 3], slots=2, classes=3))
        5
    """
    if isinstance(candidates, Lattice):
        return sum(layer.next.numel() for layer in candidates.graph.layers)
    if isinstance(candidates, TemplateSet):
        return candidates.states
    return candidates.to_candidates().labels.numel() // max(1, candidates.samples)


def weighted_count_size(candidates: CandidateSet) -> int:
    """The number of tensor elements that one weighted count of all samples reads."""
    shared = isinstance(candidates, TemplateSet) and _one_pass(candidates)
    return numbers_in(candidates) * (1 if shared else candidates.samples)


def _of_listed(listed: Candidates, weights: Tensor) -> Tensor:
    product = weights.new_ones(len(listed), len(weights))  # (Ω, b)
    table = torch.nn.functional.pad(weights, (0, 1), value=1).permute(1, 2, 0)  # (m, c+1, b); the last for unused slots
    for own, labels in zip(table, listed.labels.long().unbind(1), strict=True):
        product = product.mul_(own[labels]).remainder_(PRIME)
    return weights.new_zeros(listed.samples, len(weights)).index_add_(0, listed.sample, product).remainder_(PRIME)


def _of_samples(candidates: Lattice | Formula, weights: Tensor) -> Tensor:
    """The weighted counts of each sample, with weight 0 for labels that it may not take."""
    count, b = candidates.samples, len(weights)
    sample = torch.arange(count, device=weights.device).repeat_interleave(b)
    every = candidates.batch(sample)
    own = weights.repeat(count, 1, 1)  # (n*b, m, c)
    if isinstance(every, Formula):
        mask: Tensor | None = every.mask
    else:
        # `_inward` puts 0 at the steps that read no slot; the shift by 1 makes that a factor of 1
        own, mask = every._inward(own - 1) + 1, every._mask
    values = _of_templates(every, own if mask is None else torch.where(mask, own, 0))  # (templates, n*b)
    return values.gather(0, every.template[None])[0].view(count, b)


def _of_templates(candidates: Lattice | Formula, weights: Tensor) -> Tensor:
    """The weighted count of each template, `(templates, b)`."""
    if isinstance(candidates, Formula):
        return candidates.compiled.weighted_counts(weights, PRIME).T
    graph = candidates.graph
    return torch.cat([_of_graph(graph, weights[part]) for part in graph.pieces(len(weights))], dim=1)


def _of_graph(graph: StateGraph, weights: Tensor) -> Tensor:
    ways = weights.new_ones(1, len(weights))  # (states, b)
    total = weights.new_zeros(len(graph.targets) + 1, len(weights))
    columns = weights_of(graph.layers, weights.permute(1, 2, 0))  # (a, b) each
    for depth, (layer, column) in enumerate(zip(graph.layers, columns, strict=True), start=1):
        arcs = (ways[:, None] * column).remainder_(PRIME).flatten(0, 1)  # (states * a, b)
        reached = weights.new_zeros(graph.sizes[depth] + 1, len(weights))
        ways = reached.index_add_(0, layer.next.view(-1), arcs)[:-1].remainder_(PRIME)
        if depth in graph.depths:
            total.index_add_(0, graph.ends[depth] % len(total), ways)  # the last row collects states that are no end
    return total[:-1].remainder_(PRIME)
