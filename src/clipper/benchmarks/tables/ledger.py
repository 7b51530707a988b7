"""Ledger: a file with one line for each finished run of any table. A recorded run is repeated only if asked for.

A run is identified by its effective settings (`clipper.benchmarks.settings`). If it is run again, the new record
counts, and the earlier one stays in the file. Each line ends with a checksum. Lines of the first format have no
checksum; lines of the first two formats hold neither settings nor the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clipper.benchmarks.config import RunConfig, config_of
from clipper.benchmarks.settings import run_key
from clipper.errors import FileError, InputError
from clipper.files import append, checked_path, make_folder, parsed_json
from clipper.training import EpochMetrics, Record
from clipper.training.record import noted

FORMAT = "clipper ledger 3"
RECORDS = "records.jsonl"
"""The name of a folder's ledger: the finished runs of all its tables."""
UNCHECKED = "clipper ledger 1"
"""The format of lines without a checksum."""
_CORE = {"format", "config", "versions", "epochs"}
"""What every line has."""
_PARTS = {"clipper ledger 2": _CORE, FORMAT: _CORE | {"settings", "commit", "load"}}
"""The parts of a line by its format; lines of the newest format may also have a probe."""
DIGITS = 6
"""Significant digits of the figures in the file."""
_MARK, _END = b', "checksum": "', b'"}'
"""The text before and after the checksum at the end of a line."""


class Ledger:
    """The finished runs, by their effective settings.

    If a process is killed, only its current run is lost: an incomplete line is skipped and counted in `cut_off`.
    Several processes may write to one ledger; `refresh` reads what others have added.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> record = Record(RunConfig(seed=3), [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])
        >>> with TemporaryDirectory() as folder:
        ...     Ledger(Path(folder) / "runs.jsonl").add(record)
        ...     again = Ledger(Path(folder) / "runs.jsonl")
        ...     again.find(RunConfig(seed=3)) == record, again.find(RunConfig(seed=4))
        (True, None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        self.cut_off = 0
        """How many incomplete lines were skipped."""
        self._records: dict[str, list[Record]] = {}
        self._bytes, self._lines, self._cut_off = 0, 0, 0  # read so far, without the last line, which may still grow
        self.refresh()

    def refresh(self) -> None:
        """Read the lines that were added since the last call."""
        lines = self._unread().split(b"\n")
        whole = [(number, line) for number, line in enumerate(lines, self._lines + 1) if not _is_cut_off(line)]
        found = [_record(line, f"line {number} of {self.path}") for number, line in whole if line.strip()]
        for record in found:
            self._records.setdefault(run_key(record.config), []).append(record)
        self.cut_off = self._cut_off + len(lines) - len(whole)
        self._cut_off = self.cut_off - _is_cut_off(lines[-1])  # the last line may be completed later
        self._lines += len(lines) - 1
        self._bytes += sum(len(line) + 1 for line in lines[:-1])

    def _unread(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._bytes)
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise FileError(f"cannot read the records in {self.path} ({error}); choose another folder") from error

    def find(self, config: RunConfig | Mapping[str, Any]) -> Record | None:
        """The newest record of a run; None if it is not finished."""
        return next(reversed(self.history(config)), None)

    def history(self, config: RunConfig | Mapping[str, Any]) -> list[Record]:
        """All records of a run, the newest last; only the newest counts."""
        return list(self._records.get(run_key(config), ()))

    def records(self) -> Iterator[Record]:
        """All finished runs, the newest record of each."""
        yield from (found[-1] for found in self._records.values())

    def add(self, record: Record) -> None:
        """Append the record of a finished run to the file."""
        try:
            line = json.dumps(_as_columns(record), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, UnicodeError) as error:
            raise InputError(f"expected a record of finite numbers and text, got another ({error})") from error
        make_folder(self.path.parent)
        append(self.path, line[:-1] + _MARK + _checksum(line) + _END)
        self.refresh()

    def __len__(self) -> int:
        return len(self._records)


def _is_cut_off(line: bytes) -> bool:
    """Whether a line is the beginning of a record, written by a process that was killed."""
    start = f'{{"format": "{FORMAT[:-1]}'.encode()
    _, mark, checksum = line.rpartition(_MARK)
    whole = line.endswith(b"}") or (mark and len(checksum) >= len(_checksum(b"") + _END))
    return bool(line) and not whole and line[: len(start)] == start[: len(line)]


def _as_columns(record: Record) -> dict[str, Any]:
    """A record for JSON, with one list per metric instead of one mapping per epoch: a tenth of the size."""
    epochs = [figures.as_dict() for figures in record.epochs]
    names = [name for name in epochs[0] if name != "pruning_share" and any(epoch[name] != {} for epoch in epochs)]
    columns = {name: [_short(epoch[name]) for epoch in epochs] for name in names}
    return {
        "format": FORMAT,
        "config": dict(record.config),
        "settings": dict(record.settings),
        "commit": record.commit,
        "versions": dict(record.versions),
        "load": dict(record.load),
        "probe": dict(record.probe),
        "epochs": columns,
    }


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(number) for name, number in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _checksum(line: bytes) -> bytes:
    return blake2b(line, digest_size=8).hexdigest().encode()


def _record(line: bytes, where: str) -> Record:
    try:
        document = parsed_json(_body(line))
        if not isinstance(document, dict) or not set(document) >= _CORE:
            raise ValueError(f"it does not have the parts {', '.join(sorted(_CORE))}")
        parts = _PARTS.get(document["format"]) if _MARK in line else {UNCHECKED: _CORE}.get(document["format"])
        if set(document) - ({"probe"} if document["format"] == FORMAT else set()) != parts:
            raise ValueError(f"its format is {document['format']!r}, and its parts are {', '.join(sorted(document))}")
        columns = document["epochs"]
        if not isinstance(columns, dict) or not all(isinstance(column, list) for column in columns.values()):
            raise ValueError("its epochs are not one list per metric")
        rows = zip(*columns.values(), strict=True)
        epochs = [EpochMetrics.from_dict(dict(zip(columns, row, strict=True))) for row in rows]
        record = Record(document["config"], epochs, document["versions"], **noted(document))
        return replace(record, config=config_of(record).as_dict())
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise FileError(
            f"{where} is no record of a run, or a damaged one ({error}); remove the line, then the run can be repeated"
        ) from error


def _body(line: bytes) -> bytes:
    """A line without its checksum, which is verified first, if there is one."""
    if _MARK not in line:
        return line
    body, _, rest = line.rpartition(_MARK)
    if rest != _checksum(body + b"}") + _END:
        raise ValueError("it does not match the checksum at its end")
    return body + b"}"
