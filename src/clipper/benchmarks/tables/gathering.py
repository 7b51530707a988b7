"""Everything that the records have for a table, shorter runs and fewer samples included, and how they differ."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any

from clipper.benchmarks.tables.layout import Place, Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.benchmarks.tables.summary import Entry, published_of
from clipper.training import Record
from clipper.training.config import config_of

MANY = 1_000
"""Samples from which on a column may be filled with fewer: what takes a day elsewhere is shown with what was run."""


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
        Entry(place, _nearest(place, by_task[_essence(place.config.as_dict())], sizes), published_of(table, place))
        for place in table.places()
    ]


def deviations(entry: Entry) -> str:
    """In what the runs of a place differ from what the table asks for; empty if in nothing.

    Examples:
        >>> from dataclasses import replace
        >>> from clipper.benchmarks.tables.total import SUM
        >>> place = next(SUM.places())
        >>> deviations(Entry(place, (Record(replace(place.config, epochs=3), []),)))
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
