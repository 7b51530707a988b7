"""The tables by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clipper.benchmarks.tables.ablation import ABLATION
from clipper.benchmarks.tables.hwf import HWF
from clipper.benchmarks.tables.layout import Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.benchmarks.tables.mugen import MUGEN
from clipper.benchmarks.tables.pool import POOL
from clipper.benchmarks.tables.scale import SCALE
from clipper.benchmarks.tables.total import SUM
from clipper.benchmarks.tables.vqar import GENERATED, VQAR
from clipper.benchmarks.vqar.files import own_folder
from clipper.errors import InputError
from clipper.training import Record

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


def table_shown(name: str, ledger: Ledger, data_root: str | Path | None = None) -> Table:
    """The table that the records are about, with or without data: on VQAR's own scenes, generated ones, or both.

    Examples:
        >>> table_shown("hwf", Ledger("no-such-folder/records.jsonl")).title
        'Table 3: accuracy on HWF-M'
    """
    if name != VQAR.name or not any(map(_has_own_scenes, ledger.records())):
        return TABLES[name] if name in TABLES else table_named(name, data_root)
    if not any(record.config["data"] == "scenes" for record in ledger.records()):
        return VQAR
    return replace(
        VQAR,
        title=f"{VQAR.title}, and on {GENERATED.title.partition(' on ')[2]}",
        columns=(*VQAR.columns, *GENERATED.columns),
        published={**VQAR.published, **GENERATED.published},
        remark=GENERATED.remark,
    )


def tables_of(ledger: Ledger) -> list[Table]:
    """All tables, that on VQAR's own scenes among them if there are runs on these."""
    return [*TABLES.values(), *([VQAR] if any(map(_has_own_scenes, ledger.records())) else [])]


def _has_own_scenes(record: Record) -> bool:
    return bool(record.config["data"] == "vqar")
