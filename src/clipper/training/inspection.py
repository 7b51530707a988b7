"""Inspection: the data of the pruning inspector in one JSON file: neighbours, edges, which candidates were kept."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import whole_number
from clipper.errors import FileError, InputError, require
from clipper.files import checked_path, parsed_json, written_whole
from clipper.proximity import ProximityGraph
from clipper.pruning import Calibration, Posterior, Pruning
from clipper.training.samples import Samples

FORMAT = "clipper inspection 1"
LARGEST = 64
"""Pixels of a tile's longer side, to which larger images shrink."""
_CHUNK = 256
"""Pictures that are drawn at a time."""
_FIELDS = {"of": int, "names": list, "kinds": list, "slot": str, "notes": list, "samples": list}

Pictures = Callable[[Tensor], Tensor]
"""From sample numbers `(k,)` to pictures of their slots, `(k, m, channels, height, width)`."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """A pruning, with everything that the pruning inspector shows of it.

    Attributes:
        samples: one mapping per sample: its `id`, its `target` in words, the `kinds` of its used slots, their places
            among the `tiles`, its `gold` labels or None, the `verdict` on them ("kept", "lost", "absent" or None), how
            many candidates there were (`total`) and are left (`stay`), and its `edges`. Listed sets have `labels` and
            `keep` (one letter, 0 or 1, per candidate), others the labels of each slot before (`support`) and after
            (`left`). After joint inference, `joint` has the verdict on the pool, the suspicion of the target,
            the inferred `labels` of the slots and how `sure` they are, and the `probability` of each candidate
            in `labels`; and edges have the `label` of the neighbour, and how `sure` that is.
        of: the number of samples in the pool.
        names: the names of the labels.
        kinds: the kinds of label, `[name, start, stop]` each.
        slot: what a slot holds: "image", "frame" …
        tiles: the pictures, `(t, height, width)` or `(t, height, width, 3)`, uint8.
        notes: sentences: where neighbours were sought, and by what encoder.
        calibration: how sure joint inference was and how right; None for other objectives, or without gold labels.

    Examples:
        >>> from clipper import Candidates, prune
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> graph = ProximityGraph.from_edges([0], [2])  # x₁ is close to x′₁
        >>> pruning = prune(candidates, graph)
        >>> seen = Inspection.of_pruning(torch.rand(2, 2, 1, 8, 8), pruning, graph, targets=[8, 2])
        >>> seen.samples[0]["total"], seen.samples[0]["stay"], seen.samples[0]["edges"][0]["support"]
        (9, 3, [0, 1, 2])
        >>> seen.tiles.shape
        (4, 8, 8)
    """

    samples: list[dict[str, Any]]
    of: int
    names: list[str]
    kinds: list[list[Any]]
    slot: str
    tiles: np.ndarray[Any, np.dtype[np.uint8]]
    notes: list[str]
    calibration: dict[str, Any] | None = None

    @classmethod
    def of_pruning(
        cls,
        inputs: Tensor | Pictures,
        pruning: Pruning[Any],
        graph: ProximityGraph,
        *,
        gold: Tensor | None = None,
        targets: Sequence[object] | Tensor | None = None,
        names: Sequence[str] | None = None,
        slot: str = "image",
        samples: int = 100,
        candidates: int = 400,
        notes: Sequence[str] = (),
        calibration: Calibration | None = None,
    ) -> Inspection:
        """The inspection of a pruning.

        Args:
            inputs: the images, `(n, m, channels, height, width)`, or a function from sample numbers to theirs. Vectors
                are drawn as bars.
            pruning: the pruning.
            graph: the graph that was used; its edges lead to instances of the same samples.
            gold: the true labels, `(n, m)`, if they are known.
            targets: the target of each sample, such as its sum.
            names: the names of the labels; their numbers if not given.
            slot: what a slot holds.
            samples: how many to show, the first ones.
            candidates: how many to list of each sample; the gold labels are among them.
            notes: sentences about the run.
            calibration: how sure joint inference was, and how right.

        Returns:
            The inspection, which `write` puts into a file.

        Raises:
            InputError: if the parts do not belong together.
        """
        n, m = pruning.original.samples, pruning.original.slots
        if len(pruning.edges) != len(graph):
            raise InputError(
                f"expected the graph that the pruning came from, with {len(pruning.edges)} edges, "
                f"got one with {len(graph)}"
            )
        if len(graph) and int(graph.target.max()) >= n * m:
            raise InputError(
                f"expected edges among the {n * m} instances shown, got one to {int(graph.target.max())}; "
                "a graph into another pool cannot be shown"
            )
        shown = Samples(inputs, pruning.original, gold)
        inspector = Inspector(samples, candidates, names, slot, targets, inputs if callable(inputs) else shown.load)
        inspector.begin(shown)
        inspector.add(pruning, torch.arange(n))
        inspector.calibrate(calibration)
        return inspector.inspection(notes)

    def as_dict(self) -> dict[str, Any]:
        """As it is written: the tiles are one PNG, `sheet["png"]` in base64, row by row from the left."""
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in (*_FIELDS, "calibration")},
            "sheet": tile_sheet(self.tiles),
        }

    def write(self, path: str | Path) -> None:
        """Write the inspection to a file. An older file is replaced; the file is never half-written."""
        with written_whole(path, replace=True) as temporary:
            text = json.dumps(self.as_dict(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Inspection:
        """Read what `write` wrote.

        Raises:
            FileError: if the file is no inspection, or a damaged one.
        """
        place = checked_path(path)
        try:
            document = parsed_json(place.read_bytes())
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT!r}")
            if not all(isinstance(document[name], kind) for name, kind in _FIELDS.items()):
                raise ValueError("its fields have other types")
            own = {name: document[name] for name in (*_FIELDS, "calibration")}
            return cls(tiles=_tiles(document["sheet"]), **own)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileError(
                f"{place} cannot be read as an inspection of a run ({error}); run it again, or choose another file"
            ) from error


@dataclass
class Inspector:
    """Collects the data of an `Inspection` while a run prunes, batch by batch.

    Pass one as `inspect=` to `train` if you want to set more than the number of samples to show.

    Attributes:
        samples: how many to show: those with the lowest numbers.
        candidates: how many to list of each sample.
        names: the names of the labels; their numbers if not given.
        slot: what a slot holds.
        targets: the target of each sample; the run's own targets if not given.
        pictures: from sample numbers `(k,)` to `(k, m, channels, height, width)`; the run's inputs if not given.
    """

    samples: int = 100
    candidates: int = 400
    names: Sequence[str] | None = None
    slot: str = "image"
    targets: Sequence[object] | Tensor | None = None
    pictures: Pictures | None = None
    entries: dict[int, dict[str, Any]] = field(default_factory=dict, init=False)
    """By sample number."""
    tiles: dict[int, int] = field(default_factory=dict, init=False)
    """From instances to their places among the tiles."""

    def __post_init__(self) -> None:
        self.samples = whole_number(self.samples, "the samples to inspect")
        self.candidates = whole_number(self.candidates, "the candidates to list")
        self._calibration: dict[str, Any] | None = None

    def begin(self, samples: Samples) -> None:
        """Note the samples that the batches are taken from.

        Raises:
            InputError: there is another number of targets or of names.
        """
        n, classes = len(samples), samples.candidates.classes
        targets = self.targets if self.targets is not None else samples.targets
        words = targets.tolist() if isinstance(targets, Tensor) else [""] * n if targets is None else list(targets)
        if len(words) != n:
            raise InputError(f"expected {n} targets, one for each sample, got {len(words)}")
        if self.names is not None and len(self.names) != classes:
            raise InputError(f"expected {classes} names, one for each label, got {len(self.names)}")
        self.whole, self.words = samples.candidates, [str(word) for word in words]
        self.gold = None if samples.gold is None else samples.gold.cpu()

    def wants(self, ids: Tensor) -> bool:
        """Whether one of the samples `ids (n,)` is to be shown and is not there yet."""
        return any(i < self.samples and i not in self.entries for i in ids.tolist())

    def add(
        self,
        pruning: Pruning[Any],
        ids: Tensor,
        pool_ids: Tensor | None = None,
        posterior: Posterior[Any] | None = None,
    ) -> None:
        """Add a pruned batch.

        Args:
            pruning: of the batch.
            ids: the number of each sample of the batch in the pool, `(n,)`.
            pool_ids: the same for the samples that its edges lead to; the batch's own if not given.
            posterior: after joint inference, the posterior of the batch from which the pruning follows.
        """
        view = _View(self, pruning, ids.tolist(), (ids if pool_ids is None else pool_ids).tolist(), posterior)
        for place, number in enumerate(ids.tolist()):
            if number < self.samples:
                self.entries[number] = view.sample(place)

    def calibrate(self, calibration: Calibration | None) -> None:
        """Note how sure joint inference was, and how right."""
        if calibration is not None:
            plain = {**asdict(calibration), "retained": list(calibration.retained.items())}
            self._calibration = json.loads(json.dumps(plain))  # as a file would hold it

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, in numbers and text."""
        entries = json.dumps(list(self.entries.values()))
        return {"entries": entries, "tiles": list(self.tiles), "calibration": json.dumps(self._calibration)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.entries = {entry["id"]: entry for entry in json.loads(state["entries"])}
        self.tiles = {int(instance): place for place, instance in enumerate(state["tiles"])}
        self._calibration = json.loads(state["calibration"])

    def inspection(self, notes: Sequence[str], inputs: Pictures | None = None) -> Inspection:
        """What was collected.

        Args:
            notes: sentences about it.
            inputs: what the pictures are made from, where there are no `pictures`.

        Returns:
            The inspection, to write to a file.

        Raises:
            InputError: there is nothing to make pictures from.
        """
        whole = self.whole
        names = [str(label) for label in range(whole.classes)] if self.names is None else list(self.names)
        pictures = self.pictures or inputs
        if pictures is None:
            raise InputError("expected pictures to show, got none")
        return Inspection(
            samples=[self.entries[number] for number in sorted(self.entries)],
            of=whole.samples,
            names=names,
            kinds=[[kind.name, kind.start, kind.stop] for kind in whole.kinds],
            slot=self.slot,
            tiles=_drawn(pictures, list(self.tiles), whole.slots),
            notes=list(notes),
            calibration=self._calibration,
        )

    def _tile(self, instance: int) -> int:
        """The place of an instance's picture among those to show."""
        return self.tiles.setdefault(instance, len(self.tiles))


class _View:
    """One pruned batch on the CPU, where single numbers are read."""

    def __init__(
        self,
        inspector: Inspector,
        pruning: Pruning[Any],
        ids: list[int],
        pool_ids: list[int],
        posterior: Posterior[Any] | None,
    ) -> None:
        self.inspector, self.graph, self.ids, self.pool_ids = inspector, pruning.graph.to("cpu"), ids, pool_ids
        self.original, self.kept = pruning.original.to("cpu"), pruning.candidates.to("cpu")
        keep: Tensor | None = getattr(pruning, "keep", None)  # unlisted sets have none
        self.keep = None if keep is None else keep.cpu()
        self.edges = pruning.edges.cpu()
        self.posterior = posterior
        if posterior is not None:
            self.inferred = posterior.labels.cpu()  # (n, m)
            sure = posterior.marginals.cpu().gather(2, self.inferred.clamp(min=0)[..., None])[..., 0]
            self.sure = sure.double()  # (n, m)
        self.gold = None if inspector.gold is None else inspector.gold[torch.tensor(ids)]
        self.gold_before: Tensor | None = None if self.gold is None else self.original.contains(self.gold)
        self.gold_after: Tensor | None = None if self.gold is None else self.kept.contains(self.gold)

    def sample(self, place: int) -> dict[str, Any]:
        """All about one sample of the batch."""
        slots, kind, number = self.original.slots, self.original.kind[place], self.ids[place]
        used = (kind >= 0).nonzero()[:, 0].tolist()
        if self.keep is None:  # what each slot could hold before and after
            instances = [place * slots + slot for slot in used]
            sides = {"support": self.original.support, "left": self.kept.support}
            labels, rows = None, {name: [_true(table[i]) for i in instances] for name, table in sides.items()}
        else:
            begin, end = self.original.offsets[place : place + 2].tolist()
            labels = self.original.labels[begin:end].long()
            rows = self._rows(place, used, labels, self.keep[begin:end])
        return {
            "id": number,
            "target": self.inspector.words[number],
            "kinds": kind[used].tolist(),
            "tiles": [self.inspector._tile(number * slots + slot) for slot in used],
            "gold": None if self.gold is None else self.gold[place][used].tolist(),
            "verdict": self._verdict(place),
            "total": int(self.original.counts[place]),
            "stay": int(self.kept.counts[place]),
            **rows,
            **({} if self.posterior is None else {"joint": self._joint(place, used, self.posterior)}),
            "edges": [edge for i, slot in enumerate(used) for edge in self._edges(place, slot, i, labels)],
        }

    def _joint(self, place: int, used: list[int], posterior: Posterior[Any]) -> dict[str, Any]:
        """What joint inference found out about a sample."""
        found: dict[str, Any] = {
            "verdict": posterior.verdict,
            "suspicion": _rounded(float(posterior.suspicion[place])),
            "labels": self.inferred[place][used].tolist(),
            "sure": [_rounded(share) for share in self.sure[place][used].tolist()],
        }
        if self.keep is not None:
            begin, end = self.original.offsets[place : place + 2].tolist()
            listed = self._listed(place, used, self.original.labels[begin:end].long(), self.keep[begin:end])
            probability = posterior.probability[begin:end].cpu()[listed]
            found["probability"] = [_rounded(share) for share in probability.tolist()]
        return found

    def _listed(self, place: int, used: list[int], labels: Tensor, keep: Tensor) -> Tensor:
        """Which of a sample's candidates are listed."""
        gold = None if self.gold is None else self.gold[place]
        is_gold = torch.zeros_like(keep) if gold is None else (labels[:, used] == gold[used]).all(1)
        return _listed(keep, is_gold, self.inspector.candidates)

    def _rows(self, place: int, used: list[int], labels: Tensor, keep: Tensor) -> dict[str, Any]:
        """Some of a sample's candidates, row by row, and whether they stay."""
        listed = self._listed(place, used, labels, keep)
        letters = "".join("01"[stays] for stays in keep[listed].tolist())
        return {"labels": labels[listed][:, used].flatten().tolist(), "keep": letters}

    def _verdict(self, place: int) -> str | None:
        """What became of the gold labels: kept, lost, or never a candidate; None where they are not known."""
        if self.gold_before is None or self.gold_after is None:
            return None
        return "absent" if not bool(self.gold_before[place]) else "kept" if bool(self.gold_after[place]) else "lost"

    def _edges(self, place: int, slot: int, shown_slot: int, labels: Tensor | None) -> Iterator[dict[str, Any]]:
        """The edges that leave one slot, the nearest first; `labels` are the sample's candidates, where listed."""
        slots = self.original.slots
        instance = place * slots + slot
        edges = (self.graph.source == instance).nonzero()[:, 0]
        for edge in edges[self.graph.distance[edges].argsort(stable=True)].tolist():
            there, other_slot = divmod(int(self.graph.target[edge]), slots)
            other = self.pool_ids[there]
            support = self.inspector.whole.support[other * slots + other_slot].cpu()
            excluded = self.original.support[instance] & ~support if labels is None else ~support[labels[:, slot]]
            yield {
                "slot": shown_slot,
                "sample": other,
                "image": other_slot + 1,
                "tile": self.inspector._tile(other * slots + other_slot),
                "target": self.inspector.words[other],
                "distance": float(f"{float(self.graph.distance[edge]):.4g}"),
                "support": _true(support),
                "chosen": bool(self.edges[edge]),
                "contradicts": int(excluded.sum()),
                **self._inferred(there, other_slot),
            }

    def _inferred(self, sample: int, slot: int) -> dict[str, Any]:
        """The label that a neighbour was found to have."""
        if self.posterior is None:
            return {}
        return {"label": int(self.inferred[sample, slot]), "sure": _rounded(float(self.sure[sample, slot]))}


def _rounded(share: float) -> float:
    return float(f"{share:.4g}") if math.isfinite(share) else 1.0


def _true(row: Tensor) -> list[int]:
    labels: list[int] = row.nonzero()[:, 0].tolist()
    return labels


def _listed(keep: Tensor, is_gold: Tensor, most: int) -> Tensor:
    """Which candidates to list, ascending: always the gold labels; of the others, half are survivors if possible."""
    if len(keep) <= most:
        return torch.arange(len(keep))
    stay, go = keep.nonzero().flatten(), (~keep).nonzero().flatten()
    wanted = min(len(stay), max(most // 2, most - len(go)))
    chosen = torch.cat([is_gold.nonzero().flatten(), stay[:wanted], go[: most - wanted]])
    first = dict.fromkeys(chosen.tolist())  # without repetition, gold labels in front
    return torch.tensor(sorted(list(first)[:most]))


def _drawn(pictures: Pictures, instances: Sequence[int], slots: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A small picture of each instance, `(t, height, width)` or `(t, height, width, 3)`, dark on light where grey."""
    if not instances:
        return np.zeros((0, 1, 1), dtype=np.uint8)
    parts = []
    for wanted in torch.split(torch.tensor(instances), _CHUNK):
        numbers, place = torch.unique(wanted // slots, return_inverse=True)
        images = _as_images(pictures(numbers).detach().cpu())  # (k, m, channels, h, w)
        parts.append(_fitted(images[place, wanted % slots].float()))
    tiles = torch.cat(parts)  # (t, channels, h, w)
    low, high = (float(end) for end in tiles.nan_to_num().aminmax())
    if low < 0 or high > 1:  # normalised images, say
        tiles = (tiles.nan_to_num() - low) / max(high - low, 1e-12)
    if tiles.shape[1] != 3:
        tiles = tiles.mean(1, keepdim=True)
        tiles = 1 - tiles if float(tiles.mean()) < 0.5 else tiles
    pixels = tiles.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1)
    return pixels.squeeze(3).numpy() if pixels.shape[3] == 1 else pixels.numpy()


def _as_images(inputs: Tensor) -> Tensor:
    """`(k, m, channels, height, width)`; an image without channels gets one, anything else is drawn as bars."""
    if inputs.ndim == 5:
        return inputs
    if inputs.ndim == 4:
        return inputs.unsqueeze(2)
    bars = inputs.flatten(2)
    return bars[:, :, None, None, :].expand(-1, -1, 1, min(LARGEST, bars.shape[2]), -1)


def _fitted(images: Tensor) -> Tensor:
    height, width = images.shape[2:]
    shrink = LARGEST / max(height, width)
    if shrink >= 1:
        return images
    size = (max(1, round(height * shrink)), max(1, round(width * shrink)))
    return torch.nn.functional.interpolate(images, size=size, mode="area")


def tile_sheet(tiles: np.ndarray[Any, np.dtype[np.uint8]]) -> dict[str, Any]:
    """All tiles side by side in one PNG, as near to a square as can be; what is left over stays white."""
    columns = max(1, math.ceil(math.sqrt(len(tiles))))
    rows = max(1, -(-len(tiles) // columns))
    height, width = tiles.shape[1:3]
    filled = np.full((rows * columns, *tiles.shape[1:]), 255, dtype=np.uint8)
    filled[: len(tiles)] = tiles
    grid = filled.reshape(rows, columns, *tiles.shape[1:]).swapaxes(1, 2)
    pixels = grid.reshape(rows * height, columns * width, *tiles.shape[3:])
    image: Any = require("PIL.Image", extra="report")  # matplotlib brings it
    buffer = io.BytesIO()
    image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    png = base64.b64encode(buffer.getvalue()).decode("ascii")
    return {"count": len(tiles), "columns": columns, "rows": rows, "width": width, "height": height, "png": png}


def _tiles(sheet: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The reverse of `tile_sheet`."""
    image: Any = require("PIL.Image", extra="report")
    count, columns, rows, width, height = (
        whole_number(sheet[name], name, least=0) for name in ("count", "columns", "rows", "width", "height")
    )
    pixels = np.asarray(image.open(io.BytesIO(base64.b64decode(sheet["png"], validate=True)), formats=["PNG"]))
    grid = pixels.reshape(rows, height, columns, width, *pixels.shape[2:]).swapaxes(1, 2)
    return grid.reshape(rows * columns, height, width, *pixels.shape[2:])[:count].copy()
