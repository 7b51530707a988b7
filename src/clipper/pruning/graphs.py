"""From what a caller passes, a graph or embeddings, to a graph that fits the candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clipper.arguments import as_tensor, shown
from clipper.candidates import CandidateSet, Kind
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.proximity.instances import Embeddings, one_table


def graph_of(candidates: CandidateSet, given: object, k: int) -> ProximityGraph:
    """A graph unchanged; for embeddings `(n, m, d)`, the graph of the `k` nearest neighbours, or as many as exist."""
    must_be_candidates(candidates)
    if isinstance(given, ProximityGraph):
        return given
    if isinstance(given, CandidateSet):
        raise InputError("expected a graph or embeddings after the candidates, got candidates again")
    kind, kinds, plain = candidates.kind, candidates.kinds, candidates.plain
    return neighbours_of(as_embeddings(given, candidates), kind, kinds, plain, k=k)


def neighbours_of(
    embeddings: Embeddings, kind: Tensor, kinds: Sequence[Kind], plain: bool, **options: Any
) -> ProximityGraph:
    """`ProximityGraph.from_embeddings`, with `kind (n, m)` where it matters; fewer than k neighbours are allowed.

    `plain`: whether every slot is used and of the first kind.
    """
    matters = isinstance(embeddings, Mapping) or not plain
    return ProximityGraph.from_embeddings(
        embeddings,
        kind=kind if matters else None,
        kinds=[kind.name for kind in kinds],
        allow_fewer=True,
        **options,
    )


def as_embeddings(given: object, candidates: CandidateSet) -> Embeddings:
    """Embeddings as tensors that fit the candidates: one, one for each kind of label, or a list of several encoders'.

    A list of arrays `(length, d)`, one per sample, becomes one padded tensor.
    """
    if isinstance(given, list) and given and all(getattr(part, "ndim", 0) == 2 for part in given):
        return _one(_padded(given, candidates), candidates)
    if isinstance(given, tuple):
        one_table(given)  # refuses what a network returned, log-probabilities and embeddings together
    if isinstance(given, Sequence) and given and isinstance(given[0], Mapping | Tensor | np.ndarray):
        return [_one(part, candidates) for part in given]
    return _one(given, candidates)


def _padded(given: Sequence[Any], candidates: CandidateSet) -> Tensor:
    """Embeddings `(length, d)` of each sample as one tensor, with zeros in the slots that a sample does not use."""
    parts = [as_tensor(part, "embeddings", candidates.device) for part in given]
    used = candidates.kind >= 0
    in_front = (used.long().diff(dim=1) <= 0).all(1)
    # if an unused slot comes before a used one, the caller must give all slots
    lengths = torch.where(in_front, used.sum(1), candidates.slots)  # (n,)
    expected = [(length, parts[0].shape[1]) for length in lengths.tolist()]
    if len(parts) != len(expected):
        raise InputError(f"expected embeddings of {len(expected)} samples, got a list of {len(parts)}")
    for sample, (part, shape) in enumerate(zip(parts, expected, strict=True)):
        if tuple(part.shape) != shape:
            raise InputError(f"expected embeddings of shape {shape} for sample {sample}, got {tuple(part.shape)}")
    return pad_sequence(parts, batch_first=True)


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


def check_edges(candidates: CandidateSet, graph: ProximityGraph, pool: CandidateSet) -> None:
    """Raise an `InputError` unless edges lead from `candidates` to instances of the same kind in `pool`."""
    if candidates.device.type == "meta":
        raise InputError("expected candidates with values, got some on the device meta, which holds shapes only")
    if candidates.device != graph.source.device:
        raise InputError(
            f"expected candidates and graph on one device, got {candidates.device} and {graph.source.device}; "
            "move one with .to(device)"
        )
    if pool.classes != candidates.classes or pool.slots != candidates.slots:
        raise InputError(
            f"expected a pool of {candidates.slots} slots and {candidates.classes} classes like the candidates, "
            f"got {pool.slots} slots and {pool.classes} classes"
        )
    _check_sizes(graph, candidates, pool)
    if not len(graph):
        return
    bounds = torch.stack([*torch.aminmax(graph.source), *torch.aminmax(graph.target)]).tolist()
    _check_known(bounds[:2], candidates, "source")
    _check_known(bounds[2:], pool, "target")
    if candidates.plain and (pool is candidates or pool.plain):
        return  # one kind, and no slot is unused
    kinds, others = candidates.kind.flatten()[graph.source], pool.kind.flatten()[graph.target]
    wrong = (kinds != others) | (kinds < 0)
    if bool(wrong.any()):
        edge = int(wrong.nonzero()[0])
        raise InputError(
            f"edge {edge} leads from instance {int(graph.source[edge])} to {int(graph.target[edge])}, but one of them "
            "is an unused slot or they hold different kinds of label; build the graph with kind=candidates.kind"
        )


def _check_sizes(graph: ProximityGraph, candidates: CandidateSet, pool: CandidateSet) -> None:
    """Compare the graph's size with the candidates': a graph of other samples may have valid ids, too."""
    if graph.instances is None:
        return
    expected = candidates.samples * candidates.slots, pool.samples * pool.slots
    if graph.instances != expected:
        raise InputError(
            f"expected a graph from {expected[0]} instances to {expected[1]} for the candidates' samples and slots, "
            f"got one from {graph.instances[0]} to {graph.instances[1]}: build it from the same samples' embeddings"
        )


def _check_known(bounds: Sequence[int], candidates: CandidateSet, end: str) -> None:
    """Raise an `InputError` if ids are out of range; `bounds`: the lowest and the highest id."""
    instances, (low, high) = candidates.samples * candidates.slots, bounds
    if low < 0 or high >= instances:
        raise InputError(
            f"expected edge {end}s among the {instances} instances (id = sample · {candidates.slots} + slot), "
            f"got {low if low < 0 else high}"
        )
