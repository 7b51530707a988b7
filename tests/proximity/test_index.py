"""Indexes against brute force: what they find, what they keep on disk, and what they refuse."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipper import ClipperError, ProximityGraph
from clipper.errors import FileError, InputError
from clipper.proximity import ExactSearch, Index, IndexedSearch, Neighbours, build, search
from clipper.proximity.neighbours import Vectors

pytest.importorskip("faiss")
APPROXIMATE = ["ivf", "hnsw", "nn-descent"]


def clusters(instances: int, width: int = 16, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(10, width, generator=generator)
    label = torch.randint(0, 10, (instances,), generator=generator)
    return centres[label] + torch.randn(instances, width, generator=generator)


def brute_force(pool: Tensor, k: int, group: Tensor) -> Tensor:
    """Distances of the k nearest outside each instance's group, in double precision, `(instances, k)`."""
    distance = torch.cdist(pool.double(), pool.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distance[group[:, None] == group] = math.inf
    return distance.sort(dim=1).values[:, :k]


def same(a: Neighbours, b: Neighbours) -> bool:
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("query", "index", "distance"))


@pytest.mark.parametrize(
    ("method", "instances"), [("ivf", 3_000), ("ivf", 12_000), ("hnsw", 3_000), ("nn-descent", 3_000)]
)
def test_an_approximate_index_finds_the_share_that_was_asked_for(method: str, instances: int) -> None:
    pool = clusters(instances)
    group = torch.arange(instances)
    chosen = group[:: instances // 1_000]
    index = build(pool, method, k=4, recall=0.95)
    near = search(index, pool[chosen], k=4, group=chosen)
    distance = torch.cdist(pool[chosen].double(), pool.double())
    distance[torch.arange(len(chosen)), chosen] = math.inf
    bound = distance.topk(4, largest=False).values[:, -1]
    found = near.distance.view(len(chosen), 4).double()
    recall = float((found <= bound[:, None] * (1 + 1e-5)).double().mean())
    assert recall >= 0.93  # tuned on a sample
    assert near.report is not None
    assert near.report.recall == pytest.approx(recall, abs=0.04)
    true = (pool[chosen][near.query] - pool[near.index]).double().norm(dim=1)
    assert torch.allclose(near.distance.double(), true, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_tiny_pools_with_duplicates_are_searched_as_by_brute_force(data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 2))
    samples, width = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 3))
    values = st.integers(0, data.draw(st.sampled_from([0, 1, 5])))
    size = samples * slots * width
    numbers = data.draw(st.lists(values, min_size=size, max_size=size))
    pool = torch.tensor(numbers, dtype=torch.float32).reshape(samples, slots, width)
    k = data.draw(st.integers(1, samples * slots + 2))  # up to more than there are
    group = torch.arange(samples * slots) // slots
    index = build(pool, data.draw(st.sampled_from(["auto", "exact", "ivf", "hnsw"])), k=k, recall=1)
    near = search(index, pool.flatten(0, 1), k, group=group)
    reach = min(k, (samples - 1) * slots)
    assert len(near) == samples * slots * reach
    expected = brute_force(pool.flatten(0, 1), reach, group)
    assert torch.allclose(near.distance.view(-1, reach).double(), expected, atol=1e-6)
    assert bool((group[near.query] != group[near.index]).all())


