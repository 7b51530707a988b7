"""Which part of a table to run, and what to change about it: the flags of `clipper table`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.tables.layout import Column, Row, Table
from clipper.errors import InputError
from clipper.proximity.backbones.pretrained import NAMES as PRETRAINED

QUICK_SEEDS, QUICK_EPOCHS = 3, 30
ANY_IMAGES = "LinearOnOutlines"
"""The network that accepts images of any size."""


@dataclass(frozen=True)
class Selection:
    """A part of a table, with changed options; the default is the whole table.

    Attributes:
        engines: keep rows with these engines.
        variants: keep rows with these variants.
        columns: keep columns whose name contains one of these.
        seeds: runs for each cell, if not the table's own number.
        epochs: the epochs of each run, if not the table's own.
        samples: the samples of each run, if not the table's own.
        encoder: the frozen encoder of the rows "frozen".
        quick: a smaller grid on scikit-learn's digits, if the task allows it.
        first_seed: the first seed of every row, if not the table's own.

    Examples:
        >>> from clipper.benchmarks.tables.catalogue import SUM_TABLE
        >>> small = Selection(engines=("dolphin",), variants=("none", "exact"), columns=("SUM-3, n=100",), seeds=2)
        >>> len(list(small.of(SUM_TABLE).cells()))
        4
    """

    engines: Sequence[str] = ()
    variants: Sequence[str] = ()
    columns: Sequence[str] = ()
    seeds: int | None = None
    epochs: int | None = None
    samples: int | None = None
    encoder: str | None = None
    quick: bool = False
    first_seed: int | None = None

    def of(self, table: Table) -> Table:
        """The selected part of a table.

        Raises:
            InputError: nothing is selected, or the table does not have what was asked for.
        """
        parts = [part.lower() for part in self.columns] or [""]
        columns = [self._column(c) for c in table.columns if any(part in c.name.lower() for part in parts)]
        rows = [
            self._row(row)
            for row in table.rows
            if row.engine in (self.engines or (row.engine,)) and row.variant in (self.variants or (row.variant,))
        ]
        if self.quick:
            columns = _distinct(columns)
            unavailable = (*PRETRAINED, "trained")  # encoders that need weights, or more images than the digits have
            rows = [row for row in rows if row.changes.get("encoder") not in unavailable and not row.source]
            rows = [row for row in rows if row.changes.get("augment") != "flip-shift"]  # a mirrored digit is no digit
            rows = [row for row in rows if "warm_up" not in row.changes]  # so few sums tell nothing about single images
            rows = list({row.name: row for row in reversed(rows)}.values())[::-1]  # merge rows that became equal
        _check(self, table, rows, columns)
        seeds = self.seeds or (min(QUICK_SEEDS, table.seeds) if self.quick else table.seeds)
        more = {} if self.seeds or self.quick else table.more
        return replace(table, rows=tuple(rows), columns=tuple(columns), seeds=seeds, more=more)

    def _row(self, row: Row) -> Row:
        row = row if self.first_seed is None else replace(row, first_seed=self.first_seed)
        too_large = self.quick and row.changes.get("network", ANY_IMAGES) != ANY_IMAGES
        if too_large:  # the network does not accept the small images
            row = replace(row, engine="small network")
        dropped = {"epochs" if self.epochs or self.quick else "", "network" if too_large else ""}
        row = replace(row, changes={name: value for name, value in row.changes.items() if name not in dropped})
        if row.variant != "frozen" or not (self.encoder or self.quick):
            return row
        return replace(row, changes={**row.changes, "encoder": self.encoder or "pixels"})

    def _column(self, column: Column) -> Column:
        base, options = column.base, column.options
        if self.quick:
            base = replace(benchmark_named(base.rule).quick(base), epochs=QUICK_EPOCHS, evaluate_every=1)
            options = {"scallop": {"k": 3}}
        base = replace(base, epochs=self.epochs or base.epochs, samples=self.samples or base.samples)
        return replace(column, base=base, options=options)


def _distinct(columns: list[Column]) -> list[Column]:
    """Merge columns that became the same task."""
    first: dict[str, Column] = {}
    for column in columns:
        first.setdefault(repr(column.base), column)
    return [replace(column, name=_task(column)) for column in first.values()]


def _task(column: Column) -> str:
    config, (task, size, _) = column.base, column.name.partition(", n=")
    if size and config.data != "digits":  # the same task on fewer samples
        return f"{task}, n={config.samples}"
    batch = "" if config.batch == 64 else f", batch {config.batch}"
    return f"{config.data} {config.rule.upper()}-{config.slots}, n={config.samples}{batch}"


def _check(selection: Selection, table: Table, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    for what, wanted, known in (
        ("engines", selection.engines, {row.engine for row in table.rows}),
        ("variants", selection.variants, {row.variant for row in table.rows}),
    ):
        unknown = sorted(set(wanted) - known)
        if unknown:
            raise InputError(f"expected {what} of the table {table.name} ({', '.join(sorted(known))}), got {unknown}")
    if not rows or not columns:
        names = "; ".join(column.name for column in table.columns)
        raise InputError(f"this selects nothing of the table {table.name}; its columns are: {names}")
