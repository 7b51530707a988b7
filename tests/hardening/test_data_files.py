"""Damaged data sets: each is refused in words by the command that reads it, and leaves nothing behind.

Files with a published sum are refused by that sum. The others reach their readers: pictures and formulas of HWF, clips
of MUGEN, scenes of VQAR.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import pickle
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hardening.attack import EFFORT, Clippers, Ran, damaged, listing

cric = pytest.mark.skipif(
    not (Path(os.environ.get("CLIPPER_DATA", "")) / "vqar" / "cric_facts.tsv").is_file(),
    reason="CRIC's facts are not here: set CLIPPER_DATA",
)
image = pytest.importorskip("PIL.Image")

Edit = Callable[[Any], Any]
HWF = ["--rule", "hwf", "--data", "hwf", "--slots", "1", "--samples", "2", "--epochs", "1"]
MUGEN = [
    "--rule",
    "align",
    "--data",
    "mugen",
    "--slots",
    "12",
    "--samples",
    "2",
    "--epochs",
    "1",
    "--objective",
    "none",
]
NOTHING: dict[Any, Any] = {}
VQAR = ["--rule", "vqar", "--data", "vqar", "--samples", "1000"]  # more than there are: read, then refused


class Data:
    """A folder of data sets, and the commands that read it."""

    def __init__(self, clippers: Clippers, folder: Path) -> None:
        self.clippers, self.folder = clippers, folder
        self.root = folder / "root"
        self.root.mkdir()

    def run(self, *arguments: str) -> Ran:
        """Run a command beside the data; what it leaves is in `out`, which is empty before."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        (self.folder / "out").mkdir()
        environment = {"XDG_CACHE_HOME": str(self.folder / "cache"), "CLIPPER_OFFLINE": "1"}
        return self.clippers.run(*arguments, cwd=self.folder / "out", **environment)

    def train(self, options: list[str]) -> Ran:
        """Learn from the data. A refusal leaves nothing."""
        ran = self.run("train", *options, "--data-root", str(self.root), "--out", "run.json")
        if ran.code:
            ran.check_refused()
            assert listing(self.folder / "out") == {}
            if "samples need" not in " ".join(ran.err.split()):  # else the files were in order, and converted
                assert listing(self.folder / "cache") == {}
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        return ran

    def refused(self, options: list[str], *words: str) -> None:
        ran = self.train(options)
        ran.check_refused()
        told = " ".join(ran.err.split())
        assert all(word in told or word in told.replace(" ", "") for word in words), f"expected {words} in: {told}"


@pytest.fixture
def data(clippers: Clippers, tmp_path: Path) -> Data:
    return Data(clippers, tmp_path)


def _attack(data: Data, path: Path, contents: list[bytes], options: list[str]) -> int:
    """Put each content in the place of a file; how many are refused. The file comes back in the end."""
    before = path.read_bytes()
    refusals = 0
    try:
        for content in contents:
            path.write_bytes(content)
            refusals += data.train(options).code != 0
    finally:
        path.write_bytes(before)
    return refusals


def _picture(format_: str, side: int = 45, seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8)
    image.fromarray(pixels).save(buffer, format_)
    return buffer.getvalue()


def _png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG that claims a size, whatever its rows are."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


BOMBS = [
    _png(45_000, 45_000),
    _png(10_000, 10_000, b"\0" * 10_000_000),
    _png(2**31 - 1, 1),
    _png(0, 0),
    _png(45, 45),
    b"",
    b"\x89PNG\r\n\x1a\n",
    _picture("PNG", side=44),
    _picture("GIF"),
    b"#!/bin/sh\necho no picture\n",
]


# --- HWF


@pytest.fixture
def hwf(data: Data) -> Path:
    """Thirteen symbols with five pictures each, half of them PNG, and a formula for each picture."""
    folder = data.root / "hwf"
    entries = []
    for symbol in [*"123456789+-", "times", "div"]:
        for number in range(5):
            path = f"{symbol}/{number}.jpg"
            place = folder / "Handwritten_Math_Symbols" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_picture("PNG" if number % 2 else "JPEG", seed=hash(path) % 2**32))
            entries.append({"id": path, "img_paths": [path], "expr": "1", "res": 1})
    (folder / "expr_train.json").write_text(json.dumps(entries))
    (folder / "expr_test.json").write_text("[]")
    assert data.train(HWF).code == 0
    return folder


