"""What came out: for each place of a table the figures of all seeds, their mean, deviation and interval."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clipper.benchmarks.config import config_of
from clipper.benchmarks.statistics import interval
from clipper.benchmarks.tables.layout import Measure, Place, Table
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
    "cells": "cells up to a renaming, %",
    "boards": "boards, %",
    "auroc": "area under the ROC curve of boards, %",
}
"""What is measured on held-out data besides the accuracy, in words."""
NAMES = {
    "accuracy": "accuracy, %",
    "retained": "candidates kept, %",
    "gold": "gold kept, %",
    "pruning_seconds": "pruning, s per epoch",
    "pruning_share": "pruning, % of the time",
    "seconds": "training, s per epoch",
    **SCORES,
}
"""All measures: accuracy and scores are the last epoch's, the others are means over the epochs; shares in per cent."""
OF_PRUNING: dict[Measure, Callable[[Record], float | None]] = {
    "retained": lambda record: 100 * record.retained,
    "gold": lambda record: _percent(record.gold),
    "pruning_seconds": lambda record: record.pruning_seconds,
    "pruning_share": lambda record: 100 * record.pruning_share,
}
"""What a run without pruning has no figure for; the others are measured on held-out data."""
MANY = 1_000
"""Samples from which on a column may be filled with fewer: what takes a day elsewhere is shown with what was run."""


@dataclass(frozen=True)
class Entry:
    """What came out at one place.

    Attributes:
        place: a row and a column.
        records: one for each seed that is finished, in their order.
        published: the paper's mean and deviation of each measure.
    """

    place: Place
    records: tuple[Record, ...]
    published: dict[Measure, tuple[float, float]] = field(default_factory=dict)

    def values(self, measure: Measure) -> list[float]:
        """One for each seed, where it was measured."""
        found: list[float | None]
        if measure == "seconds":
            found = [statistics.mean(metrics.seconds for metrics in record.epochs) for record in self.records]
        elif measure not in OF_PRUNING:
            found = [
                _percent(r.last.accuracy if measure == "accuracy" else r.last.scores.get(measure)) for r in self.records
            ]
        elif self.place.config.objective in ("none", "gold"):
            found = []
        else:
            found = [OF_PRUNING[measure](record) for record in self.records]
        return [value for value in found if value is not None]

    def as_dict(self, measures: Sequence[Measure]) -> dict[str, Any]:
        """For JSON: the figures, every seed's among them."""
        config = {name: value for name, value in self.place.config.as_dict().items() if name != "seed"}
        return {
            "row": self.place.row.name,
            "column": self.place.column.name,
            "seeds": [record.config["seed"] for record in self.records],
            "commits": [record.commit for record in self.records],
            "settings": dict(self.records[0].settings) if self.records else {},
            "measures": {measure: self._figures(measure) for measure in measures},
            "config": config,
        }

    def _figures(self, measure: Measure) -> dict[str, Any]:
        values, paper = self.values(measure), self.published.get(measure)
        figures: dict[str, Any] = {"paper": None if paper is None else {"mean": paper[0], "deviation": paper[1]}}
        if not values:
            return {**figures, "mean": None}
        low, high = interval(values)
        several = len(values) > 1
        return {
            **figures,
            "mean": statistics.mean(values),
            "deviation": statistics.stdev(values) if several else None,
            "interval": [low, high] if several else None,
            "values": values,
        }


def summarise(table: Table, ledger: Ledger) -> list[Entry]:
    """All places of the table with the runs that it asks for, as far as they are finished."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for place in table.cells():
        record = ledger.find(place.config)
        found[place.row.name, place.column.name] += [] if record is None else [record]
    return [_entry(table, place, found[place.row.name, place.column.name]) for place in table.places()]


def gather(table: Table, ledger: Ledger) -> list[Entry]:
    """All places of the table, each with the runs that come nearest to it: most seeds first, then most epochs.

    Runs of other lengths count, of other numbers of samples where the table has many, and of any frozen encoder in
    the rows "frozen"; `deviations` says in what they differ.
    """
    by_task: dict[str, list[Record]] = defaultdict(list)
    for record in ledger.records():
        by_task[_essence(record.config)].append(record)
    sizes = {column.base.samples for column in table.columns}
    return [
        _entry(
            table,
            place,
            () if place.row.source else _nearest(place, by_task[_essence(place.config.as_dict())], sizes),
        )
        for place in table.places()
    ]


def _entry(table: Table, place: Place, records: Iterable[Record]) -> Entry:
    return Entry(place, tuple(records), table.published.get((place.row.name, place.column.name), {}))


def deviations(entry: Entry) -> str:
    """In what the runs of a place differ from what the table asks for; empty if in nothing.

    Examples:
        >>> from dataclasses import replace
        >>> from clipper.benchmarks.tables.catalogue import SUM_TABLE
        >>> from clipper.training import EpochMetrics
        >>> place = next(SUM_TABLE.places())
        >>> epochs = [EpochMetrics(epoch, 1.0, 0.5, 0.5, None, None, 0.0) for epoch in (1, 2, 3)]
        >>> deviations(Entry(place, (Record(replace(place.config, epochs=3).as_dict(), epochs),)))
        '3 epochs'
    """
    if not entry.records:
        return ""
    asked, done = entry.place.config, config_of(entry.records[0])
    parts = [f"{done.epochs} epochs"] if done.epochs != asked.epochs else []
    parts += [f"n={done.samples:,}"] if done.samples != asked.samples else []
    parts += [done.encoder] if done.encoder != asked.encoder else []
    return ", ".join(parts)


def _nearest(place: Place, records: Iterable[Record], sizes: Container[int]) -> tuple[Record, ...]:
    """The best group of runs for a place; runs with the `sizes` of another column belong there."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        samples, asked = record.config["samples"], place.config.samples
        here = samples == asked or (samples < asked and samples not in sizes)
        here = here and record.config["seed"] >= place.row.first_seed
        if here and (place.row.variant == "frozen" or record.config["encoder"] == place.config.encoder):
            groups[json.dumps({**record.config, "seed": 0}, sort_keys=True)].append(record)
    if not groups:
        return ()
    best = max(groups.values(), key=lambda group: (len(group), group[0].config["epochs"]))
    return tuple(sorted(best, key=lambda record: record.config["seed"]))


def _essence(config: Mapping[str, Any]) -> str:
    """What two runs must share to stand at one place; frozen encoders are told apart later."""
    loose = {"seed": 0, "epochs": 0, "evaluate_every": 0, "encoder": config["encoder"] == "trainable"}
    if config["samples"] >= MANY:
        loose["samples"] = MANY
    return json.dumps({**config, **loose}, sort_keys=True)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
