"""The objectives side by side: from candidates and a proximity graph to what survives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal, get_args, overload

import torch
from torch import Tensor

from clipper.arguments import one_of, real_number, seed_number, shown
from clipper.candidates import Candidates, CandidateSet, Formula, Lattice
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning.chance import discard_at_random
from clipper.pruning.closed_form import exact, paper
from clipper.pruning.consistency import Conflicts, conflicts, edge_rejects, labels_left
from clipper.pruning.graphs import graph_of
from clipper.pruning.lattice_result import LatticePruning
from clipper.pruning.lattices import prune_lattice
from clipper.pruning.program import program
from clipper.pruning.result import Pruning
from clipper.pruning.solvers import solve

Objective = Literal["exact", "paper", "joint", "random"]
Solver = Literal["closed-form", "highs", "cp-sat"]

_OBJECTIVES, _SOLVERS = get_args(Objective), get_args(Solver)
NEIGHBOURS = 8
"""Neighbours per instance where the number is chosen automatically and all samples decide together."""
_PIECE = 1 << 18
"""Candidates pruned at a time; samples do not depend on one another, so any cut between them is right."""


@overload
def prune(
    candidates: Candidates,
    graph: ProximityGraph,
    objective: Objective = ...,
    solver: Solver = ...,
    *,
    pool: CandidateSet | None = ...,
    count: int | None = ...,
    imitate: Pruning | None = ...,
    mass: float = ...,
    seed: int = ...,
) -> Pruning: ...
@overload
def prune(
    candidates: Lattice | Formula,
    graph: ProximityGraph,
    objective: Objective = ...,
    solver: Solver = ...,
    *,
    pool: CandidateSet | None = ...,
    mass: float = ...,
    seed: int = ...,
) -> LatticePruning: ...
def prune(
    candidates: CandidateSet,
    graph: ProximityGraph,
    objective: Objective = "exact",
    solver: Solver = "closed-form",
    *,
    pool: CandidateSet | None = None,
    count: int | None = None,
    imitate: Pruning | None = None,
    mass: float = 0.95,
    seed: int = 0,
) -> Pruning | LatticePruning:
    """Discard the candidates that contradict what lies near, without ever taking a sample's last one.

    Args:
        candidates: what the labels could be; a lattice is pruned without listing its candidates, and the result says
            for which samples it is proved that no choice discards more.
        graph: which instances should share a label; or embeddings `(n, m, d)`, whose nearest neighbours should (with
            "joint", their eight nearest).
        objective: "exact" solves Problem 3.6 (the most discarded); "paper" solves equation (1) as printed, which is
            stricter about edges (docs/mathematics.md); "joint" lets the whole pool decide (docs/joint.md);
            "random" is the control.
        solver: "closed-form", or "highs" or "cp-sat" for the same optimum by integer programming.
        pool: the candidates that the graph's targets belong to, if not `candidates` themselves.
        count: with "random": how many candidates to discard.
        imitate: with "random": discard as many of each sample as this pruning did.
        mass: with "joint": how much of the probability the survivors hold.
        seed: with "joint" and "random".

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)
        >>> graph = ProximityGraph.from_edges([0, 0], [2, 4])  # x₁ is close to x′₁ and to x″₁
        >>> prune(candidates, graph)
        Pruning(7 of 15 candidates discarded, 1 of 2 edges chosen)
        >>> prune(candidates, graph, objective="paper")
        Pruning(0 of 15 candidates discarded, 0 of 2 edges chosen)
    """
    check_options(objective, solver, mass)
    if (count is not None or imitate is not None) and objective != "random":
        raise InputError(f'count= and imitate= belong to objective="random", got them with {objective!r}')
    if objective == "random" and solver != "closed-form":
        raise InputError(f'expected no solver with the objective "random", which draws, got {solver!r}')
    seed = seed_number(seed)
    graph = graph_of(candidates, graph, NEIGHBOURS if objective == "joint" else 1)
    pool = candidates if pool is None else must_be_candidates(pool, "pool")
    check_edges(candidates, graph, pool)
    if objective == "joint":
        return _joint(candidates, graph, pool, mass, seed)
    if objective == "random" and isinstance(candidates, Candidates):
        return _random(candidates, graph, count, imitate, seed)
    return prune_against(candidates, graph, pool.support, objective, solver)


@overload
def prune_against(
    candidates: Candidates, graph: ProximityGraph, support: Tensor, objective: Objective = ..., solver: Solver = ...
) -> Pruning: ...
@overload
def prune_against(
    candidates: Lattice | Formula,
    graph: ProximityGraph,
    support: Tensor,
    objective: Objective = ...,
    solver: Solver = ...,
) -> LatticePruning: ...
def prune_against(
    candidates: CandidateSet,
    graph: ProximityGraph,
    support: Tensor,
    objective: Objective = "exact",
    solver: Solver = "closed-form",
) -> Pruning | LatticePruning:
    """As `prune`, given the `support (N*m, c)` of the graph's targets; the edges are taken as valid."""
    if not isinstance(candidates, Candidates):
        return prune_lattice(candidates, graph, support, objective, solver)
    if objective not in ("exact", "paper"):
        raise InputError(f'expected the objective "exact" or "paper" for pruning sample by sample, got {objective!r}')
    if solver != "closed-form":
        return _by_solver(candidates, graph, support, objective, solver)
    if len(candidates) <= _PIECE:
        return _by_closed_form(candidates, graph, support, objective)
    chosen = torch.ones_like(graph.source, dtype=torch.bool)
    keep = []
    for piece, edges, local in _pieces(candidates, graph):
        pruning = _by_closed_form(piece, local, support, objective)
        keep.append(pruning.keep)
        chosen[edges] = pruning.edges
    return Pruning(candidates, torch.cat(keep), lambda: chosen, partial(labels_left, candidates, graph, support))