def test_formulas_of_hwf_that_are_none_are_refused(data: Data, hwf: Path) -> None:
    path = hwf / "expr_train.json"
    entries = json.loads(path.read_text())
    first: list[Any] = [
        None, 3, "x", [], {}, {"img_paths": ["1/0.jpg"]}, {"expr": "1"}, {"img_paths": None, "expr": "1"},
        {"img_paths": "1/0.jpg", "expr": "1"}, {"img_paths": [3], "expr": "1"}, {"img_paths": {"a": 1}, "expr": "1"},
        {"img_paths": ["1/0.jpg"], "expr": 1}, {"img_paths": [["1/0.jpg"]], "expr": "1"},
        {"img_paths": ["no/0.jpg"], "expr": "1"}, {"img_paths": ["12/0.jpg"], "expr": "1"},
        {"img_paths": [""], "expr": "1"}, {"img_paths": ["1"], "expr": "1"}, {"img_paths": ["1/9.jpg"], "expr": "1"},
        {"img_paths": ["\0"], "expr": "1"}, {"img_paths": ["x" * 5000], "expr": "1"},
        {"img_paths": ["1/" * 3000 + "0.jpg"], "expr": "1"}, {"img_paths": ["\ud800"], "expr": "1"},
    ]  # fmt: skip
    contents = [json.dumps([each, *entries]).encode() for each in first]
    contents += [json.dumps(whole).encode() for whole in (None, 3, "x", {}, {"a": 1}, True)]
    contents += [b"", b"[", b"\xff\xfe", b"\x00" * 100, b"[" * 100_000, b"[" + b"9" * 10_000 + b"]", b"NaN", b"[NaN]"]
    assert _attack(data, path, contents, HWF) == len(contents)
    path.write_bytes(b"[]")
    data.refused(HWF, "hwf", "got none")


def test_damaged_formulas_and_pictures_of_hwf_are_read_or_refused(data: Data, hwf: Path) -> None:
    formulas, folder = hwf / "expr_train.json", hwf / "Handwritten_Math_Symbols"
    assert _attack(data, folder / "3" / "0.jpg", BOMBS, HWF) == len(BOMBS)
    refusals = _attack(data, formulas, list(damaged(formulas.read_bytes(), 15 * EFFORT, 1)), HWF)
    for number in (0, 1):  # JPEG, PNG
        path = folder / "3" / f"{number}.jpg"
        refusals += _attack(data, path, list(damaged(path.read_bytes(), 12 * EFFORT, 2 + number)), HWF)
    assert refusals > 10 * EFFORT


def test_names_of_hwf_stay_in_their_folder(data: Data, hwf: Path) -> None:
    folder = hwf / "Handwritten_Math_Symbols"
    outside = data.folder / "outside.jpg"
    outside.write_bytes(_picture("PNG"))
    (folder / "1" / "link.jpg").symlink_to(outside)
    (folder / "1" / "circle.jpg").symlink_to(folder / "1" / "circle.jpg")
    (folder / "1" / "near.jpg").symlink_to(folder / "1" / "0.jpg")
    entries = json.loads((hwf / "expr_train.json").read_text())

    def named(name: str) -> None:
        entry = {"id": "x", "img_paths": [name], "expr": "1", "res": 1}
        (hwf / "expr_train.json").write_text(json.dumps([*entries, entry]))

    for name in (str(outside), f"1/../../../../{outside.name}", "1/../1/0.jpg", "../expr_test.json", "1/link.jpg"):
        named(name)
        data.refused(HWF, "liesoutside", "put the file itself there")
    named("1/circle.jpg")
    data.refused(HWF, "circle.jpg")
    named("1/near.jpg")
    assert data.train(HWF).code == 0


# --- MUGEN


@pytest.fixture
def mugen(data: Data) -> Path:
    folder = data.root / "mugen"
    drawn = ["--train", "2", "--test", "12", "--frames", "10-12", "--actions", "3-5"]
    assert data.run("clips", str(folder), *drawn).code == 0
    assert data.train(MUGEN).code == 0
    return folder


def _annotations(folder: Path) -> Path:
    return folder / "coinrun_dataset_jsons" / "release" / "train.json"


