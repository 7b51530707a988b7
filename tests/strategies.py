"""Hypothesis strategies: pruning problems of every shape."""

from __future__ import annotations

from typing import TypeVar

import torch
from hypothesis import strategies as st

from clipper import Candidates, CandidateSet, ProximityGraph
from tests.oracles import Problem

KINDS = {"name": 4, "rel": 3}


@st.composite
def problems(draw: st.DrawFn, kinds: bool = False, most_edges: int = 5) -> Problem:
    """Ragged samples, single candidates, repeated candidates, contradictory and repeated edges, or no edge at all."""
    ranges = [(0, 4), (4, 7)] if kinds else [(0, 4)]
    shapes = draw(st.lists(st.lists(st.sampled_from(ranges), min_size=1, max_size=3), min_size=1, max_size=5))
    samples = [draw(_candidates(shape)) for shape in shapes]
    instances = [((i, j), kind) for i, shape in enumerate(shapes) for j, kind in enumerate(shape)]
    pairs = [(a, b) for a, ka in instances for b, kb in instances if ka == kb and a[0] != b[0]]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=most_edges * len(shapes))) if pairs else []
    return Problem(samples, edges)


@st.composite
def _candidates(draw: st.DrawFn, shape: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    row = st.tuples(*(st.integers(low, high - 1) for low, high in shape))
    return draw(st.lists(row, min_size=1, max_size=8))


def as_tensors(problem: Problem, distance: list[float] | None = None) -> tuple[Candidates, ProximityGraph]:
    """The same problem in the library's words."""
    candidates = Candidates.from_lists(problem.samples, classes=KINDS)
    ids = [(a * candidates.slots + i, b * candidates.slots + j) for (a, i), (b, j) in problem.edges]
    ends = torch.tensor(ids, dtype=torch.long).reshape(-1, 2)
    lengths = None if distance is None else torch.tensor(distance)
    return candidates, ProximityGraph.from_edges(ends[:, 0], ends[:, 1], lengths)


Set = TypeVar("Set", bound=CandidateSet)


@st.composite
def with_edges(
    draw: st.DrawFn, sets: st.SearchStrategy[tuple[Set, Candidates]]
) -> tuple[Set, Candidates, ProximityGraph]:
    """A set in two forms, and contradictory and repeated edges of various lengths between its samples' used slots."""
    one, listed = draw(sets)
    used = (one.kind >= 0).flatten().nonzero()[:, 0].tolist()
    pairs = [(a, b) for a in used for b in used if a // one.slots != b // one.slots]
    ends = draw(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []
    distance = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(ends), max_size=len(ends)))
    table = torch.tensor(ends, dtype=torch.long).view(-1, 2)
    return one, listed, ProximityGraph.from_edges(table[:, 0], table[:, 1], torch.tensor(distance))
