"""Pruning from file to file: reads candidates and embeddings, writes the candidates that are left, piece by piece.

It reads the candidates twice: first to find the support of every instance, then to prune. Memory grows with the number
of instances, not of candidates. With an executor, its processes read, search and prune parts of the samples; the
    output file is the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from clipper.arguments import StageProgress, as_tensor, shown
from clipper.candidates import Candidates
from clipper.candidates.kinds import Classes
from clipper.candidates.storage import PARQUET, FileSlice, file_slices, open_parquet, stream, to_arrow
from clipper.errors import FileError, InputError
from clipper.executors import Executor, in_order
from clipper.files import written_whole
from clipper.proximity import IndexedSearch, NeighbourSearch, ProximityGraph, SearchReport
from clipper.proximity.graph import Search
from clipper.proximity.sharded import ShardedSearch
from clipper.pruning.objectives import Objective, Solver, prune_along
from clipper.pruning.result import EVERYTHING_POSSIBLE, Pruning


@dataclass(frozen=True)
class PruneJob:
    """What to prune, and how.

    Attributes:
        candidates: a Parquet file of candidates, or a folder of them.
        embeddings: a NumPy file of embeddings, `(n, m, d)`; or Parquet, or a folder of either.
        output: the Parquet file to write the kept candidates to.
        objective: "exact" or "paper".
        solver: "closed-form", "highs" or "cp-sat".
        k: neighbours per instance; None for all within `radius`.
        radius: neighbours must be nearer than this.
        mutual: whether to use only pairs of instances that are each other's neighbours.
        share: use only this share of the edges, the shortest ones.
        metric: "l2" or "cosine".
        batch: look for neighbours among this many samples at a time; None for all.
        classes: how many labels there are, if the file does not say.
        search: as in `ProximityGraph.from_embeddings`.
        index: the folder of a saved index. If there is none, it is built by the method `search` and saved there.
    """

    candidates: Path
    embeddings: Path
    output: Path
    objective: Objective = "exact"
    solver: Solver = "closed-form"
    k: int | None = 1
    radius: float | None = None
    mutual: bool = False
    share: float | None = None
    metric: str = "l2"
    batch: int | None = None
    classes: Classes | None = None
    search: Search | None = field(default=None, repr=False)
    index: Path | None = None


@dataclass
class Summary:
    """Counts of what a pruning of files did.

    Attributes:
        samples: how many samples there are.
        instances: how many slots are used.
        candidates: how many candidates there were.
        kept: how many candidates are left.
        edges: how many edges there are.
        edges_chosen: how many of them were chosen.
        samples_pruned: how many samples lost a candidate.
        reason: why nothing can be discarded, if every label is possible in every slot; else None.
        searches: by which methods neighbours were found, and their recall.
    """

    samples: int = 0
    instances: int = 0
    candidates: int = 0
    kept: int = 0
    edges: int = 0
    edges_chosen: int = 0
    samples_pruned: int = 0
    reason: str | None = None
    searches: tuple[SearchReport, ...] = ()

    @classmethod
    def of(cls, pruning: Pruning[Candidates]) -> Summary:
        """The counts of one piece."""
        before, after = pruning.original.offsets.diff(), pruning.candidates.offsets.diff()
        return cls(
            samples=pruning.original.samples,
            candidates=len(pruning.original),
            kept=len(pruning.candidates),
            edges=len(pruning.edges),
            edges_chosen=int(pruning.edges.sum()),
            samples_pruned=int((after < before).sum()),
        )

    def add(self, piece: Summary) -> None:
        """Add the counts of another piece."""
        for name in ("samples", "candidates", "kept", "edges", "edges_chosen", "samples_pruned"):
            setattr(self, name, getattr(self, name) + getattr(piece, name))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, with the retained share."""
        return {**asdict(self), "retained": self.kept / self.candidates if self.candidates else None}


