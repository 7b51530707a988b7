"""Pruning from file to file: candidates and embeddings in, survivors out, a piece at a time.

Two passes over the candidates: the first learns the support of every instance, the second prunes against it. What is
held in memory grows with instances, not with candidates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from clipper.arguments import as_tensor, shown
from clipper.candidates import Candidates
from clipper.candidates.kinds import Classes
from clipper.candidates.storage import open_parquet, stream, to_arrow
from clipper.errors import FileError, InputError
from clipper.files import written_whole
from clipper.proximity import IndexedSearch, ProximityGraph, SearchReport
from clipper.proximity.graph import Search
from clipper.pruning.objectives import Objective, Solver, prune_along
from clipper.pruning.result import EVERYTHING_POSSIBLE, Pruning

_PARQUET = (".parquet", ".pq")
"""How names of Parquet files end."""

Report = Callable[[str, int, int], None]
"""Called with the stage, what is done and the total (0 if unknown)."""


@dataclass(frozen=True)
class PruneJob:
    """What to prune, and how.

    Attributes:
        candidates: a Parquet file of candidates.
        embeddings: a NumPy file of embeddings, `(n, m, d)`.
        output: the Parquet file to write the survivors to.
        objective: "exact" or "paper".
        solver: "closed-form", "highs" or "cp-sat".
        k: neighbours per instance; None for all within `radius`.
        radius: neighbours must be nearer than this.
        mutual: whether to use only pairs of instances that are each other's neighbours.
        share: use only the closest share of all edges.
        metric: "l2" or "cosine".
        batch: look for neighbours among this many samples at a time; None for all.
        classes: how many labels there are, if the file does not say.
        search: as in `ProximityGraph.from_embeddings`.
        index: the folder of a saved index: used if there is one, else built and saved; `search` says by which method.
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
    """What a pruning did, counted while it streams by.

    Attributes:
        samples: how many samples there are.
        instances: how many slots are used.
        candidates: how many candidates there were.
        kept: how many candidates are left.
        edges: how many edges there are.
        edges_chosen: how many of them were chosen.
        samples_pruned: how many samples lost a candidate.
        reason: why nothing could be discarded, where every label is possible everywhere.
        searches: how neighbours were found, and what share of the true ones.
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

    def add(self, pruning: Pruning[Candidates]) -> None:
        """Count one more piece."""
        before, after = pruning.original.offsets.diff(), pruning.candidates.offsets.diff()
        self.samples += pruning.original.samples
        self.candidates += len(pruning.original)
        self.kept += len(pruning.candidates)
        self.edges += len(pruning.edges)
        self.edges_chosen += int(pruning.edges.sum())
        self.samples_pruned += int((after < before).sum())

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, with the retained share."""
        return {**asdict(self), "retained": self.kept / self.candidates if self.candidates else None}


def prune_files(job: PruneJob, report: Report = lambda *_: None) -> Summary:
    """Prune a file of candidates; the output appears whole or not at all."""
    if job.output.suffix.lower() not in _PARQUET:
        raise InputError(f"expected an output that ends in .parquet, because it is Parquet, got {job.output.name!r}")
    if job.batch is not None and job.batch < 1:
        raise InputError(f"expected a batch of at least one sample, got {job.batch}")
    try:
        with written_whole(job.output) as temporary:  # opened first: a name that is taken should not cost a search
            support, kind = _first_pass(job, report)
            graph = _graph(job, kind, report)
            summary = _second_pass(job, support, graph, kind.shape[1], temporary, report)
    except FileError:
        raise
    except OSError as error:  # a full disk, a name too long, a folder that may not be written to
        raise FileError(f"cannot write {job.output}: {error}; choose another place") from error
    summary.instances = int((kind >= 0).sum())
    summary.searches = graph.reports
    if summary.kept == summary.candidates and bool(support[kind.flatten() >= 0].all()):
        summary.reason = EVERYTHING_POSSIBLE
    return summary


def _first_pass(job: PruneJob, report: Report) -> tuple[Tensor, Tensor]:
    """`support (n*m, c)` and `kind (n, m)` of all samples."""
    supports, kinds = [], []
    for first, piece in stream(job.candidates, job.classes):
        supports.append(piece.support)
        kinds.append(piece.kind.to(torch.int16))
        report("reading candidates", first + piece.samples, 0)
    return torch.cat(supports), torch.cat(kinds)


def _graph(job: PruneJob, kind: Tensor, report: Report) -> ProximityGraph:
    samples, slots = kind.shape
    embeddings = read_embeddings(job.embeddings, samples, slots)
    step = job.batch or samples
    if job.k is not None and job.k > (most := (min(step, samples) - 1) * slots):
        raise InputError(
            f"k={job.k} is larger than what there is: {min(step, samples)} samples of {slots} slots leave an instance "
            f"{most} neighbours; lower k{' or enlarge the batch' if step < samples else ''}"
        )
    masked = bool((kind != 0).any())
    search = job.search if job.index is None else _saved_index(job, kind)
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


def _saved_index(job: PruneJob, kind: Tensor) -> IndexedSearch:
    """The search by the index in a folder."""
    if job.batch is not None:
        raise InputError("an index is of the whole pool, a batch of a part of it: leave out the index or the batch")
    if int(kind.max()) > 0:
        raise InputError("an index holds instances of one kind of label, the candidates have several; leave it out")
    if not (job.search is None or isinstance(job.search, str)):
        raise InputError(f"expected the name of a method beside an index, got {shown(job.search)}")
    return IndexedSearch(job.search or "auto", folder=job.index)


def _second_pass(
    job: PruneJob, support: Tensor, graph: ProximityGraph, slots: int, path: Path, report: Report
) -> Summary:
    summary = Summary()
    writer: pq.ParquetWriter | None = None
    try:
        for first, piece in stream(job.candidates, job.classes):
            local = graph.leaving(first * slots, (first + piece.samples) * slots)
            pruning = prune_along(piece, local, support, job.objective, job.solver)
            summary.add(pruning)
            table = to_arrow(pruning.candidates, first_sample=first)
            writer = writer or pq.ParquetWriter(path, table.schema, write_page_checksum=True)
            writer.write_table(table)
            report("pruning", first + piece.samples, len(support) // slots)
    finally:
        if writer is not None:
            writer.close()
    return summary


def read_embeddings(path: Path, samples: int, slots: int) -> Tensor:
    """Embeddings `(n, m, d)` from `.npy` (memory-mapped) or from a Parquet column of lists, one row per instance."""
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
    """What a file of embeddings holds, in its own shape; `.npy` is memory-mapped."""
    return _from_parquet(path) if path.suffix.lower() in _PARQUET else _from_npy(path)


def _from_npy(path: Path) -> np.ndarray:
    remedy = "write it with numpy.save, or use a .parquet file"
    try:
        with warnings.catch_warnings(action="error"):  # a header that numpy can only guess at
            values: Any = np.load(path, mmap_mode="c", allow_pickle=False)
    except Exception as error:  # numpy parses the header as Python, and anything may come of that
        reason = str(error).split("\n", 1)[0] or type(error).__name__
        raise FileError(f"{path} cannot be read as .npy ({reason}); {remedy}") from error
    if not isinstance(values, np.memmap):
        raise FileError(f"{path} holds several arrays (.npz), not one; {remedy}")
    spare = path.stat().st_size - values.offset - values.nbytes
    if spare:
        raise FileError(f"{path} is {spare} bytes longer than its header tells; {remedy}")
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
