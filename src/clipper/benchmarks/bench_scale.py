"""Measures seconds, memory and recall of pruning files and of joint inference, up to more than a million instances.

Each size runs in its own process, so that its peak memory can be measured; with workers or ranks, it runs in several. A
stage is a function from a `ScaleJob` to its measurements; `STAGES` lists them.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

from clipper.arguments import StageProgress, one_of, seed_number, seeded, whole_number
from clipper.benchmarks.timing import peak_gigabytes
from clipper.candidates import Candidates
from clipper.candidates.storage import from_arrow, to_arrow
from clipper.errors import InputError
from clipper.executors import Executor, ExecutorName, LocalProcesses, executor_named
from clipper.proximity import ProximityGraph
from clipper.pruning import infer, partition
from clipper.pruning.objectives import NEIGHBOURS
from clipper.pruning.streaming import PruneJob, prune_files

_DIRECTIONS = 16
"""Directions in which the instances of a class vary much; in all others they vary little."""
_FILES = ("candidates.parquet", "embeddings.npy", "kept.parquet")
_GOLD = "gold.npy"
_PIECE = 1 << 16
"""Samples that are drawn at a time."""


@dataclass(frozen=True)
class ScaleJob:
    """One size of one stage.

    Attributes:
        stage: which one, a key of `STAGES`.
        instances: about how many instances the pool has; rounded to whole samples.
        folder: where its files are: `candidates.parquet`, `embeddings.npy` and `gold.npy`.
        dimensions: of the embeddings.
        slots: instances of a sample; its target is the sum of their labels.
        classes: how many labels there are.
        k: neighbours per instance; None for the stage's default, 1 to prune and 8 to infer.
        search: how to find them, as in `ProximityGraph.from_embeddings`.
        seed: of the draws.
        threads: of the process.
        engine: where to prune, as in `executor_named`.
        workers: processes to prune in, with the engine "processes" or "ray".
        ranks: processes that infer together; more than one give the figures of the rank that needs most.
    """

    stage: str
    instances: int
    folder: Path
    dimensions: int = 64
    slots: int = 3
    classes: int = 10
    k: int | None = None
    search: str = "auto"
    seed: int = 0
    threads: int = field(default_factory=torch.get_num_threads)
    engine: ExecutorName = "single"
    workers: int | None = None
    ranks: int = 1

    @property
    def samples(self) -> int:
        """The number of samples, from the number of instances and slots."""
        return -(-self.instances // self.slots)

    @property
    def neighbours(self) -> int:
        """The number of neighbours per instance."""
        return self.k or (NEIGHBOURS if self.stage == "infer" else 1)

    @property
    def settings(self) -> dict[str, Any]:
        """What is measured, for JSON: several processes are named only if there are several."""
        several = {"engine": "single", "workers": None, "ranks": 1}
        values = {name: value for name, value in asdict(self).items() if name != "folder"} | {"k": self.neighbours}
        return {name: value for name, value in values.items() if name not in several or value != several[name]}


def measure_growth(
    jobs: Sequence[ScaleJob],
    progress: StageProgress,
    measured: Callable[[ScaleJob, dict[str, Any]], None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Draw the files of each job, and measure its stage in a process of its own.

    Args:
        jobs: what to measure, in this order.
        progress: called with what is done.
        measured: called with each job and its row, as soon as it is measured.

    Returns:
        A row of figures for each job.

    Raises:
        ClipperError: a stage failed, or its process was killed, for example for lack of memory.
    """
    rows = []
    for done, job in enumerate(jobs):
        one_of(job.stage, "stage", list(STAGES))
        whole_number(job.instances, "instances", 2 * job.slots)
        seed_number(job.seed)
        _check_processes(job)
        progress("measuring growth", done, len(jobs))
        job.folder.mkdir(parents=True, exist_ok=True)
        try:
            _in_own_process(write_pool, job)
            rows.append(_measure(job))
            measured(job, rows[-1])
        finally:
            shutil.rmtree(job.folder)
    progress("measuring growth", len(jobs), len(jobs))
    return rows


def _check_processes(job: ScaleJob) -> None:
    """Refuse several processes for a stage that runs in one."""
    whole_number(job.ranks, "ranks", 1)
    if job.engine != "single" and job.stage != "prune":
        raise InputError(f"only the stage prune has an engine, got the stage {job.stage} and {job.engine!r}")
    if job.ranks > 1 and (job.stage != "infer" or job.neighbours != NEIGHBOURS):
        raise InputError(
            f"ranks infer, with {NEIGHBOURS} neighbours, got the stage {job.stage} and {job.neighbours} neighbours"
        )


