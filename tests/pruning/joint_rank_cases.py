"""Pools for `test_joint_ranks.py`, and how ranks share them: python -m tests.pruning.joint_rank_cases WHAT RESULTS.

Run by torchrun, each rank writes what it found of its samples to RESULTS.RANK: of every pool ("pools"), or of single
steps of inference ("parts"). "killed" takes a rank and a file to meet at, and needs no launcher: the second of two
processes kills itself half-way.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from clipper import Candidates, Lattice, ProximityGraph, infer
from clipper.candidates import CandidateSet
from clipper.candidates.rules import SUM
from clipper.errors import ClipperError
from clipper.pruning import Posterior
from clipper.pruning.factors import formulas_of
from clipper.pruning.joint import InferenceSettings, Trust
from clipper.pruning.joint.inference import _pool_of
from clipper.pruning.joint.naming import NamingEvidence, matched
from clipper.pruning.joint.pool import Pool as ModelPool
from clipper.pruning.joint.potential import Potential
from clipper.pruning.joint.propagate import Schedule, cavities, propagate, score, zero_messages
from clipper.pruning.joint.search import States, islands, region_weights
from clipper.pruning.joint.verification import (
    correlation_along_edges,
    formula_leak,
    misfit_of,
    prior_surprise,
    verified,
)
from clipper.pruning.pairs import disagreeing_share
from clipper.pruning.ranks import Ranks
from tests.pruning.pools import clustered, random_pool, repeated_noise, shuffled

RANKS = 2
HURRIED = InferenceSettings(starts=10, rounds=60, generations=1)


@dataclass(frozen=True)
class Case:
    """A pool, the verdict on it, and how many samples the first rank has of it."""

    name: str
    verdict: str
    candidates: CandidateSet
    evidence: Tensor | ProximityGraph
    first: int
    by_sample: dict[str, Tensor] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def infer(self) -> Posterior[Any]:
        """By this process alone."""
        return infer(self.candidates, self.evidence, settings=HURRIED, **self.by_sample, **self.options)

    def infer_share(self, rank: int) -> Posterior[Any]:
        """By this rank, about its samples."""
        own = slice(0, self.first) if rank == 0 else slice(self.first, self.candidates.samples)
        evidence, m = self.evidence, self.candidates.slots
        if isinstance(evidence, ProximityGraph):
            mine = (evidence.source >= own.start * m) & (evidence.source < own.stop * m)
            columns = (evidence.source[mine] - own.start * m, evidence.target[mine], evidence.distance[mine])
            evidence = ProximityGraph.from_edges(*columns)
        else:
            evidence = evidence[own]
        by_sample = {name: value[own] for name, value in self.by_sample.items()}
        options = {"settings": HURRIED, "group": dist.group.WORLD, **by_sample, **self.options}
        return infer(self.candidates.batch(own), evidence, **options)


def told(posterior: Posterior[Any]) -> dict[str, Any]:
    """What is compared."""
    pruning, verification = posterior.prune(), posterior.verification
    return {
        "labels": posterior.labels, "marginals": posterior.marginals, "suspicion": posterior.suspicion,
        "allowed": pruning.allowed, "edges": pruning.edges, "verdict": posterior.verdict, "energy": posterior.energy,
        "namings": [naming.order.tolist() for naming in posterior.namings],
        "figures": [verification.gain, verification.explained, verification.leak, verification.misfit],
    }  # fmt: skip


def cases() -> Iterator[Case]:
    """Every verdict, known labels, wrong targets, lattices, samples of different lengths and parts solved exactly."""
    sums, near, gold = clustered(40, classes=5, spread=0.3)
    yield Case("sums", "joint", sums, near, 17)
    lattice = Lattice.from_rule(*SUM, targets=gold.sum(1).tolist(), slots=3, classes=5)
    yield Case("lattice", "joint", lattice, near, 30)
    noise = torch.randn(40, 3, 5, generator=torch.Generator().manual_seed(0))
    said = (2 * torch.nn.functional.one_hot(gold, 5) + noise).log_softmax(2)
    yield Case("classifier", "joint", sums, near, 20, by_sample={"log_probs": said})
    largest = Candidates.from_rule(max, gold.amax(1), 3, 5)  # which a lattice stands for
    yield Case("largest", "joint", largest, near, 21)
    lengths = [3 - (i % 4 == 1) for i in range(40)]
    targets = [sum(row[:length]) for row, length in zip(gold.tolist(), lengths, strict=True)]
    yield Case("different lengths", "joint", Candidates.from_rule(sum, targets, lengths, 5), near, 20)
    _, near, gold = clustered(50, slots=2, classes=5, spread=0.3, seed=1)
    apart = Candidates.from_rule(lambda row: abs(row[0] - row[1]), (gold[:, 0] - gold[:, 1]).abs().tolist(), 2, 5)
    yield Case("differences", "ambiguous", apart, near, 25)
    known = torch.full_like(gold, -1)
    known[3, 0], known[40, 1] = gold[3, 0], gold[40, 1]
    yield Case("known labels", "joint", apart, near, 25, by_sample={"known": known})
    sums, near, gold = clustered(60, classes=5, spread=0.3, seed=3)
    yield Case("shuffled", "uninformative", sums, shuffled(near), 30)
    targets = gold.sum(1)
    targets[::12] = (targets[::12] + 5) % 12
    yield Case("wrong targets", "joint", Candidates.from_rule(sum, targets, 3, 5), near, 33)
    candidates, noise, _ = repeated_noise(14, times=2)
    yield Case("copies", "uninformative", candidates, noise, 25)
    for seed in (1, 5):  # parts so small that all combinations are summed
        few, graph = random_pool(seed, tree=False)
        order = graph.source.argsort(stable=True)
        graph = ProximityGraph.from_edges(*(ends[order] for ends in (graph.source, graph.target, graph.distance)))
        yield Case(f"small parts {seed}", "", few, graph, few.samples // 2, options={"trust": 0.2, "starts": 2})


def noisy_pool(ranks: Ranks, own: slice) -> tuple[Candidates, ModelPool]:
    """Some samples of a pool in which nothing is certain, as a graphical model that `ranks` share."""
    _, embeddings, gold = clustered(30, classes=4, spread=1.5)
    lengths = [3 - (i % 5 == 1) for i in range(30)]
    targets = [sum(row[:length]) for row, length in zip(gold.tolist(), lengths, strict=True)]
    lists = Candidates.from_rule(sum, targets, lengths, 4)
    graph = ProximityGraph.from_embeddings(embeddings, k=2, kind=lists.kind, kinds=["label"])
    mine = (graph.source >= own.start * 3) & (graph.source < own.stop * 3)
    leaving = (graph.source[mine] - own.start * 3, graph.target[mine], graph.distance[mine])
    return lists.batch(own), _pool_of(lists.batch(own), ProximityGraph.from_edges(*leaving), None, None, ranks)[0]


def parts_of(ranks: Ranks, own: slice) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What single steps of inference give for some samples of the noisy pool, and what they give for all of them."""
    candidates, pool = noisy_pool(ranks, own)
    potential, generator = Potential(Trust(-1.0, 2.0), 0.01, 4.0), torch.Generator().manual_seed(0)
    drawn = torch.randint(0, 4, (30, 3, 3), generator=generator)
    drawn[:20, :, 1] = drawn[:20, :, 0]  # so that states differ in places
    labels = drawn[own].flatten(0, 1).masked_fill(~pool.possible.any(1)[:, None], -1)
    fold, orders = (torch.arange(30) % 2)[own], torch.stack([torch.randperm(4, generator=generator) for _ in range(9)])
    hidden = fold[:, None] == torch.arange(2)
    schedule = Schedule(8, noise=1.0, coupling=0.5, still=1e-3)
    messages, _ = propagate(pool, potential, zero_messages(pool, 2), schedule, None, hidden, generator)
    heard, scores = pool.heard(messages), score(pool, potential, messages, hidden)
    first = messages[:, :, :1].contiguous()
    belief = pool.beliefs(pool.heard(first))
    fitted = potential.refitted(pool, cavities(pool, first, belief), belief[:, :, 0], 1.0)
    assert fitted.confusion is not None
    prior = prior_surprise(pool, fold, labels[:, :2], HURRIED)
    verification = verified(pool, heard[:, :, :1], prior, None, HURRIED)
    few = replace(HURRIED, improbable=1.0)
    judged = [NamingEvidence(pool, heard[:, :, 0], few, hidden[:, 0], most=most)(orders) for most in (None, 4)]
    weight = region_weights(pool, labels[:, :2], replace(scores, ranks=ranks), 0.1)
    near = pool.nearest(1)
    local = {
        "heard": heard, "evidence": scores.samples, "prior": prior, "suspicion": verification.suspicion,
        "regions": weight, "islands": islands(near.edges, labels[:, 0]), "parts": near.edges.components(3),
        "parts of some": pool.edges.components(3, labels.view(-1, 3, 3)[:, 0, 2] > 1),
        "disagreement": disagreeing_share(pool.edges, labels), "around": pool.edges.around(heard[:, :, 0]),
        "noise": pool.edges.shard.normal(heard.shape, generator),
    }  # fmt: skip
    figures = [fitted.trust.level, fitted.trust.slope, verification.gain, verification.explained, verification.wrong,
               formula_leak(pool, formulas_of(candidates, ranks)[0]),
               misfit_of(pool, heard[:, :, :1], prior, 0.5, replace(HURRIED, alike=-1.0, certain=-100.0)),
               *correlation_along_edges(pool, prior, labels[:, :1])]  # fmt: skip
    whole = {
        "score": scores.total, "confusion": fitted.confusion, "figures": torch.tensor(figures),
        "names by all": judged[0], "names by some": judged[1], "order": matched(labels[:, 0], labels[:, 2], 4, ranks),
        "different": States(labels, torch.tensor([1.0, 2.0, 1.5])).best(3, 0.3, ranks).score,
        "sizes": torch.tensor([pool.samples, pool.size, pool.edges.count, near.edges.count]),
        "rarity": potential.rarity(pool, belief), "kinds": pool.same_kind,
    }  # fmt: skip
    return local, whole


