# ruff: noqa: E501, RUF007
"""Draws the pictures of the documentation: `python -m tools.pictures` writes docs/images/overview.svg and rooms.svg."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from PIL import Image
from sklearn.datasets import load_digits

IMAGES = Path(__file__).parent.parent / "docs" / "images"
FONT = "font-family='system-ui, sans-serif'"


def overview() -> str:
    """Receipts whose totals are known, digits that look alike, and the labels that follow."""
    data = load_digits()
    rows = [(4, 9, 1), (2, 4, 2), (9, 1, 0)]
    ways = {14: 75, 8: 45, 10: 63}
    used: dict[int, int] = {}
    parts = [
        f"<text x='20' y='30' {FONT} font-size='15' font-weight='600'>You have: images and totals</text>",
        f"<text x='330' y='30' {FONT} font-size='15' font-weight='600'>The totals allow</text>",
        f"<text x='510' y='30' {FONT} font-size='15' font-weight='600'>You get: labels</text>",
    ]
    places: dict[int, list[tuple[int, int]]] = {}
    for row, digits in enumerate(rows):
        top = 50 + 84 * row
        for slot, digit in enumerate(digits):
            left = 20 + 70 * slot
            places.setdefault(digit, []).append((left + 28, top + 28))
            own = (data.target == digit).nonzero()[0]
            typical = ((data.images[own] - data.images[own].mean(0)) ** 2).sum((1, 2)).argsort()
            which = own[typical[used.get(digit, 0)]]
            used[digit] = used.get(digit, 0) + 1
            parts.append(f"<image x='{left}' y='{top}' width='56' height='56' href='{_png(data.images[which])}'/>")
            parts.append(f"<rect x='{left}' y='{top}' width='56' height='56' fill='none' stroke='#9fa8da'/>")
            parts.append(f"<rect x='{510 + 52 * slot}' y='{top + 6}' width='44' height='44' rx='6' fill='#e8f5e9'/>")
            parts.append(_text(532 + 52 * slot, top + 36, str(digit), 24, "#1b5e20", "middle"))
        total = sum(digits)
        parts.append(_text(236, top + 35, f"= {total}", 20, "#1a237e"))
        parts.append(_text(330, top + 35, f"{ways[total]} combinations", 15, "#444"))
        parts.append(_text(680, top + 35, "✓", 22, "#2e7d32"))
    lines = [
        f"<path d='M {a[0]} {a[1]} L {b[0]} {b[1]}' stroke='#ef6c00' stroke-width='2.5' stroke-dasharray='5 4' opacity='.85'/>"
        for each in places.values()
        for a, b in zip(each, each[1:], strict=False)
        if a[1] != b[1]
    ]
    note = _text(
        20,
        318,
        "Inputs that look alike (orange) probably share a label. All totals together then single out one",
        14,
        "#555",
    )
    note += _text(20, 338, "combination for each sample. No image was labelled by hand.", 14, "#555")
    return _svg(720, 352, "".join([*parts, *lines, note]))


def rooms() -> str:
    """The modules of the library, and which of them knows which."""
    boxes = [
        (20, 20, "candidates, rules", "what the labels could be"),
        (380, 20, "proximity", "what is near"),
        (200, 110, "pruning", "what survives; joint inference"),
        (560, 110, "engines", "what a classifier learns from it"),
        (380, 200, "training", "the loop, checkpoints, records"),
        (200, 290, "labelling", "label, decode, identify, review"),
        (560, 290, "integrations", "inside other frameworks"),
        (200, 380, "benchmarks", "tasks, data sets, tables"),
        (560, 380, "report", "pages and figures"),
        (380, 470, "cli", "parse, call, print"),
    ]
    arrows = [(0, 2), (1, 2), (0, 3), (2, 4), (3, 4), (4, 5), (4, 6), (5, 7), (7, 8), (8, 9), (7, 9)]
    parts = []
    for a, b in arrows:
        (x1, y1, *_), (x2, y2, *_) = boxes[a], boxes[b]
        down = y2 > y1
        start = (x1 + 130, y1 + 56) if down else (x1 + 260, y1 + 28)
        end = (x2 + 130, y2) if down else (x2, y2 + 28)
        parts.append(
            f"<path d='M {start[0]} {start[1]} L {end[0]} {end[1]}' stroke='#7986cb' stroke-width='2' marker-end='url(#tip)'/>"
        )
    for x, y, name, what in boxes:
        parts.append(f"<rect x='{x}' y='{y}' width='260' height='56' rx='8' fill='#e8eaf6' stroke='#5c6bc0'/>")
        parts.append(_text(x + 130, y + 24, name, 16, "#1a237e", "middle", "600"))
        parts.append(_text(x + 130, y + 44, what, 13, "#444", "middle"))
    tip = "<defs><marker id='tip' markerWidth='9' markerHeight='9' refX='8' refY='4' orient='auto'><path d='M0 0 L9 4 L0 8 z' fill='#7986cb'/></marker></defs>"
    return _svg(840, 546, tip + "".join(parts))


def _svg(width: int, height: int, inside: str) -> str:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
    return f"{head}<rect width='{width}' height='{height}' rx='8' fill='#fff'/>{inside}</svg>\n"


def _text(x: int, y: int, text: str, size: int, colour: str, anchor: str = "start", weight: str = "400") -> str:
    style = f"{FONT} font-size='{size}' fill='{colour}' text-anchor='{anchor}' font-weight='{weight}'"
    return f"<text x='{x}' y='{y}' {style}>{text}</text>"


def _png(pixels: Any) -> str:
    file = io.BytesIO()
    Image.fromarray((255 - pixels * 255 / 16).astype("uint8")).resize((56, 56), Image.Resampling.BICUBIC).save(
        file, "PNG"
    )
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    (IMAGES / "overview.svg").write_text(overview())
    (IMAGES / "rooms.svg").write_text(rooms())
