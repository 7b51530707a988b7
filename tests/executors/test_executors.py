"""Work in other processes, of this machine or of a Ray cluster: the same results in the same order, whoever dies."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from clipper import Candidates, ProximityGraph
from clipper.benchmarks.tables import Ledger, Selection
from clipper.benchmarks.tables.catalogue import SUM_TABLE
from clipper.benchmarks.tables.grid import run_cells
from clipper.candidates.storage import to_arrow
from clipper.errors import InputError
from clipper.executors import Executor, LocalProcesses, WorkerDiedError, base, executor_named, in_order
from clipper.labelling.label_job import LabelJob, label_files
from clipper.proximity import Index
from clipper.proximity.sharded import ShardedSearch
from clipper.pruning.streaming import PruneJob, prune_files
from tests.executors import jobs
from tests.labelling.pools import digits, write_receipts
from tests.launch import COMMAND

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in ("processes", "ray")])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    with executor_named(request.param, workers=2) as made:
        assert made is not None
        yield made


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with candidates of 200 samples in three shards, and a file of their embeddings."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 28, (200,), generator=generator)
    whole = Candidates.from_rule(sum, targets, slots=3, classes=10)
    (tmp_path / "candidates").mkdir()
    for number, (first, last) in enumerate([(0, 90), (90, 100), (100, 200)]):
        write_shard(whole, first, last, tmp_path / "candidates" / f"{number}.parquet")
    np.save(tmp_path / "embeddings.npy", torch.rand(200, 3, 5, generator=generator).numpy())
    return tmp_path / "candidates", tmp_path / "embeddings.npy"


def write_shard(whole: Candidates, first: int, last: int, path: Path) -> None:
    pq.write_table(to_arrow(whole.span(first, last), first_sample=first), path, row_group_size=700)


def test_results_come_in_the_order_of_the_jobs(executor: Executor) -> None:
    assert list(in_order(executor, jobs.slow_square, iter(range(12)))) == [job * job for job in range(12)]


def test_a_job_whose_worker_is_killed_is_done_again(executor: Executor) -> None:
    sabotaged = jobs.Sabotaged(executor, every=4)
    assert list(in_order(sabotaged, jobs.slow_square, range(5))) == [0, 1, 4, 9, 16]
    assert sabotaged.submitted == 6


def test_a_job_that_kills_every_worker_is_given_up_in_words(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "ATTEMPTS", 2)
    with pytest.raises(WorkerDiedError, match=r"its (process|Ray worker)"):
        list(in_order(executor, jobs.die, [None]))


def test_what_a_job_raises_is_raised_here(executor: Executor) -> None:
    with pytest.raises(InputError, match="expected another job than 1"):
        list(in_order(executor, jobs.refuse, [1]))


def test_workers_are_other_processes_in_the_same_folder(executor: Executor) -> None:
    ((folder, pid),) = in_order(executor, jobs.here, [None])
    assert folder == os.getcwd()
    assert pid != os.getpid()


@pytest.mark.slow
def test_jobs_are_taken_only_as_they_can_be_begun() -> None:
    taken: list[int] = []
    with ExitStack() as stack:
        executor = LocalProcesses(2)
        stack.callback(executor.close)
        results = in_order(executor, jobs.slow_square, (taken.append(job) or job for job in range(50)))
        assert [next(results) for _ in range(3)] == [0, 1, 4]
        assert len(taken) <= 3 + 2 * executor.workers


@pytest.mark.parametrize(
    "options",
    [{"k": 2}, {"k": 3, "mutual": True, "metric": "cosine", "objective": "paper"}, {"k": None, "radius": 0.3}],
    ids=["nearest", "mutual", "radius"],
)
def test_the_file_of_survivors_is_that_of_one_process_though_workers_die(
    files: tuple[Path, Path], options: dict, executor: Executor, tmp_path: Path
) -> None:
    one = prune_files(PruneJob(*files, tmp_path / "one.parquet", **options))
    sabotaged = jobs.Sabotaged(executor, every=7) if options == {"k": 2} else executor
    several = prune_files(PruneJob(*files, tmp_path / "several.parquet", **options), executor=sabotaged)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "several.parquet").read_bytes()
    assert one.as_dict() == several.as_dict()
    assert 0 < one.kept < one.candidates
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "candidates", "embeddings.npy", "one.parquet", "several.parquet"
    ]  # fmt: skip
    if options == {"k": 2}:
        assert sabotaged.submitted == 15  # six shards twice and a search, of which two were begun again


def test_neighbours_are_found_in_parts_as_in_one_process(executor: Executor, tmp_path: Path) -> None:
    embeddings = torch.rand(300, 2, 8, generator=torch.Generator().manual_seed(0))
    for method in ["exact", *(["ivf", "hnsw"] if find_spec("faiss") else [])]:
        search = ShardedSearch(executor, tmp_path, method, tmp_path / method, queries=256)
        split = ProximityGraph.from_embeddings(embeddings, k=3, search=search)
        whole = ProximityGraph.from_embeddings(embeddings, k=3, search=Index.load(tmp_path / method))
        assert torch.equal(split.target, whole.target)
        assert split.reports == whole.reports


def test_labels_are_those_of_one_process(executor: Executor, tmp_path: Path) -> None:
    images, gold = digits(40, 2)
    table = write_receipts(tmp_path, images, gold.sum(1).tolist())
    read = {"samples": table, "rule": "sum", "classes": 10, "images": tmp_path / "scans"}
    one = label_files(LabelJob(output=tmp_path / "one.csv", **read))
    several = label_files(LabelJob(output=tmp_path / "several.csv", **read), executor=executor)
    assert one.verdict == several.verdict
    assert torch.equal(one.posterior.labels, several.posterior.labels)
    assert torch.equal(one.posterior.marginals, several.posterior.marginals)


def test_labels_of_a_folder_of_shards_are_those_of_one_file(tmp_path: Path) -> None:
    images, gold = digits(6, 2)
    whole = Candidates.from_rule(sum, gold.sum(1), slots=2, classes=10)
    vectors = images.flatten(2).float().flatten(0, 1)
    (tmp_path / "parts").mkdir()
    (tmp_path / "vectors").mkdir()
    for number, (first, last) in enumerate([(0, 4), (4, 6)]):
        write_shard(whole, first, last, tmp_path / "parts" / f"{number}.parquet")
        np.save(tmp_path / "vectors" / f"{number}.npy", vectors[2 * first : 2 * last].numpy())
    whole.write(tmp_path / "whole.parquet")
    np.save(tmp_path / "whole.npy", vectors.numpy())
    one = label_files(LabelJob(tmp_path / "whole.parquet", tmp_path / "one.csv", tmp_path / "whole.npy"))
    parts = label_files(LabelJob(tmp_path / "parts", tmp_path / "parts.csv", tmp_path / "vectors"))
    assert torch.equal(one.posterior.marginals, parts.posterior.marginals)


def test_cells_of_a_table_run_on_an_executor(executor: Executor, tmp_path: Path) -> None:
    tiny = Selection(engines=("semantic",), variants=("none",), columns=("SUM-3, n=100",), quick=True, epochs=1)
    table, ledger = replace(tiny, seeds=1).of(SUM_TABLE), Ledger(tmp_path / "records.jsonl")
    assert run_cells(table.cells(), ledger, executor=executor) == []
    assert len(ledger) == 1


def test_a_job_carries_its_own_edges_and_no_others(files: tuple[Path, Path], tmp_path: Path) -> None:
    class Here:
        """Does jobs in this process, and notes their size."""

        workers = 1

        def __init__(self) -> None:
            self.sizes: dict[str, list[int]] = {}

        def submit(self, work: Callable[[Any], Any], job: object) -> Any:
            self.sizes.setdefault(work.__name__, []).append(len(pickle.dumps(job)))
            return partial(work, job)

        def finished(self, tasks: Sequence[Any], seconds: float | None = None) -> list[Any]:
            del seconds
            return list(tasks)

        def result(self, task: Any) -> Any:
            return task()

        def close(self) -> None: ...

    here = Here()
    prune_files(PruneJob(*files, tmp_path / "kept.parquet", k=30), executor=here)
    reading, searching, (large, _, small, *_) = here.sizes.values()  # the last sample of a file is a shard of its own
    assert max(reading + searching) < 2_000
    assert small < large / 5


def test_batches_and_workers_exclude_one_another(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave out the workers or the batch"):
        prune_files(PruneJob(*files, tmp_path / "kept.parquet", batch=20), executor=LocalProcesses(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "single", "workers": 2}, "processes"),
        ({"engine": "processes", "address": "127.0.0.1:6379"}, 'choose the engine "ray"'),
        pytest.param({"engine": "ray", "address": "127.0.0.1:1"}, "no Ray cluster can be used", marks=pytest.mark.slow),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict, message: str) -> None:
    if arguments["engine"] == "ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    with pytest.raises(InputError, match=message), executor_named(**arguments):
        pass


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not say who listens where")
@pytest.mark.parametrize("executor", ["ray"], indirect=True)
def test_ray_listens_on_the_loopback_address_alone(executor: Executor) -> None:
    assert list(in_order(executor, jobs.slow_square, [2])) == [4]  # a worker is there and listens, too
    addresses = jobs.listening(jobs.descendants(os.getpid()))
    assert len(addresses) > 3
    assert set(addresses) <= LOOPBACK


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["ray"], indirect=True)
def test_the_command_prunes_on_a_cluster_that_runs_already(
    files: tuple[Path, Path], executor: Executor, tmp_path: Path
) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    prune_files(PruneJob(*files, tmp_path / "one.parquet"))
    command = [*COMMAND, "prune", *files, "-o", "kept.parquet", "--engine", "ray", "--address", address, "--json"]
    run = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["samples"] == 200
    assert (tmp_path / "kept.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()
    assert list(in_order(executor, jobs.slow_square, [3])) == [9], "the cluster is others' and stays"
