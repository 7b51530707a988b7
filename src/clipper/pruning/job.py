"""Pruning from file to file: candidates and embeddings in, survivors out, a piece at a time.

Two passes over the candidates: the first learns the support of every instance, the second prunes against it. What is
held in memory grows with instances, not with candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from clipper.candidates.kinds import Classes
from clipper.candidates.storage import open_parquet, stream, to_arrow
from clipper.errors import FileError, InputError
from clipper.files import written_whole
from clipper.proximity import NeighbourSearch, ProximityGraph
from clipper.pruning.objectives import Objective, Solver, prune_against
from clipper.pruning.result import EVERYTHING_POSSIBLE, Pruning

Report = Callable[[str, int, int], None]
"""Called with the stage, what is done and the total (0 if unknown)."""


@dataclass(frozen=True)
class PruneJob:
    """What to prune, and how."""

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
    """Look for neighbours among this many samples at a time; None for all."""
    classes: Classes | None = None
    search: NeighbourSearch | None = field(default=None, repr=False)


@dataclass
class Summary:
    """What a pruning did, counted while it streams by."""

    samples: int = 0
    instances: int = 0
    candidates: int = 0
    kept: int = 0
    edges: int = 0
    edges_chosen: int = 0
    samples_pruned: int = 0
    reason: str | None = None
    """Why nothing could be discarded, where every label is possible everywhere."""

    def add(self, pruning: Pruning) -> None:
        """Count one more piece."""
        before, after = pruning.original.counts, pruning.candidates.counts
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
    with written_whole(job.output) as temporary:  # opened first: a name that is taken should not cost a search
        support, kind = _first_pass(job, report)
        graph = _graph(job, kind, report)
        summary = _second_pass(job, support, graph, kind.shape[1], temporary, report)
    summary.instances = int((kind >= 0).sum())
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
    masked = bool((kind != 0).any())
    parts = []
    for first in range(0, samples, step):
        rows = slice(first, first + step)
        graph = ProximityGraph.from_embeddings(
            embeddings[rows], job.k, job.radius, job.mutual, job.metric, share=job.share, search=job.search,
            kind=kind[rows] if masked else None,
            allow_fewer=job.batch is not None,
            progress=None if job.batch else lambda done, total: report("searching neighbours", done, total),
        )  # fmt: skip
        start = first * slots
        parts.append(ProximityGraph(graph.source + start, graph.target + start, graph.distance))
        if job.batch:
            report("searching neighbours", min(first + step, samples), samples)
    return parts[0] if len(parts) == 1 else ProximityGraph.joined(parts)


def _second_pass(
    job: PruneJob, support: Tensor, graph: ProximityGraph, slots: int, path: Path, report: Report
) -> Summary:
    summary = Summary()
    writer: pq.ParquetWriter | None = None
    try:
        for first, piece in stream(job.candidates, job.classes):
            local = graph.leaving(first * slots, (first + piece.samples) * slots)
            pruning = prune_against(piece, local, support, job.objective, job.solver)
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
    values = _from_parquet(path) if path.suffix == ".parquet" else _from_npy(path)
    if values.ndim == 2 and len(values) == samples * slots:
        values = values.reshape(samples, slots, -1)
    if values.ndim < 3 or values.shape[:2] != (samples, slots):
        raise InputError(
            f"expected embeddings of shape ({samples}, {slots}, d) or ({samples * slots}, d) for the candidates, "
            f"got {values.shape} in {path}"
        )
    return torch.from_numpy(values)


def _from_npy(path: Path) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(
            f"{path} cannot be read as .npy ({error}); write it with numpy.save, or use a .parquet file"
        ) from error
    if not np.issubdtype(values.dtype, np.floating):
        raise InputError(f"expected embeddings of floating point in {path}, got {values.dtype}")
    return values


def _from_parquet(path: Path) -> np.ndarray:
    with open_parquet(path) as file:
        if "embedding" not in file.schema_arrow.names:
            raise InputError(f"expected a column 'embedding' of lists in {path}, got {file.schema_arrow.names}")
        column = file.read(columns=["embedding"])["embedding"].combine_chunks()
    flat: np.ndarray = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    if column.null_count or len(flat) % max(1, len(column)):
        raise InputError(f"expected lists of one length in column 'embedding' of {path}")
    return flat.reshape(len(column), -1)
