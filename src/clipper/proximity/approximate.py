"""The FAISS part of an approximate index: an inverted file or a graph. Only this module imports FAISS.

It gets vectors in single precision and returns positions in the pool; `index.py` measures the distances.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from clipper.errors import FileError, InputError, require

_ADDED = 1 << 16
"""Vectors that are put into an index at a time."""

_PER_CELL = 64
"""Vectors for each cell on which the cells of an inverted file are trained."""

_SHORT = 10_000
"""Smaller pools are stored unchanged. In others, each coordinate is stored in four bits, which is faster to scan."""

_MORE = 8
"""A search asks FAISS for 2 k neighbours and this many more, because the stored vectors are rounded."""

_LINKS = 24
"""Links of each vector in a navigable graph."""

_NEAREST = 64
"""Neighbours of each vector in a graph by NN-descent."""


FaissMethod = Literal["ivf", "hnsw", "nn-descent"]


def faiss_method(name: str) -> FaissMethod:
    """The method of that name; a `ValueError` if there is none."""
    if name not in get_args(FaissMethod):
        raise ValueError(f"its method, {name!r}, is not known")
    return cast(FaissMethod, name)


class FaissStructure:
    """An inverted file ("ivf"), a navigable graph ("hnsw") or a graph of near neighbours ("nn-descent").

    Attributes:
        efforts: the levels of search effort that `nearest` accepts, ascending.
    """

    def __init__(self, index: Any, method: FaissMethod) -> None:
        self.index, self.method = index, method
        least, most = (1, int(index.nlist)) if method == "ivf" else (16, 2048)
        self.efforts = [1 << power for power in range(32) if least <= 1 << power < most] + [most]

    @classmethod
    def built(cls, method: FaissMethod, vectors: Tensor, scale: float, seed: int) -> FaissStructure:
        """The structure of some `vectors (instances, d)`, each times `scale`."""
        faiss = _faiss()
        size, width = vectors.shape
        with _refusals(method):
            if method == "ivf":
                cells = max(1, min(int(1.5 * size**0.5), size // _PER_CELL))
                index = faiss.index_factory(width, f"IVF{cells},{'Flat' if size < _SHORT else f'PQ{width}x4fs'}")
                index.cp.seed = seed
                index.cp.min_points_per_centroid = 1  # avoids warnings
                chosen = torch.randperm(size, generator=torch.Generator().manual_seed(seed))[: cells * _PER_CELL]
                index.train(_numpy(vectors[chosen.sort().values.to(vectors.device)] * scale))
            elif method == "hnsw":
                index = faiss.index_factory(width, f"HNSW{_LINKS},Flat")
            else:
                index = faiss.IndexNNDescentFlat(width, _NEAREST)
                index.nndescent.random_seed = seed
            step = size if method == "nn-descent" else _ADDED  # NN-descent builds its graph in `add`
            for start in range(0, size, step):
                index.add(_numpy(vectors[start : start + step] * scale))
        return cls(index, method)

    def nearest(self, queries: Tensor, k: int, effort: int) -> Tensor:
        """Positions in the pool of about the k nearest vectors, or of more, `(queries, k or more)`; -1 for none."""
        faiss = _faiss()
        reach = min(2 * k + _MORE, self.index.ntotal)
        options = None
        if self.method == "ivf":
            options = faiss.SearchParametersIVF(nprobe=effort)
        elif self.method == "hnsw":
            options = faiss.SearchParametersHNSW(efSearch=max(effort, reach))
        else:
            self.index.nndescent.search_L = max(effort, reach)
        with _refusals(self.method):
            _, near = self.index.search(_numpy(queries), reach, params=options)
        return torch.from_numpy(near)

    def write(self, path: Path) -> None:
        """Write a file that `read` maps into memory."""
        _faiss().write_index(self.index, str(path))

    @classmethod
    def read(cls, path: Path, method: FaissMethod) -> FaissStructure:
        """What `write` wrote, mapped into memory: pages are read when a query needs them."""
        faiss = _faiss()
        try:
            return cls(faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC), method)
        except (RuntimeError, AttributeError) as error:
            reason = str(error).strip().rsplit("\n", 1)[-1]
            raise FileError(f"{path} cannot be read by FAISS ({reason}); build the index again") from error


@contextmanager
def _refusals(method: str) -> Iterator[None]:
    """Turn an error of FAISS into an `InputError`."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().rsplit("\n", 1)[-1]
        raise InputError(f'FAISS cannot search by "{method}" here ({reason}); use the exact search, "exact"') from error


def _numpy(values: Tensor) -> Any:
    return values.float().cpu().contiguous().numpy()


def _faiss() -> Any:
    # Its bundled OpenBLAS may take a modern processor for an old one and run several times slower.
    capability = torch.backends.cpu.get_cpu_capability()
    core = {"AVX2": "Haswell", "AVX512": "SkylakeX"}.get(capability)
    if core:
        os.environ.setdefault("OPENBLAS_CORETYPE", core)
    faiss = require("faiss", extra="faiss")
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss
