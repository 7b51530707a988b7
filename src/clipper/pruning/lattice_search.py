"""Pruning of a set whose candidates are not listed. A pruning only forbids labels, so no list is needed.

Choosing more edges never keeps more candidates. So if a candidate is consistent with all edges of its sample, choosing
all of them is best. Otherwise the sample is **contested**, and the choices of its edges are searched. Edges that
forbid the same labels are chosen or dropped together, as a **bundle**. The search runs on the CPU; the set counts, on
its own device and for many choices at once, the candidates that each would leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning.consistency import by_sample_then_reach, edge_rejects, labels_left
from clipper.pruning.result import Pruning, Set

MOST_BUNDLES = 12
"""Up to this many bundles of a sample, all sets of them are tried; with more, the search is greedy."""
_CELLS = 1 << 24
"""Largest number of entries of the tables of allowed labels that are processed together."""


def prune_lattice(
    lattice: Set, graph: ProximityGraph, support: Tensor, objective: str = "exact", solver: str = "closed-form"
) -> Pruning[Set]:
    """As `prune_along`, for a lattice; `support (N*m, c)` of the graph's targets.

    Examples:
        >>> from clipper import Lattice
        >>> from clipper.candidates.rules import SUM
        >>> lattice = Lattice.from_rule(*SUM, targets=[8, 2, 16], slots=2, classes=10)
        >>> graph = ProximityGraph.from_edges([0, 0], [2, 4])  # x₁ is close to x′₁ and to x″₁
        >>> prune_lattice(lattice, graph, lattice.support)
        Pruning(7 of 15 candidates discarded, 1 of 2 edges chosen)
    """
    _check(objective, solver)
    rejects = edge_rejects(support, graph)  # (E, c)
    effective = rejects & lattice.support.index_select(0, graph.source)
    active = by_sample_then_reach(graph, effective.any(1).nonzero()[:, 0], lattice.slots)
    chosen = torch.ones_like(graph.source, dtype=torch.bool)
    contested = _contested(lattice, graph, support, active, effective)
    bounds: dict[int, int] = {}
    dropped: list[int] = []  # places among the active edges
    if contested:
        decide = best_choices if objective == "exact" else smallest_blocks
        choices = decide(lattice, list(contested.values()))
        for (own, sample), (taken, bound) in zip(contested.items(), choices, strict=True):
            for places, kept in zip(sample.edges, taken, strict=True):
                dropped += [] if kept else [own + place for place in places]
            if bound is not None:
                bounds[sample.sample] = bound
        chosen[active[torch.tensor(dropped, dtype=torch.long, device=active.device)]] = False
    allowed = labels_left(lattice, graph, support, chosen)
    return Pruning(
        lattice, graph, support, edges=chosen, allowed=allowed, open_bounds=bounds,
        unchanged=len(dropped) == len(active),
    )  # fmt: skip


def _contested(
    lattice: CandidateSet, graph: ProximityGraph, support: Tensor, active: Tensor, effective: Tensor
) -> dict[int, Contested]:
    """The samples that all edges together would leave no candidate, by the position of their first active edge."""
    if not len(active):
        return {}
    edges = torch.cat([graph.source[active, None], effective[active].long()], 1).cpu()
    source, forbidden = edges[:, 0], edges[:, 1:].bool()
    involved, count = torch.unique_consecutive(source // lattice.slots, return_counts=True)
    everything = labels_left(lattice, graph, support, torch.ones_like(graph.source, dtype=torch.bool))
    own = involved.to(lattice.device)
    tables = everything.view(lattice.samples, -1)[own].view(-1, lattice.classes)
    left = lattice.select(own).narrowed(tables).possible().tolist()
    result = {}
    ends = list(accumulate(count.tolist()))
    for number, start, stop, some in zip(involved.tolist(), [0, *ends[:-1]], ends, left, strict=True):
        if not some:
            forbids = torch.zeros(stop - start, lattice.slots, lattice.classes, dtype=torch.bool)
            forbids[torch.arange(stop - start), source[start:stop] % lattice.slots] = forbidden[start:stop]
            result[start] = Contested.from_edges(number, forbids.flatten(1))
    return result


def _check(objective: str, solver: str) -> None:
    if objective not in ("exact", "paper"):
        raise InputError(f'expected the objective "exact" or "paper" for pruning sample by sample, got {objective!r}')
    if solver != "closed-form":
        raise InputError(
            f'expected solver="closed-form" for a lattice, got {solver!r}; an integer program lists every candidate: '
            "use lattice.to_candidates() where they are few"
        )


@dataclass(frozen=True, eq=False)
class Contested:
    """A sample that loses its last candidate if all its edges are chosen.

    Attributes:
        sample: its number.
        forbids: `(bundles, m*c)` bool, on the CPU: the labels that each bundle forbids, nearest bundle first.
        edges: the indices of each bundle's edges among the sample's active ones, which ascend with distance.
    """

    sample: int
    forbids: Tensor
    edges: list[list[int]]

    @classmethod
    def from_edges(cls, sample: int, forbids: Tensor) -> Contested:
        """Bundle the active edges of a sample, `forbids (edges, m*c)`."""
        effects, bundle = torch.unique(forbids, dim=0, return_inverse=True)
        members: list[list[int]] = [[] for _ in effects]
        for place, i in enumerate(bundle.tolist()):
            members[i].append(place)
        order = sorted(range(len(members)), key=lambda i: members[i])
        return cls(sample, effects[order], [members[i] for i in order])

    def price(self, chosen: Sequence[bool], count: int) -> tuple[int, int, int]:
        """The objective to minimise: candidates left, then edges dropped, then how near the dropped edges are."""
        dropped = [place for places, taken in zip(self.edges, chosen, strict=True) if not taken for place in places]
        return count, len(dropped), -sum(1 << place for place in dropped)

    def allowed(self, sets: Tensor) -> Tensor:
        """The labels that sets of bundles leave, `(sets, m*c)` bool; `sets (sets, bundles)` bool."""
        return (sets.double() @ self.forbids.double()) == 0

    def both(self, pairs: Tensor, slots: int) -> Tensor:
        """The labels of the candidates that contradict both bundles of each pair, `(pairs, m*c)` bool."""
        table = self.forbids.view(len(self.forbids), slots, -1)
        confined = (table | ~table.any(2, keepdim=True)).flatten(1)  # a bundle's own slot, to what it forbids
        return confined[pairs[:, 0]] & confined[pairs[:, 1]]


Choice = tuple[list[bool], int | None]
"""Which bundles are chosen; and, unless the choice is proved optimal, a lower bound on the candidates left."""


def best_choices(lattice: CandidateSet, samples: Sequence[Contested]) -> list[Choice]:
    """Problem 3.6 for each contested sample: solved exactly for few bundles, else the best choice found and a bound."""
    few = [i for i, sample in enumerate(samples) if len(sample.edges) <= MOST_BUNDLES]
    many = [i for i in range(len(samples)) if i not in set(few)]
    choices: dict[int, Choice] = {}
    for ids, method in ((few, _by_all_sets), (many, _nearest_first)):
        if ids:
            choices.update(zip(ids, method(lattice, [samples[i] for i in ids]), strict=True))
    return [choices[i] for i in range(len(samples))]


def _by_all_sets(lattice: CandidateSet, samples: Sequence[Contested]) -> list[Choice]:
    """Try all sets of bundles to which no bundle can be added; the best choice is one of them."""
    every = [_subsets(len(sample.edges)) for sample in samples]
    tables = [sample.allowed(sets) for sample, sets in zip(samples, every, strict=True)]
    largest = [sets[_maximal(sound)] for sets, sound in zip(every, _possible(lattice, samples, tables), strict=True)]
    tables = [sample.allowed(sets) for sample, sets in zip(samples, largest, strict=True)]
    choices: list[Choice] = []
    for sample, sets, counts in zip(samples, largest, _counts(lattice, samples, tables), strict=True):
        options = zip(sets.tolist(), counts, strict=True)
        choices.append((min(options, key=lambda option: sample.price(*option))[0], None))
    return choices


def _nearest_first(lattice: CandidateSet, samples: Sequence[Contested]) -> list[Choice]:
    """Add bundles greedily, the nearest first, while a candidate is left. The bound: what all bundles but one leave."""
    sets = [chosen[None] for chosen in _added_one_by_one(lattice, samples)]
    without = [~torch.eye(len(sample.edges), dtype=torch.bool) for sample in samples]
    trials = [torch.cat(pair) for pair in zip(sets, without, strict=True)]
    counted = _counts(lattice, samples, [s.allowed(trial) for s, trial in zip(samples, trials, strict=True)])
    return [
        (chosen[0].tolist(), None if count <= max(1, min(rest)) else max(1, min(rest)))
        for chosen, (count, *rest) in zip(sets, counted, strict=True)
    ]


def _added_one_by_one(lattice: CandidateSet, samples: Sequence[Contested]) -> list[Tensor]:
    """The bundles of each sample that the greedy search adds, `(bundles,)` bool each."""
    sizes = [len(sample.edges) for sample in samples]
    forbids = torch.nn.utils.rnn.pad_sequence([sample.forbids for sample in samples], batch_first=True)
    forbids = forbids.to(lattice.device)
    own = lattice.batch([sample.sample for sample in samples])
    left = torch.ones_like(forbids[:, 0])  # (samples, m*c)
    chosen = torch.zeros_like(forbids[:, :, 0])  # (samples, bundles)
    for place in range(max(sizes)):
        tried = left & ~forbids[:, place]
        sound = own.narrowed(tried.view(-1, lattice.classes)).possible()
        left = torch.where(sound[:, None], tried, left)
        chosen[:, place] = sound
    return [row[:size] for row, size in zip(chosen.cpu(), sizes, strict=True)]


def smallest_blocks(lattice: CandidateSet, samples: Sequence[Contested]) -> list[Choice]:
    """Equation (1) as printed: drop the class of tied bundles with the smallest block in each contested sample."""
    pairs = [torch.combinations(torch.arange(len(s.edges))) for s in samples]
    tables = [sample.both(pair, lattice.slots) for sample, pair in zip(samples, pairs, strict=True)]
    tied = _possible(lattice, samples, tables)
    classes = [_classes(len(s.edges), p[t]) for s, p, t in zip(samples, pairs, tied, strict=True)]
    left = _counts(lattice, samples, [s.allowed(c) for s, c in zip(samples, classes, strict=True)])
    choices: list[Choice] = []
    for sample, sets, counts in zip(samples, classes, left, strict=True):
        options = [((~chosen).tolist(), -count) for chosen, count in zip(sets, counts, strict=True)]
        choices.append((min(options, key=lambda option: sample.price(*option))[0], None))
    return choices


def _classes(bundles: int, ties: Tensor) -> Tensor:
    """The connected components of bundles tied in pairs `(ties, 2)`, `(classes, bundles)` bool."""
    own = torch.arange(bundles)
    tied = torch.eye(bundles, dtype=torch.bool)
    tied[ties[:, 0], ties[:, 1]] = tied[ties[:, 1], ties[:, 0]] = True
    leader, before = own, None
    while before is None or not torch.equal(leader, before):
        before, leader = leader, torch.where(tied, leader, bundles).amin(1)
    return leader == torch.unique(leader)[:, None]  # type: ignore[no-any-return]


def _subsets(bundles: int) -> Tensor:
    """All sets of bundles, `(2^bundles, bundles)` bool; set number i holds the bits of i."""
    return ((torch.arange(1 << bundles)[:, None] >> torch.arange(bundles)) & 1).bool()


def _maximal(sound: Tensor) -> Tensor:
    """The sound sets to which no bundle can be added, `(2^bundles,)` bool."""
    number = torch.arange(len(sound))
    largest = sound.clone()
    for bit in range(len(sound).bit_length() - 1):
        larger = number | (1 << bit)
        largest &= (larger == number) | ~sound[larger]
    return largest


def _possible(lattice: CandidateSet, samples: Sequence[Contested], tables: list[Tensor]) -> list[Tensor]:
    """Whether a candidate is left, for each row of each sample's table of allowed labels, `(rows,)` bool each."""
    parts = [part.possible() for part in _narrowed(lattice, samples, tables)]
    return list(torch.split(torch.cat(parts).cpu(), [len(table) for table in tables]))


def _counts(lattice: CandidateSet, samples: Sequence[Contested], tables: list[Tensor]) -> list[list[int]]:
    """How many candidates are left, as `_possible`."""
    counts = iter([count for part in _narrowed(lattice, samples, tables) for count in part.counts])
    return [[next(counts) for _ in table] for table in tables]


def _narrowed(lattice: CandidateSet, samples: Sequence[Contested], tables: list[Tensor]) -> list[CandidateSet]:
    """Each sample, repeated for each row of its table and restricted to it, in runs of bounded size."""
    numbers = torch.tensor([sample.sample for sample in samples])
    ids = numbers.repeat_interleave(torch.tensor([len(table) for table in tables])).to(lattice.device)
    rows = torch.cat(tables).to(lattice.device)
    size = max(1, _CELLS // rows.shape[1])
    parts = zip(torch.split(ids, size), torch.split(rows, size), strict=True)
    return [lattice.select(part).narrowed(table.view(-1, lattice.classes)) for part, table in parts]
