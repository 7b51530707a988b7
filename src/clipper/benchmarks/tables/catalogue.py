"""All tables by their names: the paper's, the field's and the demo's. Published figures are in `published.csv`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.field_tables import (
    ADDITION_TABLE,
    BAGS_TABLE,
    FORMULAS_TABLE,
    LONG_SUM_TABLE,
    PROPORTIONS_TABLE,
    SHORTCUTS_TABLE,
    SUDOKU_TABLE,
)
from clipper.benchmarks.tables.layout import VARIANTS, Column, Row, Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.benchmarks.tables.paper_tables import (
    ABLATION_TABLE,
    CEILING,
    CONFOUNDS_TABLE,
    DRAWS_TABLE,
    ENCODERS_TABLE,
    HWF_TABLE,
    JOINT_TABLE,
    MUGEN_TABLE,
    NEIGHBOURS_TABLE,
    SCALE_TABLE,
    SUM_TABLE,
    VQAR_TABLE,
)
from clipper.benchmarks.vqar.files import own_folder
from clipper.errors import InputError

_SCENES = {"vqar", "scenes"}
"""The data sets of VQAR's own scenes and of generated ones."""
DEMO_TABLE = Table(
    "demo",
    "100 receipts of three handwritten digits, of which only the total is known",
    (
        *(
            Row("semantic", variant, {"engine": "semantic", **VARIANTS[variant]}, title=title)
            for variant, title in (
                ("none", "all candidates"),
                ("trainable", "paper"),
                ("exact", "exact"),
                ("random", "as many at random"),
                ("em", "EM"),
                ("joint", "joint"),
            )
        ),
        CEILING,
    ),
    (Column("100 receipts of three digits", RunConfig()),),
    ("accuracy", "retained", "gold"),
    notes={"joint": "joint inference over the whole pool before training, neighbours by outlines"},
)
_PAPER = (SUM_TABLE, SCALE_TABLE, HWF_TABLE, MUGEN_TABLE, VQAR_TABLE, ABLATION_TABLE, JOINT_TABLE)
_OUR_CHECKS = (CONFOUNDS_TABLE, DRAWS_TABLE, NEIGHBOURS_TABLE, ENCODERS_TABLE)
_FIELD = (
    ADDITION_TABLE, FORMULAS_TABLE, SHORTCUTS_TABLE, BAGS_TABLE, PROPORTIONS_TABLE, SUDOKU_TABLE, LONG_SUM_TABLE,
)  # fmt: skip
TABLES = {table.name: table for table in (*_PAPER, *_OUR_CHECKS, *_FIELD, DEMO_TABLE)}


def table_named(name: str, data_root: str | Path | None = None) -> Table:
    """A table as it can be run on this machine: on VQAR's own scenes if they are here, else on generated ones.

    Examples:
        >>> table_named("hwf").title
        'Table 3: accuracy on HWF-M'
    """
    table = _on({"vqar" if own_folder(data_root) else "scenes"}, name)
    columns = [replace(column, base=replace(column.base, data_root=data_root)) for column in table.columns]
    return replace(table, columns=tuple(columns))


def table_shown(name: str, ledger: Ledger) -> Table:
    """A table with the scenes of its recorded runs: VQAR's own, generated ones, or both.

    Examples:
        >>> table_shown("hwf", Ledger("no-such-folder/records.jsonl")).title
        'Table 3: accuracy on HWF-M'
    """
    done = _SCENES & {record.config["data"] for record in ledger.records()}
    return _on(done or {"scenes"}, name)


def tables_of(ledger: Ledger) -> list[Table]:
    """All tables of results; the demo is not one of them."""
    return [table_shown(name, ledger) for name in TABLES if name != DEMO_TABLE.name]


def _on(scenes: set[str], name: str) -> Table:
    """A table, without the columns on other scenes than these."""
    if name not in TABLES:
        raise InputError(f"expected one of the tables {', '.join(TABLES)}, got {name!r}")
    hidden = _SCENES - scenes
    return replace(TABLES[name], columns=tuple(c for c in TABLES[name].columns if c.base.data not in hidden))
