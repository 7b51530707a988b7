"""Runs the zoo: joint inference and EM on every pool. Each pool's figures are written to a file when it ends."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from clipper.arguments import StageProgress
from clipper.benchmarks.probe import digest
from clipper.benchmarks.statistics import auroc
from clipper.benchmarks.zoo import Line, Pool, make_pool
from clipper.executors import WorkerDiedError, run_jobs
from clipper.files import Row, add_row, rows_in
from clipper.pruning import infer
from clipper.pruning.joint import InferenceSettings
from clipper.training.environment import environment

FORMAT = "clipper zoo 1"
MASS = 0.95
"""The posterior probability that the kept candidates must add up to."""
SAME_NAMING = 0.85
"""The share of gold labels that a naming must give to count as the gold one."""


class ZooJob(NamedTuple):
    """One pool to run.

    Attributes:
        line: its line.
        seed: its seed.
        data_root: the folder of the data sets.
        change: a change of the ablation (`bench_ablation.changes`); "" for the zoo itself.
    """

    line: Line
    seed: int
    data_root: Path | None = None
    change: str = ""

    @property
    def key(self) -> str:
        """The key of a pool in a file of rows, the same for all versions."""
        return _key(self.line.name, self.seed, _settings(self.line, self.change))


def quick_lines(lines: Sequence[Line]) -> list[Line]:
    """The first line for each rule and for each disturbance.

    Examples:
        >>> from clipper.benchmarks.zoo import LINES
        >>> len(quick_lines(LINES)) < len(LINES) / 2
        True
    """
    first: dict[str, Line] = {}
    for line in lines:
        first.setdefault(line.trouble or line.rule, line)
    return list(first.values())


def run_line(line: Line, seed: int, data_root: Path | None = None, change: str = "") -> Row:
    """Make one pool of a line, infer its labels jointly and by EM, and compare both with the gold labels.

    Args:
        line: which kind of pool.
        seed: of the pool, and of the inference.
        data_root: the folder with the data sets; the usual folders if not given.
        change: a change of the ablation, which leaves EM out; "" for none.

    Returns:
        A row of JSON: the verdict, the shares of labels right, of gold labels kept and of candidates kept, seconds,
            the accuracy that the posterior expects, and more; None for what does not apply.

    Examples:
        >>> from clipper.benchmarks.zoo import lines_like
        >>> row = run_line(*lines_like(["xor-3/digits/5"]), seed=0)
        >>> row["line"], row["settings"]["samples"], 0 <= row["gold_kept"] <= 1
        ('xor-3/digits/5', 5, True)
    """
    pool = make_pool(line, seed, data_root)
    if not change:
        return _row(line, seed) | _measured(pool, seed, "joint") | {"em": _by_em(pool, seed)}
    from clipper.benchmarks.bench_ablation import changed

    row, (settings, mechanism) = _row(line, seed, change), changed(change)
    with mechanism:
        return row | _measured(pool, seed, "joint", settings)


def run_zoo(
    jobs: Sequence[ZooJob], file: Path | None, *, workers: int, progress: StageProgress, again: bool = False
) -> list[Row]:
    """Run the pools that are not in the file, several at a time, and write each row when its pool is done.

    A pool that fails gets a row with its error, and is tried again the next time.

    Args:
        jobs: the pools.
        file: the file of the rows, a line of JSON each; it may hold rows of other pools. None to write nothing.
        workers: processes, of one thread each.
        progress: called with what is done.
        again: also run pools that are in the file; the newest row of a pool counts.

    Returns:
        The rows of all these pools, in the order of `jobs`.

    Raises:
        FileError: the file holds something else.
    """
    there = {} if file is None else read_rows(file)
    rows = {job.key: there[job.key] for job in jobs if job.key in there}
    missing = [job for job in jobs if again or rows.get(job.key, {"error": ""})["error"] is not None]
    done = len(jobs) - len(missing)
    progress("pools", done, len(jobs))
    for job, result in run_jobs(_attempt, missing, workers):
        row = _failed(job, result) if isinstance(result, WorkerDiedError) else result
        rows[job.key] = row
        if file is not None:
            add_row(file, row)
        done += 1
        progress("pools", done, len(jobs))
    return [rows[job.key] for job in jobs]


def read_rows(file: str | Path) -> dict[str, Row]:
    """The newest row for each key in a file; an incomplete last line of a killed process is skipped.

    Raises:
        FileError: if it holds anything else.
    """
    found = rows_in(file, FORMAT, "row of the zoo")
    return {_key(row["line"], row["seed"], row["settings"]): row for row in found}


def _attempt(job: ZooJob) -> Row:
    """The row of a pool, with its error if it failed. If one pool fails, the others still run."""
    try:
        return run_line(*job)
    except Exception as error:
        return _failed(job, error)


def _failed(job: ZooJob, error: Exception) -> Row:
    return _row(job.line, job.seed, job.change) | {"error": f"{type(error).__name__}: {error}"}


def _row(line: Line, seed: int, change: str = "") -> Row:
    """A row without figures: what was run, and where."""
    return {
        "format": FORMAT,
        "line": line.name,
        "seed": seed,
        "settings": _settings(line, change),
        "error": None,
        **environment(),
        "probe": {part: digest(part) for part in (("joint",) if change else ("joint", "em"))},
    }


def _settings(line: Line, change: str = "") -> dict[str, Any]:
    values = asdict(line)
    del values["name"]
    return {**values, "mass": MASS, **({"change": change} if change else {})}


def _key(name: str, seed: int, settings: dict[str, Any]) -> str:
    return json.dumps([name, seed, settings], sort_keys=True)


def _by_em(pool: Pool, seed: int) -> Row:
    figures = _measured(pool, seed, "em")
    return {name: figures[name] for name in ("labels_right", "gold_kept", "seconds")}


def _measured(pool: Pool, seed: int, method: Literal["joint", "em"], settings: InferenceSettings | None = None) -> Row:
    """Infer, prune, and compare with the gold labels."""
    start = time.perf_counter()
    posterior = infer(pool.candidates, pool.evidence, known=pool.known, method=method, seed=seed, settings=settings)
    pruning = posterior.prune(MASS)
    seconds = time.perf_counter() - start
    used = pool.gold >= 0
    right = float((posterior.labels == pool.gold)[used].double().mean())
    kept = pruning.gold_retained(pool.gold)
    wrong = int(pool.wrong.sum())
    best = max(_renamed_right(posterior.labels, pool.gold, naming.order) for naming in posterior.namings)
    return {
        "verdict": posterior.verdict,
        "labels_right": right,
        "expected_accuracy": posterior.expected_accuracy,
        "gold_kept": None if math.isnan(kept) else kept,
        "candidates_kept": pruning.retained,
        "suspicion_auc": auroc(posterior.suspicion, pool.wrong) if 0 < wrong < len(pool.wrong) else None,
        "namings": len(posterior.namings),
        "best_naming_right": best,
        "gold_naming": best >= SAME_NAMING,
        "seconds": seconds,
    }


def _renamed_right(labels: Tensor, gold: Tensor, order: Tensor) -> float:
    """The share of labels that are right if each label k is renamed to `order[k]`."""
    used = gold >= 0
    return float((order[labels[used].long()] == gold[used]).double().mean())
