"""A page for one training run: its result, curves and configuration, and what its pruning discarded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clipper.benchmarks.statistics import percent
from clipper.benchmarks.tables.summary import COUNTS, SCORES
from clipper.report.figures import accuracy_figure, kept_over_epochs, loss_figure
from clipper.report.inspector import inspector_view, plural
from clipper.report.page import write_page
from clipper.training import Record
from clipper.training.inspection import Inspection


def write_run_page(record: Record, path: str | Path, inspection: Inspection | None = None) -> None:
    """Write the page of a run; it opens from disk and needs no network.

    Args:
        record: the record of the run.
        path: the file to write; an older page is replaced.
        inspection: of the run's pruning; without one the page has no inspector.

    Raises:
        FileError: if the page cannot be written.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from clipper.training import EpochMetrics
        >>> record = Record({"seed": 0}, [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)])
        >>> with TemporaryDirectory() as folder:
        ...     write_run_page(record, Path(folder) / "run.html")
        ...     "75.0 %" in (Path(folder) / "run.html").read_text(encoding="utf-8")
        True
    """
    config = record.config
    measured = any(metrics.accuracy is not None for metrics in record.epochs)
    pruned = any(metrics.retained < 1 for metrics in record.epochs)
    write_page(
        path,
        "run.html",
        title=_title(config),
        lead=_lead(record, inspection),
        last=last_rows(record),
        accuracy=accuracy_figure({config.get("objective", "accuracy"): [record]}) if measured else None,
        loss=loss_figure(record),
        kept=kept_over_epochs(record) if pruned else None,
        view=inspector_view(inspection) if inspection else None,
        settings=settings({**config, **record.settings}),
        versions=settings({"commit": record.commit, **record.versions, "load": record.load}),
    )


def last_rows(record: Record) -> list[list[str]]:
    """The last epoch's numbers in words.

    Examples:
        >>> from clipper.training import EpochMetrics
        >>> last_rows(Record({}, [EpochMetrics(1, 2.5, 0.75, 0.8, None, 1.0, 0.02)]))[0]
        ['accuracy on the held-out set', '75.0 %']
        >>> last_rows(Record({}, [EpochMetrics(1, 2.5, 0.75, 0.8, None, 1.0, 0.02, {"shortcuts": 35.0})]))[1]
        ['shortcuts', '35']
    """
    last = record.last
    return [
        ["accuracy on the held-out set", percent(last.accuracy)],
        *(
            [SCORES.get(name, name), f"{score:,.0f}" if name in COUNTS else percent(score)]
            for name, score in last.scores.items()
        ),
        ["loss", f"{last.loss:.4f}"],
        ["candidates kept", percent(last.retained)],
        ["gold labels kept", percent(last.gold)],
        ["seconds per epoch", f"{last.seconds:.3f}"],
        ["of which pruning", percent(last.pruning_share)],
    ]


def settings(values: Mapping[str, Any]) -> list[list[str]]:
    """Names and values as the rows of a table."""
    return [[name.replace("_", " "), _plain(value)] for name, value in values.items()]


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {entry}" for name, entry in value.items()) or "–"
    return str(value)


def _title(config: Mapping[str, Any]) -> str:
    """The title: the configuration of a benchmark's run; a general one for a user's own run."""
    if not {"rule", "slots", "data", "engine", "objective"} <= config.keys():
        return "A training run"
    rule = str(config["rule"]).rpartition(":")[2].upper()
    return f"{rule}-{config['slots']} on {config['data']}: {config['engine']}, {config['objective']}"


def _lead(record: Record, inspection: Inspection | None) -> str:
    parts = [f"{len(record.epochs)} epochs"]
    if inspection is not None:
        lengths = {len(sample["tiles"]) for sample in inspection.samples}
        upto = "" if len(lengths) == 1 else "up to "
        parts.insert(0, f"{inspection.of:,} samples of {upto}{max(lengths, default=0)} {plural(inspection.slot)}")
    elif "samples" in record.config:
        parts.insert(0, f"{record.config['samples']:,} samples")
    if "seed" in record.config:
        parts.append(f"seed {record.config['seed']}")
    return "; ".join(parts) + "."
