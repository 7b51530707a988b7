from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.sources import find
from clipper.benchmarks.runs import run
from clipper.benchmarks.tables import table_named
from clipper.benchmarks.vqar.benchmark import scene_benchmark, scene_candidates
from clipper.benchmarks.vqar.files import FEATURES, GRAPHS, OBJECTS, convert, read_scenes
from clipper.benchmarks.vqar.knowledge import CRIC, Knowledge, draw_sentences, read_knowledge
from clipper.benchmarks.vqar.scenes import generate, geometry, placements
from clipper.candidates import Candidates, Program, Sentence
from clipper.candidates.program import term
from clipper.errors import FileError, InputError
from clipper.training import Classifiers

pytest.importorskip("clingo", reason="clingo is not installed (extra logic)")
cric = pytest.mark.skipif(find(CRIC) is None, reason="CRIC's facts are not here: set CLIPPER_DATA")

NAMES = ("dog", "cat", "cup", "sky", "chair", "table")
LITTLE = Knowledge(
    NAMES,
    tuple(f"relation {i}" for i in range(60)),
    (("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal"), ("animal", "object"), ("cup", "object"),
     ("chair", "furniture"), ("table", "furniture"), ("furniture", "object")),
    (("is used for", "chair", "sitting down"), ("can", "dog", "bark")),
)  # fmt: skip


@cric
def test_cric_is_read_whole() -> None:
    knowledge = read_knowledge()
    assert (len(knowledge.names), len(knowledge.relations)) == (500, 229)
    assert (len(knowledge.is_a), len(knowledge.oa_rel)) == (1426, 1964)
    assert "mammal" in knowledge.classes("zebra")
    assert knowledge.classes("shirt", generic=True) == ["object"]


@cric
def test_clingo_and_python_agree_on_what_belongs_to_a_class() -> None:
    knowledge = read_knowledge()
    names = knowledge.names[:100]
    classes = sorted({c for name in names for c in knowledge.classes(name) if c != name})
    program = Program(knowledge.theory, {"name": names}, ["name(o1, _)"])
    support = program.support([f"name(o1, {c})" for c in classes])
    for c, row in zip(classes, support, strict=True):
        belong = {i for i, name in enumerate(names) if c in _whatever_it_is(knowledge, name)}
        assert set(row.nonzero().flatten().tolist()) == belong


def _whatever_it_is(knowledge: Knowledge, name: str) -> set[str]:
    """The name, all above it, and what is said of any of them."""
    words, open_ = {name}, [name]
    while open_:
        new = knowledge.parents.get(open_.pop(), set()) - words
        words, open_ = words | new, [*open_, *new]
    assert set(knowledge.classes(name)) <= {term(word) for word in words}.union(*knowledge.properties.values())
    return {term(word) for word in words}.union(*(knowledge.properties.get(word, set()) for word in words))


@cric
@pytest.mark.slow
def test_a_thousand_samples_under_all_of_cric_have_more_than_a_hundred_candidates_each() -> None:
    knowledge = read_knowledge()
    scenes = generate(1000, 50, 50)
    told = draw_sentences(scenes, knowledge, 50, 50, 1000)
    labels = {"name": knowledge.names[:50], "rel": knowledge.relations[:50]}
    candidates = Candidates.from_program(knowledge.theory, told.sentences, labels)  # within its limit of a minute
    assert len(candidates) > 100 * 1000
    gold = torch.cat([scenes.name[told.subject][:, None], torch.where(told.relation < 0, -1, told.relation + 50)], 1)
    assert bool(candidates.contains(gold).all())


