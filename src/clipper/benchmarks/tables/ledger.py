"""Ledger: the finished runs of all tables in one file, a line each; what is in it is never run again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clipper.errors import FileError, InputError
from clipper.files import append
from clipper.training import Figures, Record, TrainConfig

FORMAT = "clipper ledger 1"
DIGITS = 6
"""Significant digits of the figures in the file."""


class Ledger:
    """The runs that are finished, by their configuration.

    A process killed at any moment loses at most the run it was in: a line that was cut off is passed over. Several
    processes may write to one ledger.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> record = Record(TrainConfig(seed=3), [Figures(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])
        >>> with TemporaryDirectory() as folder:
        ...     Ledger(Path(folder) / "runs.jsonl").add(record)
        ...     again = Ledger(Path(folder) / "runs.jsonl")
        ...     again.find(TrainConfig(seed=3)) == record, again.find(TrainConfig(seed=4))
        (True, None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        records = _read(self.path) if self.path.exists() else ()
        self._records = {_key(record.config): record for record in records}

    def find(self, config: TrainConfig) -> Record | None:
        """The record of a run, if it is finished."""
        return self._records.get(_key(config))

    def records(self) -> Iterator[Record]:
        """All finished runs."""
        yield from self._records.values()

    def add(self, record: Record) -> None:
        """Note a finished run, on disk before this returns."""
        line = json.dumps(_as_columns(record), ensure_ascii=False, allow_nan=False).encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append(self.path, line)
        self._records[_key(record.config)] = record

    def __len__(self) -> int:
        return len(self._records)


def _read(path: Path) -> Iterator[Record]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FileError(f"cannot read the records in {path} ({error})") from error
    for number, line in enumerate(lines, start=1):
        if line.startswith(b"{") and line.endswith(b"}"):  # others were cut off while they were written
            yield _record(line, f"line {number} of {path}")


def _key(config: TrainConfig) -> str:
    return json.dumps(config.as_dict(), sort_keys=True)


def _as_columns(record: Record) -> dict[str, Any]:
    """A record with its epochs as one list a figure: a tenth of the size."""
    epochs = [figures.as_dict() for figures in record.epochs]
    names = [name for name in epochs[0] if name != "pruning_share" and any(epoch[name] != {} for epoch in epochs)]
    columns = {name: [_short(epoch[name]) for epoch in epochs] for name in names}
    return {
        "format": FORMAT,
        "config": record.config.as_dict(),
        "versions": dict(record.versions),
        "epochs": columns,
    }


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(number) for name, number in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _record(line: bytes, where: str) -> Record:
    try:
        document: Mapping[str, Any] = json.loads(line)
        if document["format"] != FORMAT:
            raise KeyError(document["format"])
        columns = document["epochs"]
        rows = zip(*columns.values(), strict=True)
        epochs = [Figures.from_dict(dict(zip(columns, row, strict=True))) for row in rows]
        return Record(TrainConfig.from_dict(document["config"]), epochs, document["versions"])
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise FileError(f"{where} is no record of a run ({error!r}); remove the line to run it again") from error
