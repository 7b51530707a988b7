"""Optimal prunings without a solver (facts 2 and 3 of docs/mathematics.md), for a whole batch at once.

Each method finds, as a bit mask, the edges of each sample that are **dropped**. A candidate survives if it contradicts
dropped edges only.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from clipper.arguments import widest_float
from clipper.candidates import Candidates
from clipper.candidates.packed import occurrences
from clipper.pruning.consistency import BITS, Conflicts

TABLE_WIDTH = 12
"""Up to this many edges per sample, count with a table of all 2^edges masks; beyond, with the masks that occur."""

PRODUCT_WIDTH = 6
"""Up to this many edges per sample, subsets are counted by one matrix product."""

SET_WIDTH = 4
"""Up to this many edges per sample, all 2^2^edges sets of masks are tabulated."""

_CELLS = 1 << 24
"""Table cells, or pairs of masks, held at a time."""


def survivors(candidates: Candidates, found: Conflicts, objective: str) -> Tensor:
    """Which candidates an optimal pruning keeps, `(Ω,)` bool.

    "exact" solves Problem 3.6: as few survivors as possible. If the edges S are dropped, the candidates whose
    conflicts all lie in S survive. Some candidate must survive, so the best S is the set of conflicts of one
    candidate: the one whose set contains those of the fewest other candidates.

    "paper" solves equation (1) as printed. There, two edges that reject a common candidate must be chosen or dropped
    together. Edges tied in this way form classes, and the classes reject disjoint blocks of candidates. If some
    candidate has no conflict, all blocks are discarded. Otherwise the smallest block is kept, and its edges are
    dropped.
    """
    samples, width = candidates.samples, max(1, found.width)
    if width > TABLE_WIDTH:
        if objective == "exact":
            dropped = _exact_by_pairs(candidates, found)  # (n, words)
        else:
            dropped = _paper_by_classes(samples, width, *occurring(candidates, found))
        chosen = ~dropped.to(found.words[0].dtype).index_select(0, candidates.sample)
        return ((found.masks & chosen) == 0).all(1)
    if samples << width > _CELLS and samples > 1:
        half = samples // 2
        cut = int(candidates.offsets[half])
        mask = found.words[0]
        parts = (candidates.span(0, half), mask[:cut]), (candidates.span(half, samples), mask[cut:])
        return torch.cat([survivors(part, Conflicts([words], width), objective) for part, words in parts])
    mask = found.words[0]
    cell = torch.add(mask, candidates.sample, alpha=1 << width)
    count = occurrences(cell, samples << width).view(samples, 1 << width)
    if objective == "exact":
        dropped = _exact_by_table(count, width)
    elif width <= SET_WIDTH:
        dropped = _paper_by_table(count, width)
    else:
        sample, masks = count.nonzero(as_tuple=True)
        dropped = _paper_by_classes(samples, width, sample, masks[:, None], count[sample, masks])
    if width <= PRODUCT_WIDTH:
        inside = _subsets(width, count.device).index_select(0, dropped[:, 0])  # (n, 2^width)
    else:
        inside = (_every_mask(width, count.device) & ~dropped) == 0
    return inside.view(-1).index_select(0, cell)


@lru_cache(maxsize=32)
def _every_mask(width: int, device: torch.device) -> Tensor:
    return torch.arange(1 << width, device=device)


def occurring(candidates: Candidates, found: Conflicts) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct masks of each sample: `sample (D,)` ascending, `masks (D, words)`, `count (D,)` of candidates."""
    rows = torch.cat([candidates.sample[:, None], found.masks], dim=1)
    rows, count = torch.unique(rows, dim=0, return_counts=True)
    return rows[:, 0].contiguous(), rows[:, 1:], count


def _exact_by_table(count: Tensor, width: int) -> Tensor:
    """The mask with the fewest survivors, `(n, 1)`; among equals, that which drops the fewest, then the longest edges.

    Args:
        count: how many candidates have each mask, `(n, 2^width)`.
        width: bits of a mask.
    """
    if width <= PRODUCT_WIDTH and widest_float(count.device) == torch.float64:  # which holds whole numbers exactly
        tie, inside = _prices(width, count.device)
        price = torch.addmm(tie, count.double(), inside)
    else:
        price = _count_subsets(count, width) * ((width + 1) << width) + _tie_break(width, count.device)
    return price.masked_fill_(count == 0, 1 << 62).argmin(1, keepdim=True)


