"""Wrong arguments of a training: each is refused in words before it costs anything, none raises a raw exception."""

# ruff: noqa: ARG005  (a wrong part need not look at what it is given)
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import clipper
from clipper.benchmarks.config import RunConfig
from clipper.engines import SemanticLoss
from clipper.errors import ClipperError
from clipper.training import (
    Classifiers,
    Encoders,
    EpochMetrics,
    MemoryBank,
    Packing,
    Record,
    Samples,
    accuracy,
    train,
    train_iterated,
)
from tests.hardening.attack import answered, check_all_answer, refused

NAN = float("nan")


class Net(nn.Module):
    """A classifier that returns what `answer` makes of its log-probabilities and its embedding."""

    def __init__(self, answer: Callable[[Tensor, Tensor], Any] = lambda log_probs, embedding: (log_probs, embedding)):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = nn.Linear(5, 3)
        self.answer = answer

    def forward(self, inputs: Tensor) -> Any:
        embedding = self.layer(inputs)
        return self.answer(embedding.log_softmax(-1), embedding)


class Engine(nn.Module):
    """An engine that returns what `answer` makes of its log-probabilities."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, log_probs: Tensor, candidates: Any, context: Any) -> Any:
        del candidates, context
        return self.answer(log_probs)


INPUTS = torch.rand(6, 2, 5, generator=torch.Generator().manual_seed(0))
CANDIDATES = clipper.Candidates.from_rule(sum, targets=[3, 1, 0, 2, 2, 1], slots=2, classes=3)
DATA = INPUTS, CANDIDATES
HELD_OUT = torch.rand(4, 5), torch.tensor([0, 1, 2, 0])


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


def made_in_inference_mode(make: Callable[[], Any]) -> Any:
    with torch.inference_mode():
        return make()


def check_all_refused(calls: list[tuple[str, Callable[[], Any]]]) -> None:
    """No call is answered, and none raises a raw exception."""
    taken: list[str] = []

    def told(name: str, call: Callable[[], Any]) -> Any:
        answer = answered(call)
        taken.extend([] if isinstance(answer, ClipperError) else [name])

    check_all_answer([(name, lambda n=name, c=call: told(n, c)) for name, call in calls])
    assert not taken, f"these were taken: {taken}"


def wrong_classifiers() -> dict[str, Any]:
    answers: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "no tensor": lambda p, e: None,
        "text": lambda p, e: "labels",
        "a dictionary": lambda p, e: {"log_probs": p},
        "three things": lambda p, e: (p, e, e),
        "one thing in a tuple": lambda p, e: (p,),
        "None first": lambda p, e: (None, e),
        "too many classes": lambda p, e: (torch.cat([p, p], 1), e),
        "too few classes": lambda p, e: (p[:, :2], e),
        "no class": lambda p, e: (p[:, :0], e),
        "one dimension": lambda p, e: (p[:, 0], e),
        "three dimensions": lambda p, e: (p[:, None], e),
        "too few rows": lambda p, e: (p[1:], e),
        "whole numbers": lambda p, e: (p.long(), e),
        "complex numbers": lambda p, e: (p.to(torch.complex64), e),
        "NaN": lambda p, e: (p * NAN, e),
        "detached": lambda p, e: (p.detach(), e),
        "an embedding of one dimension": lambda p, e: (p, e[:, 0]),
        "an embedding with too few rows": lambda p, e: (p, e[1:]),
        "an embedding of whole numbers": lambda p, e: (p, e.long()),
        "an embedding of text": lambda p, e: (p, "embedding"),
        "an error": lambda p, e: p @ p,
        "a missing attribute": lambda p, e: p.no_such_thing,
        "a missing key": lambda p, e: {}["no such thing"],
        "a division": lambda p, e: 1 // 0,
    }
    others = {
        "a function": lambda x: x, "None": None, "a class": Net, "no weights": nn.LogSoftmax(-1), "frozen": Frozen(),
        "made in inference mode": made_in_inference_mode(Net), "other inputs": nn.Linear(7, 3), "a number": 3,
    }  # fmt: skip
    return {**{name: Net(answer) for name, answer in answers.items()}, **others}


def wrong_data() -> dict[str, Any]:
    return {
        "None": None, "a tensor": INPUTS, "a number": 3, "text": "digits", "one thing": (INPUTS,), "empty": (),
        "five things": (INPUTS, CANDIDATES, None, None, None), "the other way round": (CANDIDATES, INPUTS),
        "no candidates": (INPUTS, None), "lists": (INPUTS, [[(0, 1)]]), "too few inputs": (INPUTS[1:], CANDIDATES),
        "too many slots": (torch.rand(6, 3, 5), CANDIDATES), "two dimensions": (INPUTS[..., 0], CANDIDATES),
        "inputs of text": ("images", CANDIDATES), "inputs of objects": ([object()], CANDIDATES),
        "NaN": (INPUTS * NAN, CANDIDATES), "gold of other shape": (INPUTS, CANDIDATES, torch.zeros(6, 3)),
        "targets of other shape": (INPUTS, CANDIDATES, None, torch.zeros(5)), "gold of text": (INPUTS, CANDIDATES, "x"),
        "a task without candidates": SimpleNamespace(inputs=INPUTS),
        "a task of nonsense": SimpleNamespace(inputs=3, candidates=4), "double inputs": (INPUTS.double(), CANDIDATES),
        "no sample": (INPUTS[:0], CANDIDATES),
    }  # fmt: skip


def wrong_engines() -> dict[str, Any]:
    answers: dict[str, Callable[[Tensor], Any]] = {
        "None": lambda p: None, "a number": lambda p: 3.0, "a mean": lambda p: p.mean(), "rows": lambda p: p,
        "too few": lambda p: p.sum((1, 2))[1:], "NaN": lambda p: p.sum((1, 2)) * NAN,
        "infinite": lambda p: p.sum((1, 2)) / 0, "constant": lambda p: torch.ones(len(p)), "an error": lambda p: p @ 3,
        "whole numbers": lambda p: torch.ones(len(p), dtype=torch.long),
    }  # fmt: skip
    others = {
        "nothing": None,
        "a function": max,
        "a class": SemanticLoss,
        "a layer": nn.Linear(3, 3),
        "text": "semantic",
    }
    return {**{name: Engine(answer) for name, answer in answers.items()}, **others}


def wrong_options(folder: Any) -> list[dict[str, Any]]:
    numbers: list[Any] = [0, -1, 1.5, "3", None, NAN, True, 2**80, [3], torch.tensor([1, 2])]
    wrong = [{name: value} for name in ("epochs", "batch", "evaluate_every") for value in numbers]
    wrong += [{"checkpoint_steps": value} for value in numbers if value is not None]
    wrong += [{"seed": value} for value in (1.5, "3", None, NAN, True, 2**80, [3])]
    wrong += [{"watch": value} for value in (3, "print", [print])]
    wrong += [
        {"evaluate": value} for value in (3, "test", (), (INPUTS,), HELD_OUT[::-1], (HELD_OUT[0], HELD_OUT[1][1:]))
    ]
    wrong += [{"evaluate": (HELD_OUT[0], HELD_OUT[1][:, None])}, {"evaluate": (torch.rand(4, 7), HELD_OUT[1])}]
    wrong += [{"evaluate": (HELD_OUT[0][:0], HELD_OUT[1][:0])}, {"evaluate": lambda _: 0.5}]
    wrong += [{"evaluate": lambda _: {"accuracy": NAN}}, {"evaluate": lambda _: 1 / 0}, {"evaluate": None, "epochs": 0}]
    files: list[Any] = [folder, folder / "no" / "run.pt", folder / ("x" * 300), "a\0b", "", 3, b"x", ["run.pt"]]
    wrong += [{"checkpoint": value} for value in files]
    return wrong


def wrong_prunings() -> list[dict[str, Any]]:
    embeddings: list[Any] = [
        3, "x", INPUTS[1:], INPUTS[0], INPUTS[..., 0], INPUTS * NAN, INPUTS / 0, INPUTS.long(), torch.rand(6, 3, 5),
        INPUTS[None], [[1.0]], object(), INPUTS.to(torch.complex64),
    ]  # fmt: skip
    wrong: list[dict[str, Any]] = [{"clip": clipper.Clipper(), "embeddings": value} for value in embeddings]
    wrong += [{"clip": value} for value in (3, "exact", clipper.prune, clipper.Clipper, {}, True)]
    wrong += [{"clip": clipper.Clipper(), "bank": value} for value in (-1, 1.5, "3", None, NAN, 2**80, True)]
    wrong += [{"clip": clipper.Clipper(), "once": value} for value in (True, "yes", 1, None)]
    wrong += [{"bank": 3}, {"once": True}, {"embeddings": INPUTS}, {"clip": clipper.Clipper(objective="joint")}]
    wrong += [{"clip": clipper.Clipper(k=k)} for k in (100_000, 11, 2**70)]
    wrong += [{"clip": clipper.Clipper(k=3), "batch": 2}, {"clip": clipper.Clipper(mutual=True), "bank": 3}]
    wrong += [{"clip": clipper.Clipper(objective="joint"), "embeddings": INPUTS, "once": True, "bank": 2}]
    return wrong


def wrong_optimisers(net: nn.Module) -> list[Any]:
    others = [torch.optim.SGD(Net().parameters(), lr=1.0), torch.optim.LBFGS(net.parameters())]
    return [*others, 3, "adam", torch.optim.Adam, [torch.optim.SGD(net.parameters(), lr=1.0)]]


def test_no_wrong_call_of_train_raises_a_raw_exception(tmp_path):
    few: dict[str, Any] = {"epochs": 1, "batch": 4}
    calls: list[tuple[str, Callable[[], Any]]] = []
    for name, value in wrong_classifiers().items():
        calls.append(
            (f"classifier: {name}", lambda v=value: train(v, DATA, SemanticLoss(), clip=clipper.Clipper(), **few))
        )
    calls += [(f"data: {name}", lambda v=v: train(Net(), v, SemanticLoss(), **few)) for name, v in wrong_data().items()]
    calls += [(f"engine: {name}", lambda v=v: train(Net(), DATA, v, **few)) for name, v in wrong_engines().items()]
    for value in [*wrong_options(tmp_path), *wrong_prunings()]:
        calls.append((str(value), lambda v=value: train(Net(), DATA, SemanticLoss(), **{**few, **v})))
    net = Net()
    for value in wrong_optimisers(net):
        calls.append((f"optimiser: {value}", lambda v=value: train(net, DATA, SemanticLoss(), optimiser=v, **few)))
    check_all_refused(calls)
    assert len(calls) >= 140
    assert not list(tmp_path.iterdir())


def test_no_wrong_call_of_train_iterated_raises_a_raw_exception(tmp_path):
    few: dict[str, Any] = {"epochs": 1, "batch": 4, "passes": 1}
    calls: list[tuple[str, Callable[[], Any]]] = []
    for name, value in wrong_classifiers().items():
        if "embedding" not in name:  # which this does not ask for
            calls.append(
                (f"classifier: {name}", lambda v=value: train_iterated(v, DATA, SemanticLoss(), INPUTS, **few))
            )
    for name, value in wrong_data().items():
        calls.append((f"data: {name}", lambda v=value: train_iterated(Net(), v, SemanticLoss(), INPUTS, **few)))
    for name, value in wrong_engines().items():
        calls.append((f"engine: {name}", lambda v=value: train_iterated(Net(), DATA, v, INPUTS, **few)))
    for options in wrong_prunings():
        if "embeddings" in options and "once" not in options and "clip" in options:
            embeddings = options["embeddings"]
            calls.append((str(options), lambda v=embeddings: train_iterated(Net(), DATA, SemanticLoss(), v, **few)))
    others: list[dict[str, Any]] = [{"clip": v} for v in (3, "joint", clipper.Clipper, clipper.Clipper(k=100_000))]
    others += [{"passes": v} for v in (0, -1, 1.5, "2", None, NAN, True, 2**80)]
    others += [{"folds": v} for v in (1, 0, 7, 1.5, "2", None, NAN, True)]
    others += [{"still": v} for v in (-1, NAN, "no", None, float("inf"), True)]
    others += [
        {"make_optimiser": v}
        for v in (3, "adam", lambda _: None, lambda _: 1 / 0, torch.optim.SGD(Net().parameters(), 1.0))
    ]
    others += [{"make_optimiser": lambda _: torch.optim.SGD(Net().parameters(), lr=1.0)}]
    others += [{"optimiser": None}, {"once": True}, {"bank": 3}, {"embeddings": INPUTS}, {"unknown": 3}]
    for value in [*wrong_options(tmp_path), *others]:
        if "embeddings" in value:
            continue
        calls.append((str(value), lambda v=value: train_iterated(Net(), DATA, SemanticLoss(), INPUTS, **{**few, **v})))
    check_all_refused(calls)
    assert len(calls) >= 140
    assert not list(tmp_path.iterdir())


def test_what_can_sensibly_be_taken_is_taken():
    expected = train(Net(), DATA, SemanticLoss(), epochs=2, batch=4, evaluate=HELD_OUT)
    as_arrays = train(
        Net(), [INPUTS.numpy(), CANDIDATES], SemanticLoss(), epochs=np.int64(2), batch=np.int32(4),
        evaluate=[HELD_OUT[0].numpy(), HELD_OUT[1].tolist()],
    )  # fmt: skip
    assert [figures.loss for figures in as_arrays] == [figures.loss for figures in expected]
    assert [figures.accuracy for figures in as_arrays] == [figures.accuracy for figures in expected]
    clip = clipper.Clipper()
    frozen = train(Net(), DATA, SemanticLoss(), clip=clip, embeddings=INPUTS, epochs=1)
    assert train(Net(), DATA, SemanticLoss(), clip=clip, embeddings=INPUTS.numpy(), epochs=1)[0].loss == frozen[0].loss


def test_a_last_batch_may_have_fewer_neighbours_than_were_asked_for():
    (figures,) = train(
        Net(), DATA, SemanticLoss(), clip=clipper.Clipper(k=6), epochs=1, batch=4
    )  # 4 and then 2 samples
    assert 0 < figures.retained <= 1
    train(Net(), DATA, SemanticLoss(), clip=clipper.Clipper(k=10), epochs=1)
    assert "at most 10" in str(
        refused(lambda: train(Net(), DATA, SemanticLoss(), clip=clipper.Clipper(k=11), epochs=1))
    )


def test_whoever_is_in_inference_mode_trains_all_the_same():
    expected = train(Net(), DATA, SemanticLoss(), clip=clipper.Clipper(), epochs=2)
    for mode in (torch.inference_mode, torch.no_grad):
        net = Net()
        with mode():
            figures = train(net, DATA, SemanticLoss(), clip=clipper.Clipper(), epochs=2)
        assert [each.loss for each in figures] == [each.loss for each in expected]


@pytest.mark.parametrize("clip", [None, clipper.Clipper(), clipper.Clipper(objective="random")], ids=str)
def test_data_made_in_inference_mode_is_taken_or_refused(clip):
    expected = train(Net(), DATA, SemanticLoss(), clip=clip, epochs=1)
    with torch.inference_mode():
        inputs = INPUTS + 0
        candidates = clipper.Candidates.from_rule(sum, targets=[3, 1, 0, 2, 2, 1], slots=2, classes=3)
    made = answered(lambda: train(Net(), (inputs, candidates), SemanticLoss(), clip=clip, epochs=1))
    assert isinstance(made, ClipperError) or made[0].loss == expected[0].loss


def test_the_smaller_parts_refuse_in_words_too(tmp_path):
    kinds = CANDIDATES.kinds
    packing = Packing(kinds, ((5,),))
    figures = EpochMetrics(1, 1.0, None, 1.0, None, 1.0, 0.0)
    bad = tmp_path / "bad.json"
    bad.write_text("[" * 100_000)
    calls: list[tuple[str, Callable[[], Any]]] = [
        *((f"bank {v}", lambda v=v: MemoryBank(v)) for v in (0, -1, 1.5, None, "3", NAN, 2**80)),
        *((f"samples {v!r}", lambda v=v: Samples(*v)) for v in ((None, None), (INPUTS, 3), (3, CANDIDATES))),
        *((f"accuracy {v}", lambda v=v: accuracy(Net(), *v)) for v in ((3, 4), (INPUTS, HELD_OUT[1]), HELD_OUT[::-1])),
        ("accuracy of nothing", lambda: accuracy(Net(), HELD_OUT[0][:0], HELD_OUT[1][:0])),
        ("kinds", lambda: Packing.of({"other": INPUTS}, CANDIDATES)),
        ("networks", lambda: Classifiers({"other": Net()}, packing)),
        ("encoders", lambda: Encoders({}, packing)),
        ("no record", lambda: Record.read(tmp_path / "none.json")),
        ("a folder", lambda: Record.read(tmp_path)),
        ("a bomb", lambda: Record.read(bad)),
        ("a record to a folder", lambda: Record(RunConfig(), [figures]).write(tmp_path)),
        ("a record nowhere", lambda: Record(RunConfig(), [figures]).write(tmp_path / "no" / "r.json")),
        ("a long name", lambda: Record(RunConfig(), [figures]).write(tmp_path / ("x" * 400))),
        ("figures of nothing", lambda: EpochMetrics.from_dict({"epoch": 1, "loss": NAN})),
    ]
    check_all_refused(calls)
