"""`clipper prune` from file to file, as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from clipper import Candidates, ProximityGraph, prune
from clipper.benchmarks.measurements import measurements
from clipper.errors import ClipperError
from clipper.pruning.joint import Verdict
from clipper.pruning.streaming import PruneJob, prune_files
from clipper.report.bench_text import inferred_pools, pruned_pools, ranks, sent_bytes
from tests.launch import COMMAND, clipper


@pytest.fixture
def files(tmp_path: Path) -> tuple[Candidates, torch.Tensor, Path]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 28, (200,), generator=generator)
    candidates = Candidates.from_rule(sum, targets, slots=3, classes=10)
    embeddings = torch.rand(200, 3, 5, generator=generator)
    candidates.write(tmp_path / "candidates.parquet")
    np.save(tmp_path / "embeddings.npy", embeddings.numpy())
    return candidates, embeddings, tmp_path


@pytest.mark.slow
def test_the_command_writes_what_the_library_keeps(files: tuple[Candidates, torch.Tensor, Path]) -> None:
    candidates, embeddings, folder = files
    out = folder / "kept.parquet"
    run = clipper("prune", folder / "candidates.parquet", folder / "embeddings.npy", "-o", out, "-k", 2, "--json")
    assert run.returncode == 0, run.stderr
    expected = prune(candidates, ProximityGraph.from_embeddings(embeddings, k=2))
    kept = Candidates.read(out)
    assert torch.equal(kept.labels, expected.candidates.labels)
    assert torch.equal(kept.offsets, expected.candidates.offsets)
    summary = json.loads(run.stdout)
    assert summary["kept"] == len(expected.candidates)
    assert summary["candidates"] - summary["kept"] == expected.discarded
    again = clipper("prune", folder / "candidates.parquet", folder / "embeddings.npy", "-o", out)
    assert again.returncode == 1
    assert "not written over" in again.stderr


@pytest.mark.parametrize("rows", [300, 1 << 20])
@pytest.mark.parametrize("objective", ["exact", "paper"])
def test_streaming_in_pieces_changes_nothing(
    files: tuple[Candidates, torch.Tensor, Path], rows: int, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates, embeddings, folder = files
    monkeypatch.setattr("clipper.candidates.storage.stream.__defaults__", (None, rows))
    job = PruneJob(folder / "candidates.parquet", folder / "embeddings.npy", folder / "kept.parquet", objective)
    summary = prune_files(job)
    expected = prune(candidates, ProximityGraph.from_embeddings(embeddings, k=1), objective)
    assert torch.equal(Candidates.read(folder / "kept.parquet").labels, expected.candidates.labels)
    assert (summary.kept, summary.edges_chosen) == (len(expected.candidates), int(expected.edges.sum()))


def test_neighbours_may_be_sought_batch_by_batch(files: tuple[Candidates, torch.Tensor, Path]) -> None:
    candidates, embeddings, folder = files
    job = PruneJob(folder / "candidates.parquet", folder / "embeddings.npy", folder / "kept.parquet", batch=64)
    prune_files(job)
    parts = [
        prune(candidates.span(i, min(i + 64, 200)), ProximityGraph.from_embeddings(embeddings[i : i + 64])).candidates
        for i in range(0, 200, 64)
    ]
    assert torch.equal(Candidates.read(folder / "kept.parquet").labels, torch.cat([part.labels for part in parts]))


def test_embeddings_may_come_as_parquet_lists(files: tuple[Candidates, torch.Tensor, Path]) -> None:
    _, embeddings, folder = files
    rows = embeddings.flatten(0, 1).tolist()
    pq.write_table(pa.table({"embedding": rows}), folder / "embeddings.parquet")
    for suffix in ("npy", "parquet"):
        path = folder / f"embeddings.{suffix}"
        prune_files(PruneJob(folder / "candidates.parquet", path, folder / f"kept-{suffix}.parquet"))
    a, b = (Candidates.read(folder / f"kept-{suffix}.parquet") for suffix in ("npy", "parquet"))
    assert torch.equal(a.labels, b.labels)


def test_ragged_samples_stream_too(tmp_path: Path) -> None:
    Candidates.from_lists([[(0, 1), (1, 0)], [(1,)], [(0,)]], classes=2).write(tmp_path / "c.parquet")
    np.save(tmp_path / "e.npy", np.array([[[0.0], [9.0]], [[0.1], [0.0]], [[8.0], [0.0]]], dtype=np.float32))
    summary = prune_files(PruneJob(tmp_path / "c.parquet", tmp_path / "e.npy", tmp_path / "k.parquet"))
    assert Candidates.read(tmp_path / "k.parquet").labels.tolist() == [[1, 0], [1, -1], [0, -1]]
    assert summary.instances == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x93NUMPY half", "cannot be read"),
        (np.zeros((7, 3, 2)), r"\(200, 3, d\)"),
        (np.zeros((200, 3, 2), int), "floating"),
    ],
)
def test_wrong_embeddings_leave_no_output(
    files: tuple[Candidates, torch.Tensor, Path], content: bytes | np.ndarray, message: str
) -> None:
    _, _, folder = files
    path = folder / "wrong.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with pytest.raises(ClipperError, match=message):
        prune_files(PruneJob(folder / "candidates.parquet", path, folder / "kept.parquet"))
    assert not list(folder.glob("*kept*"))


@pytest.mark.slow
def test_a_killed_run_leaves_no_output_and_can_be_repeated(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 28, (6000,), generator=generator)
    Candidates.from_rule(sum, targets, slots=3, classes=10).write(tmp_path / "c.parquet")
    np.save(tmp_path / "e.npy", torch.rand(6000, 3, 64, generator=generator).numpy())
    out = tmp_path / "kept.parquet"
    arguments = ["prune", tmp_path / "c.parquet", tmp_path / "e.npy", "-o", out]
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob(".kept*")):
        time.sleep(0.01)  # until it has begun to write
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    assert clipper(*arguments).returncode == 0
    assert Candidates.read(out).samples == 6000


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--help"], ["prune", "--help"], ["bench", "prune", "--help"], ["demo", "--help"]]
)
def test_every_command_helps(arguments: list[str]) -> None:
    run = clipper(*arguments)
    assert run.returncode == 0
    assert "Usage" in run.stdout


def test_a_saved_index_prunes_as_a_new_one_and_the_search_is_said(files: tuple[Candidates, torch.Tensor, Path]) -> None:
    pytest.importorskip("faiss")
    _, _, folder = files
    read = folder / "candidates.parquet", folder / "embeddings.npy"
    first, again = (
        prune_files(PruneJob(*read, folder / f"{name}.parquet", search="ivf", index=folder / "pool.index"))
        for name in ("first", "again")
    )
    assert (folder / "first.parquet").read_bytes() == (folder / "again.parquet").read_bytes()
    assert first.as_dict() == again.as_dict()
    assert first.as_dict()["searches"][0]["method"] == "ivf"
    assert first.as_dict()["searches"][0]["measured"] == 100
    with pytest.raises(ClipperError, match="leave out the index or the batch"):
        prune_files(PruneJob(*read, folder / "batched.parquet", batch=20, index=folder / "pool.index"))


@pytest.mark.slow
def test_growth_is_measured_in_processes_of_their_own() -> None:
    run = clipper("bench", "scale", "--instances", 300, "--instances", 900, "--dimensions", 8, "--json")
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    assert [row["instances"] for row in rows] == [300, 900]
    assert all(row["recall"] == 1 and row["method"] == "exact" and row["seconds"] > 0 for row in rows)
    assert clipper("bench", "scale", "--stage", "cook", "--instances", 300).returncode == 1


@pytest.mark.slow
def test_joint_inference_is_measured_with_its_labels_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "new" / "bench.jsonl"
    run = clipper("bench", "scale", "--stage", "infer", "--instances", 300, "--dimensions", 8, "--out", file)
    assert run.returncode == 0, run.stderr
    (row,) = measurements(file, "scale")
    assert row["settings"] == {
        "stage": "infer", "instances": 300, "dimensions": 8, "slots": 3, "classes": 10, "k": 8, "search": "auto",
        "seed": 0, "threads": row["versions"]["threads"],
    }  # fmt: skip
    found = row["figures"]
    assert found["verdict"] in get_args(Verdict)
    assert 0 <= found["right"] <= 1
    assert found["kept"] <= found["candidates"]
    assert 0 < found["inference_processor_seconds"] <= found["seconds"] * 2
    assert f"| {found['verdict']} |" in inferred_pools([row])
    assert pruned_pools([row]) == "Not run."


@pytest.mark.slow
def test_several_processes_are_measured_with_what_they_send(tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    pool = ["--instances", 300, "--dimensions", 64, "--out", file]
    infer = ["--stage", "infer"]
    for options in ([], ["--engine", "processes", "--workers", 2], infer, [*infer, "--ranks", 2]):
        run = clipper("bench", "scale", *pool, *options)
        assert run.returncode == 0, run.stderr
    rows = measurements(file, "scale")
    one, two, alone, shared = (row["figures"] for row in rows)
    for name in ("candidates", "kept", "method", "recall"):
        assert one[name] == two[name]
    for name in ("candidates", "kept", "verdict", "right"):
        assert alone[name] == shared[name]
    (_, support), (_, edges), (given, kept) = two["bytes_sent"].values()
    assert support > 300 * 10  # ten labels for each instance
    assert edges > 300 * 16  # two ends of an edge
    assert given > support + edges / 2
    assert kept > 3 * two["kept"]  # a byte for each label
    assert shared["bytes_sent"] > 0 < shared["processor_seconds"]
    assert sent_bytes(rows[:1]) == ranks(rows[:3]) == "Not run."
    assert f"| {given / 300:.0f} | {kept / 300:.0f} |" in sent_bytes(rows)
    assert [line.split(" | ")[1] for line in ranks(rows).splitlines()[2:4]] == ["1", "2"]
    assert inferred_pools(rows).count("| 300 |") == 1
    for refused in (["--ranks", 2], [*infer, "--engine", "processes"], [*infer, "--ranks", 2, "-k", 3]):
        assert clipper("bench", "scale", *pool, *refused).returncode == 1
