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

from clipper.errors import FileError
from clipper.files import written_whole
from clipper.training.config import TrainConfig
from clipper.training.metrics import Figures

FORMAT = "clipper run 1"


def versions() -> dict[str, Any]:
    """What a result may depend on besides its configuration."""
    packages = {name: _version(name) for name in ("clipper-nesy", "torch", "numpy")}
    return {**packages, "python": platform.python_version(), "threads": torch.get_num_threads()}


@dataclass(frozen=True)
class Record:
    """A finished run.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> record = Record(TrainConfig(), [Figures(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])
        >>> with TemporaryDirectory() as folder:
        ...     record.write(Path(folder) / "run.json")
        ...     Record.read(Path(folder) / "run.json") == record
        True
    """

    config: TrainConfig
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
        document = _read(Path(path))
        try:
            epochs = [Figures.from_dict(values) for values in document["epochs"]]
            return cls(TrainConfig.from_dict(document["config"]), epochs, document["versions"])
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is a damaged record ({error!r}); run it again") from error


def check_record(path: str | Path, config: TrainConfig) -> None:
    """Refuse to write over anything but an earlier record of the same run."""
    if Path(path).exists() and _read(Path(path)).get("config") != config.as_dict():
        raise FileError(f"{path} holds the record of another run; choose another name or remove it first")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as a record ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileError(f"{path} is no record of a Clipper run; choose another file")
    return document


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
