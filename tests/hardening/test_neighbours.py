"""The proximity graph against exact arithmetic: any scale, any number of ties, zero vectors, outliers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from clipper import Clipper, Lattice, ProximityGraph
from clipper.errors import BudgetError
from clipper.proximity import Pool
from tests.hardening.attack import EFFORT, refused

ROUNDING = {torch.float32: Fraction(4e-6), torch.float64: Fraction(1e-13)}
"""By how much the square of a distance may be off, relative, before one instance counts as nearer than another."""

UNIT = 1 << 1074
"""The smallest number of double precision goes into 1 so many times: in these units, all numbers are whole."""


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(number: float) -> int:
    above, below = number.as_integer_ratio()
    return above * (UNIT // below)


def exactly(embeddings: Tensor) -> list[tuple[int, ...]]:
    return [tuple(map(whole, row)) for row in embeddings.double().flatten(0, 1).flatten(1).tolist()]


def squared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def check_nearest(embeddings: Tensor, k: int, pool: Tensor | None = None) -> ProximityGraph:
    """Each instance has the edges of exact arithmetic; what rounding cannot tell apart may stand for one another.

    Equal vectors are told apart from others always, and of equal vectors the lower ids are taken.
    """
    graph = ProximityGraph.from_embeddings(embeddings, k=k, pool=None if pool is None else Pool(pool))
    slots = embeddings.shape[1]
    queries, targets = exactly(embeddings), exactly(embeddings if pool is None else pool)
    found_of: dict[int, list[tuple[int, float]]] = {}
    for i, j, length in zip(*(x.tolist() for x in (graph.source, graph.target, graph.distance)), strict=True):
        found_of.setdefault(i, []).append((j, length))
    for i, own in enumerate(queries):
        allowed = [j for j in range(len(targets)) if pool is not None or j // slots != i // slots]
        distance = {j: squared(own, targets[j]) for j in allowed}
        check_edges(found_of.get(i, []), distance, {j: targets[j] for j in allowed}, k, embeddings.dtype)
    return graph


def check_edges(
    edges: list[tuple[int, float]],
    distance: dict[int, int],
    vectors: dict[int, tuple[int, ...]],
    k: int,
    dtype: torch.dtype,
) -> None:
    loose = ROUNDING[dtype]
    found = {j for j, _ in edges}
    assert found <= set(distance)
    assert len(edges) == len(found) == min(k, len(distance))
    ideal = sorted(distance, key=lambda j: (distance[j], j))[:k]
    for (j, length), best in zip(edges, ideal, strict=True):
        off = abs(distance[j] - distance[best])
        assert off * loose.denominator <= loose.numerator * distance[best], f"got {j} instead of {best}"
        check_length(length, distance[j], dtype)
    for vector in {vectors[j] for j in found}:
        same = [j for j in distance if vectors[j] == vector]
        assert found.issuperset(same[: len(found.intersection(same))]), "of equal vectors, the lower ids are taken"
    told = [(length, j) for j, length in edges if length > torch.finfo(dtype).tiny]
    assert told == sorted(told), "edges are sorted by distance, then id"


def check_length(told: float, square: int, dtype: torch.dtype) -> None:
    """A distance is right to three digits, and zero if and only if it is (what no number of the dtype holds aside)."""
    smallest = whole(torch.finfo(dtype).tiny * torch.finfo(dtype).eps)
    length = whole(told)
    assert (told == 0) == (square == 0) or square <= smallest**2
    assert abs(length**2 - square) <= square // 500 + 4 * smallest**2 + 2 * smallest * length


ORDINARY: dict[str, Tensor] = {
    "random": drawn(12, 3, 5),
    "one coordinate": drawn(30, 1, 1),
    "whole numbers": (3 * drawn(15, 2, 3)).round(),
    "far from the origin": drawn(14, 2, 4) + 1e6,
    "far in one coordinate": drawn(14, 2, 3) * torch.tensor([1.0, 1e6, 1.0]) + torch.tensor([1e6, 0.0, -1e6]),
    "all equal": torch.full((25, 2, 4), 0.3),
    "all zero": torch.zeros(50, 1, 2),
    "equal within a sample": drawn(25, 1, 3).expand(25, 2, 3).contiguous(),
    "every vector three times": drawn(20, 1, 3).repeat(3, 1, 1),
    "one vector often": torch.cat([torch.ones(40, 1, 3), drawn(8, 1, 3)]),
    "two positions": torch.tensor([[[1.0, 2.0]], [[1.0, 3.0]]]).repeat(25, 1, 1),
    "two tight clusters": drawn(50, 1, 3) * 1e-5 + (torch.arange(50) % 2).view(50, 1, 1),
    "tight clusters at many scales": drawn(50, 1, 2) * 2.0 ** -torch.arange(50).view(50, 1, 1),
    "the corners of a simplex": torch.eye(45).unsqueeze(1),
    "the corners of a cube": torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5).unsqueeze(1),
    "mixed scales by coordinate": drawn(20, 2, 4) * torch.tensor([1e-20, 1e-5, 1.0, 1e5]),
    "signed zeros": torch.tensor([0.0, -0.0]).repeat(20).view(40, 1, 1),
}


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("case", ORDINARY)
def test_neighbours_are_those_of_exact_arithmetic(case: str, k: int) -> None:
    check_nearest(ORDINARY[case], k)
    check_nearest(ORDINARY[case].double() * 3, k)


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-30, 1e-19, 1e-10, 1e10, 1e19, 1e30, 1e37])
@pytest.mark.parametrize("case", ["random", "whole numbers", "one vector often"])
def test_the_scale_of_single_precision_does_not_matter(case: str, scale: float) -> None:
    check_nearest(ORDINARY[case] * scale, 2)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-300, 1e-160, 1e150, 1e160, 1e300])
def test_the_scale_of_double_precision_does_not_matter(scale: float) -> None:
    check_nearest(ORDINARY["random"].double() * scale, 3)
    check_nearest(ORDINARY["one vector often"].double() * scale, 3)


@pytest.mark.parametrize("exponent", [-100, -60, 40, 70, 100])
def test_a_power_of_two_changes_nothing_but_the_distances(exponent: int) -> None:
    plain = ProximityGraph.from_embeddings(ORDINARY["random"], k=5)
    scaled = ProximityGraph.from_embeddings(ORDINARY["random"] * 2.0**exponent, k=5)
    assert torch.equal(scaled.target, plain.target)
    assert torch.allclose(scaled.distance.double(), plain.distance.double() * 2.0**exponent, rtol=1e-6, atol=0)


@pytest.mark.parametrize("far", [1e5, 1e12, 1e18, 1e20, 1e38, -3e38])
@pytest.mark.parametrize("case", ["random", "one vector often"])
def test_one_instance_far_out_moves_nobody_else(case: str, far: float) -> None:
    embeddings = ORDINARY[case].clone()
    embeddings[3, 0, 1] = far
    check_nearest(embeddings, 2)
    wide = torch.cat([embeddings, drawn(20, embeddings.shape[1], embeddings.shape[2], seed=5)])
    check_nearest(wide, 1)
    check_nearest(wide.double(), 1)


def test_numbers_of_every_size_at_once() -> None:
    sizes = torch.tensor([10.0**e for e in range(-44, 38)]).view(-1, 1, 1)
    check_nearest(sizes, 3)
    check_nearest(torch.tensor([10.0**e for e in range(-320, 300, 8)], dtype=torch.float64).view(-1, 1, 1), 3)


@pytest.mark.parametrize("case", ["random", "whole numbers", "all equal", "every vector three times"])
def test_every_other_instance_may_be_a_neighbour(case: str) -> None:
    embeddings = ORDINARY[case][:8]
    check_nearest(embeddings, 7 * embeddings.shape[1])


@pytest.mark.parametrize("case", ["random", "whole numbers", "all equal", "one vector often", "two tight clusters"])
def test_a_pool_is_searched_as_exactly(case: str) -> None:
    check_nearest(ORDINARY[case][:5], 3, pool=ORDINARY[case])
    check_nearest(ORDINARY[case][:5] * 1e25, 3, pool=ORDINARY[case] * 1e25)


@pytest.mark.parametrize("scale", [1.0, 2.0**-90, 2.0**90])
@pytest.mark.parametrize("radius", [0.5, 1.0, 5.0**0.5, 3.0])
def test_a_radius_is_strict_at_any_scale(radius: float, scale: float) -> None:
    embeddings = (2 * drawn(60, 1, 2, seed=3)).round()
    graph = ProximityGraph.from_embeddings(embeddings * scale, k=None, radius=radius * scale)
    rows = [tuple(map(int, row)) for row in embeddings.flatten(1).tolist()]
    limit = round(radius**2, 6)  # the distance of a knight's move is rounded as the radius is
    expected = {(i, j) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j and squared(a, b) < limit}
    assert set(zip(graph.source.tolist(), graph.target.tolist(), strict=True)) == expected


def test_a_radius_too_small_for_the_precision_still_holds_equal_vectors() -> None:
    graph = ProximityGraph.from_embeddings(torch.ones(3, 1, 2), k=None, radius=1e-60)
    assert len(graph) == 6


def test_mutual_neighbours_and_the_closest_share_survive_ties() -> None:
    embeddings = ORDINARY["one vector often"]
    plain = check_nearest(embeddings, 2)
    edges = set(zip(plain.source.tolist(), plain.target.tolist(), strict=True))
    mutual = ProximityGraph.from_embeddings(embeddings, k=2, mutual=True)
    assert set(zip(mutual.source.tolist(), mutual.target.tolist(), strict=True)) == {
        (a, b) for a, b in edges if (b, a) in edges
    }
    share = ProximityGraph.from_embeddings(embeddings, k=2, share=0.25)
    assert len(share) == math.ceil(0.25 * len(plain))
    assert float(share.distance.max()) == 0


def test_kinds_are_searched_apart_through_ties() -> None:
    kind = torch.tensor([0, 1, -1]).repeat(30).view(30, 3)
    graph = ProximityGraph.from_embeddings(torch.ones(30, 3, 2), k=2, kind=kind)
    flat = kind.flatten()
    assert torch.equal(flat[graph.source], flat[graph.target])
    first = [instance for instance in range(90) if flat[instance] == 1][:3]
    assert graph.target[graph.source == first[0]].tolist() == first[1:]
    assert len(graph) == 60 * 2


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-13, 1e19, 1e37])
def test_the_cosine_ignores_every_length(scale: float) -> None:
    embeddings = drawn(20, 2, 4, seed=6)
    graph = ProximityGraph.from_embeddings(embeddings * scale, k=2, metric="cosine")
    unit = torch.nn.functional.normalize(embeddings.double().flatten(0, 1))
    expected = 1 - unit @ unit.T
    sample = torch.arange(40) // 2
    expected[sample[:, None] == sample] = math.inf
    best = expected.topk(2, largest=False)
    assert torch.equal(graph.target.view(40, 2), best.indices)
    assert torch.allclose(graph.distance.double().view(40, 2), best.values, atol=1e-5)


def test_a_zero_vector_is_like_other_zero_vectors_and_unlike_everything_else_by_the_cosine() -> None:
    embeddings = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.1], [1.0, 0.2]]).unsqueeze(1)
    graph = ProximityGraph.from_embeddings(embeddings, k=4, metric="cosine")
    distance = {
        (i, j): d for i, j, d in zip(*(x.tolist() for x in (graph.source, graph.target, graph.distance)), strict=True)
    }
    assert distance[0, 2] == distance[2, 0] == 0
    assert all(math.isclose(distance[0, j], 1, rel_tol=1e-6) for j in (1, 3, 4))
    assert distance[1, 4] < distance[1, 0] < distance[1, 3]
    only = ProximityGraph.from_embeddings(torch.zeros(4, 1, 3), k=1, metric="cosine")
    assert only.target.tolist() == [1, 0, 0, 0]


def test_whole_numbers_beyond_single_precision_are_told_apart() -> None:
    embeddings = (torch.tensor([0, 3, 4, 9]) + 2**40).view(4, 1, 1)
    assert ProximityGraph.from_embeddings(embeddings).target.tolist() == [1, 2, 1, 2]


def test_a_distance_beyond_the_largest_number_is_told() -> None:
    apart = torch.tensor([[[3e38]], [[-3e38]]])
    assert "float32" in str(refused(lambda: ProximityGraph.from_embeddings(apart)))
    assert len(ProximityGraph.from_embeddings(apart.double())) == 2
    assert len(ProximityGraph.from_embeddings(apart, radius=1.0)) == 0
    assert len(ProximityGraph.from_embeddings(torch.cat([apart, apart]))) == 4


MANY: dict[str, Callable[[], Tensor]] = {
    "identical": lambda: torch.ones(33_334, 3, 16),
    "identical and tiny": lambda: torch.full((33_334, 3, 16), 1e-30),
    "on ten positions": lambda: drawn(10, 16)[torch.arange(100_002) % 10].view(33_334, 3, 16),
    "in two samples": lambda: torch.ones(2, 50_000, 16),
    "in two samples, but fewer": lambda: torch.ones(2, 4_000, 16),
}
FAST = [("identical", 1), ("on ten positions", 3), ("in two samples, but fewer", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "k"), [(c, k) for c in MANY for k in (1, 3, 8)] if EFFORT > 1 else FAST)
def test_a_hundred_thousand_ties_take_seconds(case: str, k: int) -> None:
    embeddings = MANY[case]()
    start = time.perf_counter()
    graph = ProximityGraph.from_embeddings(embeddings, k=k)
    seconds = time.perf_counter() - start
    assert seconds < 60  # four on a machine that does nothing else
    flat, slots = embeddings.flatten(0, 1), embeddings.shape[1]
    assert torch.equal(flat[graph.source], flat[graph.target])
    assert bool((graph.distance == 0).all())
    for i in (0, 1, 17, len(flat) - 1):
        same = (flat == flat[i]).all(1)
        same[i // slots * slots : (i // slots + 1) * slots] = False
        assert graph.target[graph.source == i].tolist() == same.nonzero().flatten()[:k].tolist()


def test_ties_by_any_metric_are_bounded_too() -> None:
    graph = ProximityGraph.from_embeddings(drawn(1500, 2, 3), k=2, metric=lambda a, b: torch.ones(len(a), len(b)))
    assert graph.target.view(-1, 2)[:4].tolist() == [[2, 3], [2, 3], [0, 1], [0, 1]]
    assert graph.target.view(-1, 2)[-1].tolist() == [0, 1]


def test_more_edges_than_anyone_can_use_are_refused_before_they_are_listed() -> None:
    start = time.perf_counter()
    assert isinstance(
        refused(lambda: ProximityGraph.from_embeddings(torch.ones(40_000, 1, 2), k=None, radius=1.0)), BudgetError
    )
    assert isinstance(refused(lambda: ProximityGraph.from_embeddings(torch.ones(40_000, 1, 2), k=30_000)), BudgetError)
    assert time.perf_counter() - start < 30


def test_random_pools_of_any_make() -> None:
    generator = np.random.default_rng(11)
    for _ in range(100 * EFFORT):
        samples, slots, size = generator.integers(2, 30), generator.integers(1, 4), generator.integers(1, 6)
        distinct = generator.integers(1, samples * slots + 1)
        base = generator.normal(size=(distinct, size)) * 10.0 ** generator.integers(-30, 30)
        if generator.random() < 0.4:
            base = np.round(base / np.abs(base).max() * 3)
        if generator.random() < 0.3:
            base[generator.integers(distinct)] *= 10.0 ** generator.integers(-7, 7)
        if generator.random() < 0.3:
            base += 10.0 ** generator.integers(-3, 7)
        rows = base[generator.integers(distinct, size=samples * slots)].reshape(samples, slots, size)
        embeddings = torch.from_numpy(rows).to(torch.float32 if generator.random() < 0.7 else torch.float64)
        check_nearest(embeddings, int(generator.integers(1, (samples - 1) * slots + 1)))


def test_the_random_control_of_a_lattice_draws_from_the_pool_by_its_own_ids() -> None:
    """The batch's first sample is the pool's second: it must draw from the pool's first, and not from itself."""
    pool = Pool(drawn(2, 2, 3), samples=torch.tensor([1, 0]))
    for seed in range(10):
        pruning = Clipper(objective="random", k=2).prune(
            sums([6, 4]), pool.embeddings[[1, 0]], pool=pool, pool_candidates=sums([4, 6]), seed=seed
        )
        assert [int(count) for count in pruning.candidates.counts] == [3, 5]  # 2 + 4, 3 + 3, 4 + 2 are left of 6


def sums(targets: list[int]) -> Lattice:
    return Lattice.from_rule(
        0, lambda state, label: state + label, lambda state: state, targets=targets, slots=2, classes=10
    )