def _edits() -> list[Edit]:
    """Ways in which annotations are none: each takes the document."""
    odd = [None, 3, "x", [], {}, [3], [None], {"a": 1}, True]

    def put(value: Any, *place: Any) -> Edit:
        def edit(document: Any) -> Any:
            inner = document
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            return document

        return edit

    def without(*place: Any) -> Edit:
        def edit(document: Any) -> Any:
            inner = document
            for key in place[:-1]:
                inner = inner[key]
            del inner[place[-1]]
            return document

        return edit

    whole: list[Edit] = [lambda _, value=value: value for value in odd]
    edits = [*whole, *(put(value, "data") for value in odd), *(put(value, "data", 0) for value in odd)]
    edits += [put(value, "data", 0, "video") for value in odd]
    edits += [put(value, "data", 0, "annotations") for value in odd]
    edits += [
        put(value, "data", 0, "video", "video_file") for value in (*odd, "", "\0", "x" * 5000, "\ud800", ".", "drawn")
    ]
    edits += [put(value, "data", 0, "annotations", 0, "text") for value in (*odd, "", "Mugen sleeps")]
    edits += [put(value, "metadata") for value in (None, 3, "x", [])]
    return [*edits, without("data"), without("data", 0, "video"), without("data", 0, "annotations", 0, "text")]


def test_annotations_of_mugen_that_are_none_are_refused(data: Data, mugen: Path) -> None:
    path = _annotations(mugen)
    document = json.loads(path.read_text())
    contents = [json.dumps(edit(copy.deepcopy(document))).encode() for edit in _edits()]
    contents += [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000]
    assert _attack(data, path, contents, MUGEN) == len(contents)


def test_names_of_mugen_stay_in_their_folder(data: Data, mugen: Path) -> None:
    path = _annotations(mugen)
    document = json.loads(path.read_text())
    video = document["data"][0]["video"]
    outside = shutil.copytree(mugen, data.folder / "elsewhere")
    (mugen / "link.png").symlink_to(outside / video["video_file"])
    (mugen / "link").symlink_to(outside)
    for key in ("video_file", "json_file"):
        away = [
            str(outside / video[key]),
            f"../../elsewhere/{video[key]}",
            f"drawn/../{video[key]}",
            f"link/{video[key]}",
        ]
        for name in (*away, *(["link.png"] if key == "video_file" else [])):
            edited = copy.deepcopy(document)
            edited["data"][0]["video"][key] = name
            path.write_text(json.dumps(edited))
            data.refused(MUGEN, "liesoutside", "put the file itself there")
    for home in ("/", "..", "../../elsewhere", str(outside), "\0", "x" * 5000, None, 3):
        edited = copy.deepcopy(document)
        edited["metadata"]["data_folder"] = home
        path.write_text(json.dumps(edited))
        assert data.train(MUGEN).code == 0  # the folder that was given counts, not the one that the file names
    shutil.rmtree(mugen / "drawn")
    for home in (str(outside), "../../elsewhere"):
        edited["metadata"]["data_folder"] = home
        path.write_text(json.dumps(edited))
        data.refused(MUGEN, "was not found")


def test_damaged_annotations_and_clips_of_mugen_are_read_or_refused(data: Data, mugen: Path) -> None:
    path = _annotations(mugen)
    video = mugen / json.loads(path.read_text())["data"][0]["video"]["video_file"]
    notes = mugen / json.loads(path.read_text())["data"][0]["video"]["json_file"]
    assert _attack(data, video, [*BOMBS[:5], b"", b"x"], MUGEN) == 7
    refusals = _attack(data, path, list(damaged(path.read_bytes(), 15 * EFFORT, 1)), MUGEN)
    refusals += _attack(data, video, list(damaged(video.read_bytes(), 20 * EFFORT, 2)), MUGEN)
    wrong = [b"", b"[", b"[]", b"3", b'{"actions": 3}', b'{"actions": ["fly"]}', b'{"actions": [[]]}']
    length = len(json.loads(notes.read_text())["actions"])
    wrong += [json.dumps({"actions": [value] * length}).encode() for value in ("fly", None, 3, [], {})]
    refusals += _attack(data, notes, wrong, MUGEN)
    assert refusals > 15 * EFFORT


