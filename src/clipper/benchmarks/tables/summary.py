"""Results: for each cell of a table the figures of all seeds, their mean, deviation and interval."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from clipper.benchmarks.config import RunConfig, config_of
from clipper.benchmarks.probe import changed_parts
from clipper.benchmarks.settings import settings_of
from clipper.benchmarks.statistics import interval
from clipper.benchmarks.tables.costs import Costs
from clipper.benchmarks.tables.layout import FRESH, Measure, Place, Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.training import Record

SCORES = {
    "vtr3": "video → text of 3, % (chance 33.3)",
    "tvr3": "text → video of 3, % (chance 33.3)",
    "vtr10": "video → text of 10, % (chance 10)",
    "tvr10": "text → video of 10, % (chance 10)",
    "name": "names, %",
    "rel": "relations, %",
    "sums": "sums, %",
    "formulas": "formulas, %",
    "likeliest": "most probable sums, %",
    "drawn": "gold among the draws, %",
    "near": "nearest neighbour of the same class, %",
    "labels": "labels, %",
    "unseen": "labels of unseen combinations, %",
    "ece": "calibration error (ECE), %",
    "identified": "identified concepts, %",
    "shortcuts": "shortcuts",
    "namings": "namings",
    "joint": "called joint, % of runs",
    "cells": "cells up to a renaming, %",
    "boards": "boards, %",
    "auroc": "area under the ROC curve of boards, %",
}
"""Titles of the measures on held-out data, besides the accuracy."""
NAMES = {
    "accuracy": "accuracy, %",
    "retained": "candidates kept, %",
    "gold": "gold kept, %",
    **SCORES,
}
"""All measures: accuracy and scores are the last epoch's, the others are means over the epochs; shares in per cent."""
OF_PRUNING: dict[Measure, Callable[[Record], float | None]] = {
    "retained": lambda record: 100 * record.retained,
    "gold": lambda record: _percent(record.gold),
}
"""Measures of pruning, and how to compute them from a record; runs without pruning do not have them."""
OLD, STALE = "old", "stale"
"""Marks of figures that do not count as results."""
MARKS = {
    OLD: f"seeds below {FRESH}, which were used to choose settings, or runs without a record of the method's version",
    STALE: "the method has changed since the run (`clipper table NAME --first-seed 200` runs it again, with new seeds)",
}
COUNTS = ("shortcuts", "namings")
"""Scores that are numbers of something, not shares."""


@dataclass(frozen=True)
class CellResult:
    """The results in one cell.

    Attributes:
        place: a row and a column.
        records: one for each seed that is finished, in their order.
        published: the paper's mean and deviation of each measure.
        hours: estimated core-hours of the missing runs.
    """

    place: Place
    records: tuple[Record, ...]
    published: dict[Measure, tuple[float, float]] = field(default_factory=dict)
    hours: float | None = None

    @cached_property
    def mark(self) -> str:
        """`OLD` or `STALE` if a record is; empty for a result, and where nothing was run."""
        marks = {mark_of(record) for record in self.records}
        return OLD if OLD in marks else STALE if STALE in marks else ""

    @property
    def epochs(self) -> int | None:
        """The epochs of its runs; None if nothing was run."""
        return config_of(self.records[0]).epochs if self.records else None

    @property
    def seeds(self) -> list[int]:
        """The seeds of the records."""
        return [record.config["seed"] for record in self.records]

    def values(self, measure: Measure) -> list[float]:
        """The figures of a measure, one for each seed for which it was measured."""
        found: list[float | None]
        if measure not in OF_PRUNING:
            found = [r.last.accuracy if measure == "accuracy" else r.last.scores.get(measure) for r in self.records]
            found = found if measure in COUNTS else list(map(_percent, found))
        elif self.place.config.objective in ("none", "gold", "mixture"):
            found = []
        else:
            found = [OF_PRUNING[measure](record) for record in self.records]
        return [value for value in found if value is not None]

    def as_dict(self, measures: Sequence[Measure]) -> dict[str, Any]:
        """The cell for JSON, with the figures of every seed."""
        config = {name: value for name, value in self.place.config.as_dict().items() if name != "seed"}
        return {
            "row": self.place.row.name,
            "column": self.place.column.name,
            "seeds": self.seeds,
            "commits": [record.commit for record in self.records],
            "mark": self.mark,
            "settings": dict(self.records[0].settings) if self.records else {},
            "measures": {measure: self._figures(measure) for measure in measures},
            "config": config,
        }

    def _figures(self, measure: Measure) -> dict[str, Any]:
        values, paper = self.values(measure), self.published.get(measure)
        figures: dict[str, Any] = {"paper": None if paper is None else {"mean": paper[0], "deviation": paper[1]}}
        if not values:
            return {**figures, "mean": None}
        low, high = bounded(measure, *interval(values))
        several = len(values) > 1
        return {
            **figures,
            "mean": statistics.mean(values),
            "deviation": statistics.stdev(values) if several else None,
            "interval": [low, high] if several else None,
            "values": values,
        }


def mark_of(record: Record) -> str:
    """`OLD` or `STALE` if a run does not count as a result; else empty."""
    if record.config["seed"] < FRESH or not record.probe:
        return OLD
    return STALE if changed_parts(record) else ""


