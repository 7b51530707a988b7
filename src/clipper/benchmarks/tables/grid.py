"""Runs the cells of a table in parallel processes; finished runs are recorded at once.

Several commands may fill one table. A process locks a run before it begins, and the lock ends with the process. If
another process holds the lock, its result is read from the ledger when it has finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.probe import probe_of
from clipper.benchmarks.runs import run
from clipper.benchmarks.settings import run_key
from clipper.benchmarks.tables.layout import Place, Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.executors import Executor, LocalProcesses, WorkerDiedError
from clipper.files import claimed, make_folder
from clipper.training import Inspection, Record

LONG = 2_000
"""Runs with more steps than this write checkpoints."""
PATIENCE = 0.5
"""Seconds between two checks of the runs that other processes have locked."""


def run_cells(
    cells: Iterable[Place],
    ledger: Ledger,
    *,
    jobs: int | None = None,
    tick: Callable[[], None] = lambda: None,
    inspected: Iterable[Place] = (),
    again: bool = False,
    executor: Executor | None = None,
) -> list[str]:
    """Run the cells that are not in the ledger, several at a time; returns those that failed, and why.

    Args:
        cells: the runs of a table; cells with the same effective settings are run once.
        ledger: where finished runs are noted.
        jobs: processes of this machine, one per core by default; each computes with one thread.
        tick: called whenever a cell ends.
        inspected: the cells whose runs write data for the pruning inspector, see `inspections_of`.
        again: also run cells that are in the ledger; the newest record counts, the others stay in the file.
        executor: runs the cells instead of local processes, for example on a Ray cluster; the caller closes it.
    """
    ledger.refresh()
    by_key = {run_key(cell.config): cell for cell in cells}
    records = {key: len(ledger.history(cell.config)) for key, cell in by_key.items()}
    waiting = {key: cell for key, cell in by_key.items() if again or not records[key]}
    runner = executor or LocalProcesses(jobs)
    grid = _Grid(ledger, runner, tick, {run_key(cell.config) for cell in inspected}, records, waiting)
    try:
        while grid.waiting or grid.running:
            grid.begin_runs()
            grid.collect()
    finally:  # stop at once: a run takes minutes
        if executor is None:
            runner.close()
        for begun in grid.running.values():
            begun.lock.close()
    return grid.failed


@dataclass(frozen=True)
class _Begun:
    """A run that is under way, and its lock."""

    place: Place
    lock: ExitStack


@dataclass
class _Grid:
    """The cells that wait and those that run; `records` says how many records each cell had at the start."""

    ledger: Ledger
    executor: Executor
    tick: Callable[[], None]
    inspected: set[str]
    records: dict[str, int]
    waiting: dict[str, Place]
    running: dict[Any, _Begun] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def begin_runs(self) -> None:
        """Lock waiting cells and start their runs, as long as there are free processes."""
        for name, place in list(self.waiting.items()):
            if len(self.running) == self.executor.workers:
                return
            lock = ExitStack()
            lock_file = self.ledger.path.parent / f".{self.ledger.path.name}.{_short_name(place.config)}.claim"
            if not lock.enter_context(claimed(lock_file)):
                lock.close()
                continue
            del self.waiting[name]
            self.ledger.refresh()  # another process may have finished it before it released its lock
            if len(self.ledger.history(place.config)) == self.records[name]:
                job = place.config, name in self.inspected, self.ledger.path.parent
                self.running[self.executor.submit(_run, job)] = _Begun(place, lock)
            else:
                lock.close()
                self.tick()

    def collect(self) -> None:
        """Wait for a run to end; only briefly if a process is free, because other commands may release their locks."""
        patience = PATIENCE if self.waiting and len(self.running) < self.executor.workers else None
        if not self.running:
            time.sleep(patience or 0)
            return
        for task in self.executor.finished(list(self.running), patience):
            begun = self.running[task]
            self._note(task, begun)
            del self.running[task]
            begun.lock.close()
            self.tick()

    def _note(self, task: Any, begun: _Begun) -> None:
        """Record how a run ended."""
        try:
            result: Record | str = self.executor.result(task)
        except WorkerDiedError as error:
            result = str(error)
        if isinstance(result, str):
            self.failed.append(f"{begun.place.row.name}: {result}")
        else:
            self.ledger.add(result)
            checkpoint_of(begun.place.config, self.ledger.path.parent).unlink(missing_ok=True)


def _run(job: tuple[RunConfig, bool, Path]) -> Record | str:
    """The record of a run, or the error. If a cell fails, the others still run.

    Args:
        job: the configuration, whether to write data for the pruning inspector, and the folder of the ledger.
    """
    config, inspect, folder = job
    steps = config.epochs * -(-config.samples // config.batch)
    checkpoint = checkpoint_of(config, folder) if steps > LONG else None
    try:
        if checkpoint is not None:
            make_folder(checkpoint.parent)
        inspection = inspection_of(config, folder) if inspect else None
        return replace(run(config, checkpoint=checkpoint, inspection=inspection), probe=probe_of(config))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def checkpoint_of(config: RunConfig, folder: Path) -> Path:
    """Where a long run keeps its state until it is finished."""
    return folder / "checkpoints" / f"{_short_name(config)}.pt"


def inspection_of(config: RunConfig, folder: Path) -> Path:
    """Where a run writes data for the pruning inspector."""
    return folder / "inspections" / f"{_short_name(config)}.json"


def inspections_of(table: Table, folder: Path) -> dict[str, Inspection]:
    """The data for the pruning inspector that runs of a table wrote, by title; empty if none was run here."""
    files = {
        f"{place.row.name}, {place.column.name}, seed {place.seed}": inspection_of(place.config, folder)
        for place in table.inspected()
    }
    return {whose: Inspection.read(file) for whose, file in files.items() if file.exists()}


def _short_name(config: RunConfig) -> str:
    return blake2b(repr(config).encode(), digest_size=8).hexdigest()
