"""`clipper prune` on damaged and odd files: one message, exit code 1, nothing written; or the right survivors."""

from __future__ import annotations

import io
import json
import os
import resource
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from clipper import Candidates, ProximityGraph, prune
from clipper.errors import ClipperError
from tests.hardening.attack import EFFORT, Clippers, Ran, damaged, listing
from tests.launch import COMMAND

SAMPLES, SLOTS, SIZE = 20, 2, 3
GENERATOR = np.random.default_rng(3)
EMBEDDINGS = GENERATOR.normal(size=(SAMPLES, SLOTS, SIZE)).astype(np.float32)


def candidates() -> Candidates:
    return Candidates.from_rule(sum, targets=[i % 15 for i in range(SAMPLES)], slots=SLOTS, classes=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    candidates().write(tmp_path / "candidates.parquet")
    np.save(tmp_path / "embeddings.npy", EMBEDDINGS)
    return tmp_path


def run(clippers: Clippers, folder: Path, embeddings: str, *options: object, out: str = "kept.parquet") -> Ran:
    return clippers.run("prune", folder / "candidates.parquet", folder / embeddings, "-o", folder / out, *options)


def check_refused(ran: Ran, folder: Path, before: dict[str, bytes], *words: str) -> None:
    ran.check_refused()
    assert ran.code == 1, ran.err
    assert ran.err.count("error:") == 1
    assert ran.out.strip() == ""
    assert listing(folder) == before, "a refusal must leave everything as it was"
    message = " ".join(ran.err.split())
    for word in words:
        assert word in message, message


def check_kept(folder: Path, embeddings: np.ndarray, k: int = 1) -> None:
    expected = prune(candidates(), ProximityGraph.from_embeddings(torch.from_numpy(embeddings), k=k))
    kept = Candidates.read(folder / "kept.parquet")
    assert torch.equal(kept.labels, expected.candidates.labels)
    assert torch.equal(kept.offsets, expected.candidates.offsets)
    (folder / "kept.parquet").unlink()


def npy(values: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, **options)
    return file.getvalue()


def parquet(column: Any, name: str = "embedding", **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({name: column}), file, **options)
    return file.getvalue()


def rows(values: np.ndarray) -> list[list[float]]:
    return values.reshape(-1, values.shape[-1]).tolist()


def flat_lists(values: np.ndarray, make: Callable[..., pa.Array], kind: pa.DataType) -> pa.Array:
    return make(pa.array(values.ravel().tolist(), kind), values.shape[-1])


FORMS: dict[str, tuple[str, bytes, np.ndarray]] = {
    "flat": ("x.npy", npy(EMBEDDINGS.reshape(-1, SIZE)), EMBEDDINGS),
    "other byte order": ("x.npy", npy(EMBEDDINGS.astype(">f4")), EMBEDDINGS),
    "other byte order, double": ("x.npy", npy(EMBEDDINGS.astype(">f8")), EMBEDDINGS.astype(np.float64)),
    "Fortran order": ("x.npy", npy(np.asfortranarray(EMBEDDINGS)), EMBEDDINGS),
    "half precision": ("x.npy", npy(EMBEDDINGS.astype(np.float16)), EMBEDDINGS.astype(np.float16)),
    "double precision": ("x.npy", npy(EMBEDDINGS.astype(np.float64)), EMBEDDINGS.astype(np.float64)),
    "extended precision": ("x.npy", npy(EMBEDDINGS.astype(np.longdouble)), EMBEDDINGS.astype(np.float64)),
    "feature maps": ("x.npy", npy(EMBEDDINGS.reshape(SAMPLES, SLOTS, SIZE, 1)), EMBEDDINGS),
    "tiny": ("x.npy", npy(EMBEDDINGS * 1e-30), EMBEDDINGS * 1e-30),
    "another name": ("x.dat", npy(EMBEDDINGS), EMBEDDINGS),
    "lists": ("x.parquet", parquet(rows(EMBEDDINGS)), EMBEDDINGS),
    "lists in many row groups": ("x.parquet", parquet(rows(EMBEDDINGS), row_group_size=7), EMBEDDINGS),
    "lists, upper case": ("x.PARQUET", parquet(rows(EMBEDDINGS)), EMBEDDINGS),
    "lists of whole numbers": (
        "x.parquet",
        parquet([[round(4 * x) for x in row] for row in rows(EMBEDDINGS)]),
        np.round(4 * EMBEDDINGS),
    ),
    "lists of one length": (
        "x.parquet",
        parquet(flat_lists(EMBEDDINGS, pa.FixedSizeListArray.from_arrays, pa.float32())),
        EMBEDDINGS,
    ),
    "large lists": ("x.parquet", parquet(pa.array(rows(EMBEDDINGS), pa.large_list(pa.float64()))), EMBEDDINGS),
    "lists of half precision": (
        "x.parquet",
        parquet(pa.array([[np.float16(x) for x in r] for r in rows(EMBEDDINGS)], pa.list_(pa.float16()))),
        EMBEDDINGS.astype(np.float16),
    ),
    "lists far from the origin in double precision": (
        "x.parquet",
        parquet(rows(EMBEDDINGS.astype(np.float64) + 1e9)),
        EMBEDDINGS.astype(np.float64) + 1e9,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_embeddings_in_any_form_give_the_survivors_of_the_library(clippers: Clippers, folder: Path, form: str) -> None:
    name, content, values = FORMS[form]
    (folder / name).write_bytes(content)
    ran = run(clippers, folder, name, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["samples"] == SAMPLES
    check_kept(folder, values)


def header(text: str, version: bytes = b"\x01\x00", data: bytes = b"\x00" * 480) -> bytes:
    body = text.encode("latin1")
    length = len(body).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + length + body + data


def described(shape: str, kind: str = "'<f4'", order: str = "False") -> bytes:
    return header(f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}\n")


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez(file, EMBEDDINGS)
    return file.getvalue()


def with_value(value: float) -> np.ndarray:
    changed = EMBEDDINGS.copy()
    changed[7, 1, 2] = value
    return changed


def ragged() -> list[list[float]]:
    """As many numbers as there should be, but not in each list: rows would shift."""
    lists = rows(EMBEDDINGS)
    return [lists[0][:2], lists[1] + lists[2][:1], lists[2][1:] + lists[0][2:], *lists[3:]]


def null(row: int, place: int | None) -> list[Any]:
    lists: list[Any] = rows(EMBEDDINGS)
    if place is None:
        lists[row] = None
    else:
        lists[row][place] = None
    return lists


ODD: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "nothing": ("x.npy", b"", ("cannot be read as .npy",)),
    "text": ("x.npy", b"1.0,2.0\n", ("cannot be read as .npy",)),
    "several arrays": ("x.npy", zipped(), (".npz", "numpy.save")),
    "an archive by name": ("x.npz", zipped(), (".npz",)),
    "cut off": ("x.npy", npy(EMBEDDINGS)[:-5], ("cannot be read as .npy",)),
    "too long": ("x.npy", npy(EMBEDDINGS) + b"\x00" * 7, ("7 bytes longer",)),
    "objects": ("x.npy", npy(EMBEDDINGS.astype(object), allow_pickle=True), ("cannot be read as .npy",)),
    "a pickle": ("x.npy", b"\x80\x04cos\nsystem\n(S'true'\ntR.", ("cannot be read as .npy",)),
    "whole numbers": ("x.npy", npy(np.ones((SAMPLES, SLOTS, SIZE), int)), ("floating point",)),
    "truth values": ("x.npy", npy(np.ones((SAMPLES, SLOTS, SIZE), bool)), ("floating point",)),
    "complex numbers": ("x.npy", npy(EMBEDDINGS.astype(complex)), ("floating point",)),
    "words": ("x.npy", npy(np.full((SAMPLES, SLOTS, SIZE), "a")), ("floating point",)),
    "records": ("x.npy", npy(np.zeros((SAMPLES, SLOTS), [("x", "f4")])), ("floating point",)),
    "dates": ("x.npy", npy(np.zeros((SAMPLES, SLOTS, SIZE), "M8[s]")), ("floating point",)),
    "fewer samples": ("x.npy", npy(EMBEDDINGS[:-1]), (f"({SAMPLES}, {SLOTS}, d)",)),
    "samples and slots exchanged": ("x.npy", npy(EMBEDDINGS.transpose(1, 0, 2).copy()), (f"({SAMPLES}, {SLOTS}, d)",)),
    "one number": ("x.npy", npy(np.float32(3)), ("shape",)),
    "one dimension": ("x.npy", npy(EMBEDDINGS.ravel()), ("shape",)),
    "no coordinates": ("x.npy", npy(EMBEDDINGS[:, :, :0]), ("shape",)),
    "no coordinates, flat": ("x.npy", npy(np.zeros((SAMPLES * SLOTS, 0), np.float32)), ("shape",)),
    "not a number": ("x.npy", npy(with_value(np.nan)), ("slot 1 of sample 7",)),
    "infinity": ("x.npy", npy(with_value(np.inf)), ("slot 1 of sample 7",)),
    "a negative shape": ("x.npy", described("(-20, 2, 3)"), ("cannot be read",)),
    "two negative lengths": ("x.npy", described("(-20, -2, 3)"), ()),
    "a huge shape": ("x.npy", described("(20, 2, 1000000000000)"), ("cannot be read",)),
    "a shape beyond 64 bits": ("x.npy", described("(20, 2, 100000000000000000000000)"), ("cannot be read",)),
    "a shape of fractions": ("x.npy", described("(20, 2, 3.0)"), ("cannot be read",)),
    "a shape of words": ("x.npy", described("'many'"), ("cannot be read",)),
    "a header that would run": ("x.npy", described("__import__('os').getpid()"), ("cannot be read",)),
    "a header that nests deep": ("x.npy", header("(" * 60_000), ("cannot be read",)),
    "a header of brackets": ("x.npy", header("[" * 200 + "]" * 200), ("cannot be read",)),
    "a header of old Python": ("x.npy", described("(20L, 2L, 3L)"), ("cannot be read",)),
    "a header without an end": ("x.npy", header("{'descr': '<f4', 'shape': '''"), ("cannot be read",)),
    "a header of null bytes": ("x.npy", header("\x00" * 40), ("cannot be read",)),
    "a header twice as long as the file": ("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{}", ("cannot be read",)),
    "an unknown type": ("x.npy", described("(20, 2, 3)", kind="'<q9'"), ("cannot be read",)),
    "a type that refers to itself": ("x.npy", described("(20, 2, 3)", kind="[('a', '<f4'), ('a', '<f4')]"), ()),
    "a type of no length": ("x.npy", described("(20, 2, 3)", kind="'<V0'"), ()),
    "an unknown version": ("x.npy", header("{}", version=b"\x09\x09"), ("cannot be read",)),
    "not Parquet": ("x.parquet", npy(EMBEDDINGS), ("cannot be read as Parquet",)),
    "empty Parquet": ("x.parquet", b"", ("cannot be read as Parquet",)),
    "Parquet cut off": ("x.parquet", parquet(rows(EMBEDDINGS))[:-9], ("cannot be read as Parquet",)),
    "another column": ("x.parquet", parquet(rows(EMBEDDINGS), name="vector"), ("column 'embedding'", "vector")),
    "lists of other lengths": ("x.parquet", parquet(ragged()), ("lists of one length",)),
    "no rows": ("x.parquet", parquet(pa.array([], pa.list_(pa.float32()))), ("shape",)),
    "empty lists": ("x.parquet", parquet(pa.array([[]] * SAMPLES * SLOTS, pa.list_(pa.float32()))), ("shape",)),
    "a null list": ("x.parquet", parquet(null(5, None)), ("null",)),
    "a null number": ("x.parquet", parquet(null(5, 1)), ("null",)),
    "nulls of no type": ("x.parquet", parquet(pa.nulls(SAMPLES * SLOTS)), ("lists of numbers", "null")),
    "lists of lists": ("x.parquet", parquet([[row] for row in rows(EMBEDDINGS)]), ("lists of numbers",)),
    "lists of words": ("x.parquet", parquet([["a", "b"]] * SAMPLES * SLOTS), ("lists of numbers", "string")),
    "numbers": ("x.parquet", parquet([1.0] * SAMPLES * SLOTS), ("lists of numbers", "double")),
    "structures": ("x.parquet", parquet([{"x": 1.0}] * SAMPLES * SLOTS), ("lists of numbers", "struct")),
    "lists of NaN": ("x.parquet", parquet(rows(with_value(np.nan))), ("slot 1 of sample 7",)),
    "too few lists": ("x.parquet", parquet(rows(EMBEDDINGS)[:-1]), ("shape",)),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_embeddings_are_refused_in_one_message(clippers: Clippers, folder: Path, case: str) -> None:
    name, content, words = ODD[case]
    (folder / name).write_bytes(content)
    check_refused(run(clippers, folder, name), folder, listing(folder), *words)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.npy", npy(EMBEDDINGS)),
        ("x.npy", npy(np.asfortranarray(EMBEDDINGS.astype(">f8")))),
        ("x.parquet", parquet(rows(EMBEDDINGS))),
        ("x.parquet", parquet(pa.array(rows(EMBEDDINGS), pa.list_(pa.float32())), use_dictionary=False)),
    ],
    ids=["npy", "npy of another order", "parquet", "plain parquet"],
)
def test_damaged_embeddings_are_refused_or_pruned_by(
    clippers: Clippers, folder: Path, name: str, content: bytes
) -> None:
    """What cannot be told from good embeddings is pruned by; all else is refused, and leaves nothing behind."""
    path = folder / name
    refusals = 0
    for i, broken in enumerate(damaged(content, 60 * EFFORT, seed=len(content))):
        path.write_bytes(broken)
        before = listing(folder)
        ran = run(clippers, folder, name, "--json")
        if ran.code:
            refusals += 1
            check_refused(ran, folder, before)
            continue
        assert json.loads(ran.out)["samples"] == SAMPLES, f"damage {i}"
        kept = Candidates.read(folder / "kept.parquet")
        assert kept.samples == SAMPLES
        if name.endswith("npy"):
            values = np.load(path)  # searched in its own precision, in which distances from a huge number are equal
            precision = np.float64 if values.dtype.itemsize == 8 else np.float32
            check_kept(folder, values.astype(precision).reshape(SAMPLES, SLOTS, -1))
        else:
            (folder / "kept.parquet").unlink()
    assert refusals > 20 * EFFORT


OPTIONS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "k beyond what there is": (("-k", 100_000), ("k=100000", "38 neighbours")),
    "k beyond a batch": (("-k", 9, "--batch", 5), ("k=9", "8 neighbours", "enlarge the batch")),
    "k below zero": (("-k", -1), ("-k of 1 or more",)),
    "neither k nor a radius": (("-k", 0), ("k, radius or both",)),
    "a radius below zero": (("--radius", -1), ("radius",)),
    "a radius of NaN": (("--radius", "nan"), ("radius",)),
    "a share of NaN": (("--share", "nan"), ("share",)),
    "a share above one": (("--share", 1.5), ("share",)),
    "no batch": (("--batch", 0), ("--batch",)),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_beyond_sense_are_refused(clippers: Clippers, folder: Path, case: str) -> None:
    options, words = OPTIONS[case]
    check_refused(run(clippers, folder, "embeddings.npy", *options), folder, listing(folder), *words)


def test_as_many_neighbours_as_there_are_may_be_asked_for(clippers: Clippers, folder: Path) -> None:
    assert run(clippers, folder, "embeddings.npy", "-k", (SAMPLES - 1) * SLOTS).code == 0
    check_kept(folder, EMBEDDINGS, k=(SAMPLES - 1) * SLOTS)


OUTPUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "comma-separated values": ("kept.csv", (".parquet", "kept.csv")),
    "no ending": ("kept", (".parquet",)),
    "an array": ("kept.npy", (".parquet",)),
    "the candidates themselves": ("candidates.parquet", ("not written over",)),
    "a folder": ("folder.parquet", ("folder.parquet",)),
    "a folder that is not there": ("nowhere/kept.parquet", ("does not exist",)),
    "a file as a folder": ("embeddings.npy/kept.parquet", ()),
    "a name too long": ("k" * 300 + ".parquet", ("kkk",)),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_an_output_that_cannot_be_is_refused(clippers: Clippers, folder: Path, case: str) -> None:
    out, words = OUTPUTS[case]
    (folder / "folder.parquet").mkdir()
    before = listing(folder)
    check_refused(run(clippers, folder, "embeddings.npy", out=out), folder, before, *words)


def test_the_longest_name_is_written(clippers: Clippers, folder: Path) -> None:
    name = "k" * 247 + ".parquet"
    assert run(clippers, folder, "embeddings.npy", out=name).code == 0
    assert Candidates.read(folder / name).samples == SAMPLES
    assert not list(folder.glob(".*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_told(clippers: Clippers, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
    check_refused(run(clippers, folder, "embeddings.npy", out="closed/kept.parquet"), folder, listing(folder), "closed")


def test_inputs_that_are_not_there_or_are_folders_are_told(clippers: Clippers, folder: Path) -> None:
    (folder / "folder.npy").mkdir()
    before = listing(folder)
    for name in ("nowhere.npy", "nowhere.parquet", "folder.npy"):
        check_refused(run(clippers, folder, name), folder, before, name)


def test_a_file_that_may_not_grow_leaves_nothing_behind(folder: Path) -> None:
    """As on a full disk, the output cannot be written to its end."""
    before = listing(folder)
    arguments = ["prune", folder / "candidates.parquet", folder / "embeddings.npy", "-o", folder / "kept.parquet"]
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    ran = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=unmeasured,  # a measurement of coverage writes a file, too
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    check_refused(Ran(ran.returncode, ran.stdout, ran.stderr), folder, before, "kept.parquet")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_embeddings_from_a_device_are_refused(clippers: Clippers, folder: Path) -> None:
    before = listing(folder)
    ran = clippers.run("prune", folder / "candidates.parquet", "/dev/null", "-o", folder / "kept.parquet")
    check_refused(ran, folder, before)


def test_the_library_refuses_as_the_command_does(folder: Path) -> None:
    (folder / "x.parquet").write_bytes(parquet(ragged()))
    with pytest.raises(ClipperError):
        Candidates.read(folder / "x.parquet")