def summarise(table: Table, ledger: Ledger) -> list[CellResult]:
    """All cells of the table, each with those of its runs that are finished."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for place in table.cells():
        record = ledger.find(place.config)
        found[place.row.name, place.column.name] += [] if record is None else [record]
    return [_entry(table, place, found[place.row.name, place.column.name]) for place in table.places()]


def gather(table: Table, ledger: Ledger) -> list[CellResult]:
    """All cells of the table, each with the runs that match it best: results first, then most seeds, then most epochs.

    A run may have another number of epochs than the table asks for, and another frozen encoder in the rows "frozen";
    `deviations` says how it differs. It must have the same number of samples. Old runs are left out of a column that
    has results, because their seeds differ. Old runs on gold labels are left out if no other row of the task has a run
    with one of their seeds. Each cell has the estimated cost of its missing runs.
    """
    by_task: dict[str, list[Record]] = defaultdict(list)
    for record in ledger.records():
        by_task[_cell_key(config_of(record))].append(record)
    costs, entries = Costs(ledger.records()), []
    for place in table.places():
        near = () if place.row.source else _nearest(place, by_task[_cell_key(place.config)])
        entry = _entry(table, place, near)
        missing = table.runs_at(place) - (len(near) if counts(entry) else 0)
        entries.append(replace(entry, hours=costs.hours(place.config, max(0, missing))))
    shown = [replace(entry, records=()) if _of_other_seeds(entry, entries) else entry for entry in entries]
    return [replace(entry, records=()) if _is_ceiling_of_nothing(entry, shown) else entry for entry in shown]


def counts(entry: CellResult) -> bool:
    """Whether a cell has results: runs of the current method, on fresh seeds, with as many epochs as the table asks."""
    return bool(entry.records) and not entry.mark and entry.epochs == entry.place.config.epochs


def _of_other_seeds(entry: CellResult, entries: Sequence[CellResult]) -> bool:
    """Whether a cell has old runs, and other cells of its column have results, which have other seeds."""
    column = [each for each in entries if each.place.column == entry.place.column]
    return entry.mark == OLD and any(each.records and not each.mark for each in column)


def _is_ceiling_of_nothing(entry: CellResult, entries: Sequence[CellResult]) -> bool:
    """Whether a cell has old runs on gold labels, and the other rows of its task have no run on these seeds."""
    if entry.place.config.objective != "gold" or not entry.mark:
        return False
    rows = [e for e in entries if e.place.column == entry.place.column and e.place.config.objective != "gold"]
    others = {seed for each in rows for seed in each.seeds}
    return bool(others) and others.isdisjoint(entry.seeds)


def _entry(table: Table, place: Place, records: Iterable[Record]) -> CellResult:
    return CellResult(place, tuple(records), table.published.get((place.row.name, place.column.name), {}))


def bounded(measure: Measure, low: float, high: float) -> tuple[float, float]:
    """An interval cut to possible values: shares lie in 0 to 100, and nothing is negative.

    Examples:
        >>> bounded("accuracy", 97.5, 101.2), bounded("shortcuts", -0.1, 101.2)
        ((97.5, 100.0), (0.0, 101.2))
    """
    return max(low, 0.0), min(high, 100.0) if "%" in NAMES.get(measure, "") else high


def deviations(entry: CellResult) -> str:
    """How the runs of a cell differ from what the table asks for; empty if they do not.

    Examples:
        >>> from dataclasses import replace
        >>> from clipper.benchmarks.tables.catalogue import SUM_TABLE
        >>> from clipper.training import EpochMetrics
        >>> place = next(SUM_TABLE.places())
        >>> epochs = [EpochMetrics(epoch, 1.0, 0.5, 0.5, None, None, 0.0) for epoch in (1, 2, 3)]
        >>> deviations(CellResult(place, (Record(replace(place.config, epochs=3).as_dict(), epochs),)))
        '3 epochs'
    """
    if not entry.records:
        return ""
    asked, done = entry.place.config, config_of(entry.records[0])
    parts = [f"{done.epochs} epochs"] if done.epochs != asked.epochs else []
    parts += [done.encoder] if done.encoder != asked.encoder else []
    return ", ".join(parts)


def peculiarity(entry: CellResult) -> str:
    """How a cell's runs differ from the paper's, or from what the table asks for; empty if they do not."""
    config, found = entry.place.config, deviations(entry)
    proofs = config.engine_options.get("k") if config.engine == "scallop" and config.objective != "gold" else None
    encoder = config_of(entry.records[0]).encoder if entry.records else config.encoder
    named = encoder if entry.place.row.variant == "frozen" and encoder not in found else ""
    return ", ".join(filter(None, [found, named, f"best {proofs} proofs" if proofs else ""]))


def _nearest(place: Place, records: Iterable[Record]) -> tuple[Record, ...]:
    """The runs for a place. Runs that differ only in their seeds form a group; the best group is taken."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if place.row.variant == "frozen" or record.config["encoder"] == place.config.encoder:
            groups[json.dumps({**record.config, "seed": mark_of(record)}, sort_keys=True)].append(record)
    if not groups:
        return ()
    order = (OLD, STALE, "")  # the worst first
    best = max(groups.values(), key=lambda each: (order.index(mark_of(each[0])), len(each), each[0].config["epochs"]))
    return tuple(sorted(best, key=lambda record: record.config["seed"]))


def _cell_key(config: RunConfig) -> str:
    """What the runs of a cell have in common: all settings but seed and epochs. Frozen encoders are compared later."""
    settings = settings_of(config)
    loose = {"seed": 0, "epochs": 0, "evaluate_every": 0, "encoder": settings.get("encoder") == "trainable"}
    return json.dumps({**settings, **loose}, sort_keys=True)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