def write_pool(job: ScaleJob) -> dict[str, Any]:
    """Write a pool of sums: its candidates, and embeddings whose classes are overlapping Gaussians.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     written = write_pool(ScaleJob("prune", 300, Path(folder)))
        ...     written["samples"], np.load(Path(folder) / "embeddings.npy").shape
        (100, (100, 3, 64))
    """
    import pyarrow.parquet as pq

    generator = seeded(job.seed)
    centre = torch.randn(job.classes, job.dimensions, generator=generator) / 2
    spread = torch.randn(job.classes, _DIRECTIONS, job.dimensions, generator=generator) / _DIRECTIONS**0.5
    shape = job.samples, job.slots, job.dimensions
    embeddings = np.lib.format.open_memmap(job.folder / "embeddings.npy", mode="w+", dtype=np.float32, shape=shape)
    labels = torch.randint(0, job.classes, shape[:2], generator=generator)
    np.save(job.folder / _GOLD, labels.numpy())
    writer = None
    for first in range(0, job.samples, _PIECE):
        own = labels[first : first + _PIECE]
        for label in range(job.classes):
            place = (own == label).nonzero(as_tuple=True)
            noise = torch.randn(len(place[0]), job.dimensions, generator=generator) / 5
            along = torch.randn(len(place[0]), _DIRECTIONS, generator=generator)
            embeddings[first + place[0].numpy(), place[1].numpy()] = (
                centre[label] + along @ spread[label] + noise
            ).numpy()
        piece = Candidates.from_rule(sum, own.sum(1), slots=job.slots, classes=job.classes)
        table = to_arrow(piece, first_sample=first)
        writer = writer or pq.ParquetWriter(job.folder / "candidates.parquet", table.schema, write_page_checksum=True)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    embeddings.flush()
    return {"samples": job.samples}


def _prune(job: ScaleJob) -> dict[str, Any]:
    """Run what `clipper prune` runs on the files, and measure it."""
    moments: dict[str, list[float]] = {}

    def report(stage: str, *_: int) -> None:
        moments.setdefault(stage, []).append(time.perf_counter())

    start = time.perf_counter()
    candidates, embeddings, kept = (job.folder / name for name in _FILES)
    sent: dict[str, list[int]] = {}
    with executor_named(job.engine, job.workers) as executor:
        several = {} if executor is None else {"workers": executor.workers, "bytes_sent": sent}
        summary = prune_files(
            PruneJob(candidates, embeddings, kept, k=job.neighbours, search=job.search),
            report,
            executor=None if executor is None else _Counting(executor, sent),
        )
    seconds = time.perf_counter() - start
    searched = moments["pruning"][0] - moments["reading candidates"][-1]
    begun, indexed, *_ = *moments["searching neighbours"], 0.0, 0.0  # the index is built between the first two
    (found,) = summary.searches
    return {
        "candidates": summary.candidates,
        "kept": summary.kept,
        "seconds": seconds,
        "search_seconds": searched,
        "index_seconds": 0.0 if found.method == "exact" else indexed - begun,
        "method": found.method,
        "reason": found.reason,
        "recall": found.recall,
        "recall_measured_on": found.measured,
        **several,
    }


class _Counting:
    """An executor that counts the bytes of jobs and of their results, as `sent` by the name of the function."""

    def __init__(self, executor: Executor, sent: dict[str, list[int]]) -> None:
        self.workers = executor.workers
        self._executor, self._sent = executor, sent
        self._of: dict[Any, str] = {}

    def submit(self, work: Callable[[Any], Any], job: Any) -> Any:
        task = self._executor.submit(work, job)
        self._of[task] = work.__name__.strip("_")
        self._sent.setdefault(self._of[task], [0, 0])[0] += len(pickle.dumps(job))
        return task

    def finished(self, tasks: Sequence[Any], seconds: float | None = None) -> list[Any]:
        return self._executor.finished(tasks, seconds)

    def result(self, task: Any) -> Any:
        found = self._executor.result(task)
        self._sent[self._of.pop(task)][1] += len(pickle.dumps(found))
        return found

    def close(self) -> None:
        self._executor.close()


def _infer(job: ScaleJob) -> dict[str, Any]:
    """Find neighbours and infer the labels of the pool, in memory, and measure both."""
    import pyarrow.parquet as pq

    start = time.perf_counter()
    candidates = from_arrow(pq.read_table(job.folder / "candidates.parquet"))
    embeddings = torch.from_numpy(np.load(job.folder / "embeddings.npy"))
    began = time.perf_counter()
    graph = ProximityGraph.from_embeddings(embeddings, k=job.neighbours, search=job.search)
    searched, worked = time.perf_counter(), time.process_time()
    posterior = infer(candidates, graph, seed=job.seed)
    worked = time.process_time() - worked
    (found,) = graph.reports
    return {
        "candidates": len(candidates),
        "kept": len(posterior.prune().candidates),
        "seconds": time.perf_counter() - start,
        "search_seconds": searched - began,
        "inference_processor_seconds": worked,
        "method": found.method,
        "recall": found.recall,
        "verdict": posterior.verdict,
        "right": float((posterior.labels == torch.from_numpy(np.load(job.folder / _GOLD))).float().mean()),
    }


