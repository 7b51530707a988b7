"""Beyond the paper: the whole pool decides, with few samples and with many, and with embeddings that know nothing."""

from __future__ import annotations

from dataclasses import replace

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import Column, Table
from clipper.benchmarks.tables.total import COLUMNS as SUM_COLUMNS
from clipper.benchmarks.tables.variants import CEILING, rows_of

SAMPLES = 1_000


def _digits(rule: str, slots: int) -> Column:
    base = RunConfig(data="mnist", rule=rule, slots=slots, samples=SAMPLES, evaluate_every=25)
    return Column(f"MNIST {rule.upper()}-{slots}, n={SAMPLES:,}", base)


def _formulas(slots: int, epochs: int, batch: int, lr: float) -> Column:
    """Few epochs of many small steps; the longer a formula is, the smaller, as for the exact loss on long sums."""
    base = RunConfig(
        data="hwf", rule="hwf", slots=slots, samples=SAMPLES, epochs=epochs, batch=batch, lr=lr, evaluate_every=3
    )
    return Column(f"HWF-{slots}, n={SAMPLES:,}", base)


ROWS = (*rows_of(["semantic"], ["none", "joint", "shuffled"]), CEILING)
COLUMNS = (
    *(replace(column, options={}) for column in SUM_COLUMNS[:2]),
    _digits("sum", 3),
    _digits("max", 3),
    _digits("max", 4),
    _formulas(7, epochs=6, batch=16, lr=1e-3),
    _formulas(15, epochs=6, batch=8, lr=3e-4),
)
_LONG = COLUMNS[-1].name
POOL = Table(
    "joint",
    "Beyond the paper: joint inference over the pool",
    ROWS,
    COLUMNS,
    absent=frozenset((row.name, _LONG) for row in ROWS if row.variant in ("joint", "shuffled")),  # too large for it
)
