"""Wrong arguments to the proximity graph and the encoders: a refusal in words or an answer, never a raw exception."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clipper import Candidates, Clipper, ProximityGraph
from clipper.proximity import ExactSearch, Frozen, IndexedSearch, Outlines, Pixels, Pool, embed, pretrained
from tests.hardening.attack import check_all_answer, refused

Calls = list[tuple[str, Callable[[], Any]]]

GOOD = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(0))
KIND = torch.tensor([[0, 1], [0, 1], [1, 0], [0, -1]])
NAN, INF = math.nan, math.inf

ODD: dict[str, Any] = {
    "None": None,
    "a word": "embedding",
    "an empty word": "",
    "a number": 3,
    "a fraction": 1.5,
    "NaN": NAN,
    "infinity": INF,
    "minus infinity": -INF,
    "zero": 0,
    "minus one": -1,
    "true": True,
    "a huge number": 10**12,
    "a number beyond 64 bits": 2**70,
    "a complex number": 1j,
    "bytes": b"\x00\x01",
    "an object": object(),
    "a class": dict,
    "a function": lambda *_: None,
    "an empty list": [],
    "an empty tuple": (),
    "an empty mapping": {},
    "a ragged list": [[1.0], [1.0, 2.0]],
    "a list of words": ["a", "b"],
    "a list of None": [None],
    "a set": {1, 2},
    "an empty tensor": torch.empty(0),
    "a scalar tensor": torch.tensor(2.0),
    "a meta tensor": torch.empty(4, 2, 3, device="meta"),
    "a sparse tensor": torch.eye(3).to_sparse(),
    "a complex tensor": torch.zeros(4, 2, 3, dtype=torch.complex64),
    "an array of objects": np.array([None, 1], dtype=object),
    "an array of words": np.array([["a"], ["b"]]),
    "an array of dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "an array of records": np.zeros(3, dtype=[("x", "f4")]),
    "a graph": ProximityGraph.from_edges([0], [1]),
    "a generator": (x for x in ()),
    "a range": range(3),
}


def odd(call: Callable[[Any], Any], name: str) -> Calls:
    """The call with every odd argument; a function of its own for each, which keeps its argument."""
    return [(f"{name} {kind}", lambda value=value: call(value)) for kind, value in ODD.items()]


def embeddings_of(dtype: torch.dtype) -> Tensor:
    return (GOOD * 10).to(dtype)


def test_odd_arguments_of_from_embeddings_are_answered() -> None:
    build = ProximityGraph.from_embeddings
    calls = odd(build, "embeddings")
    for name in ("k", "radius", "mutual", "share", "metric", "kind", "kinds", "within_sample", "pool", "search"):
        calls += odd(lambda value, name=name: build(GOOD, **{name: value}), name)
    calls += odd(lambda value: build({"a": GOOD, "b": GOOD}, kind=value), "kind of a mapping")
    calls += odd(lambda value: build({"a": GOOD, "b": GOOD}, kind=KIND, kinds=value), "kinds of a mapping")
    calls += odd(lambda value: build({"a": GOOD, "b": value}, kind=KIND), "embeddings of a kind")
    calls += odd(lambda value: build([GOOD, value]), "embeddings of an encoder")
    calls += odd(lambda value: build(GOOD, pool=Pool(value)), "a pool's embeddings")
    calls += odd(lambda value: build(GOOD, pool=Pool(GOOD, kind=value)), "a pool's kind")
    calls += odd(lambda value: build(GOOD, pool=Pool(GOOD, samples=value)), "a pool's samples")
    calls += odd(lambda value: build(GOOD, metric=lambda *_: value), "a metric that returns")
    calls += odd(lambda value: build(GOOD, search={"": value}), "a search in a mapping")
    calls += odd(lambda value: build(GOOD, search=IndexedSearch(value)), "a method")
    calls += odd(lambda value: build(GOOD, search=IndexedSearch(recall=value)), "a recall")
    calls += odd(lambda value: build(GOOD, search=ExactSearch(memory=value)), "memory")
    calls += odd(lambda value: build(GOOD, metric=ExactSearch(distance=value).distance or "l2"), "a distance")
    answers, refusals = check_all_answer(calls)
    assert answers >= 10
    assert refusals >= 40


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "two dimensions": (lambda: ProximityGraph.from_embeddings(torch.rand(4, 3)), r"unsqueeze\(1\)"),
    "no coordinates": (lambda: ProximityGraph.from_embeddings(torch.rand(4, 2, 0)), r"\(4, 2, 0\)"),
    "no slots": (lambda: ProximityGraph.from_embeddings(torch.rand(4, 0, 2)), r"\(4, 0, 2\)"),
    "a tuple": (lambda: ProximityGraph.from_embeddings((GOOD, GOOD)), "unpack"),
    "a tuple to Clipper": (lambda: Clipper()(candidates(), (GOOD, GOOD)), "unpack"),
    "half precision with NaN": (
        lambda: ProximityGraph.from_embeddings(torch.full((2, 1, 2), NAN).half()),
        "slot 0 of sample 0",
    ),
    "a single sample": (lambda: ProximityGraph.from_embeddings(GOOD[:1]), "leave 0 neighbours"),
    "k beyond the pool": (lambda: ProximityGraph.from_embeddings(GOOD, k=10**12), "larger than the pool"),
    "k as text": (lambda: ProximityGraph.from_embeddings(GOOD, k="3"), "whole number"),
    "k as a fraction": (lambda: ProximityGraph.from_embeddings(GOOD, k=1.5), "whole number"),
    "k as truth": (lambda: ProximityGraph.from_embeddings(GOOD, k=True), "whole number"),
    "a radius of NaN": (lambda: ProximityGraph.from_embeddings(GOOD, radius=NAN), "radius"),
    "a radius of text": (lambda: ProximityGraph.from_embeddings(GOOD, radius="a"), "radius"),
    "a share of NaN": (lambda: ProximityGraph.from_embeddings(GOOD, share=NAN), "share"),
    "mutual as text": (lambda: ProximityGraph.from_embeddings(GOOD, mutual="no"), "True or False"),
    "a search unknown": (lambda: ProximityGraph.from_embeddings(GOOD, search="annoy"), '"hnsw"'),
    "a search's class": (lambda: ProximityGraph.from_embeddings(GOOD, search=ExactSearch), "ExactSearch()"),
    "faiss with a function": (
        lambda: ProximityGraph.from_embeddings(GOOD, search="faiss", metric=torch.cdist),
        "exact search only",
    ),
    "a pool without Pool": (lambda: ProximityGraph.from_embeddings(GOOD, pool=GOOD), r"Pool\(embeddings\)"),
    "a pool by kind for a batch that is not": (
        lambda: ProximityGraph.from_embeddings(GOOD, pool=Pool({"a": GOOD})),
        "form of the batch's",
    ),
    "a pool without a kind": (
        lambda: ProximityGraph.from_embeddings({"a": GOOD, "b": GOOD}, kind=KIND, pool=Pool({"a": GOOD})),
        "'b'",
    ),
    "samples beyond the pool": (
        lambda: ProximityGraph.from_embeddings(GOOD, pool=Pool(GOOD, samples=torch.tensor([0, 1, 2, 4]))),
        "4 samples",
    ),
    "a kind of another shape": (
        lambda: ProximityGraph.from_embeddings(GOOD, kind=KIND.T.contiguous()),
        r"\(4, 2\), got \(2, 4\)",
    ),
    "fewer embeddings than kinds": (lambda: ProximityGraph.from_embeddings({"a": GOOD}, kind=KIND), "2 kinds"),
    "an unknown kind": (
        lambda: ProximityGraph.from_embeddings({"name": GOOD, "rle": GOOD}, kind=KIND, kinds=["name", "rel"]),
        "'rle'",
    ),
    "a missing kind": (
        lambda: ProximityGraph.from_embeddings({"name": GOOD}, kind=KIND, kinds=["name", "rel"]),
        "'rel'",
    ),
    "a metric of NaN": (
        lambda: ProximityGraph.from_embeddings(GOOD, metric=lambda a, b: torch.full((len(a), len(b)), NAN)),
        "NaN",
    ),
    "sizes beyond FAISS": (
        lambda: ProximityGraph.from_embeddings(torch.tensor([[[1e30]], [[1e-30]], [[0.0]]]), search="faiss"),
        'search="exact"',
    ),
    "edges of truth": (lambda: ProximityGraph.from_edges([True], [False]), "whole instance ids"),
    "edges below zero": (lambda: ProximityGraph.from_edges([0], [-1]), "-1"),
    "edges in two dimensions": (lambda: ProximityGraph.from_edges([[0]], [[1]]), "one shape"),
    "a graph alone to merge": (lambda: ProximityGraph.merge([1]), "int"),
    "an encoder's name": (lambda: embed("resnet18", GOOD), r'pretrained\("resnet18"\)'),
    "an encoder's name to Clipper": (lambda: Clipper(encoder="outlines")(candidates(), GOOD), r"Outlines\(\)"),
    "an encoder's class": (lambda: embed(Pixels, GOOD), "can be called"),
    "an encoder of pairs": (lambda: embed(lambda x: (x, x), GOOD), r"network\(x\)\[1\]"),
    "bytes": (lambda: embed(Outlines(), torch.zeros(2, 2, 1, 8, 8, dtype=torch.uint8)), "inputs / 255"),
    "images of no pixel": (lambda: Outlines()(torch.rand(3, 1, 0, 0)), r"\(3, 1, 0, 0\)"),
    "a blur wider than the image": (lambda: Pixels(blur=1e9)(torch.rand(2, 1, 8, 8)), "blur"),
    "embeddings of other samples by kind": (
        lambda: Clipper()(candidates(), {"label": GOOD[:3]}),
        r"\(4, 2, d\)",
    ),
    "an array of other samples": (lambda: Clipper()(candidates(), GOOD[:3].numpy()), r"\(4, 2, d\)"),
}


def candidates() -> Candidates:
    return Candidates.from_rule(sum, targets=[3, 4, 5, 6], slots=2, classes=10)


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_what_was_expected(case: str) -> None:
    call, words = REFUSED[case]
    if "faiss" in case.lower():
        pytest.importorskip("faiss")
    message = str(refused(call))
    assert re.search(words, message), message


EXPECTED = ProximityGraph.from_embeddings(GOOD, k=2)
SAME: dict[str, Any] = {
    "an array": GOOD.numpy(),
    "lists": GOOD.tolist(),
    "a tensor that asks for gradients": GOOD.clone().requires_grad_(),
    "double precision": GOOD.double(),
    "an array in Fortran order": np.asfortranarray(GOOD.numpy()),
    "an array backwards and forwards": GOOD.numpy()[::-1][::-1],
    "an array of the other byte order": GOOD.numpy().astype(">f4"),
    "an array that may not be written to": np.frombuffer(GOOD.numpy().tobytes(), np.float32).reshape(4, 2, 3),
    "a view": GOOD.repeat(1, 1, 2)[:, :, :3],
    "a feature map": GOOD.view(4, 2, 1, 3),
    "a list of one": [GOOD],
}


@pytest.mark.parametrize("case", SAME)
def test_embeddings_in_another_form_are_taken(case: str) -> None:
    graph = ProximityGraph.from_embeddings(SAME[case], k=2)
    assert torch.equal(graph.target, EXPECTED.target)
    assert torch.allclose(graph.distance.float(), EXPECTED.distance, rtol=1e-3)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int64, torch.bool], ids=str
)
def test_embeddings_of_another_type_are_measured_as_they_are(dtype: torch.dtype) -> None:
    embeddings = embeddings_of(dtype)
    graph = ProximityGraph.from_embeddings(embeddings, k=3)
    expected = ProximityGraph.from_embeddings(embeddings.double(), k=3)
    assert torch.equal(graph.target, expected.target)


def test_no_samples_have_no_edges() -> None:
    assert len(ProximityGraph.from_embeddings(GOOD[:0])) == 0
    assert len(ProximityGraph.from_embeddings(GOOD, kind=torch.full((4, 2), -1))) == 0
    assert len(ProximityGraph.from_embeddings([GOOD[:0], GOOD[:0]], k=2, mutual=True, share=0.5)) == 0


@pytest.mark.parametrize("search", ["exact", "faiss", {"label": "faiss"}], ids=str)
def test_a_search_may_be_named(search: Any) -> None:
    if search != "exact":
        pytest.importorskip("faiss")
    kept = Clipper(search=search, k=2)(candidates(), GOOD)
    assert torch.equal(kept.labels, Clipper(k=2)(candidates(), GOOD).labels)


@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_faiss_finds_the_same_at_any_scale(scale: float) -> None:
    pytest.importorskip("faiss")
    embeddings = torch.rand(50, 2, 4, generator=torch.Generator().manual_seed(1)) * scale
    named = ProximityGraph.from_embeddings(embeddings, k=2, search="faiss")
    exact = ProximityGraph.from_embeddings(embeddings, k=2)
    assert torch.equal(named.target, exact.target)
    assert torch.allclose(named.distance, exact.distance, rtol=1e-3, atol=0)


def test_embeddings_by_kind_go_by_name_in_any_order() -> None:
    """Two kinds with two labels each; each slot has its kind's embedding, the other kind's is noise."""
    both = Candidates.from_lists(
        [[(0, 2), (1, 3)], [(0, 2)], [(1, 3)], [(0, 3), (1, 2)]], classes={"name": 2, "rel": 2}
    )
    name, rel = (torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    straight = Clipper(k=2).graph(both, {"name": name, "rel": rel})
    swapped = Clipper(k=2).graph(both, {"rel": rel, "name": name})
    assert torch.equal(straight.target, swapped.target)
    assert torch.equal(straight.distance, swapped.distance)
    alone = ProximityGraph.from_embeddings(name[:, :1], k=2)
    assert torch.equal(straight.target[straight.source == 0], alone.target[alone.source == 0] * 2)
    assert "relation" in str(refused(lambda: Clipper(k=2).graph(both, {"name": name, "relation": rel})))


def test_odd_arguments_of_from_edges_are_answered() -> None:
    build = ProximityGraph.from_edges
    calls = odd(lambda value: build(value, value), "edges")
    calls += odd(lambda value: build(value, [1]), "sources")
    calls += odd(lambda value: build([1], value), "targets")
    calls += odd(lambda value: build([1], [2], value), "distances")
    calls += odd(lambda value: build([1], [2], [value]), "a distance")
    answers, refusals = check_all_answer(calls)
    assert answers >= 10
    assert refusals >= 40
    far = build(np.array([2**40], dtype=np.uint64), range(1), np.array([1], dtype=">f8"))
    assert (far.source.tolist(), far.target.tolist(), far.distance.tolist()) == ([2**40], [0], [1.0])
    assert build([0], [1], [3]).distance.is_floating_point()
    narrow = build(np.array([200], dtype=np.uint8), np.array([100], dtype=np.int8))
    assert narrow.source.dtype == narrow.target.dtype == torch.int64


def test_ids_of_a_narrow_type_do_not_overflow_in_a_pool() -> None:
    """Slot 0 of sample 100 is instance 200, which eight bits do not hold."""
    pool = torch.arange(360.0).view(180, 2, 1)
    for dtype in (np.int8, np.uint8, np.int16):
        graph = ProximityGraph.from_embeddings(pool[[100]], k=2, pool=Pool(pool, samples=np.array([100]).astype(dtype)))
        assert graph.target.tolist() == [199, 198, 202, 199]


def test_odd_arguments_of_merge_are_answered() -> None:
    edge = ProximityGraph.from_edges([0], [1])
    calls = odd(ProximityGraph.merge, "graphs")
    calls += odd(lambda value: ProximityGraph.merge([edge, value]), "a graph")
    answers, refusals = check_all_answer(calls)
    assert refusals >= 40 > answers
    assert len(ProximityGraph.merge(graph for graph in (edge, edge))) == 1
    assert ProximityGraph.merge([edge, ProximityGraph.from_edges([2**40], [0])]).source.tolist() == [0, 2**40]


def test_odd_arguments_of_encoders_are_answered() -> None:
    images = torch.rand(2, 2, 1, 8, 8)
    calls = odd(lambda value: embed(Pixels(), value), "inputs")
    calls += odd(lambda value: embed(value, images), "an encoder")
    calls += odd(lambda value: embed(Pixels(), images, chunk=value), "a chunk")
    calls += odd(lambda value: embed(lambda _: value, images), "an encoder that returns")
    calls += odd(lambda value: Frozen(value), "a frozen network")
    calls += odd(lambda value: Frozen(nn.Flatten(), value), "preprocessing")
    calls += odd(lambda value: Frozen(nn.Flatten(), chunk=value)(images[0]), "a frozen network's chunk")
    calls += odd(lambda value: Frozen(nn.Flatten())(value), "a frozen network's inputs")
    calls += odd(lambda value: Frozen(lambda _: value)(images[0]), "a frozen network that returns")
    for encoder in (Pixels(), Pixels(blur=1.0), Outlines(), Outlines(cells=3, colours=True)):
        calls += odd(encoder, f"{encoder} on")
        for shape in ((), (3,), (3, 4), (3, 0), (2, 1, 0, 5), (2, 0, 5, 5), (2, 1, 1, 1), (0, 1, 4, 4), (2, 1, 1, 9)):
            for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.bool, torch.complex64):
                images_of = torch.ones(shape).to(dtype)
                calls.append((f"{encoder} {shape} {dtype}", lambda e=encoder, x=images_of: e(x)))
    calls += odd(lambda value: Pixels(blur=value)(images[0]), "a blur")
    small = {name: value for name, value in ODD.items() if "huge" not in name and "beyond" not in name}
    for name, value in small.items():
        calls.append((f"cells {name}", lambda value=value: Outlines(cells=value)(images[0])))
        calls.append((f"directions {name}", lambda value=value: Outlines(directions=value)(images[0])))
        calls.append((f"colours {name}", lambda value=value: Outlines(colours=value)(images[0])))
    answers, refusals = check_all_answer(calls)
    assert answers >= 10
    assert refusals >= 40


def test_images_without_meaning_are_refused_where_they_are_compared() -> None:
    broken = torch.rand(3, 2, 1, 8, 8)
    broken[1, 1, 0, 4, 4] = NAN
    for encoder in (Pixels(), Outlines(), Pixels(blur=1.0)):
        message = str(refused(lambda e=encoder: ProximityGraph.from_embeddings(embed(e, broken))))
        assert "slot 1 of sample 1" in message


def test_half_precision_images_have_the_outlines_of_single_precision() -> None:
    images = torch.rand(3, 1, 12, 12).half()
    assert torch.equal(Outlines()(images), Outlines()(images.float()))


def test_an_unknown_pretrained_encoder_is_refused() -> None:
    for name in ("vgg", "", None, 3, ("resnet18",)):
        refused(lambda name=name: pretrained(name))