def prune_files(job: PruneJob, report: StageProgress = lambda *_: None, executor: Executor | None = None) -> Summary:
    """Prune a file of candidates. If it fails, no output file is left behind.

    Args:
        job: what to prune, and how.
        report: called with the stage, what is done and the total.
        executor: runs the work in its processes; None for this process only. The output is the same. All processes
            must see the files at the same paths. Temporary files lie beside the output while the job runs.

    Returns:
        Counts of what was done.

    Raises:
        FileError: a file cannot be read or written.
        InputError: candidates, embeddings and options do not fit one another.
        WorkerDiedError: a process of the executor died repeatedly.
    """
    if job.output.suffix.lower() not in PARQUET:
        raise InputError(f"expected an output that ends in .parquet, because it is Parquet, got {job.output.name!r}")
    if job.batch is not None and job.batch < 1:
        raise InputError(f"expected a batch of at least one sample, got {job.batch}")
    if job.batch is not None and executor is not None:
        raise InputError("several workers search the whole pool, not batches of it: leave out the workers or the batch")
    try:
        with ExitStack() as stack:
            # opened first, so that an existing file is refused before the search
            temporary = stack.enter_context(written_whole(job.output))
            split = None
            if executor is not None:
                scratch = stack.enter_context(scratch_folder(job.output))
                split = _Split(executor, file_slices(job.candidates, job.classes), Path(scratch))
            support, kind = _first_pass(job, report, split)
            graph = _graph(job, kind, report, split)
            summary = _second_pass(job, support, graph, kind.shape[1], temporary, report, split)
    except FileError:
        raise
    except OSError as error:  # a full disk, a name too long, a folder that may not be written to
        raise FileError(f"cannot write {job.output}: {error}; choose another place") from error
    summary.instances = int((kind >= 0).sum())
    summary.searches = graph.reports
    if summary.kept == summary.candidates and bool(support[kind.flatten() >= 0].all()):
        summary.reason = EVERYTHING_POSSIBLE
    return summary


@dataclass(frozen=True)
class _Split:
    """How a job is split: the executor, the parts, and a folder that all processes see."""

    executor: Executor
    slices: list[FileSlice]
    scratch: Path


def scratch_folder(output: Path) -> TemporaryDirectory[str]:
    """A temporary folder beside the output, a place that all processes see."""
    return TemporaryDirectory(prefix=f".{output.name}.", suffix=".shared", dir=output.absolute().parent)


def _first_pass(job: PruneJob, report: StageProgress, split: _Split | None) -> tuple[Tensor, Tensor]:
    """`support (n*m, c)` and `kind (n, m)` of all samples."""
    found: Iterator[tuple[Tensor, Tensor]]
    if split is None:
        found = (_labels_of(piece) for _, piece in stream(job.candidates, job.classes))
    else:
        found = in_order(split.executor, _labels_in, [(part, job.classes) for part in split.slices])
    supports, kinds, done = [], [], 0
    for support, kind in found:
        supports.append(support)
        kinds.append(kind)
        done += len(kind)
        report("reading candidates", done, 0)
    return torch.cat(supports), torch.cat(kinds)


def _labels_in(job: tuple[FileSlice, Classes | None]) -> tuple[Tensor, Tensor]:
    part, classes = job
    return _labels_of(part.read(classes))


def _labels_of(piece: Candidates) -> tuple[Tensor, Tensor]:
    """`support (n*m, c)` and `kind (n, m)` of some samples."""
    return piece.support, piece.kind.to(torch.int16)


