"""The proximity graph against all pairs, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipper import ClipperError, ProximityGraph
from clipper.errors import InputError
from clipper.proximity import ExactSearch, IndexedSearch, NeighbourSearch, Pool
from clipper.proximity.neighbours import Vectors

Edges = list[tuple[int, int]]


def edges(graph: ProximityGraph) -> Edges:
    return list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))


def brute_force(embeddings: Tensor, k: int | None, radius: float = math.inf, mutual: bool = False) -> Edges:
    """Every instance's others by (distance, id), in exact arithmetic for whole coordinates."""
    flat = [tuple(row) for row in embeddings.flatten(0, 1).tolist()]
    slots = embeddings.shape[1]
    found: Edges = []
    for i, own in enumerate(flat):
        others = [(math.dist(own, other), j) for j, other in enumerate(flat) if j // slots != i // slots]
        found += [(i, j) for distance, j in sorted(others)[:k] if distance < radius]
    return [edge for edge in found if edge[::-1] in set(found)] if mutual else found


@st.composite
def grids(draw: st.DrawFn) -> Tensor:
    """Embeddings with whole coordinates: many ties, many duplicates, sometimes all equal."""
    samples, slots, size = draw(st.integers(2, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    values = st.integers(0, draw(st.sampled_from([0, 1, 5])))
    numbers = draw(st.lists(values, min_size=samples * slots * size, max_size=samples * slots * size))
    shift = draw(st.sampled_from([0, 1000]))  # far from the origin there is more to cancel
    return torch.tensor(numbers, dtype=torch.float32).reshape(samples, slots, size) + shift


@settings(max_examples=400)
@given(embeddings=grids(), data=st.data())
def test_top_k_equals_brute_force_to_the_last_tie(embeddings: Tensor, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, (len(embeddings) - 1) * embeddings.shape[1]))
    mutual = data.draw(st.booleans())
    assert edges(ProximityGraph.from_embeddings(embeddings, k=k, mutual=mutual)) == brute_force(
        embeddings, k, mutual=mutual
    )


@settings(max_examples=200)
@given(embeddings=grids(), radius=st.sampled_from([0.5, 1.0, 1.5, 3.0]))
def test_a_radius_keeps_what_is_less_than_it_apart(embeddings: Tensor, radius: float) -> None:
    assert edges(ProximityGraph.from_embeddings(embeddings, k=None, radius=radius)) == brute_force(
        embeddings, None, radius
    )
    assert edges(ProximityGraph.from_embeddings(embeddings, k=1, radius=radius)) == brute_force(embeddings, 1, radius)


@pytest.mark.parametrize("memory", [1, 50, 4000])
def test_bounded_memory_changes_nothing(memory: int) -> None:
    embeddings = torch.rand(40, 3, 5, generator=torch.Generator().manual_seed(0))
    small = ProximityGraph.from_embeddings(embeddings, k=4, search=ExactSearch(memory=memory))
    assert edges(small) == edges(ProximityGraph.from_embeddings(embeddings, k=4))


def test_a_pool_in_pieces_gives_the_same_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = torch.rand(700, 1, 3, generator=torch.Generator().manual_seed(1))
    whole = edges(ProximityGraph.from_embeddings(embeddings, k=3))
    monkeypatch.setattr("clipper.proximity.neighbours.POOL_PIECE", 128)  # a whole number of groups, and a rest
    assert edges(ProximityGraph.from_embeddings(embeddings, k=3)) == whole


@settings(max_examples=150)
@given(embeddings=grids(), data=st.data())
def test_ties_across_pieces_of_the_pool_go_to_the_lower_id(embeddings: Tensor, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, (len(embeddings) - 1) * embeddings.shape[1]))
    scaled = embeddings * 0.1 + 3.7  # distances that differ in the last digit only, if rounding decides
    expected = edges(ProximityGraph.from_embeddings(scaled, k=k))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clipper.proximity.neighbours.POOL_PIECE", data.draw(st.integers(1, 4)))
        assert edges(ProximityGraph.from_embeddings(scaled, k=k)) == expected
        assert edges(ProximityGraph.from_embeddings(embeddings, k=k)) == brute_force(embeddings, k)


def test_groups_of_columns_find_what_a_sort_finds() -> None:
    vectors = torch.rand(64 * 40, 8, generator=torch.Generator().manual_seed(3))
    group = torch.arange(len(vectors))
    near = ExactSearch().find(Vectors(vectors[:50], group[:50]), Vectors(vectors, group), k=3)
    distance = torch.cdist(vectors[:50].double(), vectors.double())
    distance[torch.arange(50), torch.arange(50)] = math.inf
    assert torch.equal(near.index.view(50, 3), distance.topk(3, largest=False).indices)


def manhattan(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a, b, p=1)


def test_cosine_ignores_length_and_a_function_may_be_any_distance() -> None:
    embeddings = torch.tensor([[[1.0, 0.0]], [[9.0, 1.0]], [[1.1, 1.0]]])
    cosine = ProximityGraph.from_embeddings(embeddings, k=1, metric="cosine")
    assert edges(cosine) == [(0, 1), (1, 0), (2, 1)]
    expected = 1 - torch.cosine_similarity(embeddings[0], embeddings[1])
    assert torch.allclose(cosine.distance[:1], expected, atol=1e-6)
    assert edges(ProximityGraph.from_embeddings(embeddings, k=1, metric=manhattan)) == [(0, 2), (1, 2), (2, 0)]
    near = ProximityGraph.from_embeddings(embeddings, k=None, radius=0.1, metric="cosine")
    assert edges(near) == [(0, 1), (1, 0)]


def test_the_closest_share_of_edges_is_kept() -> None:
    embeddings = torch.tensor([0.0, 1.0, 10.0, 12.0, 30.0]).reshape(5, 1, 1)
    graph = ProximityGraph.from_embeddings(embeddings, k=1, share=0.5)
    assert edges(graph) == [(0, 1), (1, 0), (2, 3)]  # 2.5 edges, rounded up; the tie goes to the lower id


@pytest.mark.parametrize(("share", "edges"), [(0.07, 7), (0.29, 29), (0.57, 57), (0.071, 8), (1e-9, 1), (1.0, 100)])
def test_a_share_of_the_edges_is_rounded_up_and_no_further(share: float, edges: int) -> None:
    embeddings = torch.randn(100, 1, 2, generator=torch.Generator().manual_seed(0))
    assert len(ProximityGraph.from_embeddings(embeddings, k=1, share=share)) == edges


def test_a_graph_moves_to_devices_only() -> None:
    graph = ProximityGraph.from_edges([0], [2])
    assert len(graph.to("cpu")) == 1
    with pytest.raises(InputError, match="expected a device of this computer, such as 'cpu', got 'foo'"):
        graph.to("foo")


def test_edges_inside_a_sample_only_on_request() -> None:
    embeddings = torch.tensor([[[0.0], [0.1]], [[5.0], [9.0]]])
    assert edges(ProximityGraph.from_embeddings(embeddings, k=1)) == [(0, 2), (1, 2), (2, 1), (3, 1)]
    assert edges(ProximityGraph.from_embeddings(embeddings, k=1, within_sample=True)) == [
        (0, 1),
        (1, 0),
        (2, 3),
        (3, 2),
    ]


def test_a_batch_finds_neighbours_in_a_pool_but_not_itself() -> None:
    pool = torch.tensor([[[0.0]], [[0.2]], [[5.0]]])
    batch = pool[[1]]
    found = ProximityGraph.from_embeddings(batch, k=2, pool=Pool(pool, samples=torch.tensor([1])))
    assert edges(found) == [(0, 0), (0, 2)]
    stranger = ProximityGraph.from_embeddings(batch, k=1, pool=Pool(pool))
    assert edges(stranger) == [(0, 1)]


def test_an_empty_pool_has_no_neighbours() -> None:
    graph = ProximityGraph.from_embeddings(torch.rand(2, 1, 3), k=1, pool=Pool(torch.rand(0, 1, 3)), allow_fewer=True)
    assert edges(graph) == []


def test_unused_slots_of_the_batch_are_left_out_beside_a_pool() -> None:
    pool = Pool(torch.tensor([[[0.0], [4.0]]]), kind=torch.tensor([[0, 0]]))
    batch = torch.tensor([[[9.0], [0.0]], [[4.1], [0.2]]])
    kind = torch.tensor([[0, -1], [0, 0]])
    assert edges(ProximityGraph.from_embeddings(batch, k=1, pool=pool, kind=kind)) == [(0, 1), (2, 1), (3, 0)]
    plain = Pool(pool.embeddings)
    assert edges(ProximityGraph.from_embeddings(batch, k=1, pool=plain, kind=kind)) == [(0, 1), (2, 1), (3, 0)]


def test_kinds_are_searched_apart_each_with_its_own_embedding() -> None:
    kind = torch.tensor([[0, 1], [0, 1], [0, -1]])
    one = torch.tensor([[[0.0], [0.0]], [[1.0], [0.5]], [[9.0], [0.0]]])
    assert edges(ProximityGraph.from_embeddings(one, k=1, kind=kind)) == [(0, 2), (1, 3), (2, 0), (3, 1), (4, 2)]
    apart = {"name": one, "rel": torch.zeros(3, 2, 7)}
    for mapping in (apart, dict(reversed(apart.items()))):
        found = ProximityGraph.from_embeddings(mapping, k=1, kind=kind, kinds=["name", "rel"])
        assert edges(found) == [(0, 2), (1, 3), (2, 0), (3, 1), (4, 2)]
    with pytest.raises(ClipperError, match="pass kinds="):
        ProximityGraph.from_embeddings(apart, k=1, kind=kind)


def test_arrays_by_kind_give_the_graph_of_tensors_by_kind() -> None:
    table, kind = torch.rand(4, 2, 3), torch.tensor([[0, 1]] * 4)
    tensors, arrays = {"name": table, "rel": table}, {"name": table.numpy(), "rel": table.numpy()}
    ours, theirs = (
        ProximityGraph.from_embeddings(embeddings, kind=kind, kinds=["name", "rel"], mutual=True)
        for embeddings in (arrays, tensors)
    )
    assert ours.instances == theirs.instances == (8, 8)
    assert torch.equal(ours.target, theirs.target)


def test_several_encoders_of_the_same_instances_are_merged() -> None:
    a, b = torch.tensor([[[0.0]], [[1.0]], [[5.0]]]), torch.tensor([[[0.0]], [[9.0]], [[0.5]]])
    merged = ProximityGraph.from_embeddings([a, b], k=1)
    assert sorted(edges(merged)) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    twice = ProximityGraph.merge(
        [ProximityGraph.from_edges([0], [1], [2.0]), ProximityGraph.from_edges([0], [1], [1.0])]
    )
    assert (edges(twice), twice.distance.tolist()) == ([(0, 1)], [1.0])


@pytest.mark.parametrize("search", [ExactSearch(), IndexedSearch("ivf", recall=1)], ids=str)
def test_searches_behind_the_protocol_agree(search: NeighbourSearch) -> None:
    """Torch and FAISS in one process; an inverted file that looks into every cell is exact."""
    if isinstance(search, IndexedSearch):
        pytest.importorskip("faiss")
    embeddings = torch.rand(100, 2, 6, generator=torch.Generator().manual_seed(4))
    assert edges(ProximityGraph.from_embeddings(embeddings, k=3, search=search)) == brute_force(embeddings, 3)
    radius = ProximityGraph.from_embeddings(embeddings, k=None, radius=0.4, search=search)
    assert edges(radius) == brute_force(embeddings, None, 0.4)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    ProximityGraph.from_embeddings(torch.rand(9, 1, 2), k=1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (9, 9)


def holes(value: float) -> Tensor:
    embeddings = torch.rand(3, 2, 4)
    embeddings[1, 1, 2] = value
    return embeddings


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "NaN": (lambda: ProximityGraph.from_embeddings(holes(math.nan)), "slot 1 of sample 1"),
    "infinity": (lambda: ProximityGraph.from_embeddings(holes(-math.inf)), "slot 1 of sample 1"),
    "k": (lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), k=3), "k=3 is larger than the pool"),
    "k zero": (lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), k=0), "at least 1"),
    "shape": (lambda: ProximityGraph.from_embeddings(torch.rand(2, 3)), r"\(samples, slots, d\)"),
    "neither": (lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), k=None), "got neither"),
    "radius": (lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), radius=-1), "radius"),
    "share": (lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), share=2), "share"),
    "metric": (lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), metric="l3"), "'l3'"),
    "kind": (
        lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), kind=torch.zeros(3, 2, dtype=int)),
        r"\(2, 2\)",
    ),
    "kind missing": (lambda: ProximityGraph.from_embeddings({"a": torch.rand(2, 2, 3)}), r"kind=candidates\.kind"),
    "pool width": (
        lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), pool=Pool(torch.rand(4, 2, 5))),
        "length 5",
    ),
    "a poor metric": (
        lambda: ProximityGraph.from_embeddings(torch.rand(2, 2, 3), metric=lambda a, _: a.sum(1)),
        r"shape \(4, 4\)",
    ),
    "edge shapes": (lambda: ProximityGraph.from_edges([0, 1], [2]), "one shape"),
    "edge types": (lambda: ProximityGraph.from_edges([0.5], [2.0]), "whole instance ids"),
    "edge distance": (lambda: ProximityGraph.from_edges([0], [2], [math.nan]), "finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_was_expected(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ClipperError, match=message):
        call()