def test_videos_that_are_none_are_refused_and_open_no_other_file(data: Data, mugen: Path) -> None:
    av = pytest.importorskip("av", reason="PyAV reads videos: pip install 'clipper-nesy[video]'")
    path = _annotations(mugen)
    document = json.loads(path.read_text())
    document["data"][0]["video"]["video_file"] = "a.mp4"
    path.write_text(json.dumps(document))
    place = mugen / "a.mp4"
    with av.open(str(place), "w") as film:
        stream = film.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for i in range(10):
            pixels = np.full((64, 64, 3), 20 * i, np.uint8)
            film.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        film.mux(stream.encode())
    assert data.train(MUGEN).code == 0
    whole = place.read_bytes()
    shutil.copy(place, data.folder / "other.mp4")
    playlists = [
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{data.folder / 'other.mp4'}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile '{data.folder / 'other.mp4'}'\n",
        "#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n",
    ]
    none = [
        b"",
        b"no video",
        whole[:100],
        whole[: len(whole) // 2],
        b"\0" * 1000,
        _picture("PNG"),
        b"RIFF" + b"\0" * 90,
    ]
    none += [text.encode() for text in playlists]
    assert _attack(data, place, none, MUGEN) == len(none)
    _attack(data, place, list(damaged(whole, 12 * EFFORT, 3)), MUGEN)


# --- VQAR


def _graphs() -> dict[Any, Any]:
    return {
        i: {
            "names": {10 * i: 0, 10 * i + 1: 2},
            "bboxes": {10 * i: [0.1, 0.1, 0.2, 0.2], 10 * i + 1: [0.5, 0.5, 0.2, 0.1]},
            "relations": {10 * i: {10 * i + 1: i % 4, 10 * i: -1}, 10 * i + 1: {10 * i: -1}},
        }
        for i in range(1, 11)
    }


def _vectors() -> dict[Any, Any]:
    return {one: np.full(8, one, np.float32) for graph in _graphs().values() for one in graph["names"]}


def _npy(held: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(held, dtype=object), allow_pickle=True)
    return buffer.getvalue()


@pytest.fixture
def vqar(data: Data) -> Path:
    folder = data.root / "vqar"
    folder.mkdir()
    (folder / "gqa_formatted_scene_graph.pkl").write_bytes(pickle.dumps(_graphs()))
    (folder / "features.npy").write_bytes(_npy(_vectors()))
    return folder


@cric
def test_scenes_of_vqar_that_are_none_are_refused(data: Data, vqar: Path) -> None:
    odd = [None, 3, -1, "x", [], NOTHING, [1, 2], {"a": 1}, float("nan"), float("inf"), 2**62, np.zeros(3), b"x", ()]
    graphs = [*odd, *({**_graphs(), 3: value} for value in odd)]
    for key in ("names", "bboxes", "relations"):
        graphs += [{**_graphs(), 3: {**_graphs()[3], key: value}} for value in odd if not isinstance(value, dict)]
        graphs.append({**_graphs(), 3: {name: value for name, value in _graphs()[3].items() if name != key}})
    for value in (None, "x", -3, float("nan"), float("inf"), [], 2**62 + 0.5):
        graphs.append({**_graphs(), 3: {**_graphs()[3], "names": {30: value, 31: 2}}})
    boxes = [
        [],
        [1, 2, 3],
        [0, 0, float("nan"), 1],
        [0, 0, -1, 1],
        [0, 0, float("inf"), 1],
        "abcd",
        [0] * 5,
        [None] * 4,
    ]
    for box in boxes:
        graphs.append({**_graphs(), 3: {**_graphs()[3], "bboxes": {30: box, 31: [0.1] * 4}}})
    graphs += [{key: value for key, value in _graphs().items() if key < 4}, {**_graphs(), 11: _graphs()[3]}]
    path = vqar / "gqa_formatted_scene_graph.pkl"
    for graph in graphs:
        path.write_bytes(pickle.dumps(graph))
        data.refused(VQAR, "gqa_formatted_scene_graph.pkl")


@cric
def test_features_of_vqar_that_are_none_are_refused(data: Data, vqar: Path) -> None:
    path = vqar / "features.npy"
    wrong: list[Any] = [{}, 3, "x", [1, 2], None, {"a": 1}]
    wrong += [
        {**_vectors(), 30: value} for value in (np.zeros(7), np.zeros(0), "x", np.full(8, np.nan), {}, [[1], 2], b"x")
    ]
    contents = [_npy(value) for value in wrong] + [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff",
        b"x" * 100,
        b"\x80\x04N.",
    ]
    contents += [_npy(_vectors())[:200], _npy(_vectors()).replace(b"'|O'", b"'<f8'")]
    for content in contents:
        path.write_bytes(content)
        data.refused(VQAR, "features")


def _zipped(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


@cric
def test_features_may_come_without_a_pickle_and_are_checked(data: Data, vqar: Path) -> None:
    (vqar / "features.npy").unlink()
    path = vqar / "features.npz"
    ids, vectors = np.array(list(_vectors())), np.stack(list(_vectors().values()))
    path.write_bytes(_zipped(object=ids, feature=vectors))
    data.refused(VQAR, "1,000 samples need")
    boxed = np.array([1, None], dtype=object)
    contents = [
        _zipped(object=ids), _zipped(feature=vectors), _zipped(object=ids[:3], feature=vectors),
        b"", b"PK\x03\x04", b"x" * 99,
        _zipped(object=ids.astype(float), feature=vectors), _zipped(object=ids, feature=vectors.astype(int)),
        _zipped(object=ids[None], feature=vectors), _zipped(object=ids, feature=vectors[0]),
        _zipped(object=ids, feature=np.full_like(vectors, np.nan)), _zipped(object=boxed, feature=vectors),
        _zipped(object=ids, feature=vectors.astype("S4")),
        _zipped(object=ids, feature=np.zeros((10**7, 2), np.float32)),
        _zipped(object=ids, feature=vectors.astype(complex)), _zipped(object=ids, feature=vectors[:, :0]),
    ]  # fmt: skip
    contents += list(damaged(_zipped(object=ids, feature=vectors), 10 * EFFORT, 5))
    _attack(data, path, contents, VQAR)
    path.write_bytes(contents[0])
    data.refused(VQAR, "features.npz", "feature is not a file")


@cric
def test_damaged_scenes_of_vqar_are_read_or_refused(data: Data, vqar: Path) -> None:
    for seed, name in enumerate(("gqa_formatted_scene_graph.pkl", "features.npy")):
        contents = list(damaged((vqar / name).read_bytes(), 15 * EFFORT, seed))
        assert _attack(data, vqar / name, contents, VQAR) == len(contents)


@cric
@pytest.mark.parametrize("objective", ["none", "exact", "gold"])
def test_an_encoder_that_scenes_do_not_have_is_refused(data: Data, objective: str) -> None:
    for encoder in ("pixels", "resnet18", "nonsense", "outlines", ""):
        options = ["--rule", "vqar", "--data", "scenes", "--samples", "10", "--encoder", encoder]
        data.refused(
            [*options, "--objective", objective], "expected one of the encoders trainable, auto, features, shuffled"
        )


@cric
def test_shuffled_features_prune_otherwise_than_the_features_themselves(data: Data) -> None:
    pytest.importorskip("clingo", reason="clingo is not installed (extra logic)")
    kept = {}
    for encoder in ("features", "shuffled"):
        options = "--rule vqar --data scenes --names 20 --samples 40 --epochs 1 --when once --encoder".split()  # noqa: SIM905
        assert data.train([*options, encoder]).code == 0
        record = json.loads((data.folder / "out" / "run.json").read_text())
        kept[encoder] = record["epochs"][-1]["gold"]
    assert kept["features"] > kept["shuffled"]  # the control knows nothing


# --- files with a published sum


def test_files_with_a_published_sum_are_refused_by_it(data: Data) -> None:
    mnist = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    batches = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    forms: list[tuple[str, str, list[str]]] = [
        ("mnist", "sum", [f"{name}.gz" for name in mnist]),
        ("mnist", "sum", mnist),
        ("cifar10", "sum", ["cifar-10-python.tar.gz"]),
        ("cifar10", "sum", [f"cifar-10-batches-py/{name}" for name in batches]),
        ("cifar10", "sum", [*(f"{name}.png" for name in batches), "train_lables.json", "test_lables.json"]),
        ("hwf", "hwf", ["symbols.npz", "expr_train.json", "expr_test.json"]),
        ("vqar", "vqar", ["name.json", "rel.json", "cric_facts.tsv"]),
    ]
    idx = bytes([0, 0, 8, 3]) + struct.pack(">iii", 2**30, 28, 28) + b"\0" * 784
    contents = [b"", idx, gzip.compress(b"\0" * 10**7), pickle.dumps(os.system), _png(45_000, 45_000)]
    for name, rule, files in forms:
        for content in contents:
            shutil.rmtree(data.root)
            for file in files:
                (data.root / name / file).parent.mkdir(parents=True, exist_ok=True)
                (data.root / name / file).write_bytes(content)
            used = "scenes" if name == "vqar" else name
            data.refused(["--rule", rule, "--data", used, "--samples", "2"], "damaged", "SHA-256", str(data.root))
        if name != "vqar":
            ran = data.run("data", "verify", name, "--data-root", str(data.root), "--json")
            assert ran.code == 1
            assert set(json.loads(ran.out)[0]["files"].values()) == {"damaged"}
