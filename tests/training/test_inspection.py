"""What the inspector shows is what the pruning did, and comes back from its file as it was."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from clipper import Candidates, Clipper, ProximityGraph, prune
from clipper.candidates import Alignments
from clipper.engines import SemanticLoss
from clipper.errors import FileError, InputError
from clipper.training import Inspection, Inspector, train, train_iterated
from tests.training.problems import TinyNet, problem
from tests.training.test_datasets import lazy


def pruned(samples: int = 20, objective: str = "exact", k: int = 2):
    data = problem(samples)
    clip = Clipper(k=k, objective=objective)
    graph = clip.graph(data.candidates, data.inputs)
    return data, graph, clip.along(data.candidates, graph)


def pictures(samples: int = 20, channels: int = 1) -> torch.Tensor:
    return torch.rand(samples, 2, channels, 9, 7, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("objective", ["exact", "paper", "random"])
def test_it_shows_the_fate_of_every_candidate_and_edge(objective):
    data, graph, pruning = pruned(objective=objective)
    seen = Inspection.of_pruning(pictures(), pruning, graph, gold=data.gold, targets=data.targets, samples=12)
    assert (seen.of, len(seen.samples), seen.names, seen.kinds) == (20, 12, ["0", "1", "2", "3"], [["label", 0, 4]])
    for number, sample in enumerate(seen.samples):
        rows = slice(*pruning.original.offsets[number : number + 2].tolist())
        assert sample["id"] == number
        assert sample["target"] == str(int(data.targets[number]))
        assert sample["labels"] == data.candidates.labels[rows].flatten().tolist()
        assert sample["keep"] == "".join(str(int(stays)) for stays in pruning.keep[rows])
        assert (sample["total"], sample["stay"]) == (len(sample["keep"]), sample["keep"].count("1"))
        lost = not bool(pruning.candidates.contains(data.gold)[number])
        assert sample["verdict"] == ("lost" if lost else "kept")
        own = ((graph.source // 2) == number).nonzero()[:, 0].tolist()
        assert sorted(
            (edge["slot"], edge["sample"], edge["image"], edge["chosen"]) for edge in sample["edges"]
        ) == sorted(
            (int(graph.source[e]) % 2, int(graph.target[e]) // 2, int(graph.target[e]) % 2 + 1, bool(pruning.edges[e]))
            for e in own
        )
        for edge in sample["edges"]:
            support = data.candidates.support[2 * edge["sample"] + edge["image"] - 1]
            assert edge["support"] == support.nonzero()[:, 0].tolist()
            labels = data.candidates.labels[rows][:, edge["slot"]].long()
            assert edge["contradicts"] == int((~support[labels]).sum())


@pytest.mark.parametrize(("channels", "shape"), [(1, (9, 7)), (2, (9, 7)), (3, (9, 7, 3))])
def test_the_tiles_are_the_pictures_of_the_instances(channels, shape):
    _, graph, pruning = pruned()
    images = pictures(channels=channels)
    seen = Inspection.of_pruning(images, pruning, graph, samples=5)
    assert seen.tiles.shape[1:] == shape
    sample = seen.samples[3]
    expected = images[3, 1].mean(0) if channels != 3 else images[3, 1].permute(1, 2, 0)
    shown = torch.from_numpy(seen.tiles[sample["tiles"][1]]) / 255
    assert torch.allclose(shown, expected, atol=1 / 255) or torch.allclose(shown, 1 - expected, atol=1 / 255)
    edge = sample["edges"][0]
    neighbour = images[edge["sample"], edge["image"] - 1]
    expected = neighbour.mean(0) if channels != 3 else neighbour.permute(1, 2, 0)
    shown = torch.from_numpy(seen.tiles[edge["tile"]]) / 255
    assert torch.allclose(shown, expected, atol=1 / 255) or torch.allclose(shown, 1 - expected, atol=1 / 255)


def test_an_alignment_shows_what_each_slot_could_hold_and_what_is_left():
    lattice = Alignments.from_texts([(0, 1), (1, 0)], 3, classes=2)
    graph = ProximityGraph.from_edges([1], [3])  # the middle frame of one is close to the first of the other
    pruning = prune(lattice, graph)
    gold = torch.tensor([[0, 1, 1], [1, 0, 0]])
    seen = Inspection.of_pruning(
        torch.rand(2, 3, 3, 8, 8), pruning, graph, gold=gold, targets=["walk, jump", "jump, walk"],
        names=["walk", "jump"], slot="frame",
    )  # fmt: skip
    first = seen.samples[0]
    assert (first["target"], first["total"], first["stay"], first["verdict"]) == ("walk, jump", 2, 1, "kept")
    assert first["support"] == [[0], [0, 1], [1]]
    assert first["left"] == [[0], [1], [1]]
    assert first["edges"][0]["contradicts"] == 1
    assert "labels" not in first


def test_it_comes_back_from_its_file(tmp_path):
    data, graph, pruning = pruned()
    for images in (pictures(), pictures(channels=3)):
        seen = Inspection.of_pruning(images, pruning, graph, gold=data.gold, notes=["A note."])
        seen.write(tmp_path / "run.json")
        again = Inspection.read(tmp_path / "run.json")
        assert np.array_equal(again.tiles, seen.tiles)
        assert again.as_dict() == json.loads(json.dumps(seen.as_dict()))
        assert again.notes == ["A note."]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "clipper inspection 1"}', '{"format": "clipper run 1"}'])
def test_what_is_no_inspection_is_refused(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(FileError, match="inspection"):
        Inspection.read(tmp_path / "run.json")


def test_damage_is_refused(tmp_path):
    _, graph, pruning = pruned()
    Inspection.of_pruning(pictures(), pruning, graph).write(tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    for sheet in ({}, {**document["sheet"], "png": "no"}, {**document["sheet"], "rows": 99}, {"count": 1}):
        (tmp_path / "bad.json").write_text(json.dumps({**document, "sheet": sheet}))
        with pytest.raises(FileError, match="inspection"):
            Inspection.read(tmp_path / "bad.json")


def test_long_lists_of_candidates_are_cut_and_hold_the_gold_labels():
    candidates = Candidates.from_rule(sum, targets=[13, 14], slots=3, classes=10)
    graph = ProximityGraph.from_edges([0], [3])
    gold = torch.tensor([[9, 4, 0], [9, 5, 0]])
    pruning = prune(candidates, graph)
    seen = Inspection.of_pruning(torch.rand(2, 3, 1, 4, 4), pruning, graph, gold=gold, candidates=10)
    assert all(len(sample["keep"]) == 10 for sample in seen.samples)
    rows = torch.tensor(seen.samples[0]["labels"]).view(-1, 3).tolist()
    assert [9, 4, 0] in rows
    assert seen.samples[0]["total"] == 75


def test_parts_that_do_not_belong_together_are_refused():
    data, graph, pruning = pruned()
    with pytest.raises(InputError, match="inputs of shape"):
        Inspection.of_pruning(pictures(19), pruning, graph)
    with pytest.raises(InputError, match="graph that the pruning came from"):
        Inspection.of_pruning(pictures(), pruning, ProximityGraph.from_edges([0], [2]))
    with pytest.raises(InputError, match="gold of shape"):
        Inspection.of_pruning(pictures(), pruning, graph, gold=data.gold[1:])
    with pytest.raises(InputError, match="20 targets"):
        Inspection.of_pruning(pictures(), pruning, graph, targets=[1])
    with pytest.raises(InputError, match="4 names"):
        Inspection.of_pruning(pictures(), pruning, graph, names=["zero"])


@pytest.mark.parametrize("how", ["trainable", "frozen", "once", "bank", "none", "lazy"])
def test_a_run_shows_what_its_first_epoch_did(how):
    data = lazy()[0] if how == "lazy" else problem()
    embeddings = problem().inputs
    setting = {"clip": None if how == "none" else Clipper()}
    setting |= {"embeddings": embeddings} if how in ("frozen", "once") else {}
    setting |= {"once": True} if how == "once" else {"bank": 10} if how == "bank" else {}
    network = TinyNet()
    history = train(network, data, SemanticLoss(), epochs=2, batch=8, inspect=12, **setting)
    plain = TinyNet()
    expected = train(plain, data, SemanticLoss(), epochs=2, batch=8, **setting)
    assert [metrics.loss for metrics in history] == [metrics.loss for metrics in expected], "looking changes nothing"
    assert expected.inspection is None
    assert (history[0].pruning_seconds == 0) == (how == "none"), "looking is no pruning"
    seen = history.inspection
    assert seen is not None
    assert [sample["id"] for sample in seen.samples] == list(range(12))
    assert all(sample["edges"] and sample["target"] for sample in seen.samples)
    batches = problem().batches(8, 0, 1)
    for sample in seen.samples if how in ("trainable", "frozen", "lazy", "none") else []:
        mates = next(ids for ids in batches if sample["id"] in ids.tolist()).tolist()
        assert all(edge["sample"] in mates for edge in sample["edges"])
    assert any("nothing" in note for note in seen.notes) == (how == "none")
    if how in ("frozen", "once"):
        whole = [torch.arange(20)] if how == "once" else batches
        kept = {}
        for ids in whole:
            survivors = Clipper()(problem().candidates.batch(ids), embeddings[ids])
            kept |= dict(zip(ids.tolist(), list(survivors.counts), strict=True))
        assert [sample["stay"] for sample in seen.samples] == [int(kept[i]) for i in range(12)]


def test_an_interrupted_run_still_shows_its_first_epoch(tmp_path):
    def pull(progress: object) -> None:
        if (progress.epoch, progress.step) == (1, 2):
            raise KeyboardInterrupt

    setting = {"clip": Clipper(), "epochs": 2, "batch": 8, "inspect": 20, "checkpoint_steps": 1}
    whole = train(TinyNet(), problem(), SemanticLoss(), **setting).inspection
    with pytest.raises(KeyboardInterrupt):
        train(TinyNet(), problem(), SemanticLoss(), watch=pull, checkpoint=tmp_path / "run.pt", **setting)
    for _ in range(2):  # the second time, the run has ended already
        again = train(TinyNet(), problem(), SemanticLoss(), checkpoint=tmp_path / "run.pt", **setting).inspection
        assert again.samples == whole.samples
        assert np.array_equal(again.tiles, whole.tiles)


def test_an_inspector_says_more_and_serves_several_runs():
    inspector = Inspector(
        samples=3, names=list("abcd"), slot="digit", targets=[f"sum {n}" for n in range(20)],
        pictures=lambda ids: torch.rand(len(ids), 2, 3, 8, 8),
    )  # fmt: skip
    for _ in range(2):
        seen = train(TinyNet(), problem(), SemanticLoss(), clip=Clipper(), epochs=1, inspect=inspector).inspection
        assert (len(seen.samples), seen.slot, seen.names) == (3, "digit", list("abcd"))
        assert seen.samples[2]["target"] == "sum 2"
        assert seen.tiles.shape[1:] == (8, 8, 3)


def test_joint_inference_shows_how_sure_it_was():
    data, clip = problem(30), Clipper(objective="joint")
    history = train(TinyNet(), data, SemanticLoss(), clip=clip, embeddings=data.inputs, once=True, epochs=1, inspect=5)
    assert history.inspection.calibration["right"] > 0.5
    passes = train_iterated(TinyNet(), data, SemanticLoss(), data.inputs, passes=1, epochs=1, inspect=5)
    assert passes[0].history.inspection.calibration == history.inspection.calibration
    assert passes[0].history.inspection.samples == history.inspection.samples
