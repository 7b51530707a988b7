"""The inspector of clips: their frames over time, what each could show, and what a pruning left of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from clipper.candidates import Lattice
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning import Pruning
from clipper.report.inspector import fragment
from clipper.report.sprites import sheet

_SCRIPTS = ("reading.js", "pieces.js", "clip.js", "choosing.js")


def inspect_clips(
    frames: Tensor,
    gold: Tensor | None,
    graph: ProximityGraph,
    pruning: Pruning[Lattice],
    *,
    names: Sequence[str],
    clips: int = 16,
    key: str = "clip",
) -> str:
    """The inspector of a pruning of clips, as HTML.

    Args:
        frames: `(n, m, channels, height, width)`.
        gold: the action of each frame, `(n, m)`, if it is known; -1 past a clip's end.
        graph: what the pruning went by; its edges lead to frames of these clips.
        pruning: what is left to each frame.
        names: of the actions.
        clips: show so many, the first ones.
        key: the chosen clip stands in the page's address as `#key=number`.

    Examples:
        >>> import torch
        >>> from clipper import prune
        >>> from clipper.candidates import Alignments
        >>> lattice = Alignments.from_texts([(0, 1), (1, 0)], 3, classes=2)
        >>> graph = ProximityGraph.from_edges([1], [3])  # the middle frame of one is close to the first of the other
        >>> inspect_clips(torch.rand(2, 3, 3, 8, 8), None, graph, prune(lattice, graph), names=["walk", "jump"])[:43]
        '<div class="inspector" id="inspector-clip">'
    """
    lattice = pruning.original
    expected = (lattice.samples, lattice.slots)
    if frames.ndim != 5 or tuple(frames.shape[:2]) != expected or len(pruning.edges) != len(graph):
        raise InputError(
            f"expected frames of shape {expected} with pictures, and the graph of {len(pruning.edges)} edges that the "
            f"pruning came from, got {tuple(frames.shape)} and {len(graph)} edges"
        )
    if len(names) != lattice.classes:
        raise InputError(f"expected {lattice.classes} names, one for each action, got {len(names)}")
    seen = _Seen(gold, graph, pruning, list(names))
    shown = [seen.clip(i) for i in range(min(clips, lattice.samples))]
    images = sheet(frames.flatten(0, 1)[list(seen.tiles)][:, :3])
    about = {"names": list(names), "slot": "frame", "of": lattice.samples, "samples": shown}
    return fragment(key, images, about, _SCRIPTS)


@dataclass(frozen=True, eq=False)
class _Seen:
    """A pruning with all that a reader needs to follow it."""

    gold: Tensor | None
    graph: ProximityGraph
    pruning: Pruning[Lattice]
    names: list[str]
    tiles: dict[int, int] = field(default_factory=dict)

    @property
    def lattice(self) -> Lattice:
        return self.pruning.original  # clips come as alignments

    def clip(self, number: int) -> dict[str, Any]:
        """All about one clip."""
        slots, length = self.lattice.slots, int(self.lattice.lengths[number])
        frames = range(number * slots, number * slots + length)
        gold = None if self.gold is None else self.gold[number, :length].tolist()
        return {
            "id": number,
            "target": self._text(number),
            "tiles": [self._tile(frame) for frame in frames],
            "gold": gold,
            "verdict": self._verdict(number),
            "total": self.lattice.counts[number],
            "stay": self.pruning.candidates.counts[number],
            "support": [_labels(self.lattice.support[frame]) for frame in frames],
            "left": [_labels(self.pruning.candidates.support[frame]) for frame in frames],
            "edges": [edge for place, frame in enumerate(frames) for edge in self._edges(frame, place)],
        }

    def _edges(self, frame: int, place: int) -> list[dict[str, Any]]:
        """The edges that leave a frame, the nearest first."""
        edges = (self.graph.source == frame).nonzero()[:, 0]
        return [self._edge(e, place) for e in edges[self.graph.distance[edges].argsort(stable=True)].tolist()]

    def _edge(self, edge: int, place: int) -> dict[str, Any]:
        source, target = int(self.graph.source[edge]), int(self.graph.target[edge])
        other, slot = divmod(target, self.lattice.slots)
        could = self.lattice.support[target]
        return {
            "slot": place,
            "sample": other,
            "image": slot + 1,
            "tile": self._tile(target),
            "target": self._text(other),
            "distance": float(f"{float(self.graph.distance[edge]):.4g}"),
            "support": _labels(could),
            "chosen": bool(self.pruning.edges[edge]),
            "contradicts": int((self.lattice.support[source] & ~could).sum()),
        }

    def _text(self, number: int) -> str:
        target: Any = self.lattice.targets[number]
        return ", ".join(self.names[action] for action in target)

    def _verdict(self, number: int) -> str | None:
        if self.gold is None:
            return None
        own = self.gold[number][None]
        if not bool(self.lattice.span(number, number + 1).contains(own)):
            return "absent"
        return "kept" if bool(self.pruning.candidates.span(number, number + 1).contains(own)) else "lost"

    def _tile(self, frame: int) -> int:
        return self.tiles.setdefault(frame, len(self.tiles))


def _labels(row: Tensor) -> list[int]:
    labels: list[int] = row.nonzero()[:, 0].tolist()
    return labels
