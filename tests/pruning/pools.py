"""Small pools for the tests of joint inference, and the joint distribution written out in full."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from clipper import Candidates, ProximityGraph
from clipper.pruning.joint.inference import _pool_of
from clipper.pruning.joint.pool import Pool
from clipper.pruning.ranks import ALONE


@dataclass(frozen=True)
class Exact:
    """The joint distribution of a small pool.

    Attributes:
        marginals: `(n, m, c)`.
        probability: `(Ω,)`, of each candidate.
        log_z: the log of the sum over all worlds.
    """

    marginals: Tensor
    probability: Tensor
    log_z: float


def brute_force(
    candidates: Candidates,
    graph: ProximityGraph,
    error: float,
    confused: Tensor | None = None,
    unary: Tensor | None = None,
    sharpness: float = 1.0,
) -> Exact:
    """Every combination of candidates is a world, weighed pair by pair.

    A pair of instances counts once, whichever way and however often the graph has it; no instance with itself.

    Args:
        candidates: what the labels could be, all of one kind.
        graph: which instances may share a label.
        error: how often a pair disagrees.
        confused: `(c, c)`: how many times likelier than by chance two labels meet in a pair that disagrees.
        unary: `(n, m, c)` log-odds.
        sharpness: the power that the weight of a pair is raised to.
    """
    n, m, c = candidates.samples, candidates.slots, candidates.classes
    table = torch.full((c, c), error / (c - 1), dtype=torch.float64)
    table = table if confused is None else table * confused
    table = torch.where(torch.eye(c).bool(), 1 - error, table).log() * sharpness
    rows = [torch.arange(candidates.offsets[i], candidates.offsets[i + 1]) for i in range(n)]
    worlds = torch.cartesian_prod(*rows).view(-1, n)  # the candidate of each sample
    labels = candidates.labels.long()[worlds].flatten(1)  # (worlds, n*m)
    log = torch.zeros(len(worlds), dtype=torch.float64)
    for a, b in {(min(e), max(e)) for e in zip(graph.source.tolist(), graph.target.tolist(), strict=True)}:
        log += table[labels[:, a], labels[:, b]] if a != b else 0
    if unary is not None:
        for i, said in enumerate(unary.flatten(0, 1).double()):
            log += torch.where(labels[:, i] >= 0, said[labels[:, i]], 0)
    weight = log.softmax(0)
    probability = torch.zeros(len(candidates), dtype=torch.float64)
    marginals = torch.zeros(n * m, c, dtype=torch.float64)
    for column in worlds.T:
        probability.index_add_(0, column, weight)
    for i, column in enumerate(labels.T):
        marginals[i].index_add_(0, column[column >= 0], weight[column >= 0])
    return Exact(marginals.view(n, m, c), probability, float(log.logsumexp(0)))


def random_pool(seed: int, tree: bool) -> tuple[Candidates, ProximityGraph]:
    """Two to six samples of up to three slots and four labels, tied as a forest of samples, or with cycles.

    In a forest each sample has one pair at most with an earlier one. Otherwise pairs are drawn at random, within
    samples too, both ways and more than once.
    """
    random = Random(seed)
    n, m, c = random.randint(2, 6), random.randint(1, 3), random.randint(2, 4)
    lists = []
    for _ in range(n):
        used = random.choice([m, m, random.randint(1, m)])
        lists.append([tuple(random.randrange(c) for _ in range(used)) for _ in range(random.randint(1, 4))])
    lists[0] = [row + (0,) * (m - len(row)) for row in lists[0]]  # or there would be fewer slots
    used = [i * m + j for i, rows in enumerate(lists) for j in range(len(rows[0]))]
    if tree:
        pairs = [
            (random.choice([a for a in used if a // m == i]), random.choice([a for a in used if a // m < i]))
            for i in range(1, n)
            if random.random() < 0.8
        ]
    else:
        pairs = [(random.choice(used), random.choice(used)) for _ in range(random.randint(2, 3 * n))]
    source, target = zip(*pairs, strict=True) if pairs else ((), ())
    return Candidates.from_lists(lists, classes=c), ProximityGraph.from_edges(source, target)


def model_of(candidates: Candidates, graph: ProximityGraph) -> Pool:
    """The pool as a graphical model."""
    return _pool_of(candidates, graph, None, None, ALONE)[0]


def clustered(
    samples: int, slots: int = 3, classes: int = 10, spread: float = 0.25, seed: int = 0
) -> tuple[Candidates, Tensor, Tensor]:
    """Sums of clustered points: candidates, embeddings `(n, m, d)` and gold `(n, m)`."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 8, generator=generator)
    gold = torch.randint(0, classes, (samples, slots), generator=generator)
    embeddings = centres[gold] + spread * torch.randn(samples, slots, 8, generator=generator)
    return Candidates.from_rule(sum, gold.sum(1), slots, classes), embeddings, gold


def shuffled(embeddings: Tensor, seed: int = 0) -> Tensor:
    """The same vectors, each with another instance."""
    flat = embeddings.flatten(0, 1)
    return flat[torch.randperm(len(flat), generator=torch.Generator().manual_seed(seed))].view_as(embeddings)


def repeated_noise(seed: int, times: int, samples: int = 30) -> tuple[Candidates, Tensor, Tensor]:
    """Sums of two labels, embeddings `(n, m, d)` that tell nothing, and the labels; each sample several times."""
    gold = torch.randint(0, 4, (samples, 2), generator=torch.Generator().manual_seed(seed))
    noise = torch.randn(samples, 2, 8, generator=torch.Generator().manual_seed(seed + 100))
    gold = gold.repeat(times, 1)
    return Candidates.from_rule(sum, gold.sum(1), 2, 4), noise.repeat(times, 1, 1), gold
