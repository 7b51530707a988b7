"""The pruning inspector: pick a sample, see its neighbours, and which edge struck out which candidate.

A fragment for `write_page`: data, images, style and script in one piece, so that it opens from disk.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning import Pruning
from clipper.report.inspection import Inspected, check_inspected
from clipper.report.sprites import Sheet, sheet

_SCRIPTS = ("reading.js", "pieces.js", "sample.js", "choosing.js")
_STYLES = ("inspector.css", "clip.css")
MOST_CANDIDATES = 400
"""Candidates listed per sample; how many more there are is said."""


def inspect(
    inputs: Tensor,
    gold: Tensor | None,
    targets: Sequence[object] | Tensor,
    graph: ProximityGraph,
    pruning: Pruning[Candidates],
    *,
    names: Sequence[str] | None = None,
    samples: int = 100,
    candidates: int = MOST_CANDIDATES,
    key: str = "sample",
) -> str:
    """The inspector of a pruning as HTML.

    Args:
        inputs: the images, `(n, m, channels, height, width)`.
        gold: the gold labels, `(n, m)`, if they are known: they are set in bold, and it shows whether they stayed.
        targets: what is known of each sample, such as its sum.
        graph: what the pruning went by; its edges lead to instances of these samples.
        pruning: what became of each candidate.
        names: of the labels; their numbers if not given.
        samples: show so many, the first ones.
        candidates: list at most so many of each sample.
        key: the chosen sample stands in the page's address as `#key=number`; two inspectors on a page need two keys.

    Examples:
        >>> import torch
        >>> from clipper import Candidates, prune
        >>> table = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> edges = ProximityGraph.from_edges([0], [2])  # x₁ is close to x′₁
        >>> text = inspect(torch.rand(2, 2, 1, 8, 8), None, [8, 2], edges, prune(table, edges))
        >>> text[:45]
        '<div class="inspector" id="inspector-sample">'
    """
    plain = targets.tolist() if isinstance(targets, Tensor) else list(targets)
    seen = Inspected(gold, plain, graph.to("cpu"), pruning.to("cpu"))
    check_inspected(inputs, gold, plain, seen)
    _check_rest(names, pruning, samples, candidates, key)
    shown = [seen.sample(i, candidates) for i in range(min(samples, seen.candidates.samples))]
    images = sheet(inputs.flatten(0, 1)[list(seen.tiles)])
    labels = list(names) if names is not None else [str(label) for label in range(seen.candidates.classes)]
    kinds = [[kind.name, kind.start, kind.stop] for kind in seen.candidates.kinds]
    about = {"names": labels, "kinds": kinds, "slot": "image", "of": seen.candidates.samples, "samples": shown}
    return fragment(key, images, about, _SCRIPTS)


def _check_rest(
    names: Sequence[str] | None, pruning: Pruning[Candidates], samples: int, candidates: int, key: str
) -> None:
    if names is not None and len(names) != pruning.original.classes:
        raise InputError(f"expected {pruning.original.classes} names, one for each label, got {len(names)}")
    if samples < 1 or candidates < 1:
        raise InputError(f"expected to show at least one sample and one candidate, got {samples} and {candidates}")
    if not key.isidentifier():
        raise InputError(f"expected a key of letters, digits and underscores, got {key!r}")


def fragment(key: str, images: Sheet, data: dict[str, Any], scripts: Sequence[str]) -> str:
    """Data, images, style and scripts in one piece."""
    data |= {"key": key, "columns": images.columns, "rows": images.rows, "size": [images.width, images.height]}
    identity = html.escape(f"inspector-{key}")
    style = "".join(_asset(name) for name in _STYLES)
    script = "".join(_asset(name) for name in scripts)
    return (
        f'<div class="inspector" id="{identity}">'
        f'<style>{style}#{identity} .tile {{ background-image: url("{images.uri}"); }}</style>'
        f'<script type="application/json">{_as_script(data)}</script>'
        "<noscript>The inspector needs JavaScript; nothing is loaded from elsewhere.</noscript>"
        f'<script>(() => {{\n"use strict";\n{script}}})();</script></div>'
    )


def _asset(name: str) -> str:
    return resources.files("clipper.report").joinpath("assets", name).read_text(encoding="utf-8")


def _as_script(data: object) -> str:
    """JSON that cannot end the script element that it stands in.

    Examples:
        >>> _as_script("</script>")
        '"\\\\u003c/script>"'
    """
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
