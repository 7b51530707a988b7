"""The report of `clipper demo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clipper.benchmarks.comparison import NAMES, Comparison
from clipper.benchmarks.datasets import digits
from clipper.benchmarks.retention import Retention
from clipper.benchmarks.statistics import spread
from clipper.benchmarks.tasks import Task, draw
from clipper.candidates import Candidates
from clipper.proximity import ProximityGraph
from clipper.pruning import Pruning, prune
from clipper.report.curves import learning_figure
from clipper.report.figures import retention_figure
from clipper.report.inspector import inspect
from clipper.report.page import figure, html_table, paragraphs, write_page
from clipper.report.sample import sample_figure
from clipper.report.verdict import verdict
from clipper.training.config import config_of

COLUMNS = ["objective", "accuracy, %", "candidates kept, %", "gold labels kept, %"]


def comparison_rows(comparison: Comparison) -> list[list[str]]:
    """The table's rows: mean ± deviation over the seeds, of the last epoch's accuracy and of what is kept."""
    return [
        [
            NAMES[method],
            spread(comparison.accuracy(method)),
            "–" if method == "gold" else spread(comparison.retained(method)),
            "–" if method == "gold" else spread(comparison.gold(method)),
        ]
        for method in comparison.records
    ]


def write_demo_report(comparison: Comparison, rows: Sequence[Retention], folder: Path) -> Path:
    """Write `index.html` into the folder and return its path."""
    path = folder / "index.html"
    write_page(
        path,
        "Learning digits from sums",
        "100 samples of three handwritten digits, of which only the sum is known. Nearby images should share a label, "
        "and that rules out some of the label combinations a classifier would otherwise have to believe in.",
        [*_training_sections(comparison), *_pruning_sections(rows)],
    )
    return path


def _training_sections(comparison: Comparison) -> list[tuple[str, str]]:
    config = config_of(comparison.records["none"][0])
    curves = {method: comparison.curves(method) for method in comparison.records}
    setting = (
        f"The paper's settings: {config.optimiser}, learning rate {config.lr:g}, batches of {config.batch}, "
        f"{config.epochs} epochs, semantic loss, one neighbour per image in the classifier's own penultimate layer. "
        "Accuracy is the last epoch's on 599 digits that no run has seen; nothing was chosen by it. "
        "The random control discards as many candidates as exact does, blindly; the ceiling is the same network "
        "trained on the gold labels of the same images."
    )
    by_seed = [[NAMES[method], ", ".join(f"{value:.1f}" for value in comparison.accuracy(method))] for method in curves]
    return [
        ("What it is worth", paragraphs(verdict(comparison)) + html_table(COLUMNS, comparison_rows(comparison))),
        ("How it learns", figure(learning_figure(curves, NAMES), "Mean over the seeds; bands of one deviation.")),
        ("How it was measured", paragraphs([setting]) + html_table(["objective", "accuracy by seed, %"], by_seed)),
    ]


def _pruning_sections(rows: Sequence[Retention]) -> list[tuple[str, str]]:
    return [
        (
            "What the geometry knows before any training",
            figure(
                retention_figure(rows),
                "Raw pixels as the encoder; each dot is one draw of 100 samples. A pruning that knew nothing would lie "
                "on the line: it keeps gold labels as often as any other candidate. The height above it is what the "
                "neighbours told.",
            ),
        ),
        ("One sample", figure(pruned_sample(), "Struck out: contradicts a neighbour. Bold: the gold labels.")),
        ("Every sample", _every_sample()),
    ]


def _pruned() -> tuple[Task, ProximityGraph, Pruning[Candidates]]:
    task = draw(digits(), "sum", samples=100, slots=3, seed=0)
    graph = ProximityGraph.from_embeddings(task.inputs.flatten(2), k=1)
    return task, graph, prune(task.candidates, graph)


def _every_sample() -> str:
    task, graph, pruning = _pruned()
    idea = "The same 100 samples to look into, where pruning goes well and where it loses the gold labels."
    return paragraphs([idea]) + inspect(task.inputs, task.gold, task.targets, graph, pruning)


def pruned_sample() -> str:
    """The sample of the embedded digits that loses the most while its gold labels stay."""
    task, graph, pruning = _pruned()
    size = task.candidates.offsets.diff()
    lost = (size - pruning.candidates.offsets.diff()) / size
    readable = pruning.candidates.contains(task.gold) & (size >= 25) & (size <= 60)
    sample = int((lost * readable).argmax())
    return sample_figure(task, graph, pruning, sample)
