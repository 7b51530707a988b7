"""Table 4: clips and texts; which frame shows which action is unknown. Drawn clips stand for MUGEN's."""

from __future__ import annotations

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import Column, Measure, Published, Row, Table
from clipper.benchmarks.tables.variants import CEILING, VARIANTS, rows_of

FRAMES, EPOCHS, BATCH = 32, 8, 16
"""Of the longest clip; of a run, so that the table takes an hour; clips per step, since three see few neighbours."""
MEASURES: tuple[Measure, ...] = ("accuracy", "vtr3", "tvr3", "vtr10", "tvr10", "retained", "gold")


def _column(samples: int) -> Column:
    base = RunConfig(
        rule="align", data="clips", slots=FRAMES, samples=samples, epochs=EPOCHS, batch=BATCH, evaluate_every=EPOCHS
    )
    return Column(f"n={samples}", base, {"scallop": {"k": 3}})


def _joint(engine: str) -> Row:
    return Row(engine, "joint", {"engine": engine, **VARIANTS["joint"], "encoder": "middle"})


COLUMNS = (_column(500), _column(250))
ENGINES = ("semantic", "dolphin", "scallop")
ROWS = (
    *(
        row
        for engine in ENGINES
        for row in (*rows_of([engine], ["none", "trainable", "exact", "random"]), _joint(engine))
    ),
    CEILING,
)
_PAPER = {
    "scallop": {250: (25.2, 27.5), 500: (26.39, 31.10)},
    "scallop + trainable": {250: (27.1, 32.0), 500: (74.9, 77.7)},
    "dolphin": {250: (33.8, 34.8), 500: (33.9, 34.7)},
    "dolphin + trainable": {250: (83.7, 85.0), 500: (86.6, 86.9)},
}
"""VTR and TVR of one run each, on MUGEN's own videos; of how many choices is not said."""
PUBLISHED: Published = {
    (row, f"n={samples}"): {"vtr3": (vtr, 0.0), "tvr3": (tvr, 0.0)}
    for row, figures in _PAPER.items()
    for samples, (vtr, tvr) in figures.items()
}
MUGEN = Table("mugen", "Table 4: aligning drawn clips with texts (MUGEN)", ROWS, COLUMNS, PUBLISHED, MEASURES, seeds=3)
