"""Table 2: SUM-M and MAX-M of 15 to 40 images, with candidates drawn at random."""

from __future__ import annotations

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import Column, Published, Table
from clipper.benchmarks.tables.variants import CEILING, EXACT_LOSS, rows_of

PER_SAMPLE = 100
"""Candidates drawn for each sample; the paper draws some, too, and does not say how many."""
_IMAGES = {"mnist": 60_000, "cifar10": 50_000}


def _column(data: str, rule: str, slots: int) -> Column:
    name = f"{'MNIST' if data == 'mnist' else 'CIFAR-10'} {rule.upper()}-{slots}"
    samples = _IMAGES[data] // slots
    return Column(name, RunConfig(data=data, rule=rule, slots=slots, samples=samples, per_sample=PER_SAMPLE))


COLUMNS = (
    _column("mnist", "sum", 30), _column("mnist", "sum", 40), _column("mnist", "max", 30), _column("mnist", "max", 40),
    _column("cifar10", "sum", 15), _column("cifar10", "sum", 30),
    _column("cifar10", "max", 15), _column("cifar10", "max", 30),
)  # fmt: skip
_PAPER = {
    "dolphin": [
        (73.39, 23.05), (75.37, 15.86), (17.37, 5.22), (11.47, 1.42),
        (18.94, 9.54), (12.61, 2.41), (28.32, 2.11), (15.59, 3.08),
    ],
    "dolphin + frozen": [
        (85.52, 2.95), (80.73, 4.71), (19.66, 2.67), (25.29, 1.52),
        (21.81, 3.45), (16.17, 4.54), (22.15, 3.48), (15.42, 1.39),
    ],
    "dolphin + trainable": [
        (81.25, 9.82), (81.70, 6.00), (25.46, 5.87), (20.74, 2.20),
        (30.16, 2.47), (17.40, 2.80), (25.71, 2.39), (17.27, 1.03),
    ],
}  # fmt: skip
PUBLISHED: Published = {
    (row, column.name): {"accuracy": figure}
    for row, figures in _PAPER.items()
    for column, figure in zip(COLUMNS, figures, strict=True)
}
SCALE = Table(
    "scale",
    "Table 2: accuracy on long SUM-M and MAX-M",
    (*rows_of(["dolphin"]), EXACT_LOSS, CEILING),
    COLUMNS,
    PUBLISHED,
    seeds=3,
)
