"""What the inspector's page holds; tests/report/test_inspector_in_a_browser.py says how it behaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from clipper import Candidates, ProximityGraph, prune
from clipper.errors import InputError
from clipper.report.inspector import inspector_view
from clipper.training.inspection import Inspection
from tests.report.pruned import data_of, page_of, problem_of, pruned_digits

pytest.importorskip("PIL")


@pytest.mark.parametrize(("rule", "k", "objective"), [("sum", 1, "exact"), ("max", 3, "paper"), ("sum", 2, "random")])
def test_candidates_and_edges_are_those_of_the_pruning(rule, k, objective, tmp_path):
    pruned = pruned_digits(rule=rule, k=k, objective=objective)
    problem = problem_of(pruned)
    for i, sample in enumerate(data_of(page_of(tmp_path, pruned.inspection()))["samples"]):
        rows = torch.tensor(sample["labels"]).view(-1, 3)
        assert [tuple(row) for row in rows.tolist()] == problem.samples[i]
        assert sample["stay"] == int(pruned.pruning.candidates.counts[i])
        assert sample["share"] == sample["stay"] / sample["total"]
        assert sample["verdict"] == ("kept" if pruned.pruning.candidates.contains(pruned.task.gold)[i] else "lost")
        for edge in sample["edges"]:
            ends = ((i, edge["slot"]), (edge["sample"], edge["image"] - 1))
            against = [c for c in problem.samples[i] if not problem.consistent(i, c, ends)]
            assert edge["support"] == sorted(problem.support(ends[1]))
            assert edge["contradicts"] == len(against)


def test_neighbours_come_the_nearest_first(tmp_path):
    for sample in data_of(page_of(tmp_path, pruned_digits(k=3).inspection()))["samples"]:
        for slot in range(3):
            distances = [edge["distance"] for edge in sample["edges"] if edge["slot"] == slot]
            assert len(distances) == 3
            assert distances == sorted(distances)


def test_what_users_write_cannot_end_the_script(tmp_path):
    evil = "</script><script>alert(1)</script>"
    names = [evil, *map(str, range(1, 10))]
    inspection = pruned_digits().inspection(gold=None, targets=[evil] * 20, names=names, notes=[evil], slot=evil)
    page = page_of(tmp_path, inspection)
    assert page.read_text(encoding="utf-8").count("<script") == 2
    assert data_of(page)["names"][0] == evil


def test_many_candidates_are_capped_and_the_gold_ones_are_among_them(tmp_path):
    pruned = pruned_digits(samples=12, slots=4)
    for i, sample in enumerate(data_of(page_of(tmp_path, pruned.inspection(candidates=9)))["samples"]):
        rows = torch.tensor(sample["labels"]).view(-1, 4).tolist()
        assert len(rows) == len(sample["keep"]) == min(9, sample["total"])
        assert sample["total"] == int(pruned.task.candidates.counts[i])
        assert pruned.task.gold[i].tolist() in rows
        assert rows == sorted(rows)


def test_gold_that_is_no_candidate_is_said_to_be_absent(tmp_path):
    candidates = Candidates.from_lists([[(0,)], [(1,)]], classes=3)
    graph = ProximityGraph.from_edges([0], [1])
    images, gold = torch.rand(2, 1, 1, 8, 8), torch.tensor([[2], [1]])
    inspection = Inspection.of_pruning(images, prune(candidates, graph), graph, gold=gold, targets=[0, 1])
    data = data_of(page_of(tmp_path, inspection))
    assert [sample["verdict"] for sample in data["samples"]] == ["absent", "kept"]


def test_unused_slots_show_no_image_and_no_label(tmp_path):
    candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(1,)], [(0, 0)]], classes=2)
    graph = ProximityGraph.from_edges([0, 4], [2, 0])
    images = torch.rand(3, 2, 3, 9, 7)
    inspection = Inspection.of_pruning(images, prune(candidates, graph), graph, targets=list("abc"))
    data = data_of(page_of(tmp_path, inspection))
    assert [len(sample["tiles"]) for sample in data["samples"]] == [2, 1, 2]
    assert data["samples"][1]["labels"] == [1]
    assert data["samples"][0]["edges"][0]["image"] == 1
    assert data["size"] == [7, 9]


def test_only_the_images_that_are_shown_are_carried(tmp_path):
    data = data_of(page_of(tmp_path, pruned_digits().inspection(samples=2)))
    assert len(data["samples"]) == 2
    assert data["of"] == 20
    shown = {tile for sample in data["samples"] for tile in sample["tiles"]}
    shown |= {edge["tile"] for sample in data["samples"] for edge in sample["edges"]}
    assert shown == set(range(len(shown)))
    assert data["columns"] * data["rows"] >= len(shown) > data["columns"] * (data["rows"] - 1)


def test_a_hundred_samples_of_three_mnist_sized_images_stay_small(tmp_path):
    pruned = pruned_digits(samples=100)
    noise = torch.rand(100, 3, 1, 28, 28)  # no picture compresses worse
    graph = ProximityGraph.from_embeddings(noise.flatten(2), k=3)
    pruning = prune(pruned.task.candidates, graph)
    inspection = Inspection.of_pruning(noise, pruning, graph, gold=pruned.task.gold, targets=pruned.task.targets)
    assert page_of(tmp_path, inspection).stat().st_size < 1_500_000


def test_large_images_shrink_and_odd_channels_become_grey(tmp_path):
    candidates = Candidates.from_lists([[(0,)], [(1,)]], classes=2)
    graph = ProximityGraph.from_edges([0], [1])
    pruning = prune(candidates, graph)
    large = Inspection.of_pruning(torch.rand(2, 1, 3, 200, 100), pruning, graph)
    assert data_of(page_of(tmp_path, large))["size"] == [32, 64]
    assert Inspection.of_pruning(torch.randn(2, 1, 5, 8, 8), pruning, graph).tiles.shape == (2, 8, 8)


def test_counts_that_javascript_cannot_hold_are_written_out():
    inspection = pruned_digits().inspection(samples=1)
    inspection.samples[0].update(total=10**400, stay=10**399)
    shown = inspector_view(inspection)["data"]["samples"][0]
    assert (shown["total"], shown["stay"], shown["share"]) == ("1.0·10⁴⁰⁰", "1.0·10³⁹⁹", 0.1)


def wrong_arguments() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("inputs of shape", {"inputs": torch.rand(20, 2, 1, 8, 8)}),
        ("gold of shape", {"gold": torch.zeros(20, 2)}),
        ("20 targets", {"targets": [1]}),
        ("the graph that the pruning came from", {"graph": ProximityGraph.from_edges([0], [3])}),
        ("10 names", {"names": ["one"]}),
        ("samples to inspect", {"samples": 0}),
    ]


@pytest.mark.parametrize(("message", "wrong"), wrong_arguments(), ids=lambda value: str(value)[:20])
def test_wrong_arguments_are_answered(message, wrong):
    pruned = pruned_digits()
    right = {"inputs": pruned.task.inputs, "gold": pruned.task.gold, "targets": pruned.task.targets}
    given = {**right, "graph": pruned.graph, "pruning": pruned.pruning, **wrong}
    with pytest.raises(InputError, match=message):
        Inspection.of_pruning(**given)


def test_a_key_that_is_no_word_is_refused():
    with pytest.raises(InputError, match="a key of letters"):
        inspector_view(pruned_digits().inspection(), key="a b")


def test_a_page_replaces_an_older_one(tmp_path: Path) -> None:
    inspection = pruned_digits().inspection(samples=2)
    page_of(tmp_path, pruned_digits().inspection(samples=3))
    assert len(data_of(page_of(tmp_path, inspection))["samples"]) == 2
