"""What the inspector's fragment holds; tests/report/test_inspector_in_a_browser.py says how it behaves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from clipper import Candidates, ProximityGraph, prune
from clipper.benchmarks.datasets import digits
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.sum import SUM
from clipper.errors import InputError
from clipper.report.inspector import inspect
from clipper.report.sprites import sheet
from tests.report.pruned import Pruned, problem_of, pruned_digits

pytest.importorskip("PIL")


def data_of(text: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json">(.*?)</script>', text, flags=re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


def inspected(pruned: Pruned, **options: Any) -> dict[str, Any]:
    task = pruned.task
    return data_of(inspect(task.inputs, task.gold, task.targets, pruned.graph, pruned.pruning, **options))


@pytest.mark.parametrize(("rule", "k", "objective"), [("sum", 1, "exact"), ("max", 3, "paper"), ("sum", 2, "random")])
def test_candidates_and_edges_are_those_of_the_pruning(rule, k, objective):
    pruned = pruned_digits(rule=rule, k=k, objective=objective)
    problem = problem_of(pruned)
    for i, sample in enumerate(inspected(pruned)["samples"]):
        rows = torch.tensor(sample["labels"]).view(-1, 3)
        assert [tuple(row) for row in rows.tolist()] == problem.samples[i]
        assert sample["stay"] == int(pruned.pruning.candidates.counts[i])
        assert sample["verdict"] == ("kept" if pruned.pruning.candidates.contains(pruned.task.gold)[i] else "lost")
        for edge in sample["edges"]:
            ends = ((i, edge["slot"]), (edge["sample"], edge["image"] - 1))
            against = [c for c in problem.samples[i] if not problem.consistent(i, c, ends)]
            assert edge["support"] == sorted(problem.support(ends[1]))
            assert edge["contradicts"] == len(against)


def test_neighbours_come_the_nearest_first():
    for sample in inspected(pruned_digits(k=3))["samples"]:
        for slot in range(3):
            distances = [edge["distance"] for edge in sample["edges"] if edge["slot"] == slot]
            assert len(distances) == 3
            assert distances == sorted(distances)


def test_what_users_write_cannot_end_the_script():
    pruned = pruned_digits()
    evil = "</script><script>alert(1)</script>"
    names = [evil, *map(str, range(1, 10))]
    task = pruned.task
    text = inspect(task.inputs, None, [evil] * 20, pruned.graph, pruned.pruning, names=names)
    assert text.count("<script") == 2
    assert data_of(text)["names"][0] == evil


def test_many_candidates_are_capped_and_the_gold_ones_are_among_them():
    task = draw(digits(), SUM, samples=12, slots=4)
    graph = ProximityGraph.from_embeddings(task.inputs.flatten(2), k=1)
    data = data_of(inspect(task.inputs, task.gold, task.targets, graph, prune(task.candidates, graph), candidates=9))
    for i, sample in enumerate(data["samples"]):
        rows = torch.tensor(sample["labels"]).view(-1, 4).tolist()
        assert len(rows) == len(sample["keep"]) == min(9, sample["total"])
        assert sample["total"] == int(task.candidates.counts[i])
        assert task.gold[i].tolist() in rows
        assert rows == sorted(rows)


def test_gold_that_is_no_candidate_is_said_to_be_absent():
    candidates = Candidates.from_lists([[(0,)], [(1,)]], classes=3)
    graph = ProximityGraph.from_edges([0], [1])
    gold = torch.tensor([[2], [1]])
    data = data_of(inspect(torch.rand(2, 1, 1, 8, 8), gold, [0, 1], graph, prune(candidates, graph)))
    assert [sample["verdict"] for sample in data["samples"]] == ["absent", "kept"]


def test_unused_slots_show_no_image_and_no_label():
    candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(1,)], [(0, 0)]], classes=2)
    graph = ProximityGraph.from_edges([0, 4], [2, 0])
    data = data_of(inspect(torch.rand(3, 2, 3, 9, 7), None, list("abc"), graph, prune(candidates, graph)))
    assert [len(sample["tiles"]) for sample in data["samples"]] == [2, 1, 2]
    assert data["samples"][1]["labels"] == [1]
    assert data["samples"][0]["edges"][0]["image"] == 1
    assert data["size"] == [7, 9]


def test_only_the_images_that_are_shown_are_carried():
    data = inspected(pruned_digits(), samples=2)
    assert len(data["samples"]) == 2
    assert data["of"] == 20
    shown = {tile for sample in data["samples"] for tile in sample["tiles"]}
    shown |= {edge["tile"] for sample in data["samples"] for edge in sample["edges"]}
    assert shown == set(range(len(shown)))
    assert data["columns"] * data["rows"] >= len(shown) > data["columns"] * (data["rows"] - 1)


def test_a_hundred_samples_of_three_mnist_sized_images_stay_small():
    task = draw(digits(), SUM, samples=100, slots=3)
    noise = torch.rand(100, 3, 1, 28, 28)  # no picture compresses worse
    graph = ProximityGraph.from_embeddings(noise.flatten(2), k=3)
    text = inspect(noise, task.gold, task.targets, graph, prune(task.candidates, graph))
    assert len(text.encode()) < 1_500_000


def test_large_images_shrink_and_odd_channels_become_grey():
    assert (sheet(torch.rand(2, 3, 200, 100)).width, sheet(torch.rand(2, 3, 200, 100)).height) == (32, 64)
    assert sheet(torch.randn(2, 5, 8, 8)).uri.startswith("data:image/png")


def wrong_arguments() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("images of shape", {"inputs": torch.rand(20, 3, 64)}),
        ("gold of shape", {"gold": torch.zeros(20, 2)}),
        ("20 targets", {"targets": [1]}),
        ("the graph that the pruning came from", {"graph": ProximityGraph.from_edges([0], [3])}),
        ("10 names", {"names": ["one"]}),
        ("at least one sample", {"samples": 0}),
        ("a key of letters", {"key": "a b"}),
    ]


@pytest.mark.parametrize(("message", "wrong"), wrong_arguments(), ids=lambda value: str(value)[:20])
def test_wrong_arguments_are_answered(message, wrong):
    pruned = pruned_digits()
    task = pruned.task
    right = {"inputs": task.inputs, "gold": task.gold, "targets": task.targets, "graph": pruned.graph}
    with pytest.raises(InputError, match=message):
        inspect(**{**right, "pruning": pruned.pruning, **wrong})
