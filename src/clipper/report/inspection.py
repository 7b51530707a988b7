"""What the inspector shows of each sample, as plain values: images, neighbours, and what became of each candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning import Pruning


@dataclass(frozen=True, eq=False)
class Inspected:
    """A pruning with all that a reader needs to follow it.

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> graph = ProximityGraph.from_edges([0], [2])  # x₁ is close to x′₁
        >>> from clipper.pruning import prune
        >>> seen = Inspected(None, [8, 2], graph, prune(candidates, graph))
        >>> sample = seen.sample(0, most=400)
        >>> sample["total"], sample["stay"], sample["edges"][0]["support"]
        (9, 3, [0, 1, 2])
    """

    gold: Tensor | None
    """`(n, m)`, where it is known."""
    targets: Sequence[object]
    """What is known of each sample."""
    graph: ProximityGraph
    pruning: Pruning[Candidates]
    tiles: dict[int, int] = field(default_factory=dict)
    """From the instances that were asked for to their places among the images to show."""

    @property
    def candidates(self) -> Candidates:
        """What was pruned."""
        return self.pruning.original

    def sample(self, sample: int, most: int) -> dict[str, Any]:
        """All about one sample, with at most `most` of its candidates, the gold labels among them."""
        begin, end = self.candidates.offsets[sample : sample + 2].tolist()
        labels, keep = self.candidates.labels[begin:end].long(), self.pruning.keep[begin:end]
        used = (labels[0] >= 0).nonzero().flatten().tolist()
        gold = None if self.gold is None else self.gold[sample].to(labels.device)
        is_gold = torch.zeros_like(keep) if gold is None else (labels[:, used] == gold[used]).all(1)
        listed = _listed(keep, is_gold, most)
        return {
            "id": sample,
            "target": str(self.targets[sample]),
            "kinds": self.candidates.kind[sample][used].tolist(),
            "tiles": [self.tile(sample * self.candidates.slots + slot) for slot in used],
            "gold": None if gold is None else gold[used].tolist(),
            "verdict": _verdict(gold, is_gold, keep),
            "total": end - begin,
            "stay": int(keep.sum()),
            "labels": labels[listed][:, used].flatten().tolist(),
            "keep": "".join("01"[stays] for stays in keep[listed].tolist()),
            "edges": [edge for place, slot in enumerate(used) for edge in self._edges(sample, slot, place, labels)],
        }

    def _edges(self, sample: int, slot: int, place: int, labels: Tensor) -> list[dict[str, Any]]:
        """The edges that leave one slot, the nearest first; `labels (candidates, m)` are the sample's."""
        source = sample * self.candidates.slots + slot
        edges = (self.graph.source == source).nonzero().flatten()
        edges = edges[self.graph.distance[edges].argsort(stable=True)]
        return [self._edge(edge, place, labels[:, slot]) for edge in edges.tolist()]

    def _edge(self, edge: int, place: int, labels: Tensor) -> dict[str, Any]:
        target = int(self.graph.target[edge])
        other, other_slot = divmod(target, self.candidates.slots)
        support = self.candidates.support[target]  # (c,)
        return {
            "slot": place,
            "sample": other,
            "image": other_slot + 1,
            "tile": self.tile(target),
            "target": str(self.targets[other]),
            "distance": float(f"{float(self.graph.distance[edge]):.4g}"),
            "support": support.nonzero().flatten().tolist(),
            "chosen": bool(self.pruning.edges[edge]),
            "contradicts": int((~support[labels]).sum()),
        }

    def tile(self, instance: int) -> int:
        """The place of an instance's image among those to show."""
        return self.tiles.setdefault(instance, len(self.tiles))


def _listed(keep: Tensor, is_gold: Tensor, most: int) -> Tensor:
    """Which candidates to list, ascending: gold labels first, then half of them survivors, as far as there are."""
    if len(keep) <= most:
        return torch.arange(len(keep))
    stay, go = keep.nonzero().flatten(), (~keep).nonzero().flatten()
    half = most // 2
    wanted = min(len(stay), max(half, most - len(go)))
    chosen = torch.cat([is_gold.nonzero().flatten(), stay[:wanted], go[: most - wanted]])
    first = dict.fromkeys(chosen.tolist())  # without repetition, gold labels in front
    return torch.tensor(sorted(list(first)[:most]))


def _verdict(gold: Tensor | None, is_gold: Tensor, keep: Tensor) -> str | None:
    """What became of the gold labels: kept, lost, or never a candidate; None where they are not known."""
    if gold is None:
        return None
    if not bool(is_gold.any()):
        return "absent"
    return "kept" if bool(keep[is_gold].any()) else "lost"


def check_inspected(inputs: Tensor, gold: Tensor | None, targets: Sequence[object], seen: Inspected) -> None:
    """Whether what belongs together fits together."""
    n, m = seen.candidates.samples, seen.candidates.slots
    if inputs.ndim != 5 or tuple(inputs.shape[:2]) != (n, m):
        raise InputError(
            f"expected images of shape ({n}, {m}, channels, height, width), one for each slot of the pruned samples, "
            f"got {tuple(inputs.shape)}"
        )
    if gold is not None and tuple(gold.shape) != (n, m):
        raise InputError(f"expected gold of shape ({n}, {m}), got {tuple(gold.shape)}")
    if len(targets) != n:
        raise InputError(f"expected {n} targets, one for each sample, got {len(targets)}")
    if len(seen.pruning.edges) != len(seen.graph):
        raise InputError(
            f"expected the graph that the pruning came from, with {len(seen.pruning.edges)} edges, "
            f"got one with {len(seen.graph)}"
        )
    if len(seen.graph) and int(seen.graph.target.max()) >= n * m:
        raise InputError(
            f"expected edges among the {n * m} instances shown, got one to {int(seen.graph.target.max())}; "
            "a graph into another pool cannot be shown"
        )
