"""ABLkit and `ClipperReasoner`; `test_peers.py` runs this where ABLkit is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from clipper import Candidates, Clipper, ClipperError
from clipper.proximity import Outlines
from tests.integrations.digit_sums import Digits, compare, digit_network, digit_sums, run_page
from tests.integrations.environments import peer_module

peer_module("ablkit")

from ablkit.bridge import SimpleBridge  # noqa: E402
from ablkit.data.structures import ListData  # noqa: E402
from ablkit.learning import ABLModel, BasicNN  # noqa: E402
from ablkit.reasoning import GroundKB, KBBase, Reasoner  # noqa: E402

from clipper.integrations.abl import ClipperReasoner  # noqa: E402

JOINT = Clipper(objective="joint", encoder=Outlines())


class Sum(KBBase):
    def logic_forward(self, labels: list[int]) -> int:
        return sum(labels)


class Product(KBBase):
    def logic_forward(self, labels: list[int]) -> int:
        return prod(labels)


class Listed(GroundKB):
    def logic_forward(self, labels: list[int]) -> int:
        return sum(labels)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def digits_kb() -> Sum:
    return Sum(list(range(10)))


def model(seed: int) -> Any:
    network = digit_network(seed)
    return BasicNN(network, torch.nn.CrossEntropyLoss(), torch.optim.Adam(network.parameters(), lr=1e-3))


def train_data(digits: Digits) -> tuple[list[Any], list[Any], list[int]]:
    return [list(sample) for sample in digits.images], digits.labels.tolist(), digits.totals


def trained(seed: int, slots: int, reasoner: Any) -> float:
    digits, own = digit_sums(seed, slots=slots), model(seed)
    SimpleBridge(ABLModel(own), reasoner, metric_list=[]).train(train_data(digits), loops=50)
    return digits.accuracy(own.model)


def predicted(X: list[Any], Y: list[int], classes: int, seed: int = 0) -> ListData:  # noqa: N803
    """Examples with predictions drawn at random."""
    chance = np.random.default_rng(seed)
    probs = [chance.dirichlet(np.ones(classes), len(x)) for x in X]
    return ListData(X=X, Y=Y, pred_prob=probs, pred_pseudo_label=[p.argmax(1).tolist() for p in probs])


@pytest.mark.slow
def test_the_code_on_the_page_learns_what_ablkit_alone_does_not() -> None:
    def alone(seed: int) -> float:
        return trained(seed, 2, Reasoner(digits_kb()))

    def with_clipper(seed: int) -> float:
        digits, own = digit_sums(seed), model(seed)
        run_page("python ablkit", model=own, train_data=train_data(digits))
        return digits.accuracy(own.model)

    assert compare("ABLkit, SUM-2, n = 100", alone, with_clipper) > 40


@pytest.mark.slow
def test_so_it_does_on_sums_of_three() -> None:
    def alone(seed: int) -> float:
        return trained(seed, 3, Reasoner(digits_kb()))

    def with_clipper(seed: int) -> float:
        return trained(seed, 3, ClipperReasoner(digits_kb(), JOINT))

    assert compare("ABLkit, SUM-3, n = 100", alone, with_clipper) > 40


def test_it_takes_the_most_confident_of_all_survivors() -> None:
    X, Y = [list(torch.rand(m, 3)) for m in (2, 3, 1, 2, 3)], [5, 4, 3, 0, 9]  # noqa: N806
    examples = predicted(X, Y, classes=4)
    clip = Clipper(k=1)
    reasoner = ClipperReasoner(Sum(list(range(4))), clip)
    abduced = reasoner.batch_abduce(examples)

    lists = [[c for c in product(range(4), repeat=len(x)) if sum(c) == y] for x, y in zip(X, Y, strict=True)]
    candidates = Candidates.from_lists(lists, classes=4)
    kept = clip(candidates, [torch.stack(x) for x in X])
    assert len(kept) < len(candidates)
    for i, probs in enumerate(examples.pred_prob):
        rows = kept.labels[kept.sample == i][:, : len(probs)].tolist()
        assert abduced[i] == max(rows, key=lambda row: prod(p[label] for p, label in zip(probs, row, strict=True)))
    assert examples.abduced_pseudo_label == abduced
    assert reasoner.pruning is not None
    assert reasoner.pruning.discarded == len(candidates) - len(kept)


def test_minimal_revisions_would_discard_right_labels() -> None:
    digits = digit_sums(0)
    examples = predicted(train_data(digits)[0], digits.totals, classes=10)
    minimal = [
        digits_kb().abduce_candidates(example.pred_pseudo_label, example.Y, example.X, 2, 0)[0] for example in examples
    ]
    assert not Candidates.from_lists(minimal, classes=10).contains(digits.labels).double().mean() > 0.5
    reasoner = ClipperReasoner(digits_kb(), JOINT)
    reasoner.batch_abduce(examples)
    assert reasoner.pruning is not None
    assert reasoner.pruning.gold_retained(digits.labels) > 0.9


def test_examples_are_pruned_once_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    digits, asked = digit_sums(0, samples=30), []
    prune = Clipper.prune
    monkeypatch.setattr(
        Clipper, "prune", lambda self, c, e, **more: asked.append(c.samples) or prune(self, c, e, **more)
    )
    for once, prepared, expected in [(True, True, [30]), (True, False, [10] * 3), (False, False, [10] * 6)]:
        asked.clear()
        data = train_data(digits)
        reasoner = ClipperReasoner(digits_kb(), Clipper(k=1), once=once)
        if prepared:
            reasoner.prune(data)
        SimpleBridge(ABLModel(model(0)), reasoner, metric_list=[]).train(data, loops=2, segment_size=10)
        assert asked == expected


def test_examples_that_nothing_satisfies_are_left_out() -> None:
    X = [list(torch.rand(2, 3)) for _ in range(3)]  # noqa: N806
    abduced = ClipperReasoner(digits_kb(), Clipper(k=1)).batch_abduce(predicted(X, [5, 99, 18], classes=10))
    assert abduced[1] == []
    assert sum(abduced[0]) == 5
    assert abduced[2] == [9, 9]
    assert ClipperReasoner(digits_kb(), Clipper(k=1)).batch_abduce(predicted(X, [99] * 3, classes=10)) == [[]] * 3


def test_all_knowledge_bases_are_asked_for_all_and_never_mixed_up() -> None:
    X = [list(torch.rand(2, 3))]  # noqa: N806
    totals = [(0, 6), (1, 5), (2, 4), (3, 3), (4, 2), (5, 1), (6, 0)]
    for kb, expected in [
        (digits_kb(), totals),
        (Product(list(range(10))), [(1, 6), (2, 3), (3, 2), (6, 1)]),
        (Listed(list(range(10)), GKB_len_list=[2]), totals),
    ]:
        reasoner = ClipperReasoner(kb, Clipper(k=1))
        reasoner.prune((X, None, [6]))
        assert reasoner.pruning is not None
        assert sorted(map(tuple, reasoner.pruning.original.labels.tolist())) == expected


def test_labels_may_be_anything_and_the_model_may_number_them_as_it_likes() -> None:
    class Word(KBBase):
        def logic_forward(self, labels: list[str]) -> str:
            return "".join(sorted(labels))

    names = {0: "b", 1: "a", 2: "c"}
    reasoner = ClipperReasoner(Word(["a", "b", "c"]), Clipper(k=1), idx_to_label=names)
    examples = predicted([list(torch.rand(2, 3)) for _ in range(2)], ["ab", "cc"], classes=3)
    examples.pred_pseudo_label = [[names[i] for i in row] for row in examples.pred_pseudo_label]
    abduced = reasoner.batch_abduce(examples)
    first = examples.pred_prob[0]
    assert abduced == [["b", "a"] if first[0, 0] * first[1, 1] > first[0, 1] * first[1, 0] else ["a", "b"], ["c", "c"]]


def test_inputs_of_any_kind_need_a_function_that_embeds_them() -> None:
    X, Y = [["two", "three"], ["two", "one"]], [5, 3]  # noqa: N806
    reasoner = ClipperReasoner(
        digits_kb(), Clipper(k=1), embed=lambda words: torch.tensor([[float(len(w))] for w in words])
    )
    assert [sum(row) for row in reasoner.batch_abduce(predicted(X, Y, classes=10))] == Y
    with pytest.raises(ClipperError, match="inputs"):
        ClipperReasoner(digits_kb(), Clipper(k=1)).batch_abduce(predicted(X, Y, classes=10))
    ragged = [[torch.rand(3), torch.rand(4)]]
    with pytest.raises(ClipperError, match="embed="):
        ClipperReasoner(digits_kb(), Clipper(k=1)).batch_abduce(predicted(ragged, [5], classes=10))


def test_data_that_do_not_fit_are_refused_in_words() -> None:
    class Prolog(Sum):  # stands for one that reads labels from elsewhere
        def revise_at_idx(self, *_: Any) -> tuple[list[list[str]], list[int]]:
            return [["5"]], [5]

    with pytest.raises(ClipperError, match=r"own labels.*'5'"):
        ClipperReasoner(Prolog(list(range(10))), Clipper(k=1)).prune(([[torch.rand(3)]], None, [5]))
    with pytest.raises(ClipperError, match="each of 1 examples, got 2"):
        ClipperReasoner(digits_kb(), Clipper(k=1)).prune(([[torch.rand(3)]], None, [5, 6]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clip": "joint"}, "Clipper"),
        ({"embed": 3}, "embed"),
        ({"once": "no"}, "once"),
        ({"clip": JOINT, "embed": len}, "encoder"),
    ],
)
def test_wrong_arguments_are_refused_in_words(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ClipperError, match=message):
        ClipperReasoner(**{"kb": digits_kb(), "clip": Clipper()} | arguments)