def _by_closed_form(candidates: Candidates, graph: ProximityGraph, support: Tensor, objective: Objective) -> Pruning:
    rejects = edge_rejects(support, graph)  # (E, c)
    found = conflicts(candidates, graph, rejects)
    dropped = (exact if objective == "exact" else paper)(candidates, found)  # (n, words)
    keep = _without_conflict(candidates, found.masks, ~dropped.to(found.masks.dtype))
    return Pruning(
        candidates, keep, partial(_chosen, graph, found, dropped), partial(labels_left, candidates, graph, support)
    )


def _chosen(graph: ProximityGraph, found: Conflicts, dropped: Tensor) -> Tensor:
    """The edges that are not among the `dropped (n, words)`, `(E,)` bool."""
    chosen = torch.ones_like(graph.source, dtype=torch.bool)
    chosen[found.edge] = ((dropped[found.sample, found.word] >> found.bit) & 1) == 0
    return chosen


def _without_conflict(candidates: Candidates, masks: Tensor, chosen: Tensor) -> Tensor:
    """The candidates that contradict no chosen edge, `(Ω,)` bool; `masks (Ω, words)`, `chosen (n, words)`."""
    words = [
        (mask & edges.index_select(0, candidates.sample)) == 0 for mask, edges in zip(masks.T, chosen.T, strict=True)
    ]
    return words[0] if len(words) == 1 else torch.stack(words).all(0)


def _by_solver(
    candidates: Candidates, graph: ProximityGraph, support: Tensor, objective: Objective, solver: Solver
) -> Pruning:
    rejects = edge_rejects(support, graph)
    solution = torch.from_numpy(solve(program(candidates, graph, rejects, objective), solver))
    solution = solution.to(graph.source.device)
    keep, chosen = solution[: len(candidates)], solution[len(candidates) :]
    return Pruning(candidates, keep, lambda: chosen, partial(labels_left, candidates, graph, support))


def _pieces(candidates: Candidates, graph: ProximityGraph) -> Iterator[tuple[Candidates, Tensor, ProximityGraph]]:
    """Runs of samples with their edges: candidates, edge ids, and the edges with sources counted from the run."""
    order = graph.source.argsort(stable=True)
    source = graph.source[order]
    run = candidates.offsets[:-1] // _PIECE
    first = 0
    for size in torch.unique_consecutive(run, return_counts=True)[1].tolist():
        ends = torch.tensor([first, first + size], device=source.device) * candidates.slots
        low, high = torch.searchsorted(source, ends).tolist()
        edges = order[low:high].sort().values  # ascending, so that ties fall as they do without pieces
        local = ProximityGraph(
            graph.source[edges] - first * candidates.slots, graph.target[edges], graph.distance[edges]
        )
        yield candidates.span(first, first + size), edges, local
        first += size