@lru_cache(maxsize=16)
def _prices(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """`_tie_break`, and a matrix: the price of a candidate with the row's mask if the column's contains it, else 0."""
    price = (width + 1) << width  # more than any tie break
    return _tie_break(width, device).double(), _subsets(width, device).T.double() * price


@lru_cache(maxsize=16)
def _subsets(width: int, device: torch.device) -> Tensor:
    """For each mask which masks lie inside it, `(2^width, 2^width)` bool."""
    mask = _every_mask(width, device)
    return (mask & ~mask[:, None]) == 0


def _count_subsets(count: Tensor, width: int) -> Tensor:
    """How many candidates have conflicts inside each mask, from how many have just that mask; `(n, 2^width)`."""
    total = count.clone()
    for bit in range(width):
        halves = total.view(len(total), -1, 2, 1 << bit)
        halves[:, :, 1].add_(halves[:, :, 0])
    return total


@lru_cache(maxsize=32)
def _tie_break(width: int, device: torch.device) -> Tensor:
    """A number below (width+1)·2^width for each mask: it sorts masks by their number of edges, then largest first."""
    mask = _every_mask(width, device)
    dropped = sum(((mask >> bit) & 1 for bit in range(width)), torch.zeros_like(mask))
    return (dropped << width) + (len(mask) - 1 - mask)


def _exact_by_pairs(candidates: Candidates, found: Conflicts) -> Tensor:
    """Compare the masks that occur in each sample with one another."""
    sample, masks, count = occurring(candidates, found)
    survivors = _survivors_of_each(candidates.samples, sample, masks, count)
    order = torch.arange(len(sample), device=sample.device)
    keys = [*(-masks.T), _popcount(masks), survivors, sample]  # least significant first; words ascend with distance
    for key in keys:
        order = order[key[order].argsort(stable=True)]
    first = torch.searchsorted(sample, torch.arange(candidates.samples, device=sample.device))
    return masks[order[first.clamp(max=len(order) - 1)]]  # a sample without candidates may take any mask


def _survivors_of_each(samples: int, sample: Tensor, masks: Tensor, count: Tensor) -> Tensor:
    """For each distinct mask, how many candidates of its sample have conflicts inside it, `(D,)`."""
    size = occurrences(sample, samples)
    start = torch.cat([size.new_zeros(1), size.cumsum(0)])
    survivors = torch.zeros_like(count)
    for outer, pairs in _pieces(size[sample]):
        mine = torch.repeat_interleave(outer, size[sample[outer]], output_size=pairs)
        place = torch.arange(len(mine), device=mine.device) - torch.searchsorted(mine, mine)
        other = start[sample[mine]] + place
        inside = ((masks[other] & ~masks[mine]) == 0).all(1)
        survivors.index_add_(0, mine, count[other] * inside)
    return survivors


def _pieces(cost: Tensor) -> list[tuple[Tensor, int]]:
    """Row numbers in runs of bounded total cost, and what each run costs."""
    total, ids = cost.cumsum(0), torch.arange(len(cost), device=cost.device)
    whole = int(total[-1]) if len(cost) else 0
    if whole < _CELLS:
        return [(ids, whole)]
    runs = torch.split(ids, torch.unique_consecutive(total // _CELLS, return_counts=True)[1].tolist())
    return [(run, int(cost[run].sum())) for run in runs]


def _popcount(masks: Tensor) -> Tensor:
    return sum((((masks >> bit) & 1).sum(1) for bit in range(BITS)), torch.zeros_like(masks[:, 0]))


def _paper_by_classes(samples: int, width: int, sample: Tensor, masks: Tensor, count: Tensor) -> Tensor:
    """Equation (1): the tied edges with the smallest block, if every candidate has a conflict, `(n, words)`."""
    bits = _unpacked(masks, width)  # (D, width)
    leader = _tied(samples, sample, bits)  # (n, width)
    block = _block(bits, leader[sample])  # (D,)
    size = torch.zeros(samples, width + 1, dtype=torch.long, device=sample.device)  # the last: candidates without edge
    size.view(-1).index_add_(0, sample * (width + 1) + block, count)
    chosen = _smallest_class(size[:, :width], _tie_of_classes(leader))
    return _packed((leader == chosen) & (size[:, width:] == 0), masks.shape[1])


def _paper_by_table(count: Tensor, width: int) -> Tensor:
    """As `_paper_by_classes`, `(n, 1)`, with a precomputed table over all sets of masks.

    Args:
        count: how many candidates have each mask, `(n, 2^width)`.
        width: bits of a mask.
    """
    weight, block, tie, edges = _every_set(width, count.device)
    occurs = ((count > 0) * weight).sum(1)  # (n,): the set, as a number
    size = torch.zeros(len(count), width + 1, dtype=torch.long, device=count.device)
    size.scatter_add_(1, block.index_select(0, occurs), count)
    chosen = _smallest_class(size[:, :width], tie.index_select(0, occurs))
    return edges.index_select(0, occurs).gather(1, chosen) * (size[:, width:] == 0)


@lru_cache(maxsize=16)
def _every_set(width: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each mask's weight in the index of a set, `(2^width,)`; for each set: blocks, ties and edges of classes."""
    mask = _every_mask(width, device)
    sets = torch.arange(1 << len(mask), device=device)
    number, member = ((sets[:, None] >> mask) & 1).nonzero(as_tuple=True)
    leader = _tied(len(sets), number, _unpacked(member[:, None], width))  # (sets, width)
    block = _block(_unpacked(mask[:, None], width), leader[:, None])  # (sets, 2^width)
    bits = (torch.ones(width, dtype=torch.long, device=device) << torch.arange(width, device=device)).expand_as(leader)
    edges = torch.zeros_like(leader).scatter_add_(1, leader, bits)  # (sets, width)
    return torch.ones_like(mask) << mask, block, _tie_of_classes(leader), edges


def _block(bits: Tensor, leader: Tensor) -> Tensor:
    """The class of edges that a mask belongs to, named by its lowest edge; the number of edges if there is none."""
    return torch.where(bits, leader, bits.shape[-1]).amin(-1)


def _tied(samples: int, sample: Tensor, bits: Tensor) -> Tensor:
    """The connected components of edges that share a conflict, each named by its lowest edge, `(n, width)`."""
    width = bits.shape[1]
    if width <= TABLE_WIDTH:
        return _tied_by_products(samples, sample, bits)
    leader = torch.arange(width, device=bits.device).repeat(samples, 1)
    row, edge = bits.nonzero(as_tuple=True)  # one entry per (mask, edge in it)
    cell = sample[row] * width + edge
    while True:
        lowest = _block(bits, leader[sample])  # (D,)
        lower = leader.view(-1).scatter_reduce(0, cell, lowest[row], "amin").view_as(leader)
        if torch.equal(lower, leader):
            return leader
        leader = lower


def _tied_by_products(samples: int, sample: Tensor, bits: Tensor) -> Tensor:
    """As `_tied`, for few edges: repeated squaring of the adjacency matrix gives the connected components."""
    width = bits.shape[1]
    edge = torch.arange(width, device=bits.device)
    lowest = torch.where(bits, edge, width).amin(1).clamp(max=width - 1)  # (D,): all edges of a mask are tied to it
    tied = torch.zeros(samples * width, width, device=bits.device).index_add_(0, sample * width + lowest, bits.float())
    tied = tied.view(samples, width, width)
    tied = (tied + tied.mT + torch.eye(width, device=bits.device)).clamp_(max=1)
    for _ in range((width - 1).bit_length()):
        tied = (tied @ tied).clamp_(max=1)
    return torch.where(tied > 0, edge, width).amin(2)


def _smallest_class(size: Tensor, tie: Tensor) -> Tensor:
    """The class with the smallest block, `(n, 1)`; an edge that leads no class has no block."""
    width = size.shape[1]
    price = size * (width + 1) ** 2 + tie
    return price.masked_fill_(size == 0, torch.iinfo(torch.long).max).argmin(1, keepdim=True)


def _tie_of_classes(leader: Tensor) -> Tensor:
    """Prefer to drop fewer edges, then more distant ones: a number below (width+1)² for each class, `(n, width)`."""
    width = leader.shape[1]
    bit = torch.arange(width, device=leader.device).expand_as(leader)
    members = torch.zeros_like(leader).scatter_add_(1, leader, torch.ones_like(leader))
    farthest = torch.zeros_like(leader).scatter_reduce_(1, leader, bit, "amax")  # classes are disjoint: no two equal
    return members * (width + 1) + (width - farthest)


def _unpacked(masks: Tensor, width: int) -> Tensor:
    bit = torch.arange(width, device=masks.device)
    return ((masks[:, bit // BITS] >> (bit % BITS)) & 1).bool()


def _packed(bits: Tensor, words: int) -> Tensor:
    bit = torch.arange(bits.shape[1], device=bits.device)
    masks = torch.zeros(len(bits), words, dtype=torch.long, device=bits.device)
    return masks.index_add_(1, bit // BITS, bits.long() << (bit % BITS))