def _graph(job: PruneJob, kind: Tensor, report: StageProgress, split: _Split | None) -> ProximityGraph:
    samples, slots = kind.shape
    embeddings = read_embeddings(job.embeddings, samples, slots)
    step = job.batch or samples
    if job.k is not None and job.k > (most := (min(step, samples) - 1) * slots):
        raise InputError(
            f"k={job.k} is too large: with {min(step, samples)} samples of {slots} slots an instance has at most "
            f"{most} neighbours; lower k{' or enlarge the batch' if step < samples else ''}"
        )
    masked = bool((kind != 0).any())
    search = job.search if job.index is None and split is None else _index_search(job, kind, split)
    parts = []
    for first in range(0, samples, step):
        rows = slice(first, first + step)
        graph = ProximityGraph.from_embeddings(
            embeddings[rows], job.k, job.radius, job.mutual, job.metric, share=job.share, search=search,
            kind=kind[rows] if masked else None,
            allow_fewer=job.batch is not None,
            progress=None if job.batch else lambda done, total: report("searching neighbours", done, total),
        )  # fmt: skip
        start = first * slots
        edges = graph.source + start, graph.target + start, graph.distance
        parts.append(ProximityGraph(*edges, reports=graph.reports))
        if job.batch:
            report("searching neighbours", min(first + step, samples), samples)
    return parts[0] if len(parts) == 1 else ProximityGraph.joined(parts)


def _index_search(job: PruneJob, kind: Tensor, split: _Split | None) -> NeighbourSearch:
    """The search by the index in a folder, by several processes if the job is split."""
    if job.batch is not None:
        raise InputError("an index covers the whole pool, not batches of it: leave out the index or the batch")
    if job.index is not None and int(kind.max()) > 0:
        raise InputError("an index holds one kind of label, but the candidates have several: leave out the index")
    if not (job.search is None or isinstance(job.search, str)):
        raise InputError(f"expected search to be the name of a method if index is given, got {shown(job.search)}")
    if split is None:
        return IndexedSearch(job.search or "auto", folder=job.index)
    return ShardedSearch(split.executor, split.scratch, job.search or "auto", job.index)


