"""Pruning by the processes of a `torch.distributed` group: each prunes its own samples, with neighbours on all ranks.

The batch consists of the samples of all ranks, in the order of the ranks. One exchange sends the embedding, kind and
support of each instance, 4 d + 2 + c/8 bytes in single precision. Edges start at a rank's own instances and lead to
those of all. The result is the same as in one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from clipper.arguments import seed_number, seeded
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import TemplateSet
from clipper.candidates.table import offsets_of
from clipper.errors import ClipperError, InputError
from clipper.proximity import ExactSearch, Pool, ProximityGraph
from clipper.proximity.instances import Embeddings, OneEmbedding
from clipper.pruning.graphs import as_embeddings
from clipper.pruning.objectives import POOLED, listed_only, prune, prune_along, random_pruning
from clipper.pruning.ranks import Ranks, as_bytes, from_bytes
from clipper.pruning.result import Pruning, Set

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from clipper.pruning.clipper import Clipper

_BYTE = 8
"""Bits of a byte."""
_PROOF = "weight under random log-probabilities"
"""Key of the fingerprint among the tensors of `_share_of`; see `_weight`."""
_SAME = 1e-9
"""Largest relative difference of numbers that are equal up to rounding in double precision."""
_DOUBT = 20
"""Two squared distances must differ by this many rounding errors, so that every process orders them alike."""


@dataclass(frozen=True)
class GatheredBatch:
    """The samples of all ranks, those of the first rank first.

    Attributes:
        embeddings: `(N, m, d)`, in the same form as those of a rank.
        kind: `(N, m)`, as `Candidates.kind`.
        support: `(N*m, c)` bool.
        first: where the samples of this rank begin among the `N`.
        last: where they end.
        before: how many listed candidates the ranks before this one have.
    """

    embeddings: Embeddings
    kind: Tensor
    support: Tensor
    first: int
    last: int
    before: int


@dataclass(frozen=True)
class _Header:
    """What ranks send each other before they exchange rows.

    Attributes:
        error: why this rank has nothing to exchange.
        samples: how many it has.
        form: properties of its candidates that must be the same on all ranks, by name.
        tables: the shape `(…)` of an instance's embedding and its type, by name; None if the rank has no samples.
        rows: how many listed candidates it has.
    """

    error: str | None
    samples: int
    form: dict[str, Any]
    tables: dict[str, tuple[tuple[int, ...], torch.dtype]] | None
    rows: int


def gather(ranks: Ranks, candidates: CandidateSet, make_embeddings: Callable[[], Embeddings]) -> GatheredBatch:
    """Exchange embeddings, kinds and supports. If the embeddings of one rank are wrong, all ranks raise the error."""
    own: Embeddings | None = None
    failed: ClipperError | None = None
    try:
        own = make_embeddings()
    except ClipperError as error:
        failed = error
    headers = ranks.all_of(_header(candidates, own, failed))
    if failed is not None:
        raise failed
    known = _checked(headers)
    own = cast(Embeddings, own)
    sizes = [header.samples for header in headers]
    n, m, c = candidates.samples, candidates.slots, candidates.classes
    tables = {name: table.detach() for name, table in _tables(own).items()}
    if not n:  # a rank without samples uses the form of the other ranks' embeddings
        tables = {
            name: torch.empty(0, m, *shape, dtype=t, device=candidates.device) for name, (shape, t) in known.items()
        }
    columns = [*map(as_bytes, tables.values()), as_bytes(candidates.kind.to(torch.int16))]
    columns.append(pack_bits(candidates.support.reshape(n, m * c)))
    rows = ranks.rows(torch.cat(columns, 1), sizes)  # (N, bytes)
    parts = iter(torch.split(rows, [column.shape[1] for column in columns], 1))
    found = [from_bytes(next(parts), t.dtype).view(-1, *t.shape[1:]) for t in tables.values()]
    kind = from_bytes(next(parts), torch.int16).long()
    support = unpack_bits(next(parts), m * c).reshape(-1, c)
    first = sum(sizes[: ranks.rank])
    before = sum(header.rows for header in headers[: ranks.rank])
    return GatheredBatch(_in_form(own, found), kind, support, first, first + n, before)


def prune_share(clip: Clipper, candidates: Set, inputs: Embeddings, group: ProcessGroup, seed: int) -> Pruning[Set]:
    """As `Clipper.prune`, for the samples of this rank; all ranks of the group must call it."""
    ranks, seed = Ranks(group), seed_number(seed)
    batch = gather(ranks, candidates, lambda: clip.embeddings(candidates, inputs))
    if clip.objective in POOLED:
        return _prune_jointly(clip, candidates, batch, ranks, seed)
    blind = clip.objective == "random"
    graph = _own_edges(clip, candidates, batch)
    pruning = prune_along(candidates, graph, batch.support, "exact" if blind else clip.objective, clip.solver)
    if not blind:
        return pruning
    generator = seeded(seed)
    listed = listed_only(candidates) is not None
    before = batch.before if listed else batch.first * candidates.slots * candidates.classes
    torch.rand(before, generator=generator, dtype=torch.float64)  # skip the numbers of the ranks before this one
    return random_pruning(candidates, graph, pruning, generator)


def shared_graph(ranks: Ranks, candidates: CandidateSet, given: object, k: int) -> tuple[ProximityGraph, Tensor]:
    """The edges that leave this rank's instances, and the support of the instances of all ranks, `(N*m, c)` bool.

    Args:
        ranks: the processes that share the samples.
        candidates: of this rank's samples.
        given: embeddings `(n, m, d)`, or a graph; its sources count from 0, its targets over all ranks.
        k: neighbours of each instance, on any rank, if embeddings are given.
    """
    from clipper.pruning.clipper import Clipper

    def embeddings() -> Embeddings:
        if not candidates.samples:
            raise InputError("expected samples on every rank of the group, got none; let fewer ranks take part")
        return {} if isinstance(given, ProximityGraph) else as_embeddings(given, candidates)

    batch = gather(ranks, candidates, embeddings)
    if isinstance(given, ProximityGraph):
        graph = given
        ranks.agreed(lambda: _check_leaving(graph, candidates, batch))
    else:
        graph = _own_edges(Clipper(k=k), candidates, batch)
    return graph, batch.support


def _check_leaving(graph: ProximityGraph, candidates: CandidateSet, batch: GatheredBatch) -> None:
    """Raise an `InputError` unless edges lead from own instances to instances of the same kind on any rank."""
    own, every = candidates.kind.flatten(), batch.kind.flatten()
    ends = (("source", graph.source, own, "this rank"), ("target", graph.target, every, "all ranks"))
    for end, ids, there, whose in ends:
        if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < len(there)):
            raise InputError(
                f"expected edge {end}s among the {len(there)} instances of {whose}, got {int(ids.min())} to "
                f"{int(ids.max())}; count sources from 0, and targets over the samples of all ranks"
            )
    if bool(((own[graph.source] != every[graph.target]) | (own[graph.source] < 0)).any()):
        raise InputError(
            "expected edges between used slots of the same kind of label, got others; build the graph with "
            "kind=candidates.kind"
        )


def _own_edges(clip: Clipper, candidates: CandidateSet, batch: GatheredBatch) -> ProximityGraph:
    """The edges from this rank's instances, in the same order as in one process; targets are global.

    Matrix products of different shapes round differently. That does not change the neighbours, but it can change the
    order of two edges of nearly the same length. In that case, and where edges are chosen by comparing all of them,
    this rank searches the neighbours of all instances, as one process would.
    """
    slots = candidates.slots
    own = torch.arange(batch.first, batch.last, device=candidates.device)
    if not len(own):
        return ProximityGraph.from_edges(own, own)
    if not clip.mutual and clip.share is None and _by_matrix_product(clip):
        pool = Pool(batch.embeddings, batch.kind, samples=own)
        mine = _in_form(batch.embeddings, (t[batch.first : batch.last] for t in _tables(batch.embeddings).values()))
        graph = clip.connect(mine, candidates.kind, candidates.kinds, pool=pool)
        if _order_is_certain(graph, slots, batch, cosine=clip.metric == "cosine"):
            return graph
    whole = clip.connect(batch.embeddings, batch.kind, candidates.kinds)
    return whole.leaving(batch.first * slots, batch.last * slots)


def _by_matrix_product(clip: Clipper) -> bool:
    """Whether distances come from a matrix product, whose rounding error has a known bound."""
    searches = clip.search.values() if isinstance(clip.search, Mapping) else [clip.search]
    exact = (s in (None, "exact") or (isinstance(s, ExactSearch) and s.distance is None) for s in searches)
    return all(exact) and (clip.metric == "l2" or (clip.metric == "cosine" and clip.radius is None))


def _order_is_certain(graph: ProximityGraph, slots: int, batch: GatheredBatch, cosine: bool) -> bool:
    """Whether no two edges of a sample are equally long up to rounding."""
    squared = graph.distance.double()
    squared = 2 * squared if cosine else squared.square()
    sample = graph.source // slots
    order = squared.argsort(stable=True)
    order = order[sample[order].argsort(stable=True)]
    units = max(_unit_of_rounding(table, batch.kind, cosine) for table in _tables(batch.embeddings).values())
    apart = (squared[order].diff() > _DOUBT * units) | (sample[order].diff() > 0)  # false for NaN
    return bool(apart.all())


def _unit_of_rounding(table: Tensor, kind: Tensor, cosine: bool) -> float:
    """The bound of `ExactSearch` on the rounding error of a squared distance between embeddings `(N, m, …)`."""
    flat, kind = table.flatten(0, 1).flatten(1), kind.flatten()
    flat = flat if flat.dtype == torch.float64 else flat.float()
    relative = torch.finfo(flat.dtype).eps * (4 + math.sqrt(flat.shape[1]))
    if cosine:
        return 4 * relative  # of unit vectors, whose centre is no longer than they are
    parts = [flat[kind == i] for i in torch.unique(kind).tolist() if i >= 0]  # kinds are searched one by one
    return relative * max((float((part - part.mean(0)).square().sum(1).max()) for part in parts), default=0.0)


def _prune_jointly(clip: Clipper, candidates: Set, batch: GatheredBatch, ranks: Ranks, seed: int) -> Pruning[Set]:
    """Joint inference about the samples of all ranks, by the first of them; the others wait."""
    shares = ranks.at_first(_share_of(candidates))

    def inferred() -> Tensor:
        whole = _together(candidates, shares, batch.kind)
        graph = clip.connect(batch.embeddings, batch.kind, candidates.kinds)
        return survivors_of(prune(whole, graph, clip.objective, mass=clip.mass, seed=seed))

    found = ranks.from_first(inferred)
    listed = listed_only(candidates)
    start, own = (
        (batch.first * candidates.slots, candidates.samples * candidates.slots)
        if listed is None
        else (batch.before, len(listed))
    )
    mine = found[start : start + own].to(candidates.device)
    return Pruning(
        candidates, _own_edges(clip, candidates, batch), batch.support,
        keep=None if listed is None else mine, allowed=mine if listed is None else None,
        one_by_one=True,
    )  # fmt: skip


def survivors_of(pruning: Pruning[Any]) -> Tensor:
    """The result in a form that can be sent: `(Ω,)` bool for listed candidates, else the allowed labels `(n*m, c)`."""
    found = pruning.allowed if listed_only(pruning.original) is None else pruning.keep
    return found.cpu()


def reduced_to(candidates: Set, survivors: Tensor) -> Set:
    """The reverse of `survivors_of`: the candidates that are left."""
    survivors, listed = survivors.to(candidates.device), listed_only(candidates)
    if listed is None:
        return candidates.narrowed(survivors)
    return cast(Set, listed.rows_where(survivors, may_empty=False))


def _share_of(candidates: CandidateSet) -> dict[str, Tensor]:
    """A rank's part of the candidates of all ranks: rows, or its samples' part of a shared description."""
    listed = listed_only(candidates)
    if listed is not None:
        return {"labels": listed.labels.cpu(), "counts": listed.offsets.diff().cpu()}
    names = cast(TemplateSet, candidates).PER_SAMPLE
    rows = {name: getattr(candidates, name) for name in names if getattr(candidates, name) is not None}
    return {name: table.cpu() for name, table in rows.items()} | {_PROOF: _weight(candidates)}


def _together(own: CandidateSet, shares: Sequence[dict[str, Tensor]], kind: Tensor) -> CandidateSet:
    """The candidates of all ranks; `kind (N, m)` of all."""
    names = list(shares[0])
    rows = {name: torch.cat([share[name] for share in shares]) for name in names} if _alike(shares) else {}
    listed = listed_only(own)
    if listed is not None:
        counts = rows["counts"].to(own.device)
        slot_kinds = kind if bool((counts == 0).any()) else None  # samples without candidates do not show theirs
        return Candidates(rows["labels"].to(own.device), offsets_of(counts), own.kinds, slot_kinds)
    if rows:
        changes: dict[str, Any] = {name: rows[name].to(own.device) for name in names if name != _PROOF}
        whole: CandidateSet = replace(cast(TemplateSet, own), **changes)
        ends = torch.tensor([0, *(len(share[_PROOF]) for share in shares)]).cumsum(0).tolist()
        weights = torch.cat([_weight(whole.span(first, last)) for first, last in pairwise(ends)])
        if torch.allclose(weights, rows[_PROOF], rtol=_SAME):
            return whole
    raise InputError(
        f"expected the candidates of all ranks to be parts of one {type(own).__name__}, got different ones; build it "
        "for all samples on every rank, and take candidates.batch(ids) of it"
    )


def _alike(shares: Sequence[dict[str, Tensor]]) -> bool:
    return all(share.keys() == shares[0].keys() for share in shares)


def _weight(candidates: CandidateSet) -> Tensor:
    """A fingerprint of each sample's candidates, `(n,)`: the log of their total weight under random label weights."""
    shape = candidates.samples, candidates.slots, candidates.classes
    logs = torch.rand(shape, generator=seeded(0), dtype=torch.float64).to(candidates.device)
    return candidates.log_probability(logs).cpu() if candidates.samples else logs.new_zeros(0).cpu()


