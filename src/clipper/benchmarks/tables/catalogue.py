"""The tables by name."""

from __future__ import annotations

from pathlib import Path

from clipper.benchmarks.tables.ablation import ABLATION
from clipper.benchmarks.tables.hwf import HWF
from clipper.benchmarks.tables.layout import Table
from clipper.benchmarks.tables.mugen import MUGEN
from clipper.benchmarks.tables.pool import POOL
from clipper.benchmarks.tables.scale import SCALE
from clipper.benchmarks.tables.total import SUM
from clipper.benchmarks.tables.vqar import GENERATED, VQAR
from clipper.benchmarks.vqar.files import own_folder
from clipper.errors import InputError

TABLES = {table.name: table for table in (SUM, SCALE, HWF, MUGEN, GENERATED, ABLATION, POOL)}


def table_named(name: str, data_root: str | Path | None = None) -> Table:
    """One of the paper's tables; on VQAR's own scenes where they are, on generated ones elsewhere.

    Examples:
        >>> table_named("hwf").title
        'Table 3: accuracy on HWF-M'
    """
    if name not in TABLES:
        raise InputError(f"expected one of the tables {', '.join(TABLES)}, got {name!r}")
    return VQAR if name == VQAR.name and own_folder(data_root) else TABLES[name]
