"""A page for one training run: how it ended, its curves, its configuration, and what its pruning struck out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clipper.benchmarks.data.catalogue import SOURCES
from clipper.benchmarks.data.hwf import SYMBOLS
from clipper.benchmarks.data.sources import find, not_found
from clipper.benchmarks.datasets import Images, train_and_test
from clipper.benchmarks.mugen.actions import ACTIONS
from clipper.benchmarks.mugen.problem import learned_and_held_out
from clipper.benchmarks.parts import holds_lattice
from clipper.benchmarks.tables.summary import SCORES
from clipper.benchmarks.tasks import Task, draw
from clipper.pruning import Calibration
from clipper.report.clips import inspect_clips
from clipper.report.curves import accuracy_figure, kept_over_epochs, loss_figure
from clipper.report.inspector import MOST_CANDIDATES, inspect
from clipper.report.nearness import nearness
from clipper.report.page import figure, html_table, paragraphs, write_page
from clipper.report.reliability import reliability
from clipper.report.replay import glimpse, replay
from clipper.report.scenes import scene_inspector
from clipper.training import Record, TrainConfig
from clipper.training.config import config_of

_PHOTOGRAPHS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NAMES: dict[str, list[str]] = {
    "hwf": list(SYMBOLS.replace("*", "×").replace("-", "−").replace("/", "÷")),
    "cifar10": [f"{label} {name}" for label, name in enumerate(_PHOTOGRAPHS)],  # it is the numbers that are summed
}
"""The labels of the data sets whose labels are not their own names."""
_SHOWN_CLIPS = 16
SLOTS = {"align": "frames", "vqar": "objects and pairs"}
"""What a slot holds, where it is no image."""
_IDEA = (
    "Images that lie close should share a label. So each edge to a neighbour contradicts the candidates whose label "
    "that neighbour could not have; the chosen edges strike them out."
)


def write_run_page(
    record: Record,
    path: Path,
    *,
    data_root: str | Path | None = None,
    embeddings: Tensor | None = None,
    checkpoint: Path | None = None,
    samples: int = 100,
) -> None:
    """Write the page of a run; it opens from disk, without a network.

    Args:
        record: the run's.
        path: where to; an older page is replaced.
        data_root: the folder with the data sets, if not in the usual places.
        embeddings: what the inspector judges nearness by, `(n, m, d)`; the run's own encoder if not given.
        checkpoint: the run's, where its encoder was trained: a record holds no weights. Without it, the raw pixels
            stand in, and the page says so.
        samples: how many the inspector shows.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from clipper.benchmarks.runs import run
        >>> record = run(TrainConfig(samples=10, slots=2, epochs=1))
        >>> with TemporaryDirectory() as folder:
        ...     write_run_page(record, Path(folder) / "run.html")
        ...     "inspector" in (Path(folder) / "run.html").read_text(encoding="utf-8")
        True
    """
    config = config_of(record)
    curves = [("How it learned", _curves(record))]
    if config.objective not in ("none", "gold"):
        caption = "Of the candidates, and of the samples whose gold labels are still a candidate. The gap between the "
        kept = figure(kept_over_epochs(record), caption + "two is what the neighbours told.")
        curves.append(("What pruning kept", kept))
    seen = sections_of(config, data_root=data_root, embeddings=embeddings, checkpoint=checkpoint, samples=samples)
    write_page(
        path,
        f"{config.rule.upper()}-{config.slots} on {_data(config)}: {config.engine}, {config.objective}",
        f"{config.samples:,} samples of {'up to ' if config.rule == 'align' else ''}{config.slots} "
        f"{SLOTS.get(config.rule, 'images')}; {len(record.epochs)} epochs, seed {config.seed}.",
        [
            ("How it ended", html_table(["", "last epoch"], last_rows(record))),
            *curves,
            *seen.items(),
            ("Configuration", html_table(["setting", "value"], settings(config.as_dict()))),
            ("Versions", html_table(["", "version"], settings(record.versions))),
        ],
    )


def _data(config: TrainConfig) -> str:
    return "generated scenes" if config.data == "scenes" else config.data


def last_rows(record: Record) -> list[list[str]]:
    """The last epoch's figures in words.

    Examples:
        >>> from clipper.training import EpochMetrics
        >>> last_rows(Record(TrainConfig(), [EpochMetrics(1, 2.5, 0.75, 0.8, None, 1.0, 0.02)]))[0]
        ['accuracy on the held-out set', '75.0 %']
    """
    last = record.last
    return [
        ["accuracy on the held-out set", percent(last.accuracy)],
        *([SCORES.get(name, name), percent(score)] for name, score in last.scores.items()),
        ["loss", f"{last.loss:.4f}"],
        ["candidates kept", percent(last.retained)],
        ["gold labels kept", percent(last.gold)],
        ["seconds per epoch", f"{last.seconds:.3f}"],
        ["of which pruning", percent(last.pruning_share)],
    ]


def percent(share: float | None) -> str:
    """A share as people write it; a dash where there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def _curves(record: Record) -> str:
    measured = any(figures.accuracy is not None for figures in record.epochs)
    accuracy = "On images that the run never learned from; nothing was chosen by it."
    shown = figure(accuracy_figure({record.config["objective"]: [record]}), accuracy) if measured else ""
    return shown + figure(loss_figure(record), "Mean over the samples.")


