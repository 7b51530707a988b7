"""Condensing: the states behind a list of candidates, found by merging beginnings that can be continued alike."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from clipper.candidates.lattices.graph import StateGraph
from clipper.candidates.lattices.trimming import trimmed
from clipper.candidates.table import Candidates


def templates_of(candidates: Candidates) -> tuple[Tensor, Tensor]:
    """Which formula each sample has, `(n,)`, counted by first appearance, and the first sample of each, `(templates,)`.

    Samples have the same formula if they list the same candidates in the same order.

    Examples:
        >>> candidates = Candidates.from_lists([[(1,)], [(0,), (1,)], [(1,)], [(1,), (0,)]], classes=2)
        >>> [part.tolist() for part in templates_of(candidates)]
        [[0, 1, 0, 2], [0, 1, 3]]
    """
    row = torch.arange(len(candidates), device=candidates.device) - candidates.offsets[candidates.sample]
    alike = torch.unique(_digest(candidates, row), dim=0, return_inverse=True)[1]
    every = torch.arange(candidates.samples, device=alike.device)
    first = torch.full_like(every, len(every)).scatter_reduce_(0, alike, every, "amin")[alike]
    same = candidates.labels == candidates.labels[candidates.offsets[first[candidates.sample]] + row]
    differs = torch.zeros_like(every).index_add_(0, candidates.sample, (~same).any(1).long())
    first = torch.where(differs == 0, first, every)  # digests of different lists may agree, once in a long while
    firsts, template = torch.unique(first, return_inverse=True)
    return template, firsts


def _digest(candidates: Candidates, row: Tensor) -> Tensor:
    """Numbers that are equal for equal lists of candidates, and hardly ever otherwise, `(n, 2)`: how many, and a hash.

    Args:
        candidates: the lists.
        row: each candidate's place in its list, `(Ω,)`.
    """
    counts = candidates.offsets.diff()
    factors = torch.randint(1, 2**40, (candidates.slots,), generator=torch.Generator().manual_seed(0)).tolist()
    code = torch.zeros_like(row)  # (Ω,), modulo 2⁶⁴, as all that follows
    for slot, factor in enumerate(factors):  # one after the other, so that memory stays bounded
        code.add_(candidates.labels[:, slot] + 2, alpha=factor)
    code = code * (2 * row + 3) ^ (code >> 7) * (row + 1)
    total = torch.zeros_like(counts).index_add_(0, candidates.sample, code)
    return torch.stack([counts, total], dim=1)


def condensed(listed: Candidates) -> StateGraph | None:
    """The smallest graph with a template for each of the samples; None if two of them share a candidate.

    Beginnings of candidates are one state if the same endings lead from them to the same templates. These are found
    from the end on, when the states behind have their numbers.

    Examples:
        >>> graph = condensed(Candidates.from_rule(max, targets=[0, 1, 2], slots=3, classes=3))
        >>> graph.sizes, graph.arcs  # the largest label so far is all that matters
        ((1, 3, 3, 3), 21)
    """
    rows, place = torch.unique(listed.labels.long(), dim=0, return_inverse=True)
    if len(rows) < len(listed):
        return None
    template = torch.empty_like(place).scatter_(0, place, listed.sample)  # of each row, (Ω,)
    tables, ends = _merged(rows, template, listed.classes)
    taken = [(table >= 0).any(0) for table in tables]
    labels = [some.nonzero()[:, 0] for some in taken]
    layers, kept = trimmed(labels, [table[:, some] for table, some in zip(tables, taken, strict=True)], ends)
    lengths = (listed.first >= 0).sum(1)
    return StateGraph(tuple(layers), tuple(kept), tuple(range(listed.samples)), lengths, listed.classes)


def _merged(rows: Tensor, template: Tensor, classes: int) -> tuple[list[Tensor], list[Tensor]]:
    """For each slot, where each label leads from each state, `(states, c)`; for each depth, what ends in each state.

    Args:
        rows: all candidates in lexicographic order, `(Ω, m)`.
        template: whose each of them is, `(Ω,)`.
        classes: the number of labels, `c`.
    """
    slots, lengths = rows.shape[1], (rows >= 0).sum(1)
    differs = (rows[1:] != rows[:-1]).cumsum(1) > 0  # from the row before, within the first labels
    beginning = pad(differs, (1, 0, 1, 0)).cumsum(0)  # (Ω, m+1): the number of each row's first labels, at each depth
    state = torch.zeros_like(template)
    states: list[Tensor] = []
    for depth in reversed(range(slots + 1)):
        table = rows.new_full((int(beginning[-1, depth]) + 1, classes + 1), -1)
        ending, going = lengths == depth, lengths > depth
        table[beginning[ending, depth], classes] = template[ending]
        if depth < slots:
            table[beginning[going, depth], rows[going, depth]] = state[going]
        merged, number = torch.unique(table, dim=0, return_inverse=True)
        state = number[beginning[:, depth]]
        states.insert(0, merged)
    return [table[:, :classes] for table in states[:-1]], [table[:, classes] for table in states]