def test_the_exact_index_is_the_exact_search_bit_for_bit() -> None:
    pool = clusters(900).view(300, 3, 16)
    vectors = Vectors(pool.flatten(0, 1), None, 3)
    expected = ExactSearch().find(vectors, vectors, 5)
    assert same(build(pool, "exact").find(vectors, vectors, 5), expected)
    assert same(search(build(pool), pool.flatten(0, 1), 5, group=torch.arange(900) // 3), expected)


@pytest.mark.parametrize("method", ["exact", *APPROXIMATE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_index_is_mapped_and_finds_the_same(method: str, dtype: torch.dtype, tmp_path: Path) -> None:
    instances = 12_000 if method == "ivf" else 2_000  # so many are stored with four bits a coordinate
    pool = clusters(instances, 8).to(dtype)
    group = torch.arange(instances) // 2
    index = build(pool, method, k=3, group=group)
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index")
    assert (loaded.method, loaded.reason, loaded.effort) == (index.method, index.reason, index.effort)
    queries = slice(0, 500)
    expected = search(index, pool[queries], 3, group=group[queries])
    assert same(search(loaded, pool[queries], 3, group=group[queries]), expected)
    whole = ProximityGraph.from_embeddings(pool.view(-1, 2, 8), k=3, search=loaded)
    assert torch.equal(whole.target[:1500], expected.index)
    assert whole.reports[0].method == method


def test_what_comes_in_pieces_is_found_as_at_once() -> None:
    pool = clusters(12_000, 8)
    index = build(pool, "ivf", k=2)
    group = torch.arange(12_000)
    whole = search(index, pool, 2, group=group, measured=0)
    pieces = [search(index, pool[i : i + 1_700], 2, group=group[i : i + 1_700]).index for i in range(0, 12_000, 1_700)]
    assert torch.equal(torch.cat(pieces), whole.index)


def test_the_choice_by_size_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = clusters(600).view(300, 2, 16)
    few = ProximityGraph.from_embeddings(pool, k=2)
    assert few.reports[0].method == "exact"
    assert "600 × 600" in few.reports[0].reason
    monkeypatch.setattr("clipper.proximity.index.EXACT_PAIRS", 1_000)
    many = ProximityGraph.from_embeddings(pool, k=2)
    assert many.reports[0].method == "ivf"
    assert many.reports[0].measured == 100
    assert ProximityGraph.from_embeddings(pool, k=2, search="exact").reports[0].reason == "asked for"
    monkeypatch.setattr("clipper.proximity.index.find_spec", lambda _: None)
    assert "pip install" in ProximityGraph.from_embeddings(pool, k=2).reports[0].reason


def test_all_within_a_radius_are_found_exactly_and_it_is_said() -> None:
    pool = clusters(500)
    near = search(build(pool, "ivf"), pool, None, radius=4.0, group=torch.arange(500))
    expected = search(build(pool, "exact"), pool, None, radius=4.0, group=torch.arange(500))
    assert same(near, expected)
    assert len(near)
    assert near.report is not None
    assert near.report.method == "exact"


def test_an_index_in_a_folder_is_built_once_and_belongs_to_its_pool(tmp_path: Path) -> None:
    pool, folder = clusters(600).view(300, 2, 16), tmp_path / "index"
    first = ProximityGraph.from_embeddings(pool, k=2, search=IndexedSearch("ivf", folder=folder))
    written = (folder / "index.json").read_bytes()
    again = ProximityGraph.from_embeddings(pool, k=2, search=IndexedSearch(folder=folder))
    assert torch.equal(first.target, again.target)
    assert (folder / "index.json").read_bytes() == written
    with pytest.raises(InputError, match="other values"):
        ProximityGraph.from_embeddings(pool + 1, k=2, search=IndexedSearch(folder=folder))
    with pytest.raises(InputError, match="remove it first"):
        ProximityGraph.from_embeddings(pool, k=2, search=IndexedSearch("hnsw", folder=folder))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda folder: (folder / "index.json").unlink(),
    "half a manifest": lambda folder: (folder / "index.json").write_bytes((folder / "index.json").read_bytes()[:90]),
    "another effort": lambda folder: rewritten(folder, effort=10**6),
    "a list": lambda folder: (folder / "index.json").write_text("[]"),
    "vectors gone": lambda folder: next(folder.glob("vectors-*")).unlink(),
    "vectors cut": lambda folder: os.truncate(next(folder.glob("vectors-*")), 1_000),
    "a bit of the vectors": lambda folder: flipped(next(folder.glob("vectors-*"))),
    "a bit of the structure": lambda folder: flipped(next(folder.glob("structure-*"))),
}


def rewritten(folder: Path, **changes: object) -> None:
    document = json.loads((folder / "index.json").read_text())
    document["index"] |= changes
    (folder / "index.json").write_text(json.dumps(document))


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_index_is_refused(case: str, tmp_path: Path) -> None:
    build(clusters(500), "ivf").save(tmp_path / "index")
    DAMAGE[case](tmp_path / "index")
    with pytest.raises(FileError, match="index"):
        Index.load(tmp_path / "index")


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(FileError, match=r"thesis\.tex"):
        build(clusters(10)).save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="no folder"):
        build(clusters(10)).save(tmp_path / "file")


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "NaN in the pool": (lambda: build(torch.tensor([[0.0], [math.nan]])), "the first of them 1"),
    "infinity in a query": (lambda: search(build(torch.ones(3, 1)), torch.tensor([[math.inf]])), "queries"),
    "another width": (lambda: search(build(torch.ones(3, 2)), torch.ones(1, 3)), "2 dimensions"),
    "no vectors": (lambda: build(torch.ones(4)), r"\(instances, d\)"),
    "a graph of few": (lambda: build(torch.rand(50, 2), "nn-descent"), "smaller than 100.*use the exact search"),
    "an unknown method": (lambda: build(torch.ones(3, 2), "annoy"), '"hnsw"'),
    "groups that descend": (lambda: build(torch.ones(2, 2), group=torch.tensor([1, 0])), "ascending"),
    "groups of another length": (lambda: search(build(torch.ones(3, 2)), torch.ones(1, 2), group=[0, 1]), r"\(1,\)"),
    "no k and no radius": (lambda: search(build(torch.ones(3, 2)), torch.ones(1, 2), None), "neither"),
    "a recall above one": (lambda: build(torch.ones(3, 2), recall=2), "recall"),
    "no index": (lambda: search(torch.ones(3, 2), torch.ones(1, 2)), r"build\(pool\)"),  # type: ignore[arg-type]
    "a path that is none": (lambda: Index.load("nowhere"), "has none"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_was_expected(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ClipperError, match=message):
        call()


WRITER = """
import sys, torch
from clipper.proximity import build
index = build(torch.full((40_000, 64), float(sys.argv[2])), "exact")
print("ready", flush=True)
while True:
    index.save(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_a_kill_while_writing_leaves_nothing_or_a_whole_index(old: bool, tmp_path: Path) -> None:
    for seconds in (0.01, 0.1):
        folder = tmp_path / f"{seconds}"
        if old:
            build(torch.zeros(10, 2)).save(folder)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, folder, "3"], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(seconds)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        if old or (folder / "index.json").exists():
            loaded = Index.load(folder).vectors.values
            assert loaded.shape in ((10, 2), (40_000, 64))
        build(torch.zeros(10, 2)).save(folder)  # what was left is swept away
        assert len(list(folder.iterdir())) == 2
