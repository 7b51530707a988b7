"""Table 3: handwritten formulas of exactly 7 and 15 symbols, with candidates drawn at random."""

from __future__ import annotations

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import Column, Published, Row, Table
from clipper.benchmarks.tables.scale import PER_SAMPLE
from clipper.benchmarks.tables.variants import CEILING, EXACT_LOSS, VARIANTS, rows_of

FORMULAS = 6_000
"""As many as HWF has of length 7; the paper does not say how many it uses."""


def _column(slots: int) -> Column:
    base = RunConfig(data="hwf", rule="hwf", slots=slots, samples=FORMULAS, per_sample=PER_SAMPLE, batch=16, lr=1e-4)
    return Column(f"HWF-{slots}", base)


COLUMNS = (_column(7), _column(15))
PUBLISHED: Published = {
    ("dolphin", "HWF-7"): {"accuracy": (22.74, 2.48)},
    ("dolphin", "HWF-15"): {"accuracy": (17.01, 2.86)},
    ("dolphin + frozen", "HWF-7"): {"accuracy": (33.20, 1.57)},
    ("dolphin + frozen", "HWF-15"): {"accuracy": (23.43, 6.11)},
    ("dolphin + trainable", "HWF-7"): {"accuracy": (32.29, 2.14)},
    ("dolphin + trainable", "HWF-15"): {"accuracy": (22.75, 1.61)},
}
_JOINT = Row("semantic", "joint", {"engine": "semantic", **VARIANTS["joint"], "per_sample": 0})
"""Joint inference looks at all candidates of a sample, not at some."""
HWF = Table(
    "hwf",
    "Table 3: accuracy on HWF-M",
    (*rows_of(["dolphin"]), EXACT_LOSS, _JOINT, CEILING),
    COLUMNS,
    PUBLISHED,
    seeds=3,
    absent=frozenset({(_JOINT.name, "HWF-15")}),  # which has too many to list
)
