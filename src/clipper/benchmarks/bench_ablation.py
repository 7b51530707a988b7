"""The ablation of joint inference: lines of the zoo, with one constant or one mechanism changed at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from clipper.arguments import StageProgress
from clipper.benchmarks import bench_zoo
from clipper.benchmarks.bench_zoo import ZooJob, run_zoo
from clipper.benchmarks.statistics import mean_or_none
from clipper.benchmarks.zoo import lines_like
from clipper.files import Row
from clipper.pruning import infer
from clipper.pruning.joint import InferenceSettings, inference, search
from clipper.pruning.joint.naming import NamingSearch

LINES = (
    "sum-3/digits/100",
    "sum-4/mnist/100",
    "sum-3/gaussians/100",
    "sum-3/imbalanced/100",
    "sum-3/clusters/100",
    "sum-3-mod-10/digits/100",
    "product-3-mod-10/digits/100",
    "luhn-3/digits/100",
    "xor-3/cancer/100",
    "difference/digits/100",
    "max-minus-min-3/gaussians/100",
    "max-3/digits/100",
    "sum-3/digits/20",
    "sum-3/digits/100/wrong-10",
    "sum-3/digits/100/shuffled",
    "sum-3/noise/100/one-target",
    "sum-3/digits/100/backgrounds",
)
"""The lines of the ablation. In all but the last three, the embeddings tell something about the labels."""
TROUBLED = LINES[-3:]
"""The lines whose embeddings tell nothing, or mislead."""

_CONSTANTS: Mapping[str, tuple[Any, ...]] = {
    "folds": (2, 10),
    "starts": (10,),
    "rounds": (40,),
    "generations": (0,),
    "noise": (0.5,),
    "hint": (2.0,),
    "searched": (100,),
    "first_trust": ((-1.5, 0.0),),
    "least_error": (1e-4,),
    "rarest": (1.0,),
    "prior_pairs": (math.inf,),
    "still": (1e-2,),
    "negligible": (0.2,),
    "walkers": (2,),
    "improbable": (3.0,),
    "explained": (0.0,),
    "leak": (math.inf,),
    "alike": (math.inf,),
    "certain": (0.0,),
    "memory": (1 << 19,),
}
"""What each constant is changed to: a value that switches it off, if there is one."""


@contextmanager
def _no_islands() -> Iterator[None]:
    def none(_: Any, labels: torch.Tensor) -> torch.Tensor:
        return torch.full_like(labels, -1)

    with patch.object(search, "islands", none), patch.object(inference, "islands", none):
        yield


def _no_global_names() -> AbstractContextManager[Any]:
    def near(self: NamingSearch) -> Any:
        return self.around(torch.arange(self.kinds[-1].stop), exhaustive=True)

    return patch.object(NamingSearch, "everywhere", near)


def _no_groups() -> AbstractContextManager[Any]:
    return patch.object(search._Search, "named", lambda self, *_: torch.zeros_like(self.pool.unary[:, :, 0]))


def _no_doubt() -> AbstractContextManager[Any]:
    return patch.object(bench_zoo, "infer", partial(infer, wrong=0.0))


MECHANISMS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "no islands opened": _no_islands,
    "names not sought globally": _no_global_names,
    "no groups named by formulas": _no_groups,
    "no target doubted": _no_doubt,
}
"""Mechanisms that no constant switches off, and how to switch them off."""


def changes() -> list[str]:
    """The names of all changes; the first changes nothing.

    Examples:
        >>> changes()[:3]
        ['as released', 'folds=2', 'folds=10']
    """
    constants = [f"{name}={_shown(value)}" for name, values in _CONSTANTS.items() for value in values]
    return ["as released", *constants, *MECHANISMS]


def changed(change: str) -> tuple[InferenceSettings, AbstractContextManager[Any]]:
    """The settings under a change, and a context that applies the rest of it."""
    settings, name = InferenceSettings(), change.partition("=")[0]
    for value in _CONSTANTS.get(name, ()):
        if change == f"{name}={_shown(value)}":
            return replace(settings, **{name: value}), nullcontext()
    return settings, MECHANISMS.get(change, nullcontext)()


def run_ablation(
    names: Sequence[str],
    seeds: Sequence[int],
    file: Path | None,
    *,
    workers: int,
    progress: StageProgress,
    data_root: Path | None = None,
) -> list[Row]:
    """Run the lines of the ablation under each of the changes, and summarise each change in a row.

    Args:
        names: the changes, some of `changes()`.
        seeds: of the pools.
        file: the file of the rows, as in `run_zoo`.
        workers: processes, of one thread each.
        progress: called with what is done.
        data_root: the folder with the data sets; the usual folders if not given.
    """
    lines = lines_like(LINES)
    jobs = [ZooJob(line, seed, data_root, name) for name in names for seed in seeds for line in lines]
    rows = run_zoo(jobs, file, workers=workers, progress=progress)
    each = len(rows) // max(1, len(names))
    return [summary_of(name, rows[i * each : (i + 1) * each]) for i, name in enumerate(names)]


def summary_of(name: str, rows: Sequence[Row]) -> Row:
    """The figures of a change over its pools: means, counts, and the lowest share of gold kept."""
    whole = [row for row in rows if row["error"] is None]
    sound = [row for row in whole if row["line"] not in TROUBLED]
    believed = ("joint", "ambiguous")
    gap = [abs(row["expected_accuracy"] - row["labels_right"]) for row in sound if row["verdict"] == "joint"]
    return {
        "change": name,
        "pools": len(sound),
        "failed": len(rows) - len(whole),
        "settled": sum(row["verdict"] in believed for row in sound),
        "best_naming_right": mean_or_none([row["best_naming_right"] for row in sound]),
        "gold_kept": mean_or_none([row["gold_kept"] for row in sound]),
        "gold_kept_lowest": min((row["gold_kept"] for row in sound), default=None),
        "candidates_kept": mean_or_none([row["candidates_kept"] for row in sound]),
        "accuracy_gap": mean_or_none(gap),
        "troubled": len(whole) - len(sound),
        "troubled_believed": sum(row["verdict"] in believed for row in whole if row["line"] in TROUBLED),
        "seconds": mean_or_none([row["seconds"] for row in whole]),
    }


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
