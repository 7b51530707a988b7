"""Table 1: SUM-3 and SUM-4 on MNIST and CIFAR-10, few samples and all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import Column, Published, Table
from clipper.benchmarks.tables.variants import CEILING, USUAL, rows_of

_MNIST, _CIFAR = RunConfig(data="mnist"), RunConfig(data="cifar10")
_PROOFS: dict[int, dict[str, Any]] = {
    3: {"scallop": {"k": None}, "scallop + random": {"k": 10}},
    4: {"scallop": {"k": 10}},
}
"""Scallop with all proofs, as in the paper. Those of SUM-4 make circuits too large, and candidates discarded at random
would have to be compiled anew in every step, so there the ten best."""


def _few(slots: int) -> Column:
    base = replace(_MNIST, slots=slots, samples=100, evaluate_every=25)  # measuring takes longer than learning here
    return Column(f"MNIST SUM-{slots}, n=100", base, _PROOFS[slots])


def _many(name: str, base: RunConfig, slots: int, samples: int) -> Column:
    return Column(name, replace(base, slots=slots, samples=samples), {"scallop": {"k": 3}})


COLUMNS = (
    _few(3),
    _few(4),
    _many("MNIST SUM-3, all", _MNIST, 3, 20_000),
    _many("MNIST SUM-4, all", _MNIST, 4, 15_000),
    _many("CIFAR-10 SUM-3, n=10K", _CIFAR, 3, 10_000),
    _many("CIFAR-10 SUM-4, n=10K", _CIFAR, 4, 10_000),
    _many("CIFAR-10 SUM-3, all", _CIFAR, 3, 16_666),
    _many("CIFAR-10 SUM-4, all", _CIFAR, 4, 12_500),
)
_PAPER = {
    "scallop": [
        (43.47, 14.02), (24.33, 7.08), (99.07, 0.02), (99.07, 0.07),
        (88.70, 0.37), (88.83, 0.46), (91.74, 0.27), (90.66, 0.52),
    ],
    "scallop + frozen": [
        (60.06, 17.52), (33.90, 8.14), (99.12, 0.05), (99.21, 0.01),
        (87.35, 0.29), (88.55, 0.52), (90.63, 0.30), (90.45, 0.21),
    ],
    "scallop + trainable": [
        (60.03, 21.72), (29.70, 10.39), (99.22, 0.06), (99.21, 0.08),
        (87.87, 0.66), (88.91, 0.72), (91.37, 0.04), (90.34, 0.03),
    ],
    "dolphin": [
        (43.29, 14.15), (24.63, 7.13), (99.09, 0.06), (99.18, 0.02),
        (88.54, 0.52), (88.96, 0.67), (91.77, 0.12), (90.75, 0.61),
    ],
    "dolphin + frozen": [
        (60.14, 17.68), (33.96, 8.16), (99.10, 0.07), (99.25, 0.01),
        (87.71, 0.35), (88.66, 0.18), (90.71, 0.19), (90.39, 0.29),
    ],
    "dolphin + trainable": [
        (60.49, 21.86), (30.30, 12.57), (99.27, 0.04), (99.24, 0.03),
        (87.83, 0.40), (88.77, 0.15), (91.00, 0.41), (90.45, 0.20),
    ],
    "ised": [
        (19.16, 14.19), (16.38, 8.16), (98.95, 0.17), (98.82, 0.19),
        (64.74, 2.53), (25.72, 10.21), (63.98, 1.87), (34.78, 1.85),
    ],
    "ised + frozen": [
        (24.98, 5.54), (16.45, 2.25), (98.96, 0.21), (98.97, 0.36),
        (67.31, 1.82), (40.40, 0.85), (66.80, 1.16), (39.42, 5.50),
    ],
    "ised + trainable": [
        (21.07, 1.14), (16.57, 10.60), (98.91, 0.16), (98.65, 0.22),
        (65.90, 2.67), (41.63, 2.59), (67.24, 2.87), (42.67, 2.82),
    ],
    "abl-sim": [
        (16.05, 0.60), (11.02, 0.16), (98.85, 0.21), (98.98, 0.05),
        (86.19, 0.29), (35.64, 0.85), (89.64, 0.54), (87.57, 0.29),
    ],
}  # fmt: skip
PUBLISHED: Published = {
    (row, column.name): {"accuracy": figure}
    for row, figures in _PAPER.items()
    for column, figure in zip(COLUMNS, figures, strict=True)
}
ROWS = (
    *rows_of(["semantic", "dolphin"], [*USUAL, "joint"]),
    *rows_of(["ised", "scallop"]),
    *rows_of(["abl-sim"], ["none"]),
    CEILING,
)
SUM = Table("sum", "Table 1: accuracy on SUM-M", ROWS, COLUMNS, PUBLISHED)