def _second_pass(
    job: PruneJob,
    support: Tensor,
    graph: ProximityGraph,
    slots: int,
    path: Path,
    report: StageProgress,
    split: _Split | None,
) -> Summary:
    found: Iterator[tuple[pa.Table, Summary]]
    if split is None:
        found = (
            _pruned(piece, first, graph.leaving(first * slots, (first + piece.samples) * slots), support, job)
            for first, piece in stream(job.candidates, job.classes)
        )
    else:
        found = in_order(split.executor, _pruned_in, _prune_jobs(job, split.slices, support, graph, slots))
    summary = Summary()
    writer: pq.ParquetWriter | None = None
    try:
        for table, counted in found:
            summary.add(counted)
            writer = writer or pq.ParquetWriter(path, table.schema, write_page_checksum=True)
            writer.write_table(table)
            report("pruning", summary.samples, len(support) // slots)
    finally:
        if writer is not None:
            writer.close()
    return summary


_PartOfPruning = tuple[FileSlice, ProximityGraph, Tensor, PruneJob]
"""A slice of the candidates, the edges that leave it, the support of the instances these lead to, and the options."""


def _prune_jobs(
    job: PruneJob, parts: list[FileSlice], support: Tensor, graph: ProximityGraph, slots: int
) -> Iterator[_PartOfPruning]:
    """What a worker needs for each part: its edges, their targets renumbered."""
    options = replace(job, search=None)  # a search may be large, and workers do not need it
    for part in parts:
        local = graph.leaving(part.first * slots, (part.first + part.samples) * slots)
        targets, number = torch.unique(local.target, return_inverse=True)
        distance = local.distance.clone()  # to send a view would send all distances
        yield part, replace(local, target=number, distance=distance), support[targets], options


def _pruned_in(job: _PartOfPruning) -> tuple[pa.Table, Summary]:
    part, graph, support, options = job
    return _pruned(part.read(options.classes), part.first, graph, support, options)


def _pruned(
    piece: Candidates, first: int, graph: ProximityGraph, support: Tensor, job: PruneJob
) -> tuple[pa.Table, Summary]:
    """The kept candidates of some samples, and the counts."""
    pruning = prune_along(piece, graph, support, job.objective, job.solver)
    return to_arrow(pruning.candidates, first_sample=first), Summary.of(pruning)


def read_embeddings(path: Path, samples: int, slots: int) -> Tensor:
    """Embeddings `(n, m, d)` from `.npy` (memory-mapped) or from a Parquet column of lists, one row per instance.

    Args:
        path: the file, or a folder of files.
        samples: the number of samples, `n`.
        slots: the number of slots, `m`.

    Raises:
        FileError: the file is missing or damaged.
        InputError: the embeddings have another shape or type.
    """
    values = read_vectors(path)
    if values.ndim == 2 and len(values) == samples * slots:
        values = values.reshape(samples, slots, values.shape[1])
    if values.ndim < 3 or values.shape[:2] != (samples, slots):
        raise InputError(
            f"expected embeddings of shape ({samples}, {slots}, d) or ({samples * slots}, d) for the candidates, "
            f"got {values.shape} in {path}"
        )
    return as_tensor(values, "embeddings")


def read_vectors(path: Path) -> np.ndarray:
    """The array in a file of embeddings; `.npy` is memory-mapped, the files of a folder are concatenated."""
    if path.is_dir():
        return _joined(path)
    return _from_parquet(path) if path.suffix.lower() in PARQUET else _from_npy(path)


def _joined(folder: Path) -> np.ndarray:
    """The embeddings in all files of a folder, by name."""
    files = sorted(part for part in folder.iterdir() if part.suffix.lower() in (".npy", *PARQUET))
    if not files:
        raise FileError(f"expected .npy or Parquet files of embeddings in the folder {folder}, got none")
    parts = [read_vectors(file) for file in files]
    if len({(part.shape[1:], part.dtype) for part in parts}) > 1:
        shapes = sorted({f"{part.shape[1:]} of {part.dtype}" for part in parts})
        raise InputError(f"expected embeddings of one shape and type in {folder}, got {', '.join(shapes)}")
    return np.concatenate(parts)


def _from_npy(path: Path) -> np.ndarray:
    remedy = "write it with numpy.save, or use a .parquet file"
    try:
        with warnings.catch_warnings(action="error"):  # a header that numpy can only guess at
            values: Any = np.load(path, mmap_mode="c", allow_pickle=False)
    except Exception as error:  # numpy parses the header as Python, which may raise anything
        reason = str(error).split("\n", 1)[0] or type(error).__name__
        raise FileError(f"{path} cannot be read as .npy ({reason}); {remedy}") from error
    if not isinstance(values, np.memmap):
        raise FileError(f"{path} holds several arrays (.npz), not one; {remedy}")
    spare = path.stat().st_size - values.offset - values.nbytes
    if spare:
        raise FileError(f"{path} is {spare} bytes longer than its header says; {remedy}")
    if not np.issubdtype(values.dtype, np.floating):
        raise InputError(f"expected embeddings of floating point in {path}, got {values.dtype}")
    return values


def _from_parquet(path: Path) -> np.ndarray:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if names.count("embedding") != 1:
            raise InputError(f"expected one column 'embedding' of lists in {path}, got the columns {names}")
        kind = file.schema_arrow.field("embedding").type
        if not _is_list(kind) or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
            raise InputError(f"expected lists of numbers in column 'embedding' of {path}, got {kind}")
        try:
            column = file.read(columns=["embedding"])["embedding"]
            lengths = pc.unique(pc.list_value_length(column)).to_pylist()
            flat = pc.list_flatten(column)
        except Exception as error:  # damaged pages
            raise FileError(
                f"{path} cannot be read as Parquet ({error}); it may be half-written: write it again"
            ) from error
    if column.null_count or flat.null_count:
        raise InputError(f"expected no nulls in column 'embedding' of {path}, got some")
    if len(lengths) > 1:
        raise InputError(f"expected lists of one length in column 'embedding' of {path}, got lengths {lengths[:5]}")
    values: np.ndarray = flat.to_numpy()
    if values.dtype.kind != "f":
        values = values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    return values.reshape(len(column), lengths[0] if lengths else 0)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
