"""Equation (1) and Problem 3.6 as integer programs, free of any solver.

The columns are I (one per candidate: it survives) and E (one per edge: it is chosen). The paper's I′ is 1 − I and
needs no column: maximising ΣI′ is minimising ΣI. Every pair of an edge and a candidate of its source sample is
looked at by itself, deliberately unlike the bit masks of the closed forms, which these programs are there to check.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.proximity import ProximityGraph

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Program:
    """Minimise cost · x with lower ≤ x ≤ upper whole and row_lower ≤ matrix · x ≤ row_upper; the matrix is sparse."""

    cost: Array
    lower: Array
    upper: Array
    row_lower: Array
    row_upper: Array
    start: Array
    """Where each row's entries begin, one more than there are rows."""
    column: Array
    """The column of each entry; every entry's coefficient is 1."""


def program(candidates: Candidates, graph: ProximityGraph, rejects: Tensor, objective: str) -> Program:
    """The integer program of a pruning; `rejects (E, c)` as from `edge_rejects`."""
    candidate, edge = inconsistent_pairs(candidates, graph, rejects)
    omega, edges = len(candidates), len(graph)
    conflicted = np.zeros(omega, dtype=bool)
    conflicted[candidate] = True
    sound = _rows(candidates.offsets.diff().cpu().numpy(), np.arange(omega), 1.0, np.inf)  # ΣI ≥ 1 for each sample
    pairs = np.stack([candidate, omega + edge], axis=1).ravel()
    if objective == "paper":
        blocks = [sound, _rows(np.full(len(edge), 2), pairs, 1.0, 1.0)]  # E + I = 1
    else:
        blocks = [
            sound,
            _rows(np.full(len(edge), 2), pairs, -np.inf, 1.0),  # I ≤ 1 − E
            _at_least_one(candidate, omega + edge, conflicted),  # I ≥ 1 − ΣE
        ]
    row_lower, row_upper, start, column = _stacked(blocks)
    return Program(
        cost=np.concatenate([np.ones(omega), np.zeros(edges)]),
        lower=np.concatenate([~conflicted, np.zeros(edges)]).astype(float),  # globally consistent: I = 1
        upper=np.ones(omega + edges),
        row_lower=row_lower,
        row_upper=row_upper,
        start=start,
        column=column,
    )


def inconsistent_pairs(candidates: Candidates, graph: ProximityGraph, rejects: Tensor) -> tuple[Array, Array]:
    """Every (candidate, edge) that contradict each other, sorted by candidate."""
    sample, slot = graph.source // candidates.slots, graph.source % candidates.slots
    counts = candidates.offsets.diff()[sample]  # (E,): candidates that the edge could act on
    edge = torch.repeat_interleave(counts)
    place = torch.arange(len(edge), device=edge.device) - (counts.cumsum(0) - counts)[edge]
    candidate = candidates.offsets[sample[edge]] + place
    label = candidates.labels[candidate, slot[edge]].long()
    clash = rejects[edge, label] & (label >= 0)
    candidate, edge = candidate[clash], edge[clash]
    order = candidate.argsort(stable=True)
    return candidate[order].cpu().numpy(), edge[order].cpu().numpy()


_Block = tuple[Array, Array, float, float]


def _rows(sizes: Array, column: Array, lower: float, upper: float) -> _Block:
    return sizes, column, lower, upper


def _at_least_one(candidate: Array, edge_column: Array, conflicted: Array) -> _Block:
    """For each conflicted candidate the row I + ΣE ≥ 1."""
    own = conflicted.nonzero()[0]
    rows = np.concatenate([own, candidate])
    order = np.argsort(rows, kind="stable")
    column = np.concatenate([own, edge_column])[order]
    return _rows(np.bincount(rows, minlength=len(conflicted))[own], column, 1.0, np.inf)


def _stacked(blocks: list[_Block]) -> tuple[Array, Array, Array, Array]:
    sizes = np.concatenate([block[0] for block in blocks])
    lower = np.concatenate([np.full(len(block[0]), block[2]) for block in blocks])
    upper = np.concatenate([np.full(len(block[0]), block[3]) for block in blocks])
    column = np.concatenate([block[1] for block in blocks]).astype(np.int32)
    return lower, upper, np.concatenate([[0], sizes.cumsum()]).astype(np.int32), column
