"""Measurements of `clipper bench` that pages show: a line of JSON for each, with the commit and the machine's load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clipper.files import Row, add_row, rows_in
from clipper.training.environment import environment

FORMAT = "clipper bench 1"
FILE = "bench.jsonl"
"""The name of the file in the folder of results."""


def add_measurement(file: Path, bench: str, settings: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    """Add a measurement to a file, which is created if needed.

    Args:
        file: the file.
        bench: the name of the command, such as "train".
        settings: what was measured. A later measurement with the same settings replaces this one.
        figures: what was found.
    """
    row = {"format": FORMAT, "bench": bench, "settings": settings, "figures": figures, **environment()}
    add_row(file, row)


def measurements(file: str | Path, bench: str) -> list[Row]:
    """The newest measurement for all settings of a command, in the order in which they were first measured.

    Returns:
        Dictionaries with `settings`, `figures`, `commit`, `versions` and `load`.

    Raises:
        FileError: the file holds anything else.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / FILE
        ...     add_measurement(file, "train", {"batch": 64}, {"seconds": 2.0})
        ...     add_measurement(file, "train", {"batch": 64}, {"seconds": 1.0})
        ...     [(row["settings"], row["figures"]) for row in measurements(file, "train")]
        [({'batch': 64}, {'seconds': 1.0})]
    """
    found = [row for row in rows_in(file, FORMAT, "measurement") if row["bench"] == bench]
    return list({json.dumps(row["settings"], sort_keys=True): row for row in found}.values())
