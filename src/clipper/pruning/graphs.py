"""The graph of some candidates: the one that was given, or the neighbours of their embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clipper.arguments import as_tensor, shown
from clipper.candidates import CandidateSet
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.proximity.instances import Embeddings, one_table


def graph_of(candidates: CandidateSet, given: object, k: int) -> ProximityGraph:
    """A graph as it is; for embeddings `(n, m, d)`, each instance's `k` nearest, or all that there are."""
    must_be_candidates(candidates)
    if isinstance(given, ProximityGraph):
        return given
    if isinstance(given, CandidateSet):
        raise InputError("expected a graph or embeddings after the candidates, got candidates again")
    return neighbours_of(candidates, as_embeddings(given, candidates), k=k)


def neighbours_of(candidates: CandidateSet, embeddings: Embeddings, **options: Any) -> ProximityGraph:
    """`ProximityGraph.from_embeddings`, with the kinds where they matter; too few neighbours are no trouble."""
    kinds = bool((candidates.kind != 0).any()) or isinstance(embeddings, Mapping)  # some are unused, or another kind
    return ProximityGraph.from_embeddings(
        embeddings,
        kind=candidates.kind if kinds else None,
        kinds=[kind.name for kind in candidates.kinds],
        allow_fewer=True,
        **options,
    )


def as_embeddings(given: object, candidates: CandidateSet) -> Embeddings:
    """Tensors of the candidates' samples and slots; one, one for each kind of label, or several of either."""
    if isinstance(given, tuple):
        one_table(given)  # refuses what a network returned, log-probabilities and embeddings together
    if isinstance(given, Sequence) and given and isinstance(given[0], Mapping | Tensor | np.ndarray):
        return [_one(part, candidates) for part in given]
    return _one(given, candidates)


def _one(given: Any, candidates: CandidateSet) -> Tensor | dict[str, Tensor]:
    if not isinstance(given, Mapping):
        return _table(given, candidates)
    names = [kind.name for kind in candidates.kinds]
    if sorted(map(str, given)) != sorted(names):
        raise InputError(f"expected embeddings of the kinds {', '.join(names)}, got {', '.join(map(str, given))}")
    return {name: _table(given[name], candidates) for name in names}


def _table(given: Any, candidates: CandidateSet) -> Tensor:
    if isinstance(given, str) or given is None:
        raise InputError(f"expected a ProximityGraph or embeddings (n, m, d), got {shown(given)}")
    values = as_tensor(given, "embeddings", candidates.device)
    if values.ndim < 3 or tuple(values.shape[:2]) != (candidates.samples, candidates.slots):
        raise InputError(
            f"expected embeddings of shape ({candidates.samples}, {candidates.slots}, d) for the candidates, "
            f"got {tuple(values.shape)}"
        )
    if values.device != candidates.device:
        raise InputError(
            f"expected embeddings and candidates on one device, got {values.device} and {candidates.device}; "
            "move one with .to(device)"
        )
    return values
