"""The report of `clipper demo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clipper.benchmarks.datasets import digits
from clipper.benchmarks.retention import Retention
from clipper.benchmarks.tasks import draw
from clipper.proximity import ProximityGraph
from clipper.pruning import prune
from clipper.report.figures import retention_figure
from clipper.report.numbers import spread
from clipper.report.page import figure, html_table, write_page
from clipper.report.sample import sample_figure


def write_demo_report(rows: Sequence[Retention], folder: Path) -> Path:
    """Write `index.html` into the folder and return its path."""
    table = html_table(
        ["objective", "candidates kept, %", "gold labels kept, %"],
        [[row.method, spread(row.retained), spread(row.gold)] for row in rows],
    )
    sections = [
        ("What stays", table),
        (
            "What the geometry is worth",
            figure(
                retention_figure(rows),
                "Each dot is one draw of 100 samples. A pruning that knew nothing would lie on the line: it keeps "
                "gold labels as often as any other candidate. The height above it is what the neighbours told.",
            ),
        ),
        ("One sample", figure(pruned_sample(), "Struck out: contradicts a neighbour. Bold: the gold labels.")),
    ]
    path = folder / "index.html"
    write_page(
        path,
        "Pruning SUM-3",
        "100 samples of three handwritten digits, of which only the sum is known. Nearby images should share a label.",
        sections,
    )
    return path


def pruned_sample() -> str:
    """The sample of the embedded digits that loses the most while its gold labels stay."""
    task = draw(digits(), "sum", samples=100, slots=3, seed=0)
    graph = ProximityGraph.from_embeddings(task.inputs.flatten(2), k=1)
    pruning = prune(task.candidates, graph)
    lost = (task.candidates.counts - pruning.candidates.counts) / task.candidates.counts
    size = task.candidates.counts
    readable = pruning.candidates.contains(task.gold) & (size >= 25) & (size <= 60)
    sample = int((lost * readable).argmax())
    return sample_figure(task, graph, pruning, sample)
