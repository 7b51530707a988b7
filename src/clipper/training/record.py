"""Record: a JSON document about a run, with everything that is needed to repeat and compare it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clipper.errors import FileError, InputError
from clipper.files import checked_path, parsed_json, written_whole
from clipper.training.environment import UNKNOWN, commit, load, versions
from clipper.training.metrics import EpochMetrics

FORMAT = "clipper run 1"


@dataclass(frozen=True)
class Record:
    """A finished run.

    Attributes:
        config: the options that determine the result, by name: text, finite numbers, and lists and mappings of such. An
            object with `as_dict()` is stored as that mapping.
        epochs: the metrics of every epoch.
        versions: of Python and the packages that a result may depend on.
        settings: the options that the run actually used, where the configuration leaves them open.
        commit: of Clipper's code, with "-dirty" if files were changed; "unknown" outside a checkout.
        load: the load of the machine when the run ended, from `clipper.training.environment.load`; with `before` if it
            was also measured before the run.
        probe: digests of the parts of the method that the run used, by their names (`clipper.benchmarks.probe`).

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> record = Record({"seed": 0}, [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])
        >>> with TemporaryDirectory() as folder:
        ...     record.write(Path(folder) / "run.json")
        ...     Record.read(Path(folder) / "run.json") == record
        True
    """

    config: Mapping[str, Any]
    epochs: list[EpochMetrics]
    versions: Mapping[str, Any] = field(default_factory=versions)
    settings: Mapping[str, Any] = field(default_factory=dict)
    commit: str = field(default_factory=commit)
    load: Mapping[str, float] = field(default_factory=load)
    probe: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", _as_mapping(self.config))
        for name in ("versions", "settings", "load", "probe"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(f"expected {name} by name, got {getattr(self, name)!r:.200}")
        if not isinstance(self.commit, str):
            raise InputError(f"expected the commit as text, got {self.commit!r:.200}")
        if not self.epochs or [metrics.epoch for metrics in self.epochs] != list(range(1, len(self.epochs) + 1)):
            raise InputError("expected the metrics of every epoch in their order, from the first on")

    @property
    def last(self) -> EpochMetrics:
        """The metrics of the last epoch: report these, not those of the best epoch."""
        return self.epochs[-1]

    @property
    def retained(self) -> float:
        """The share of the candidates that pruning kept, the mean over the epochs."""
        return statistics.mean(metrics.retained for metrics in self.epochs)

    @property
    def gold(self) -> float | None:
        """The share of the samples whose gold labels were kept, the mean over the epochs, where gold is known."""
        known = [metrics.gold for metrics in self.epochs if metrics.gold is not None]
        return statistics.mean(known) if known else None

    @property
    def pruning_seconds(self) -> float:
        """Time of neighbour search and pruning, the mean over the epochs."""
        return statistics.mean(metrics.pruning_seconds for metrics in self.epochs)

    @property
    def pruning_share(self) -> float:
        """The time of neighbour search and pruning as a share of the time of all steps."""
        seconds = statistics.mean(metrics.seconds for metrics in self.epochs)
        return self.pruning_seconds / seconds if seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The record as a dictionary, for JSON."""
        return {
            "format": FORMAT,
            "config": dict(self.config),
            "seed": self.config.get("seed"),
            "settings": dict(self.settings),
            "commit": self.commit,
            "versions": dict(self.versions),
            "load": dict(self.load),
            "probe": dict(self.probe),
            "last": self.last.as_dict(),
            "epochs": [metrics.as_dict() for metrics in self.epochs],
        }

    def write(self, path: str | Path) -> None:
        """Write the record to a file. An older record of the same run is replaced. A failed write changes nothing.

        Args:
            path: the file.

        Raises:
            FileError: the file cannot be written, or contains another run.
            InputError: the configuration contains values that JSON cannot represent.
        """
        check_record(path, self.config)
        try:
            text = json.dumps(self.as_dict(), indent=2, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"expected a record of finite numbers and text, got another ({error})") from error
        with written_whole(path, replace=True) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Read a file that `write` wrote.

        Args:
            path: the file.

        Raises:
            FileError: if the file is not a record, or is damaged.
        """
        document = _read(checked_path(path))
        try:
            epochs = [EpochMetrics.from_dict(values) for values in document["epochs"]]
            return cls(document["config"], epochs, document["versions"], **noted(document))
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is a damaged record ({error!r}); run it again") from error


def noted(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a written record besides its versions; the first records do not have them."""
    return {
        "settings": document.get("settings", {}),
        "commit": document.get("commit", UNKNOWN),
        "load": document.get("load", {}),
        "probe": document.get("probe", {}),
    }


def check_record(path: str | Path, config: Any) -> None:
    """Check that a file does not exist, or contains an earlier record of the same run.

    Raises:
        FileError: it contains anything else.
    """
    place = checked_path(path)
    try:
        there = place.exists()
    except OSError as error:
        raise FileError(f"cannot write {place} ({error}); choose another name") from error
    if there and _read(place).get("config") != _as_mapping(config):
        raise FileError(f"{path} holds the record of another run; choose another name or remove it first")


def _as_mapping(config: Any) -> dict[str, Any]:
    values = config.as_dict() if hasattr(config, "as_dict") else config
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise InputError(f"expected a configuration by name, got {values!r:.200}")
    return dict(values)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = parsed_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read as a record ({error}); choose another name or remove it first"
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileError(f"{path} is not a record of a Clipper run; choose another file")
    return document