def mistakes(rank: int) -> Iterator[tuple[CandidateSet, Any, dict[str, Any]]]:
    """What does not fit what the other rank has, or what no rank may have."""
    sums, near, gold = clustered(6, slots=2, classes=3)
    edges = ProximityGraph.from_edges([0, 1], [12, 24 if rank else 13])
    yield sums, near, {"seed": rank}
    yield sums, near, {"method": "em"}
    yield sums, near, {"known": gold + rank}
    yield sums.batch(range(6 - 6 * rank)), near[: 6 - 6 * rank], {}
    yield sums, edges, {}
    yield sums, near if rank else edges, {}


def refused(candidates: CandidateSet, evidence: Any, options: dict[str, Any]) -> str:
    """What a rank is told of a mistake."""
    try:
        infer(candidates, evidence, group=dist.group.WORLD, wrong=0.0, **options)
    except ClipperError as error:
        return str(error)
    return "nothing was noticed"


def share_pools(rank: int) -> dict[str, Any]:
    """What a rank finds of its samples of all pools, and what it is told of mistakes."""
    found = []
    for case in cases():
        posterior = case.infer_share(rank)
        found.append(told(posterior) | {"asked": posterior.ask(2), "traffic": posterior.traffic.sent})
    return {"found": found, "refused": [refused(*wrong) for wrong in mistakes(rank)]}


def killed(results: str, rank: int, meeting: str) -> None:
    """The second process ends without a word when the search is over; what the first one says goes to RESULTS.0."""
    options = {"rank": rank, "world_size": RANKS, "timeout": timedelta(seconds=60)}
    dist.init_process_group("gloo", init_method=Path(meeting).as_uri(), **options)

    def end(_: float) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    case = next(cases())
    try:
        Case(
            case.name, case.verdict, case.candidates, case.evidence, case.first, options={"progress": end}
        ).infer_share(rank)
    except ClipperError as error:
        Path(f"{results}.{rank}").write_text(f"{type(error).__name__}: {error}")
    os._exit(0)  # a group whose other half is gone cannot be left in order


def main(what: str, results: str, *process: str) -> None:
    torch.set_num_threads(1)
    if what == "killed":
        killed(results, int(process[0]), process[1])
    dist.init_process_group("gloo")
    rank, shares = dist.get_rank(), (slice(0, 13), slice(13, 30))
    found = share_pools(rank) if what == "pools" else parts_of(Ranks(dist.group.WORLD), shares[rank])
    torch.save(found, f"{results}.{rank}")
    gc.collect()  # what still holds the group when Python ends can make gloo abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
