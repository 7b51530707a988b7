"""Runs that differ in one thing, the objective, over the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clipper.benchmarks.config import RunConfig, TrainObjective
from clipper.benchmarks.runs import run
from clipper.benchmarks.speed import Progress
from clipper.training import Record

METHODS: tuple[TrainObjective, ...] = ("none", "paper", "exact", "random", "gold")
NAMES = {
    "none": "baseline",
    "paper": "paper",
    "exact": "exact",
    "joint": "joint",
    "random": "random control",
    "gold": "ceiling",
}


@dataclass(frozen=True)
class Comparison:
    """One record for each objective and seed; shares in per cent."""

    records: dict[str, list[Record]]

    def accuracy(self, method: str) -> list[float]:
        """The last epoch's, one for each seed."""
        return [curve[-1] for curve in self.curves(method)]

    def curves(self, method: str) -> list[list[float]]:
        """For each seed the accuracy of each epoch that was measured."""
        runs = self.records[method]
        return [[100 * f.accuracy for f in record.epochs if f.accuracy is not None] for record in runs]

    def retained(self, method: str) -> list[float]:
        """Candidates kept, the mean over the epochs, one for each seed."""
        return [100 * record.retained for record in self.records[method]]

    def gold(self, method: str) -> list[float]:
        """Samples whose gold labels are kept, the mean over the epochs, one for each seed."""
        return [100 * (record.gold or 0.0) for record in self.records[method]]

    def gain(self, method: str, over: str) -> list[float]:
        """How many points one beats another by, seed for seed."""
        return [a - b for a, b in zip(self.accuracy(method), self.accuracy(over), strict=True)]


def compare(
    config: RunConfig, seeds: int, progress: Progress, methods: Sequence[TrainObjective] = METHODS
) -> Comparison:
    """Train with every objective on every seed; a seed means the same samples and first weights for all.

    Examples:
        >>> tiny = RunConfig(samples=10, slots=2, epochs=1)
        >>> comparison = compare(tiny, 2, lambda *_: None, methods=("none", "exact"))
        >>> len(comparison.gain("exact", over="none"))
        2
    """
    records: dict[str, list[Record]] = {method: [] for method in methods}
    for seed in range(seeds):
        for i, method in enumerate(methods):
            records[method].append(run(replace(config, objective=method, seed=seed)))
            progress("training", seed * len(methods) + i + 1, seeds * len(methods))
    return Comparison(records)
