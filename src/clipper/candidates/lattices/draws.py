"""Candidates drawn at random, each draw from the exact distribution: forward from the start, label by label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clipper.candidates.base import check_nonempty
from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.logarithms import centred, log_behind

if TYPE_CHECKING:
    from clipper.candidates.lattice import Lattice

_FEW = 4
"""Samples with fewer than so many times the wanted candidates are listed, and theirs are picked from the list."""
_CELLS = 1 << 23
"""Draws times labels held at a time."""


def draw(
    graph: StateGraph,
    template: Tensor,
    logs: Tensor,
    behind: list[Tensor],
    column: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """One candidate for each entry of `column (d,)`, with probability ∝ the product of its weights, `(d, m)`.

    Args:
        graph: the states of the rule.
        template: a target and length for each of `n` columns, `(n,)`.
        logs: what each label weighs, `(n, m, c)`; every column has a candidate that is possible.
        behind: as `log_behind` gives it for these.
        column: which of the columns each draw is from.
        generator: on the CPU, so that a seed gives the same draws everywhere.
    """
    state = torch.zeros_like(column)
    length = graph.lengths[template][column]
    noise = torch.rand(graph.slots, len(column), generator=generator, dtype=torch.float64).to(logs.device)
    labels = []
    for depth, layer in enumerate(graph.layers):
        following = layer.next.index_select(0, state)  # (d, a)
        weight = logs[:, depth].index_select(1, layer.labels).index_select(0, column)  # (d, a)
        share = (weight + behind[depth + 1][following, column[:, None]]).softmax(1)
        arc = _chosen(share, noise[depth])[:, None]  # NaN past the end, where any arc will do
        labels.append(torch.where(depth < length, layer.labels[arc[:, 0]], -1))
        state = following.gather(1, arc)[:, 0].clamp(max=graph.sizes[depth + 1] - 1)  # past the end, any will do
    return torch.stack(labels, dim=1)


def uniform(lattice: Lattice, per_sample: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """At most `per_sample` candidates of each sample without replacement: `labels (rows, m)`, `sample (rows,)`."""
    few = torch.tensor([count < _FEW * per_sample for count in lattice.counts], device=lattice.device)
    parts = []
    if bool(few.any()):
        ids = few.nonzero()[:, 0]
        seed = int(torch.randint(2**62, (), generator=generator))
        picked = lattice.batch(ids).to_candidates(budget=_FEW * per_sample * len(ids))
        picked = picked.draw(per_sample, seed)
        parts.append((picked.labels.long(), ids[picked.sample]))
    left, draws = (~few).nonzero()[:, 0], 2 * per_sample + 8
    while len(left):  # a sample that drew too few different ones draws anew, and more: all sets stay equally likely
        labels, sample = by_weight(lattice.batch(left), draws, generator, None)
        rank = _rank(sample)
        enough = torch.bincount(sample, minlength=len(left)) >= per_sample
        keep = (rank < per_sample) & enough[sample]
        parts.append((labels[keep], left[sample[keep]]))
        left, draws = left[~enough], 2 * draws
    return torch.cat([labels for labels, _ in parts]), torch.cat([sample for _, sample in parts])


def by_weight(lattice: Lattice, draws: int, generator: torch.Generator, logs: Tensor | None) -> tuple[Tensor, Tensor]:
    """`draws` candidates of each sample with replacement, repetitions dropped; weights `logs (n, m, c)` or none."""
    largest = max(1, _CELLS // (draws * lattice.classes))
    parts = []
    for ids in torch.split(torch.arange(lattice.samples, device=lattice.device), largest):
        for part in lattice.graph.pieces(len(ids)):
            labels, sample = _piece(lattice, ids[part], draws, generator, logs)
            keep = _first_of_equals(labels, sample)
            parts.append((labels[keep], sample[keep]))
    return torch.cat([labels for labels, _ in parts]), torch.cat([sample for _, sample in parts])


def _piece(
    lattice: Lattice, ids: Tensor, draws: int, generator: torch.Generator, logs: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The draws of the samples `ids (n,)`; where only the target matters, samples share their columns."""
    template, column = lattice.template[ids], torch.arange(len(ids), device=ids.device)
    if logs is None and lattice.allowed is None:
        template, column = torch.unique(template, return_inverse=True)
        weights = torch.zeros(len(template), lattice.slots, lattice.graph.classes, device=ids.device).double()
    else:
        weights = lattice.weights(logs, ids)
    weights, _ = centred(lattice.graph, template, weights)
    behind = log_behind(lattice.graph, template, weights)
    ruled_out = behind[0][0] == -torch.inf
    if logs is not None and bool(ruled_out.any()):  # nothing to go by: each of the sample's candidates is as good
        weights[ruled_out] = lattice.weights(None, ids[ruled_out])
        behind = log_behind(lattice.graph, template, weights)
        ruled_out = behind[0][0] == -torch.inf
    check_nonempty((~ruled_out).long())
    labels = draw(lattice.graph, template, weights, behind, column.repeat_interleave(draws), generator)
    sample = ids.repeat_interleave(draws)
    return lattice.outward(labels, sample), sample


def _chosen(share: Tensor, noise: Tensor) -> Tensor:
    """The place at which each row's running sum passes the `noise (d,)` in 0 … 1, `(d,)`."""
    steps = share.cumsum(1)
    below = (steps <= noise[:, None] * steps[:, -1:]).sum(1)
    last = share.shape[1] - 1 - (share > 0).flip(1).long().argmax(1)  # rounding must not choose what weighs nothing
    return torch.minimum(below, last)


def _first_of_equals(labels: Tensor, sample: Tensor) -> Tensor:
    """The rows that are not drawn again, as ascending row numbers; two rows are taken as equal if their codes are."""
    generator = torch.Generator().manual_seed(0)
    factor = torch.randint(-(2**62), 2**62, (labels.shape[1] + 1,), generator=generator) * 2 + 1
    codes = (torch.cat([labels, sample[:, None]], dim=1) * factor.to(labels.device)).sum(1)  # modulo 2^64
    _, group = torch.unique(codes, return_inverse=True)
    row = torch.arange(len(codes), device=codes.device)
    first = torch.full_like(row, len(row)).scatter_reduce_(0, group, row, "amin")
    return first[first < len(row)].sort().values


def _rank(sample: Tensor) -> Tensor:
    """Each row's place among those of its sample, in order; `sample (rows,)` ascending."""
    return torch.arange(len(sample), device=sample.device) - torch.searchsorted(sample, sample)
