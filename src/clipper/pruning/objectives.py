"""`prune`: from candidates and a proximity graph to the candidates that are left, by each objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from clipper.arguments import one_of, real_number, seed_number, seeded, shown
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning.closed_form import survivors
from clipper.pruning.consistency import conflicts, edge_rejects
from clipper.pruning.controls import discard_at_random, forbid_at_random
from clipper.pruning.graphs import check_edges, graph_of
from clipper.pruning.integer_program import integer_program, solve
from clipper.pruning.lattice_search import prune_lattice
from clipper.pruning.result import Pruning, Set

Objective = Literal["exact", "paper", "joint", "em", "random"]
Solver = Literal["closed-form", "highs", "cp-sat"]

_OBJECTIVES, _SOLVERS = get_args(Objective), get_args(Solver)
POOLED = ("joint", "em")
"""Objectives that infer the labels of the whole pool together."""
NEIGHBOURS = 8
"""The default number of neighbours per instance for joint inference and EM."""
_PIECE = 1 << 18
"""Candidates pruned at a time. Samples are independent, so any split into groups of samples gives the same result."""


def prune(
    candidates: Set,
    graph: ProximityGraph,
    objective: Objective = "exact",
    solver: Solver = "closed-form",
    *,
    pool: CandidateSet | None = None,
    count: int | None = None,
    imitate: Pruning[Any] | None = None,
    mass: float = 0.95,
    seed: int = 0,
) -> Pruning[Set]:
    """Discard candidates that contradict an instance's neighbours; every sample keeps at least one.

    Args:
        candidates: what the labels could be. A lattice is pruned without listing its candidates; `Pruning.certified`
            says for which samples the result is proved optimal.
        graph: which instances should share a label. Or embeddings `(n, m, d)`: then each instance should share its
            label with its nearest neighbour (its eight nearest with "joint" and "em").
        objective: "exact" solves Problem 3.6 (discard as many as possible). "paper" solves equation (1) as printed,
            which restricts the choice of edges further (docs/mathematics.md). "joint" infers the labels of the whole
            pool together (docs/joint.md). "em" does so by expectation-maximisation, a baseline. "random" is the
            control.
        solver: "closed-form", or "highs" or "cp-sat" for the same optimum by integer programming.
        pool: the candidates that the graph's targets belong to, if not `candidates` themselves.
        count: with "random": how many candidates to discard; only for listed candidates.
        imitate: with "random": discard as many of each sample as this pruning did. If candidates are not listed, labels
            are forbidden at random, and at least as many candidates are left.
        mass: with "joint" and "em": the posterior probability that the kept candidates of a sample must add up to.
        seed: seed of "joint", "em" and "random".

    Returns:
        A `Pruning`; its `candidates` are those that are left, a set of the same type.

    Raises:
        InputError: candidates, graph and options do not fit one another.

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
    graph = graph_of(candidates, graph, NEIGHBOURS if objective in POOLED else 1)
    pool = candidates if pool is None else must_be_candidates(pool, "pool")
    check_edges(candidates, graph, pool)
    if objective in POOLED:
        return _joint(candidates, graph, pool, mass, seed, objective)
    if objective == "random":
        return prune_at_random(candidates, graph, count, imitate, seed)
    return prune_along(candidates, graph, pool.support, objective, solver)


def listed_only(candidates: CandidateSet) -> Candidates | None:
    """The set, if its candidates are listed; else None."""
    # Listed candidates have bit masks and can be discarded one by one; other sets are pruned by forbidding labels. No
    # common method can hide this difference.
    return candidates if isinstance(candidates, Candidates) else None


def prune_along(
    candidates: Set,
    graph: ProximityGraph,
    support: Tensor,
    objective: Objective = "exact",
    solver: Solver = "closed-form",
) -> Pruning[Set]:
    """As `prune`, given the `support (N*m, c)` of the graph's targets; the edges are not checked."""
    listed = listed_only(candidates)
    if listed is None:
        return prune_lattice(candidates, graph, support, objective, solver)
    if objective not in ("exact", "paper"):
        raise InputError(f'expected the objective "exact" or "paper" for pruning sample by sample, got {objective!r}')
    chosen = None
    if solver != "closed-form":
        keep, chosen = _by_solver(listed, graph, support, objective, solver)
    elif len(listed) <= _PIECE:
        keep = _by_closed_form(listed, graph, support, objective)
    else:
        pieces = _pieces(listed, graph)
        keep = torch.cat([_by_closed_form(piece, local, support, objective) for piece, local in pieces])
    return Pruning(candidates, graph, support, keep=keep, edges=chosen)


def _by_closed_form(candidates: Candidates, graph: ProximityGraph, support: Tensor, objective: Objective) -> Tensor:
    """Which candidates survive, `(Ω,)` bool."""
    return survivors(candidates, conflicts(candidates, graph, edge_rejects(support, graph)), objective)


