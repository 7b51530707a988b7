"""Runs the race: every contestant in turn, each in its own environment. Each run is written to a file when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import clipper
from clipper.arguments import StageProgress
from clipper.benchmarks.environments import NoEnvironmentError, python_with
from clipper.benchmarks.probe import digest
from clipper.benchmarks.race.contestants import Contestant
from clipper.benchmarks.race.tasks import Task, write_task
from clipper.errors import ClipperError
from clipper.files import Row, add_row, parsed_json, rows_in
from clipper.training.environment import environment

FORMAT = "clipper race 1"
_PATIENCE = 900
"""Seconds that a process may take beyond three times its time limit, for measurements and a long last step."""
_PARTS = ("joint", "engine semantic")
"""The parts of the method that contestants use; a row holds their digests."""


class ContestantFailedError(ClipperError, RuntimeError):
    """A contestant's process ended without a result."""


class RaceJob(NamedTuple):
    """One run of one contestant.

    Attributes:
        task: the task.
        contestant: the contestant.
        seed: of the samples, the initial weights and all other random draws.
        seconds: the time limit.
    """

    task: Task
    contestant: Contestant
    seed: int
    seconds: float

    @property
    def key(self) -> str:
        """The key of a run in a file of rows, without the time limit: a longer run contains the shorter one."""
        return _key(self.task.name, self.contestant.name, self.seed, self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that determine the result, apart from the names and the seed."""
        return {**self.task.settings, **self.contestant.settings}


def jobs_of(
    tasks: Sequence[Task], contestants: Sequence[Contestant], seeds: Sequence[int], seconds: float | None = None
) -> list[RaceJob]:
    """All runs in order: seed by seed, task by task, contestant by contestant.

    All contestants run once before any runs again, so that a busy hour of the machine affects all of them. The first
    contestant changes with the seed.

    Args:
        tasks: the tasks.
        contestants: the contestants.
        seeds: every contestant runs each task once for each seed.
        seconds: the time limit of each run; by default the task's own.

    Examples:
        >>> from clipper.benchmarks.race.contestants import contestants_like
        >>> from clipper.benchmarks.race.tasks import tasks_like
        >>> jobs = jobs_of(tasks_like(["sum-2/digits/100"], "digits"), contestants_like(["klay", "clipper"]), [0, 1])
        >>> [(job.seed, job.contestant.name) for job in jobs]
        [(0, 'clipper'), (0, 'klay'), (1, 'klay'), (1, 'clipper')]
    """
    jobs = []
    for seed in seeds:
        first = seed % max(1, len(contestants))
        order = [*contestants[first:], *contestants[:first]]
        jobs += [RaceJob(task, each, seed, seconds or task.seconds) for task in tasks for each in order]
    return jobs


def make_environments(
    contestants: Sequence[Contestant], progress: StageProgress
) -> tuple[dict[str, Path], dict[str, str]]:
    """Create the environments that contestants need, unless they exist.

    Args:
        contestants: the contestants.
        progress: called with what is done.

    Returns:
        Two mappings by the names of contestants: the interpreter to run it with, and why it cannot run here.
    """
    interpreters, skipped = {}, {}
    for done, each in enumerate(contestants):
        progress("environments", done, len(contestants))
        try:
            interpreters[each.name] = python_with(each.peer, each.arguments) if each.peer else Path(sys.executable)
        except NoEnvironmentError as error:
            skipped[each.name] = str(error)
    progress("environments", len(contestants), len(contestants))
    return interpreters, skipped


def run_race(
    jobs: Sequence[RaceJob],
    file: Path | None,
    interpreters: dict[str, Path],
    *,
    progress: StageProgress,
    data_root: Path | None = None,
    again: bool = False,
) -> list[Row]:
    """Run the jobs that are not in the file, one after the other, and write each row when its run ends.

    A run that fails gets a row with its error, and is tried again the next time.

    Args:
        jobs: the runs, in their order.
        file: the file of the rows, a line of JSON each; it may hold rows of other jobs. None to write nothing.
        interpreters: by the name of the contestant; contestants without one are skipped.
        progress: called with what is done.
        data_root: the folder with the data sets; the usual folders if not given.
        again: also run jobs that are in the file; the newest row counts.

    Returns:
        The rows of all these runs, in the order of `jobs`.

    Raises:
        FileError: the file holds something else.
    """
    able = [job for job in jobs if job.contestant.name in interpreters]
    there = {} if file is None else read_rows(file)
    rows = {job.key: there[job.key] for job in able if job.key in there and not again and _answers(there[job.key], job)}
    done = len(rows)
    progress("runs", done, len(able))
    with TemporaryDirectory() as folder:
        data: tuple[Task, int, str] | None = None
        for job in able:
            if job.key in rows:
                continue
            if data is None or data[:2] != (job.task, job.seed):
                data = job.task, job.seed, write_task(job.task, job.seed, Path(folder, "task.npz"), data_root)
            row = _attempt(job, Path(folder), data[2], interpreters[job.contestant.name])
            rows[job.key] = row
            if file is not None:
                add_row(file, row)
            done += 1
            progress("runs", done, len(able))
    return [rows[job.key] for job in able]


def read_rows(file: str | Path) -> dict[str, Row]:
    """The newest row for each key in a file; an incomplete last line of a killed process is skipped.

    Raises:
        FileError: if it holds anything else.
    """
    found = rows_in(file, FORMAT, "row of a race")
    return {_key(row["task"], row["contestant"], row["seed"], row["settings"]): row for row in found}


def _answers(row: Row, job: RaceJob) -> bool:
    """Whether a row makes a run unnecessary: it did not fail, and had enough seconds or did not need them."""
    return row["error"] is None and (row["seconds"] >= job.seconds or not row["out_of_time"])


def _attempt(job: RaceJob, folder: Path, data: str, interpreter: Path) -> Row:
    """The row of a run, with its error if it failed. If one contestant fails, the others still run."""
    row: Row = {
        "format": FORMAT,
        "task": job.task.name,
        "contestant": job.contestant.name,
        "seed": job.seed,
        "settings": job.settings,
        "seconds": job.seconds,
        "data": data,
        "error": None,
        "probe": {part: digest(part) for part in _PARTS},
    }
    try:
        return row | _result(job, folder, interpreter)
    except (ContestantFailedError, OSError) as error:
        return row | {"error": str(error), **environment()}


def _result(job: RaceJob, folder: Path, interpreter: Path) -> dict[str, Any]:
    """The result that a contestant's process prints."""
    contestant = job.contestant
    (folder / "job.json").write_text(
        json.dumps(
            {
                "function": contestant.function,
                "imports": contestant.imports,
                "packages": contestant.packages,
                "data": str(folder / "task.npz"),
                "network": job.task.settings["network"],
                "settings": dict(contestant.settings),
                "seed": job.seed,
                "seconds": job.seconds,
            }
        ),
        encoding="utf-8",
    )
    paths = [str(Path(clipper.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with open(folder / "stderr", "w+", encoding="utf-8", errors="replace") as stderr:
        try:
            done = subprocess.run(
                [interpreter, "-m", "clipper.benchmarks.race.worker", folder / "job.json"],
                cwd=folder, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                text=True, check=False, timeout=3 * job.seconds + _PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise ContestantFailedError(f"it did not end within {error.timeout:.0f} seconds") from error
        stderr.seek(0)
        last = [line.strip() for line in stderr if line.strip()][-1:]
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise ContestantFailedError(f"exit code {done.returncode}: {last[0] if last else 'nothing on standard error'}")
    try:
        result: dict[str, Any] = parsed_json(lines[-1].encode())["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise ContestantFailedError("its last line is no result") from error
    return result


def _key(task: str, contestant: str, seed: int, settings: dict[str, Any]) -> str:
    return json.dumps([task, contestant, seed, settings], sort_keys=True)
