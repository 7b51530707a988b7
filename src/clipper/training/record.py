"""Record: one JSON document a run, with all that someone needs to repeat it and to compare it."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from clipper.benchmarks.config import RunConfig
from clipper.errors import FileError, InputError
from clipper.files import checked_path, written_whole
from clipper.training.metrics import Figures

FORMAT = "clipper run 1"
_LATER = {"names", "passes", "version"}
"""Fields of a configuration that the first records do not have."""


def versions() -> dict[str, Any]:
    """What a result may depend on besides its configuration."""
    packages = {name: _version(name) for name in ("clipper-nesy", "torch", "numpy")}
    return {**packages, "python": platform.python_version(), "threads": torch.get_num_threads()}


@dataclass(frozen=True)
class Record:
    """A finished run.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> record = Record(RunConfig(), [Figures(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])
        >>> with TemporaryDirectory() as folder:
        ...     record.write(Path(folder) / "run.json")
        ...     Record.read(Path(folder) / "run.json") == record
        True
    """

    config: RunConfig
    epochs: list[Figures]
    versions: Mapping[str, Any] = field(default_factory=versions)

    @property
    def last(self) -> Figures:
        """The last epoch's figures: the ones to report, never the best epoch's."""
        return self.epochs[-1]

    @property
    def retained(self) -> float:
        """The share of the candidates that pruning kept, the mean over the epochs."""
        return statistics.mean(figures.retained for figures in self.epochs)

    @property
    def gold(self) -> float | None:
        """The share of the samples whose gold labels were kept, the mean over the epochs, where gold is known."""
        known = [figures.gold for figures in self.epochs if figures.gold is not None]
        return statistics.mean(known) if known else None

    @property
    def pruning_seconds(self) -> float:
        """Time of neighbour search and pruning, the mean over the epochs."""
        return statistics.mean(figures.pruning_seconds for figures in self.epochs)

    @property
    def pruning_share(self) -> float:
        """The same as a share of the time of all steps."""
        seconds = statistics.mean(figures.seconds for figures in self.epochs)
        return self.pruning_seconds / seconds if seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """As it is written."""
        return {
            "format": FORMAT,
            "config": self.config.as_dict(),
            "seed": self.config.seed,
            "versions": dict(self.versions),
            "last": self.last.as_dict(),
            "epochs": [figures.as_dict() for figures in self.epochs],
        }

    def write(self, path: str | Path) -> None:
        """Write the record, whole or not at all; an older record of the same run is replaced."""
        check_record(path, self.config)
        with written_whole(path, replace=True) as temporary:
            temporary.write_text(json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Read what `write` wrote."""
        document = _read(checked_path(path))
        try:
            epochs = [Figures.from_dict(values) for values in document["epochs"]]
            return from_parts(document["config"], epochs, document["versions"])
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is a damaged record ({error!r}); run it again") from error


def check_record(path: str | Path, config: RunConfig) -> None:
    """Refuse to write over anything but an earlier record of the same run."""
    place = checked_path(path)
    try:
        there = place.exists()
    except OSError as error:
        raise FileError(f"cannot write {place} ({error}); choose another name") from error
    if there and _read(place).get("config") != config.as_dict():
        raise FileError(f"{path} holds the record of another run; choose another name or remove it first")


def from_parts(config: Any, epochs: list[Figures], versions: Any) -> Record:
    """A record from what was read, if it is one: some epochs in their order."""
    if not isinstance(versions, dict):
        raise InputError(f"expected versions by name, got {versions!r}")
    if not epochs or [figures.epoch for figures in epochs] != list(range(1, len(epochs) + 1)):
        raise InputError("expected the figures of every epoch in their order, from the first on")
    made = RunConfig.from_dict(config)
    missing = sorted(set(made.as_dict()) - set(config) - _LATER)
    if missing:
        raise InputError(f"expected every field of a configuration, got none for {', '.join(missing)}")
    return Record(made, epochs, versions)


def parsed(text: bytes) -> Any:
    """JSON as it should be: no name twice, no NaN, nothing nested without end.

    Raises:
        ValueError: if it is anything else.
    """
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"a name comes twice among {[name for name, _ in pairs]}")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = parsed(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read as a record ({error}); choose another name or remove it first"
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileError(f"{path} is no record of a Clipper run; choose another file")
    return document


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
