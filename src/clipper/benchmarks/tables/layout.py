"""A table's layout: rows are methods, columns are tasks, and each cell has a run for each seed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from clipper.benchmarks.config import RunConfig

Measure = str
"""The name of something that is measured in a run, one of `clipper.benchmarks.tables.summary.NAMES`."""
FROZEN = "mobilenet-v2"
"""The pretrained encoder of the rows "frozen"; the paper has ResNet-18."""
ENTROPY = 0.1
"""The weight of the entropy penalty in the rows "entropy"."""
FRESH = 100
"""The first seed of results; settings are chosen on seeds 0 to 19."""
VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"objective": "none"},
    "frozen": {"objective": "paper", "encoder": FROZEN},
    "trainable": {"objective": "paper", "encoder": "trainable"},
    "exact": {"objective": "exact", "encoder": "trainable"},
    "random": {"objective": "random", "encoder": "trainable"},
    "entropy": {"objective": "none", "entropy": ENTROPY},
    "joint": {"objective": "joint", "encoder": "outlines"},
    "shuffled": {"objective": "joint", "encoder": "shuffled"},
    "em": {"objective": "em", "encoder": "outlines"},
}
"""What is done to the candidates: the first three are the paper's; its reviewers asked for random and entropy."""
USUAL = tuple(variant for variant in VARIANTS if variant not in ("joint", "shuffled", "em"))
"""The variants that every engine is run with."""
MEANING = {
    "none": "nothing: all candidates",
    "frozen": "the paper's program as printed; neighbours by a pretrained encoder (MobileNetV2; the paper has "
    "ResNet-18)",
    "trainable": "the paper's program as printed; neighbours by the classifier's own layer",
    "exact": "the problem that the paper states; neighbours by the classifier's own layer",
    "random": "the control: in each step, discards as many candidates as exact would, at random; for clips, it forbids "
    "labels at random. Its network is another one than that of exact, so that the shares kept differ slightly",
    "entropy": f"all candidates; the loss has a penalty on the posterior's entropy, with weight {ENTROPY:g}",
    "joint": "joint inference over the whole pool, before training; neighbours by outlines (for clips, of the "
    "middle of each frame)",
    "shuffled": "a control for joint: each image has the embedding of another one, so nothing should be discarded",
    "em": "a baseline for joint: expectation-maximisation instead of joint inference",
    "gold": "trained on the gold labels of the same images: the ceiling of rows with the same optimiser, epochs and "
    "seeds",
}


@dataclass(frozen=True)
class Row:
    """A method: an engine and a variant of pruning.

    Attributes:
        engine: an engine's name, or "gold labels" for the ceiling.
        variant: what is done to the candidates, one of `VARIANTS` or of the table's own `notes`.
        changes: the fields of the run's configuration that the row sets.
        first_seed: the first of its seeds.
        title: its name; if empty, the name is made of engine and variant.
        source: the publication of its figures, if they are not ours; then nothing is run.
    """

    engine: str
    variant: str
    changes: Mapping[str, Any]
    first_seed: int = FRESH
    title: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """The name of the row."""
        if self.title:
            return self.title
        return self.engine if self.variant == "none" else f"{self.engine} + {self.variant}"


def rows_of(engines: Sequence[str], variants: Sequence[str] = USUAL) -> list[Row]:
    """Each engine with each variant.

    Examples:
        >>> [row.name for row in rows_of(["dolphin"], ["none", "exact"])]
        ['dolphin', 'dolphin + exact']
    """
    return [Row(engine, variant, {"engine": engine, **VARIANTS[variant]}) for engine in engines for variant in variants]


@dataclass(frozen=True)
class Column:
    """A task.

    Attributes:
        name: the name of the column.
        base: the configuration of the task, before the changes of a row.
        options: engine options for this task, by the name of an engine or of a row.
    """

    name: str
    base: RunConfig
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A cell of a table, and the seed of one of its runs."""

    row: Row
    column: Column
    seed: int = 0

    @cached_property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        options = {**self.column.options.get(self.row.engine, {}), **self.column.options.get(self.row.name, {})}
        return replace(self.column.base, **self.row.changes, engine_options=options, seed=self.seed)


@dataclass(frozen=True)
class Table:
    """Rows and columns, and how to read them.

    Attributes:
        name: its name on the command line.
        title: its title on pages.
        rows: the methods.
        columns: the tasks.
        measures: what is shown in each cell.
        seeds: runs for each cell.
        more: another number of runs for some cells, by the names of row and column.
        absent: cells that the table does not have, by the names of row and column.
        notes: the meaning of variants in this table, if it differs from the usual one.
        remark: a remark on the paper's figures.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    measures: tuple[Measure, ...] = ("accuracy",)
    seeds: int = 10
    more: Mapping[tuple[str, str], int] = field(default_factory=dict)
    absent: frozenset[tuple[str, str]] = frozenset()
    notes: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""

    @property
    def published(self) -> dict[tuple[str, str], dict[Measure, tuple[float, float]]]:
        """The published mean and deviation of each measure, by row and column: the paper's, or a row's source's."""
        return _published().get(self.name, {})

    def places(self) -> Iterator[Place]:
        """All cells, column by column, so that a task is complete before the next begins."""
        for column in self.columns:
            for row in self.rows:
                if (row.name, column.name) not in self.absent:
                    yield Place(row, column)

    def runs_at(self, place: Place) -> int:
        """How many seeds the table asks for in a cell; 0 in a row of published figures."""
        return 0 if place.row.source else self.more.get((place.row.name, place.column.name), self.seeds)

    def inspected(self) -> list[Place]:
        """The runs whose pruning a page shows: the first exact one, or else the first that prunes, and a joint one."""
        own = [place for place in self.places() if not place.row.source]
        pruned = [place for place in own if place.config.objective not in ("none", "gold", "mixture")]
        first = sorted(pruned, key=lambda place: place.row.variant != "exact")[:1]
        joint = [place for place in pruned if place.config.objective == "joint" and place not in first][:1]
        return [replace(place, seed=place.row.first_seed) for place in first + joint]

    def cells(self) -> Iterator[Place]:
        """All runs, column by column; every row of a column gets its first seed before any gets its second."""
        for column in self.columns:
            runs = [(place, self.runs_at(place)) for place in self.places() if place.column == column]
            for i in range(max((number for _, number in runs), default=0)):
                yield from (replace(place, seed=place.row.first_seed + i) for place, number in runs if i < number)


@cache
def _published() -> dict[str, dict[tuple[str, str], dict[Measure, tuple[float, float]]]]:
    """The published figures by table; a deviation of 0 if none is known."""
    figures: dict[str, dict[tuple[str, str], dict[Measure, tuple[float, float]]]] = {}
    with files(__package__).joinpath("published.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            of_place = figures.setdefault(line["table"], {}).setdefault((line["row"], line["column"]), {})
            of_place[line["measure"]] = float(line["mean"]), float(line["deviation"])
    return figures