def _header(candidates: CandidateSet, embeddings: Embeddings | None, failed: ClipperError | None) -> _Header:
    listed = listed_only(candidates)
    tables = {} if embeddings is None else _tables(embeddings)
    shapes = {name: (tuple(table.shape[2:]), table.dtype) for name, table in tables.items()}
    form = {
        "type of candidates": type(candidates).__name__,
        "slots": candidates.slots,
        "kinds of label": candidates.kinds,
        "tables of embeddings": sorted(shapes),
    }
    return _Header(
        None if failed is None else str(failed), candidates.samples, form,
        shapes if candidates.samples else None, 0 if listed is None else len(listed),
    )  # fmt: skip


def _checked(headers: Sequence[_Header]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Check that candidates and embeddings have one form on all ranks. Returns shape and type of each table."""
    for rank, header in enumerate(headers):
        if header.error is not None:
            raise InputError(f"rank {rank} failed: {header.error}")
    for name in headers[0].form:
        found = [header.form[name] for header in headers]
        if any(value != found[0] for value in found):
            raise InputError(
                f"expected the same {name} on every rank, got {' and '.join(map(str, found))}; build the candidates of "
                "all samples on every rank, and take candidates.batch(ids) of them"
            )
    shapes = [header.tables for header in headers if header.tables is not None]
    if any(shape != shapes[0] for shape in shapes):
        raise InputError(
            f"expected embeddings of the same length and type on every rank, got {' and '.join(map(str, shapes))}"
        )
    return shapes[0] if shapes else dict.fromkeys(headers[0].form["tables of embeddings"], ((1,), torch.float32))


def _tables(embeddings: Embeddings) -> dict[str, Tensor]:
    """The tables of embeddings by name: one, one for each kind of label, or several of either."""
    if isinstance(embeddings, Tensor):
        return {"": embeddings}
    if isinstance(embeddings, Mapping):
        return dict(embeddings)
    parts = [(str(i), _tables(part)) for i, part in enumerate(embeddings)]
    return {f"{i} {name}": table for i, tables in parts for name, table in tables.items()}


def _in_form(like: Embeddings, tables: Iterable[Tensor]) -> Embeddings:
    """Tables in the order of `_tables`, in the form that `like` has."""
    given = iter(tables)
    if isinstance(like, Tensor):
        return next(given)
    if isinstance(like, Mapping):
        return {name: next(given) for name in like}
    return [cast(OneEmbedding, _in_form(part, given)) for part in like]


def pack_bits(bits: Tensor) -> Tensor:
    """Rows of bits `(n, b)` bool as bytes, `(n, ⌈b/8⌉)`, the lowest bit first.

    Examples:
        >>> pack_bits(torch.tensor([[True, False, True, False, False, False, False, False, True]])).tolist()
        [[5, 1]]
    """
    padded = torch.nn.functional.pad(bits, (0, -bits.shape[1] % _BYTE)).view(
        len(bits), -(-bits.shape[1] // _BYTE), _BYTE
    )
    powers = 2 ** torch.arange(_BYTE, device=bits.device)
    return (padded * powers).sum(2).to(torch.uint8)


def unpack_bits(packed: Tensor, width: int) -> Tensor:
    """The reverse of `pack_bits`; `width`: bits in a row.

    Examples:
        >>> unpack_bits(torch.tensor([[5, 1]], dtype=torch.uint8), 9).int().tolist()
        [[1, 0, 1, 0, 0, 0, 0, 0, 1]]
    """
    shift = torch.arange(_BYTE, device=packed.device, dtype=torch.uint8)
    return ((packed[:, :, None] >> shift) & 1).bool().flatten(1)[:, :width]