def _by_solver(
    candidates: Candidates, graph: ProximityGraph, support: Tensor, objective: Objective, solver: Solver
) -> tuple[Tensor, Tensor]:
    """Which candidates survive, `(Ω,)`, and which edges the solver chose, `(E,)` bool."""
    found = solve(integer_program(candidates, graph, edge_rejects(support, graph), objective), solver)
    solution = torch.from_numpy(found).to(graph.source.device)
    return solution[: len(candidates)], solution[len(candidates) :]


def _pieces(candidates: Candidates, graph: ProximityGraph) -> Iterator[tuple[Candidates, ProximityGraph]]:
    """Consecutive samples, some at a time, with the edges that leave them; sources count from the first of these."""
    order = graph.source.argsort(stable=True)
    source = graph.source[order]
    run = candidates.offsets[:-1] // _PIECE
    first = 0
    for size in torch.unique_consecutive(run, return_counts=True)[1].tolist():
        ends = torch.tensor([first, first + size], device=source.device) * candidates.slots
        low, high = torch.searchsorted(source, ends).tolist()
        edges = order[low:high].sort().values  # ascending, so that ties are broken as without pieces
        local = ProximityGraph(
            graph.source[edges] - first * candidates.slots, graph.target[edges], graph.distance[edges]
        )
        yield candidates.span(first, first + size), local
        first += size


def _joint(
    candidates: Set, graph: ProximityGraph, pool: CandidateSet, mass: float, seed: int, objective: Objective
) -> Pruning[Set]:
    from clipper.pruning.joint import infer  # imported here, because it imports this module

    if pool is not candidates:
        raise InputError("joint inference is about all samples at once: leave pool out, and infer for the whole pool")
    return infer(candidates, graph, method="em" if objective == "em" else "joint", seed=seed).prune(mass)


def prune_at_random(
    candidates: Set, graph: ProximityGraph, count: int | None, imitate: Pruning[Any] | None, seed: int
) -> Pruning[Set]:
    """As `prune` with the objective "random"; the edges are not checked."""
    if count is not None and imitate is not None:
        raise InputError("expected count= or imitate=, got both")
    if imitate is not None:
        _check_imitated(imitate, candidates)
        return random_pruning(candidates, graph, imitate, seeded(seed))
    listed = listed_only(candidates)
    if listed is None:
        raise InputError(
            f"expected imitate=, a pruning of the same candidates, since {candidates!r} lists none that could be "
            f"discarded one by one, got {'no argument' if count is None else f'count={count!r}'}; for example "
            'prune(candidates, graph, "random", imitate=prune(candidates, graph))'
        )
    return _unproved(candidates, graph, keep=discard_at_random(listed, count, seed))


def _check_imitated(imitate: object, candidates: CandidateSet) -> None:
    """Raise an `InputError` unless this is a pruning of a set of the same type, with as many candidates per sample."""
    original = imitate.original if isinstance(imitate, Pruning) else None
    if type(original) is not type(candidates) or original.counts != candidates.counts:
        raise InputError(f"expected a pruning of the same candidates to imitate, {candidates!r}, got {shown(imitate)}")


def random_pruning(
    candidates: Set, graph: ProximityGraph, imitate: Pruning[Set], generator: torch.Generator
) -> Pruning[Set]:
    """Discard as many candidates of each sample as a pruning did; forbid labels if candidates are not listed."""
    listed = listed_only(candidates)
    if listed is None:
        allowed = forbid_at_random(candidates, imitate.candidates.counts, generator)
        return _unproved(candidates, graph, allowed=allowed)
    gone = listed.offsets.diff() - cast(Candidates, imitate.candidates).offsets.diff()
    return _unproved(candidates, graph, keep=listed.random_ranks(generator) >= gone[listed.sample])


def _unproved(
    candidates: Set, graph: ProximityGraph, *, keep: Tensor | None = None, allowed: Tensor | None = None
) -> Pruning[Set]:
    """A pruning that does not depend on the graph: no edge is chosen, and nothing is proved."""
    none = torch.zeros_like(graph.source, dtype=torch.bool)
    return Pruning(candidates, graph, candidates.support, edges=none, keep=keep, allowed=allowed, one_by_one=True)


def check_options(objective: object, solver: object, mass: object) -> None:
    """Raise an `InputError` that lists the choices if an option is invalid."""
    one_of(objective, "objective", _OBJECTIVES)
    one_of(solver, "solver", _SOLVERS)
    real_number(mass, "mass", above=0, most=1)
    if objective in POOLED and solver != "closed-form":
        raise InputError(
            f'expected no solver with the objective "{objective}", which has no integer program, got {solver!r}: leave '
            'solver out, or choose the objective "exact" or "paper"'
        )
