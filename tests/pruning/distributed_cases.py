"""Batches for `test_distributed.py`, and how the ranks share them: python -m tests.pruning.distributed_cases RESULTS.

Run by torchrun, each rank prunes its samples of every case and writes what it kept to RESULTS.RANK.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from clipper import Candidates, Clipper, Lattice
from clipper.benchmarks.data.images import digits
from clipper.candidates import Alignments, CandidateSet, Formula, has_label
from clipper.candidates.rules import SUM
from clipper.errors import InputError
from clipper.pruning import Pruning

RANKS = 2


@dataclass(frozen=True)
class Case:
    """A batch, how to prune it, and how many samples the first rank has of it."""

    name: str
    clip: Clipper
    candidates: CandidateSet
    embeddings: Any
    first: int

    def share(self, rank: int) -> tuple[CandidateSet, Any]:
        """The candidates and embeddings of a rank."""
        own = slice(0, self.first) if rank == 0 else slice(self.first, None)
        return self.candidates.batch(own), cut(self.embeddings, own)


def cut(embeddings: Any, own: slice) -> Any:
    if isinstance(embeddings, Tensor):
        return embeddings[own]
    if isinstance(embeddings, dict):
        return {name: table[own] for name, table in embeddings.items()}
    return [cut(part, own) for part in embeddings]


def told(pruning: Pruning[Any]) -> dict[str, Tensor]:
    """What is compared."""
    return {
        **({"keep": pruning.keep} if isinstance(pruning.original, Candidates) else {}),
        "support": pruning.candidates.support,
        "allowed": pruning.allowed,
        "edges": pruning.edges,
        "target": pruning.graph.target,
    }


def cases() -> Iterator[Case]:
    """Every objective on every kind of batch, at k = 1 and 3, divided in different ways."""
    dice, some = random.Random(0), batches()
    for objective, k, name in product(("exact", "paper", "random"), (1, 3), some):
        n = some[name][0].samples
        first = dice.choice([0, 1, n // 2, n, dice.randrange(n), dice.randrange(n)])
        yield Case(f"{objective}, k = {k}, {name}", Clipper(k=k, objective=objective), *some[name], first)
    for options, name in product(OPTIONS, ("real digits", "different lengths", "lattice")):
        yield Case(f"{options}, {name}", Clipper(**options), *some[name], dice.randrange(some[name][0].samples))
    for seed in (308, 2820, 2923):  # where a matrix product of another shape breaks the tie the other way, on some CPUs
        yield Case(f"equally long edges {seed}", Clipper(), *grid(seed), 1)
    for n, first, name in product((0, 1), (0, 1), ("sums", "kinds", "lattice")):  # no sample, or one in all
        candidates, embeddings = some[name]
        yield Case(f"{n} samples, {name}", Clipper(), candidates.batch(range(n)), embeddings[:n], first)
    few = batches(samples=24, classes=3, spread=0.2)
    for k, name in [*product((1, 3), ("sums", "different lengths", "kinds")), (3, "lattice")]:
        yield Case(f"joint, k = {k}, {name}", Clipper(k=k, objective="joint"), *few[name], dice.randrange(1, 24))
    yield Case("joint, all on the second rank", Clipper(objective="joint"), *few["sums"], 0)


def manhattan(queries: Tensor, pool: Tensor) -> Tensor:
    return torch.cdist(queries, pool, p=1)


OPTIONS: list[dict[str, Any]] = [
    {"mutual": True}, {"share": 0.4}, {"mutual": True, "share": 0.5, "k": 3}, {"radius": 2.5}, {"radius": 2.5, "k": 3},
    {"metric": "cosine", "k": 3}, {"metric": "cosine", "radius": 0.1}, {"metric": manhattan, "k": 3},
    {"search": "exact", "k": 2}, {"objective": "paper", "share": 0.7, "k": 3},
]  # fmt: skip


def grid(seed: int) -> tuple[CandidateSet, Tensor]:
    """Sums of points on a coarse grid: many edges are equally long."""
    generator = torch.Generator().manual_seed(seed)
    gold = torch.randint(0, 10, (9, 3), generator=generator)
    points = torch.randint(0, 3, (9, 3, 7), generator=generator) / 10
    return Candidates.from_rule(sum, gold.sum(1), 3, 10), points


def batches(samples: int = 23, classes: int = 10, spread: float = 0.5) -> dict[str, tuple[CandidateSet, Any]]:
    """Candidates and embeddings of samples of three slots at most, by what is special about them."""
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(samples, *shape, generator=generator)

    centres = torch.randn(classes, 8, generator=generator)
    gold = torch.randint(0, classes, (samples, 3), generator=generator)
    targets = gold.sum(1).tolist()
    sums, near = Candidates.from_rule(sum, targets, 3, classes), centres[gold] + spread * noise(3, 8)
    own = {"name": noise(3, 6), "rel": noise(3, 4)}
    scenes = Candidates.from_lists([scene(row) for row in gold.tolist()], {"name": 3, "rel": 2})
    lengths = [3, *torch.randint(1, 4, (samples - 1,), generator=generator).tolist()]
    parts = [sum(row[:length]) for row, length in zip(gold.tolist(), lengths, strict=True)]
    drawn = torch.randint(0, 300, (samples, 3), generator=generator)
    found: dict[str, tuple[CandidateSet, Any]] = {
        "sums": (sums, near),
        "double precision": (sums, near.double()),
        "half precision": (sums, near.half()),
        "whole numbers": (sums, (3 * near).round().long()),
        "equal vectors": (sums, centres[gold]),
        "several encoders": (sums, [near, torch.tanh(near[..., :3])]),
        "different lengths": (Candidates.from_rule(sum, parts, lengths, classes), near),
        "kinds": (scenes, near),
        "kinds with embeddings of their own": (scenes, own),
        "kinds and several encoders": (scenes, [own, {"rel": own["rel"] ** 2, "name": own["name"] ** 2}]),
        "real digits": (
            Candidates.from_rule(sum, digits().labels[drawn].sum(1), 3, 10), digits().pixels.flatten(1)[drawn],
        ),
        "impossible targets": (Candidates.from_rule(sum, [*targets[1:], 99], 3, classes, impossible="keep"), near),
        "lattice": (Lattice.from_rule(*SUM, targets=targets, slots=3, classes=classes), near),
        "alignments": (
            Alignments.from_texts([[(0, 1), (1, 0, 2), (2,)][t % 3] for t in targets], [4 + t % 3 for t in targets], 3),
            noise(6, 4),
        ),
    }  # fmt: skip
    if find_spec("klay") and find_spec("pysdd"):
        rules = [has_label(0, t % 3) | has_label(1, t % classes) & ~has_label(2, 0) for t in targets]
        found["formula"] = Formula.from_propositions(rules, slots=3, classes=classes), near
    return found


def scene(gold: list[int]) -> list[tuple[int, ...]]:
    """Two names and, mostly, a relation, with the same sum as the gold labels have."""
    a, b, r = gold[0] % 3, gold[1] % 3, 3 + gold[2] % 2
    if gold[0] == gold[1]:
        return [pair for pair in product(range(3), range(3)) if sum(pair) == a + b]
    return [row for row in product(range(3), range(3), (3, 4)) if sum(row) == a + b + r]


def mistakes(rank: int) -> Iterator[tuple[CandidateSet, Tensor, str]]:
    """Candidates, embeddings and objective that do not fit those of the other rank, or of the same one."""
    sums = Candidates.from_rule(sum, [3, 4, 5], 2, 10)
    yield sums, torch.rand(3 + rank, 2, 4), "exact"  # of a sample too many, on the second rank
    yield sums, torch.rand(3, 2, 4 + rank), "exact"
    yield Candidates.from_rule(sum, [3, 4, 5], 2 + rank, 10), torch.rand(3, 2 + rank, 4), "exact"
    yield Lattice.from_rule(*SUM, targets=[6 + rank, 4, 5], slots=3, classes=10), torch.rand(3, 3, 4), "joint"
    yield sums, torch.full((3, 2, 4), torch.nan if rank else 1.0), "joint"


def refused(rank: int, candidates: CandidateSet, embeddings: Tensor, objective: Any) -> str:
    """What a rank is told of a mistake."""
    try:
        Clipper(objective=objective).prune(candidates, embeddings, group=dist.group.WORLD)
    except InputError as error:
        return str(error)
    return f"rank {rank} noticed nothing"


def main(results: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = []
    for case in cases():
        candidates, embeddings = case.share(rank)
        found.append(told(case.clip.prune(candidates, embeddings, seed=7, group=dist.group.WORLD)))
    torch.save({"found": found, "refused": [refused(rank, *wrong) for wrong in mistakes(rank)]}, f"{results}.{rank}")
    gc.collect()  # what still holds the group when Python ends can make gloo abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