def test_generated_relations_follow_from_the_boxes() -> None:
    scenes = generate(200, names=6, relations=50, seed=3)
    lies = geometry(scenes.boxes[scenes.subject], scenes.boxes[scenes.object])
    assert torch.equal(torch.cdist(lies, placements(50)).argmin(1), scenes.relation)
    assert torch.equal(scenes.scene[scenes.subject], scenes.scene[scenes.object])
    assert len(torch.unique(placements(229), dim=0)) == 229
    again = generate(200, names=6, relations=50, seed=3)
    assert torch.equal(again.features, scenes.features)
    assert not torch.equal(generate(200, names=6, relations=50, seed=4).name, scenes.name)
    assert "generated" in repr(scenes)


def test_the_overlap_of_names_is_controlled() -> None:
    shares = []
    for overlap in (0.3, 1.0, 3.0):
        train, test = (generate(300, names=50, relations=9, seed=seed, overlap=overlap) for seed in (0, 1))
        nearest = torch.cdist(test.features, train.features).argmin(1)
        shares.append(float((train.name[nearest] == test.name).float().mean()))
    assert shares[0] > 0.95 > shares[1] > shares[2]
    few, many = (generate(50, names=names, relations=9, overlap=0.0) for names in (3, 3))
    assert torch.allclose(few.features, many.features)


@pytest.mark.parametrize("generic", [True, False])
def test_what_is_told_of_an_object_is_true(generic: bool) -> None:
    scenes = generate(300, names=6, relations=50)
    told = draw_sentences(scenes, LITTLE, names=5, relations=40, samples=80, generic=generic)
    assert len(set(told.subject.tolist())) == 80
    assert int(scenes.name[told.subject].max()) < 5
    for i, sentence in enumerate(told.sentences):
        name = NAMES[int(scenes.name[told.subject[i]])]
        around = [(a, r) for a, r in zip(told.objects[i].tolist(), told.relation[i].tolist(), strict=True) if a >= 0]
        assert len(sentence.slots) == 1 + len(around)
        assert any(sentence.text == f'name(o1, {c}), rel("relation {r}", o1, O2)'
                   for c in LITTLE.classes(name, generic=generic) for _, r in around)  # fmt: skip
        for other, relation in around:
            pair = (scenes.subject == told.subject[i]) & (scenes.object == other)
            assert scenes.relation[pair].tolist() == [relation]
    with pytest.raises(InputError, match="samples need as many objects"):
        draw_sentences(scenes, LITTLE, names=6, relations=50, samples=301)


def test_a_task_holds_names_and_relations_and_what_is_held_out() -> None:
    train = generate(120, 6, 50)
    known = draw_sentences(train, LITTLE, names=6, relations=50, samples=60)
    candidates = scene_candidates(LITTLE, known, names=6)
    benchmark = scene_benchmark(train, generate(50, 6, 50, seed=9), LITTLE, known, candidates)
    task, network = benchmark.samples, benchmark.network
    assert isinstance(network, Classifiers)
    assert task.gold is not None
    assert bool(task.candidates.contains(task.gold).all())
    assert [kind.name for kind in task.candidates.kinds] == ["name", "rel"]
    values = {kind.name: values for kind, _, values in network.packing.unpacked(task.inputs.flatten(0, 1))}
    assert values["name"].shape[1:] == (32,)
    assert values["rel"].shape[1:] == (2 * (32 + 4),)
    assert float((values["name"] - network.networks["name"].mean).mean().abs()) < 1e-5
    inputs, labels = benchmark.evaluate
    kinds = [(kind.name, len(places)) for kind, places, _ in network.packing.unpacked(inputs)]
    assert kinds == [("name", int((labels < 6).sum())), ("rel", int((labels >= 6).sum()))]
    drawn = benchmark.pictures(torch.arange(60))
    assert drawn.shape[:3] == (60, 3, 1)
    assert bool((drawn[:, 0].flatten(1).amax(1) == 1).all())
    unused = task.gold[:, 2] < 0
    assert float(drawn[unused, 2].max()) < 1 < float(drawn[:, 0].sum())


