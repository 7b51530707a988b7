"""Wrong arguments to prune and Clipper are refused in words; right ones in another form give the same survivors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clipper import Candidates, Clipper, Lattice, ProximityGraph, Pruning, prune
from clipper.proximity import ExactSearch, Pixels, Pool
from tests.hardening.attack import EFFORT, check_all_answer, refused

CANDIDATES = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)
LATTICE = Lattice.from_rule(0, lambda total, label: total + label, lambda total: total, [8, 2, 16], 2, 10)
EMBEDDINGS = torch.rand(3, 2, 4, generator=torch.Generator().manual_seed(0))
GRAPH = ProximityGraph.from_edges([0, 0], [2, 4])
KINDS = Candidates.from_lists([[(0, 2), (1, 3)], [(1, 3)], [(0, 2)]], classes={"name": 2, "rel": 2})

NOT_CANDIDATES: list[Any] = [
    None,
    [[(0, 1)]],
    CANDIDATES.labels,
    Candidates,
    "sum",
    3,
    {},
    GRAPH,
    prune(CANDIDATES, GRAPH),
]
HOLLOW = ProximityGraph(*(values.to("meta") for values in (GRAPH.source, GRAPH.target, GRAPH.distance)))
"""A graph without values."""
NOT_GRAPHS: list[Any] = [
    None, 3, "graph", ProximityGraph, CANDIDATES, [(0, 2)], [], {}, {"label": EMBEDDINGS[:2]}, {"other": EMBEDDINGS},
    EMBEDDINGS[:2], EMBEDDINGS[:, :1], EMBEDDINGS[0], EMBEDDINGS.to("meta"), EMBEDDINGS * math.nan, [EMBEDDINGS, None],
    EMBEDDINGS.numpy()[:1], [EMBEDDINGS[:2], EMBEDDINGS], HOLLOW, EMBEDDINGS.to_sparse(), sum,
    ProximityGraph.from_edges([0], [6]), ProximityGraph.from_edges([9], [2]),
    ProximityGraph.from_embeddings(EMBEDDINGS[:2], k=1), ProximityGraph.from_embeddings(torch.rand(9, 2, 4), k=1),
]  # fmt: skip
SEEDS: list[Any] = [-1, 1.5, 2**70, math.nan, "0", None, [0], True]
MASSES: list[Any] = [0, -0.5, 1.5, math.nan, math.inf, "0.9", None, [0.9], True, 1j]
Calls = list[tuple[str, Callable[[], Any]]]


def test_wrong_arguments_to_prune_are_refused() -> None:
    other = prune(Candidates.from_rule(sum, [8, 2], 2, 10), GRAPH.from_edges([0], [2]))
    same_size = Candidates.from_rule(sum, [2, 8, 16], 2, 10)
    calls: Calls = []
    for candidates in (CANDIDATES, LATTICE):
        calls += [(f"graph {g!r}", lambda c=candidates, g=g: prune(c, g)) for g in NOT_GRAPHS]
        calls += [
            (f"{name}={v!r}", lambda c=candidates, name=name, v=v: prune(c, GRAPH, **{name: v}))
            for name, values in {
                "objective": ["greedy", None, 3, ["exact"], "", "Exact"],
                "solver": ["gurobi", None, 3, ["highs"], ""],
                "pool": [3, "pool", GRAPH, EMBEDDINGS, [CANDIDATES], Candidates.from_lists([[(0, 1)]], classes=3)],
                "seed": SEEDS,
                "mass": MASSES,
                "count": [0, 1],
                "imitate": [other],
                "metric": ["l2"],
            }.items()
            for v in values
        ]
        calls += [
            (f"joint with {s}", lambda c=candidates, s=s: prune(c, GRAPH, "joint", s)) for s in ("highs", "cp-sat")
        ]
        calls += [("joint for a pool", lambda c=candidates: prune(c, GRAPH, "joint", pool=same_size))]
    calls += [(f"candidates {c!r}", lambda c=c: prune(c, GRAPH)) for c in NOT_CANDIDATES]
    counts: list[Any] = [None, -1, 13, 1.5, "1", True, math.nan, 2**70, [1]]
    calls += [(f"count={n!r}", lambda n=n: prune(CANDIDATES, GRAPH, "random", count=n)) for n in counts]
    calls += [
        (f"imitate={p!r}", lambda p=p: prune(CANDIDATES, GRAPH, "random", imitate=p))
        for p in (other, prune(same_size, GRAPH), prune(LATTICE, GRAPH), CANDIDATES, 3, "exact", GRAPH)
    ]
    calls += [("both", lambda: prune(CANDIDATES, GRAPH, "random", count=1, imitate=prune(CANDIDATES, GRAPH)))]
    calls += [("solver of a draw", lambda: prune(CANDIDATES, GRAPH, "random", "highs", count=1))]
    calls += [
        ("swapped", lambda: prune(GRAPH, CANDIDATES)),
        ("nothing", lambda: prune()),
        ("half", lambda: prune(CANDIDATES)),
    ]
    calls += [("on meta", lambda: prune(CANDIDATES.to("meta"), GRAPH.to("meta")))]
    calls += [("drawn lattice", lambda: prune(LATTICE, GRAPH, "random", count=1))]
    calls += [("solved lattice", lambda: prune(LATTICE, GRAPH, "exact", "highs"))]
    assert check_all_answer(calls) == (0, len(calls))
    assert len(calls) >= 80


def test_wrong_options_of_a_clipper_are_refused_when_it_is_built() -> None:
    wrong: dict[str, list[Any]] = {
        "k": [0, -1, 1.5, "1", [1], True, math.nan],
        "radius": [0, -1.0, math.nan, "1", [1.0], True],
        "share": [0, -0.1, 1.1, math.nan, "0.5", [0.5], True],
        "metric": ["l3", None, 3, "", ["l2"]],
        "mutual": [None, "yes", 1, 0.5],
        "objective": ["greedy", None, 3, ["exact"], "EXACT", ""],
        "solver": ["gurobi", None, 3, ["highs"], ""],
        "mass": MASSES,
        "encoder": [3, "pixels", EMBEDDINGS, [Pixels()]],
        "search": [3, "annoy", [ExactSearch()], {"label": 3}, EMBEDDINGS],
        "neighbours": [3],
    }
    calls = [
        (f"{name}={v!r}", lambda name=name, v=v: Clipper(**{name: v})) for name, values in wrong.items() for v in values
    ]
    calls += [(f"joint, {s}", lambda s=s: Clipper(objective="joint", solver=s)) for s in ("highs", "cp-sat")]
    assert check_all_answer(calls) == (0, len(calls))
    assert len(calls) >= 60


def test_every_choice_is_named_where_none_of_them_was_made() -> None:
    for call in (lambda: Clipper(objective="greedy"), lambda: prune(CANDIDATES, GRAPH, "greedy")):
        assert all(f'"{name}"' in str(refused(call)) for name in ("exact", "paper", "joint", "random"))
    for call in (lambda: Clipper(solver="gurobi"), lambda: prune(CANDIDATES, GRAPH, solver="gurobi")):
        assert all(f'"{name}"' in str(refused(call)) for name in ("closed-form", "highs", "cp-sat"))
    assert "which has no integer program" in str(refused(lambda: Clipper(objective="joint", solver="highs")))


def test_wrong_arguments_to_a_clipper_call_are_refused() -> None:
    clip = Clipper()
    inputs = [g for g in NOT_GRAPHS if not isinstance(g, ProximityGraph) and not isinstance(g, Candidates)]
    pool = Pool(torch.rand(5, 2, 4))
    calls: Calls = [(f"inputs {e!r}", lambda e=e: clip(CANDIDATES, e)) for e in [*inputs, GRAPH, CANDIDATES]]
    calls += [(f"candidates {c!r}", lambda c=c: clip(c, EMBEDDINGS)) for c in NOT_CANDIDATES]
    calls += [(f"seed={s!r}", lambda s=s: clip.prune(CANDIDATES, EMBEDDINGS, seed=s)) for s in SEEDS]
    calls += [
        ("a pool of others", lambda: clip.prune(CANDIDATES, EMBEDDINGS, pool=pool)),
        ("pool without embeddings", lambda: clip.prune(CANDIDATES, EMBEDDINGS, pool=CANDIDATES)),
        ("pool of a tensor", lambda: clip.prune(CANDIDATES, EMBEDDINGS, pool=torch.rand(3, 2, 4))),
        ("pool candidates alone", lambda: clip.prune(CANDIDATES, EMBEDDINGS, pool_candidates=CANDIDATES)),
        ("swapped", lambda: clip(EMBEDDINGS, CANDIDATES)),
        ("nothing", lambda: clip()),
        ("raw inputs", lambda: Clipper(encoder=lambda _: 3)(CANDIDATES, EMBEDDINGS)),
        ("other kinds", lambda: clip(KINDS, {"name": torch.rand(3, 2, 4)})),
    ]
    assert check_all_answer(calls) == (0, len(calls))
    assert len(calls) >= 40


def test_arrays_lists_and_embeddings_prune_like_tensors_and_graphs() -> None:
    expected = Clipper().prune(CANDIDATES, EMBEDDINGS).keep
    forms: list[Any] = [
        EMBEDDINGS.numpy(),
        EMBEDDINGS.tolist(),
        [EMBEDDINGS],
        [EMBEDDINGS.numpy()],
        {"label": EMBEDDINGS},
    ]
    for form in forms:
        assert torch.equal(Clipper().prune(CANDIDATES, form).keep, expected)
        assert torch.equal(prune(CANDIDATES, form).keep, expected)
    graph = ProximityGraph.from_embeddings(EMBEDDINGS, k=1)
    assert torch.equal(prune(CANDIDATES, graph).keep, expected)
    assert torch.equal(prune(LATTICE, EMBEDDINGS).allowed, prune(LATTICE, graph).allowed)
    gold = [[4, 4], [1, 1], [8, 8]]
    pruning = prune(CANDIDATES, GRAPH)
    assert (
        pruning.gold_retained(gold)
        == pruning.gold_retained(torch.tensor(gold))
        == pruning.gold_retained(np.array(gold))
    )


def test_an_encoder_encodes_every_part_of_its_inputs() -> None:
    images = torch.rand(3, 2, 2, 2, generator=torch.Generator().manual_seed(3))
    asked: list[tuple[int, ...]] = []

    def encoder(batch: Tensor) -> Tensor:
        asked.append(tuple(batch.shape))
        return -batch.flatten(1)[:, :1]  # near by the first pixel alone

    clip, plain = Clipper(encoder=encoder), Clipper()
    first = -images.flatten(2)[..., :1]
    assert torch.equal(clip.prune(CANDIDATES, images).keep, plain.prune(CANDIDATES, first).keep)
    assert torch.equal(clip.prune(CANDIDATES, images.numpy()).keep, plain.prune(CANDIDATES, first).keep)
    other = images.flip(0)
    both = clip.prune(CANDIDATES, [images, other]).keep
    assert torch.equal(both, plain.prune(CANDIDATES, [first, first.flip(0)]).keep)
    asked.clear()
    kinds = clip.prune(KINDS, {"rel": other, "name": images})  # in another order than the candidates'
    assert torch.equal(kinds.keep, plain.prune(KINDS, {"name": first, "rel": first.flip(0)}).keep)
    assert asked == [(6, 2, 2)] * 2


def _kept_by_brute_force(candidates: Candidates, graph: ProximityGraph) -> list[int]:
    """The fewest candidates that a sound choice of edges leaves each sample: all choices are tried."""
    m, support = candidates.slots, candidates.support
    edges = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    result = []
    for sample in range(candidates.samples):
        rows = candidates.labels[candidates.sample == sample].tolist()
        own = [(s % m, support[t]) for s, t in edges if s // m == sample]
        sizes = []
        for chosen in itertools.product((False, True), repeat=len(own)):
            taken = [edge for edge, choose in zip(own, chosen, strict=True) if choose]
            sizes.append(sum(all(bool(allowed[row[slot]]) for slot, allowed in taken) for row in rows))
        result.append(min(size for size in sizes if size))
    return result


@pytest.mark.parametrize("seed", range(6 * EFFORT))
def test_odd_graphs_prune_as_brute_force_does(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 9, (4,), generator=generator)
    candidates = Candidates.from_rule(sum, targets, 2, 5)
    source, target = torch.randint(0, 8, (2, 10), generator=generator)  # loops, edges within samples and repetitions
    source, target = (
        torch.cat([source, source[:3], torch.tensor([5])]),
        torch.cat([target, target[:3], torch.tensor([5])]),
    )
    graphs = [
        ProximityGraph.from_edges(source, target),
        ProximityGraph.from_edges([], []),
        ProximityGraph.from_edges([3], [3]),
    ]
    for graph in graphs:
        found = prune(candidates, graph)
        assert found.candidates.counts == _kept_by_brute_force(candidates, graph)
        assert min(found.candidates.counts) > 0


def test_the_smallest_pools_pass() -> None:
    alone = Candidates.from_rule(sum, [8], 2, 10)
    settled = Candidates.from_lists([[(1, 2)], [(3, 4)]], classes=10)
    for objective, k in itertools.product(("exact", "paper", "random", "joint"), (1, 50)):
        assert len(Clipper(k=k, objective=objective)(alone, torch.rand(1, 2, 3))) == 9
        assert len(Clipper(k=k, objective=objective)(settled, torch.rand(2, 2, 3))) == 2


def test_a_pruning_says_when_every_label_is_possible_everywhere() -> None:
    parity = Candidates.from_rule(lambda t: (t[0] + t[1]) % 2, targets=[0, 1, 0], slots=2, classes=4)
    for pruning in (prune(parity, EMBEDDINGS), Clipper().prune(Lattice.from_candidates(parity), EMBEDDINGS)):
        assert pruning.discarded == 0
        assert "every label is possible in every slot" in str(pruning.reason)
        assert "every label is possible in every slot" in repr(pruning)
    pruning = prune(CANDIDATES, GRAPH)
    assert isinstance(pruning, Pruning)
    assert pruning.reason is None


def test_candidates_made_in_inference_mode_are_pruned_alike() -> None:
    with torch.inference_mode():
        made = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)
        inside = prune(made, GRAPH).keep.tolist()
    assert prune(made, GRAPH).keep.tolist() == inside == prune(CANDIDATES, GRAPH).keep.tolist()
