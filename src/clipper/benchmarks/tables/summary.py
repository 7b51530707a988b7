"""What came out: for each place of a table the figures of all seeds, their mean, deviation and interval."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clipper.benchmarks.statistics import interval
from clipper.benchmarks.tables.layout import Cell, Measure, Place, Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.training import Record

OF: dict[Measure, Callable[[Record], float | None]] = {
    "accuracy": lambda record: _percent(record.last.accuracy),
    "retained": lambda record: 100 * record.retained,
    "gold": lambda record: _percent(record.gold),
    "pruning_seconds": lambda record: record.pruning_seconds,
    "pruning_share": lambda record: 100 * record.pruning_share,
    "vtr3": lambda record: _percent(record.last.scores.get("vtr3")),
    "tvr3": lambda record: _percent(record.last.scores.get("tvr3")),
    "vtr10": lambda record: _percent(record.last.scores.get("vtr10")),
    "tvr10": lambda record: _percent(record.last.scores.get("tvr10")),
    "name": lambda record: _percent(record.last.scores.get("name")),
    "rel": lambda record: _percent(record.last.scores.get("rel")),
}
"""Accuracy and retrieval are the last epoch's, the others are means over the epochs; shares in per cent."""
NAMES: dict[Measure, str] = {
    "accuracy": "accuracy, %",
    "retained": "candidates kept, %",
    "gold": "gold kept, %",
    "pruning_seconds": "pruning, s per epoch",
    "pruning_share": "pruning, % of the time",
    "vtr3": "video → text of 3, % (chance 33.3)",
    "tvr3": "text → video of 3, % (chance 33.3)",
    "vtr10": "video → text of 10, % (chance 10)",
    "tvr10": "text → video of 10, % (chance 10)",
    "name": "names, %",
    "rel": "relations, %",
}
SCORES: dict[str, str] = {measure: NAMES[measure] for measure in ("vtr3", "tvr3", "vtr10", "tvr10", "name", "rel")}
"""What is measured besides the accuracy, in words."""
OF_PRUNING: tuple[Measure, ...] = ("retained", "gold", "pruning_seconds", "pruning_share")
"""What a run without pruning has no figure for; the others are measured on held-out data."""


@dataclass(frozen=True)
class Entry:
    """What came out at one place."""

    place: Place
    records: tuple[Record, ...]
    """One for each seed that is finished, in their order."""
    published: Mapping[Measure, tuple[float, float]] = field(default_factory=dict)
    """The paper's mean and deviation of each measure."""

    def values(self, measure: Measure) -> list[float]:
        """One for each seed, where it was measured."""
        if self.place.config.objective in ("none", "gold") and measure in OF_PRUNING:
            return []
        return [value for value in map(OF[measure], self.records) if value is not None]

    def paper(self, measure: Measure) -> tuple[float, float] | None:
        """The paper's mean and deviation."""
        return self.published.get(measure)

    def as_dict(self, measures: Sequence[Measure]) -> dict[str, Any]:
        """For JSON: the figures, every seed's among them."""
        config = {name: value for name, value in self.place.config.as_dict().items() if name != "seed"}
        return {
            "row": self.place.row.name,
            "column": self.place.column.name,
            "seeds": [record.config["seed"] for record in self.records],
            "measures": {measure: self._figures(measure) for measure in measures},
            "config": config,
        }

    def _figures(self, measure: Measure) -> dict[str, Any]:
        values, paper = self.values(measure), self.paper(measure)
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
    """All places of the table, those without a finished run included."""
    return [Entry(place, _records(place, table.seeds, ledger), published_of(table, place)) for place in table.places()]


def published_of(table: Table, place: Place) -> Mapping[Measure, tuple[float, float]]:
    """What the paper reports for a place."""
    return table.published.get((place.row.name, place.column.name), {})


def _records(place: Place, seeds: int, ledger: Ledger) -> tuple[Record, ...]:
    found = (ledger.find(Cell(place, place.row.first_seed + i).config) for i in range(seeds))
    return tuple(record for record in found if record is not None)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
