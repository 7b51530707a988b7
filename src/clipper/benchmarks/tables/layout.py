"""A table's layout: rows are ways to learn, columns are tasks, and where they meet lies a run for each seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from clipper.benchmarks.config import RunConfig

Measure = Literal[
    "accuracy", "retained", "gold", "pruning_seconds", "pruning_share", "vtr3", "tvr3", "vtr10", "tvr10", "name", "rel"
]
"""What is measured of a run: see `clipper.benchmarks.tables.summary`."""
Published = Mapping[tuple[str, str], Mapping[Measure, tuple[float, float]]]
"""The paper's mean and deviation, by row and column."""


@dataclass(frozen=True)
class Row:
    """A way to learn."""

    engine: str
    """An engine's name, or "gold" for the ceiling."""
    variant: str
    """What is done to the candidates: see `clipper.benchmarks.tables.variants`."""
    changes: Mapping[str, Any]
    """The fields of `RunConfig` that make it so."""
    first_seed: int = 0
    """The first of its seeds: not 0 where something was settled while looking at those."""

    @property
    def name(self) -> str:
        """How the row is called everywhere."""
        return self.engine if self.variant == "none" else f"{self.engine} + {self.variant}"


@dataclass(frozen=True)
class Column:
    """A task."""

    name: str
    base: RunConfig
    """The run of the task, but for what a row changes."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What an engine needs to be told here, by its name or by that of a row."""


@dataclass(frozen=True)
class Place:
    """Where a row and a column meet."""

    row: Row
    column: Column

    @property
    def config(self) -> RunConfig:
        """The place's run with the seed 0."""
        options = {**self.column.options.get(self.row.engine, {}), **self.column.options.get(self.row.name, {})}
        return replace(self.column.base, **self.row.changes, engine_options=options)


@dataclass(frozen=True)
class Cell:
    """One run of a table: a place and a seed."""

    place: Place
    seed: int

    @property
    def config(self) -> RunConfig:
        """Everything that decides how the run ends."""
        return replace(self.place.config, seed=self.seed)


@dataclass(frozen=True)
class Table:
    """Rows, columns, and what the paper reports for them."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    published: Published = field(default_factory=dict)
    measures: tuple[Measure, ...] = ("accuracy",)
    """What is shown of each place."""
    seeds: int = 10
    absent: frozenset[tuple[str, str]] = frozenset()
    """Rows and columns that do not meet."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What variants mean here, where it is not what they mean elsewhere."""
    remark: str = ""
    """What a reader should know of the paper's figures."""

    def places(self) -> Iterator[Place]:
        """Column by column, so that a task is complete before the next begins."""
        for column in self.columns:
            for row in self.rows:
                if (row.name, column.name) not in self.absent:
                    yield Place(row, column)

    def cells(self) -> Iterator[Cell]:
        """Seed by seed, so that every row of a column has some seeds before any has all."""
        for column in self.columns:
            places = [place for place in self.places() if place.column == column]
            yield from (Cell(place, place.row.first_seed + i) for i in range(self.seeds) for place in places)
