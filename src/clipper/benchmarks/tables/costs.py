"""Estimates how long runs will take, from finished runs that are similar."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from clipper.benchmarks.config import AUTO, RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.errors import InputError
from clipper.training import Record

_SIMILAR_BY = (
    ("rule", "slots", "data", "network", "engine", "engine_options", "objective", "encoder", "batch", "per_sample"),
    ("rule", "slots", "data", "network", "engine", "objective", "per_sample"),
    ("rule", "slots", "data", "network", "engine", "per_sample"),
    ("data", "network", "engine", "per_sample"),
    ("rule", "slots", "data", "network", "per_sample"),
    ("data", "network"),
    ("data",),
)
"""Groups of fields. Runs that agree in a group take about as long per image and epoch; the closest match first."""


class Costs:
    """Estimates from finished runs: the median time per image and epoch of the most similar ones.

    Args:
        records: the finished runs.

    Examples:
        >>> from clipper.training import EpochMetrics
        >>> epochs = [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 36.0, 0.02)]
        >>> costs = Costs([Record(RunConfig(epochs=1), epochs)])
        >>> costs.hours(RunConfig(epochs=50), 2), costs.hours(RunConfig(rule="hwf"), 2)
        (1.0, None)
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._found: dict[str, list[float]] = defaultdict(list)
        for record in records:
            seconds = statistics.mean(metrics.seconds for metrics in record.epochs)
            for names in _SIMILAR_BY:
                self._found[_group_key(record.config, names)].append(seconds / _images(record.config))

    def hours(self, config: RunConfig, runs: int) -> float | None:
        """The estimated core-hours of `runs` runs; None if no similar run is finished."""
        values = config.as_dict()
        for names in _SIMILAR_BY:
            if found := self._found.get(_group_key(values, names)):
                epochs = (
                    config.epochs + config.restarts * config.trial if config.trial else config.epochs * config.restarts
                )
                return runs * statistics.median(found) * _images(values) * epochs / 3600
        return 0.0 if not runs else None


def _images(config: Mapping[str, Any]) -> int:
    return int(config["samples"]) * int(config["slots"])


def _group_key(config: Mapping[str, Any], names: Iterable[str]) -> str:
    return repr([_network(config) if name == "network" else config[name] for name in names])


def _network(config: Mapping[str, Any]) -> str:
    """The network that is trained: the one asked for, or the first that fits the data if none was asked for."""
    try:
        fitting = benchmark_named(config["rule"]).data.get(config["data"], ())
    except InputError:  # a user's own benchmark that is not on this machine
        fitting = ()
    return fitting[0] if config["network"] == AUTO and fitting else str(config["network"])