@cric
@pytest.mark.parametrize("objective", ["none", "paper", "exact", "random", "gold"])
def test_a_run_measures_names_and_relations(objective: Any) -> None:
    config = RunConfig(
        rule="vqar", data="scenes", names=20, samples=30, epochs=1, objective=objective, encoder="features", when="once"
    )
    record = run(config)
    assert set(record.last.scores) == {"name", "rel"}
    assert record.last.gold == 1.0 or objective in ("paper", "exact", "random")


def vqar_files(folder: Path) -> dict[int, Any]:
    """Two images as VQAR stores them."""
    graphs = {
        i: {
            "image_id": i,
            "names": {10 * i: 0, 10 * i + 1: 2},
            "bboxes": {10 * i: [0.1, 0.1, 0.2, 0.2], 10 * i + 1: [0.5, 0.5, 0.2, 0.1]},
            "attributes": {10 * i: [3], 10 * i + 1: []},
            "relations": {10 * i: {10 * i + 1: i % 4, 10 * i: -1}, 10 * i + 1: {10 * i: -1}},
        }
        for i in range(1, 11)
    }
    (folder / GRAPHS).write_bytes(pickle.dumps(graphs))
    features = {one: np.full(8, one, np.float32) for graph in graphs.values() for one in graph["names"]}
    np.save(folder / FEATURES, np.array(features, dtype=object), allow_pickle=True)
    return graphs


def test_vqars_own_files_are_read_and_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "vqar"
    own.mkdir()
    graphs = vqar_files(own)
    train, test = read_scenes(tmp_path)
    assert (len(train.name), len(test.name)) == (16, 4)  # every fifth image is held out
    assert not train.generated
    assert train.name.tolist() == [0, 2] * 8
    assert train.relation.tolist() == [graphs[i]["relations"][10 * i][10 * i + 1] for i in (1, 2, 3, 4, 6, 7, 8, 9)]
    assert torch.equal(train.features[0], torch.full((8,), 10.0))
    assert torch.allclose(train.boxes[1], torch.tensor([0.5, 0.5, 0.2, 0.1]))
    assert torch.equal(train.scene[train.subject], train.scene[train.object])
    stamp = (own / GRAPHS).stat()
    (own / GRAPHS).write_bytes(b"x" * stamp.st_size)  # not looked at again while size and time stay
    os.utime(own / GRAPHS, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert torch.equal(read_scenes(tmp_path)[0].features, train.features)
    os.utime(own / GRAPHS)
    with pytest.raises(FileError, match=r"is not read|no pickle"):
        read_scenes(tmp_path)
    assert table_named("vqar", tmp_path).columns[0].name == "VQAR, 50 names, n=1,000"
    assert table_named("vqar", tmp_path / "elsewhere").columns[0].name == "generated scenes, 50 names, n=1,000"


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_pickles_that_are_more_than_containers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    vqar_files(tmp_path)
    (tmp_path / GRAPHS).write_bytes(pickle.dumps({1: Evil()}))
    with pytest.raises(FileError, match="only arrays are read"):
        convert(tmp_path, tmp_path / "into")
    vqar_files(tmp_path)
    np.save(tmp_path / FEATURES, np.array({1: Evil()}, dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match="only arrays are read"):
        convert(tmp_path, tmp_path / "into")
    np.save(tmp_path / FEATURES, np.zeros(3))
    with pytest.raises(FileError, match="no dictionary"):
        convert(tmp_path, tmp_path / "into")
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "into" / OBJECTS).exists()
    with pytest.raises(FileError, match=r"vqar was not found in .* CLIPPER_DATA"):
        read_scenes(tmp_path / "elsewhere")


def test_a_sentence_may_use_what_cric_says_of_things() -> None:
    labels, slots = {"name": NAMES}, ["name(o1, _)"]
    sentence = Sentence('name(o1, furniture), not name(o1, has("is used for", "sitting down"))', slots=slots)
    assert Candidates.from_program(LITTLE.theory, [sentence], labels).labels.tolist() == [[NAMES.index("table")]]
