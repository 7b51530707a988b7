"""Pools for `test_joint_ranks.py`, and how ranks share them: python -m tests.pruning.joint_rank_cases RESULTS.

Run by torchrun, each rank infers about its samples of every pool and writes what it found to RESULTS.RANK. Given a rank
and a file to meet at, besides, it is one of two processes without a launcher, and the second one kills itself half-way.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from clipper.pruning.joint import InferenceSettings
from tests.pruning.pools import clustered, random_pool, shuffled

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
        "figures": [verification.gain, verification.explained, verification.leak, verification.significance],
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
    for seed in (1, 5):  # parts so small that all combinations are summed
        few, graph = random_pool(seed, tree=False)
        order = graph.source.argsort(stable=True)
        graph = ProximityGraph.from_edges(*(ends[order] for ends in (graph.source, graph.target, graph.distance)))
        yield Case(f"small parts {seed}", "", few, graph, few.samples // 2, options={"trust": 0.2, "starts": 2})


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


def share_all(results: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = []
    for case in cases():
        posterior = case.infer_share(rank)
        found.append(told(posterior) | {"asked": posterior.ask(2), "traffic": posterior.traffic.sent})
    torch.save({"found": found, "refused": [refused(*wrong) for wrong in mistakes(rank)]}, f"{results}.{rank}")
    gc.collect()  # what still holds the group when Python ends can make gloo abort
    dist.destroy_process_group()


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


def main(results: str, rank: str = "", meeting: str = "") -> None:
    torch.set_num_threads(1)
    if meeting:
        killed(results, int(rank), meeting)
    else:
        share_all(results)


if __name__ == "__main__":
    main(*sys.argv[1:])