def _split(job: ScaleJob) -> dict[str, Any]:
    """Give each rank a folder with its own samples, so that no rank has to read those of the others."""
    import pyarrow.parquet as pq

    candidates = from_arrow(pq.read_table(job.folder / _FILES[0]))
    embeddings, gold = np.load(job.folder / _FILES[1]), np.load(job.folder / _GOLD)
    rank = partition(torch.from_numpy(embeddings), job.ranks)
    for i in range(job.ranks):
        own, folder = (rank == i).nonzero()[:, 0], _folder_of(job, i)
        folder.mkdir()
        pq.write_table(to_arrow(candidates.select(own)), folder / _FILES[0])
        np.save(folder / _FILES[1], embeddings[own])
        np.save(folder / _GOLD, gold[own])
    return {}


def _folder_of(job: ScaleJob, rank: int) -> Path:
    return job.folder / f"rank-{rank}"


def _infer_as_rank(task: tuple[ScaleJob, int]) -> dict[str, Any]:
    """Find neighbours and infer labels together with other ranks; the figures of this rank."""
    import pyarrow.parquet as pq

    job, rank = task
    torch.set_num_threads(job.threads)
    folder = _folder_of(job, rank)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    meeting = f"file://{(job.folder / 'meeting').absolute()}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=job.ranks)
    try:
        candidates = from_arrow(pq.read_table(folder / _FILES[0]))
        embeddings = torch.from_numpy(np.load(folder / _FILES[1]))
        start, worked = time.perf_counter(), time.process_time()
        posterior = infer(candidates, embeddings, seed=job.seed, group=torch.distributed.group.WORLD)
        return {
            "candidates": len(candidates),
            "kept": len(posterior.prune().candidates),
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - worked,
            "bytes_sent": posterior.traffic.sent if posterior.traffic else 0,
            "verdict": posterior.verdict,
            "right": int((posterior.labels == torch.from_numpy(np.load(folder / _GOLD))).sum()),
            "peak_gigabytes": peak_gigabytes(),
        }
    finally:
        torch.distributed.destroy_process_group()


STAGES: dict[str, Callable[[ScaleJob], Mapping[str, Any]]] = {"prune": _prune, "infer": _infer}
"""What can be measured: each is called in a process of its own, and gives figures with at least `seconds`."""


def _measure(job: ScaleJob) -> dict[str, Any]:
    if job.ranks > 1:
        return _size(job) | _by_ranks(job)
    if job.engine != "single":
        return _size(job) | {"engine": job.engine, **STAGES[job.stage](job), "peak_gigabytes": None}
    return _in_own_process(STAGES[job.stage], job)


def _by_ranks(job: ScaleJob) -> dict[str, Any]:
    """The figures of all ranks: candidates and labels are added up, of everything else the largest is taken."""
    _in_own_process(_split, job)
    with closing(LocalProcesses(job.ranks)) as processes:
        tasks = [processes.submit(_infer_as_rank, (job, rank)) for rank in range(job.ranks)]
        found: list[dict[str, Any]] = [processes.result(task) for task in tasks]
    added = {name: sum(row[name] for row in found) for name in ("candidates", "kept", "right")}
    most = {
        name: max(row[name] for row in found)
        for name in ("seconds", "processor_seconds", "bytes_sent", "peak_gigabytes")
    }
    right = added["right"] / (job.samples * job.slots)
    return {"ranks": job.ranks, "method": "exact", "verdict": found[0]["verdict"], **added, **most, "right": right}


def _in_own_process(work: Callable[[ScaleJob], Mapping[str, Any]], job: ScaleJob) -> dict[str, Any]:
    with closing(LocalProcesses(1)) as process:
        measured: dict[str, Any] = process.result(process.submit(_measured, (work, job)))
    return measured


def _measured(task: tuple[Callable[[ScaleJob], Mapping[str, Any]], ScaleJob]) -> dict[str, Any]:
    """What a stage measured, with the peak of this process's memory; runs in the process."""
    work, job = task
    torch.set_num_threads(job.threads)
    return {**_size(job), **work(job), "peak_gigabytes": peak_gigabytes()}


def _size(job: ScaleJob) -> dict[str, Any]:
    return {"stage": job.stage, "k": job.neighbours, "instances": job.samples * job.slots, "samples": job.samples}