def _joint(
    candidates: CandidateSet, graph: ProximityGraph, pool: CandidateSet, mass: float, seed: int
) -> Pruning | LatticePruning:
    from clipper.pruning.joint import infer  # which prunes by single edges where it abstains

    if pool is not candidates:
        raise InputError("joint inference is about all samples at once: leave pool out, and infer for the whole pool")
    return infer(candidates, graph, seed=seed).prune(mass)


def _random(
    candidates: Candidates, graph: ProximityGraph, count: int | None, imitate: Pruning | None, seed: int
) -> Pruning:
    per_sample = None
    if imitate is not None:
        if count is not None:
            raise InputError("expected count= or imitate=, got both")
        if not isinstance(imitate, Pruning) or not torch.equal(imitate.original.offsets, candidates.offsets):
            raise InputError(
                f"expected a pruning of the same {len(candidates)} candidates to imitate, got {shown(imitate)}"
            )
        per_sample = candidates.offsets.diff() - imitate.candidates.offsets.diff()
    keep = discard_at_random(candidates, count, per_sample, seed)
    none_chosen = torch.zeros_like(graph.source, dtype=torch.bool)
    return Pruning(candidates, keep, lambda: none_chosen, lambda _: candidates.subset(keep).support)


def check_options(objective: object, solver: object, mass: object) -> None:
    """Raise an `InputError` that names all choices, if these are none."""
    one_of(objective, "objective", _OBJECTIVES)
    one_of(solver, "solver", _SOLVERS)
    real_number(mass, "mass", above=0, most=1)
    if objective == "joint" and solver != "closed-form":
        raise InputError(
            f'expected no solver with the objective "joint", which has no integer program, got {solver!r}: leave '
            'solver out, or choose the objective "exact" or "paper"'
        )


def check_edges(candidates: CandidateSet, graph: ProximityGraph, pool: CandidateSet) -> None:
    """Raise an `InputError` if the edges do not lead from `candidates` to `pool`, like to like."""
    if candidates.device.type == "meta":
        raise InputError("expected candidates with values, got some on the device meta, which holds shapes only")
    if candidates.device != graph.source.device:
        raise InputError(
            f"expected candidates and graph on one device, got {candidates.device} and {graph.source.device}; "
            "move one with .to(device)"
        )
    if pool.classes != candidates.classes or pool.slots != candidates.slots:
        raise InputError(
            f"expected a pool of {candidates.slots} slots and {candidates.classes} classes like the candidates, "
            f"got {pool.slots} slots and {pool.classes} classes"
        )
    _check_sizes(graph, candidates, pool)
    if not len(graph):
        return
    _check_known(graph.source, candidates, "source")
    _check_known(graph.target, pool, "target")
    ragged = candidates.ragged or (pool is not candidates and pool.ragged)
    if len(candidates.kinds) == 1 and not ragged:
        return  # one kind, and no slot is unused
    kinds, others = candidates.kind.flatten()[graph.source], pool.kind.flatten()[graph.target]
    wrong = (kinds != others) | (kinds < 0)
    if bool(wrong.any()):
        edge = int(wrong.nonzero()[0])
        raise InputError(
            f"edge {edge} leads from instance {int(graph.source[edge])} to {int(graph.target[edge])}, but one of them "
            "is an unused slot or they hold different kinds of label; build the graph with kind=candidates.kind"
        )


def _check_sizes(graph: ProximityGraph, candidates: CandidateSet, pool: CandidateSet) -> None:
    """A graph of other samples may well have ids that exist here, too."""
    if graph.instances is None:
        return
    expected = candidates.samples * candidates.slots, pool.samples * pool.slots
    if graph.instances != expected:
        raise InputError(
            f"expected a graph from {expected[0]} instances to {expected[1]} for the candidates' samples and slots, "
            f"got one from {graph.instances[0]} to {graph.instances[1]}: build it from the same samples' embeddings"
        )


def _check_known(ids: Tensor, candidates: CandidateSet, end: str) -> None:
    instances = candidates.samples * candidates.slots
    low, high = (int(i) for i in torch.aminmax(ids))
    if low < 0 or high >= instances:
        raise InputError(
            f"expected edge {end}s among the {instances} instances (id = sample · {candidates.slots} + slot), "
            f"got {low if low < 0 else high}"
        )
