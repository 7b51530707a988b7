"""The tables by name."""

from __future__ import annotations

from clipper.benchmarks.tables.ablation import ABLATION
from clipper.benchmarks.tables.hwf import HWF
from clipper.benchmarks.tables.layout import Table
from clipper.benchmarks.tables.mugen import MUGEN
from clipper.benchmarks.tables.pool import POOL
from clipper.benchmarks.tables.scale import SCALE
from clipper.benchmarks.tables.total import SUM
from clipper.errors import InputError

TABLES = {table.name: table for table in (SUM, SCALE, HWF, MUGEN, ABLATION, POOL)}


def table_named(name: str) -> Table:
    """One of the paper's tables.

    Examples:
        >>> table_named("hwf").title
        'Table 3: accuracy on HWF-M'
    """
    if name not in TABLES:
        raise InputError(f"expected one of the tables {', '.join(TABLES)}, got {name!r}")
    return TABLES[name]