def sections_of(
    config: TrainConfig,
    *,
    data_root: str | Path | None = None,
    embeddings: Tensor | None = None,
    checkpoint: Path | None = None,
    samples: int = 100,
) -> dict[str, str]:
    """A run's pruning to look at, by headline: the inspector first; the arguments are those of the page."""
    if config.data in SOURCES and find(SOURCES[config.data], data_root) is None:
        raise not_found(SOURCES[config.data], data_root)  # a page shows what is here and fetches nothing
    if config.rule == "vqar":
        return _sections(*scene_inspector(config, data_root, samples))
    if config.rule == "align":
        return _clips(config, data_root, embeddings, checkpoint)
    images, _ = train_and_test(config.data, data_root)
    task, notes = _listed(config, images)
    if embeddings is None:
        task, left_out = glimpse(config, task, samples)
        notes += left_out
    vectors, source = nearness(config, task, embeddings, checkpoint)
    seen = replay(config, task, vectors)
    names = NAMES[config.data][: task.candidates.classes] if config.data in NAMES else None
    shown = inspect(task.inputs, task.gold, task.targets, seen.graph, seen.pruning, names=names, samples=samples)
    return _sections(paragraphs([_IDEA, " ".join([source, *seen.notes, *notes])]) + shown, seen.calibration)


def _clips(
    config: TrainConfig, data_root: str | Path | None, embeddings: Tensor | None, checkpoint: Path | None
) -> dict[str, str]:
    """As `sections_of`, for a run that aligned clips with texts."""
    task, _ = learned_and_held_out(config.data, config.samples, config.slots, config.seed, data_root)
    notes: list[str] = []
    if embeddings is None:
        task, notes = glimpse(config, task, _SHOWN_CLIPS)
    vectors, source = nearness(config, task, embeddings, checkpoint)
    seen = replay(config, task, vectors)
    shown = inspect_clips(task.inputs, task.gold, seen.graph, seen.pruning, names=ACTIONS, clips=_SHOWN_CLIPS)
    idea = _IDEA.replace("Images", "Frames")
    return _sections(paragraphs([idea, " ".join([source, *seen.notes, *notes])]) + shown, seen.calibration)


def _sections(inspector: str, calibration: Calibration | None) -> dict[str, str]:
    sections = {"What struck out what": inspector}
    if calibration is not None:
        sections["How sure it was, and how right"] = reliability(calibration)
    return sections


def _listed(config: TrainConfig, images: Images) -> tuple[Task, list[str]]:
    """A run's samples, with no more candidates than can be shown where it learned from a lattice of them."""
    notes, per_sample = [], config.per_sample
    if holds_lattice(config, images.classes):
        per_sample = MOST_CANDIDATES
        notes = [f"The run learned from all candidates; {per_sample} of each sample, drawn at random, stand for them."]
    return draw(images, config.rule, config.samples, config.slots, config.seed, per_sample=per_sample or None), notes


def settings(values: Mapping[str, Any]) -> list[list[str]]:
    """Names and values as the rows of a table."""
    return [[name.replace("_", " "), _plain(value)] for name, value in values.items()]


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {entry}" for name, entry in value.items()) or "–"
    return str(value)
