"""Running the cells of a table in parallel processes; what is finished is noted at once."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing.connection import wait as wait_for
from pathlib import Path

import torch

from clipper.benchmarks.runs import run
from clipper.benchmarks.tables.layout import Cell
from clipper.benchmarks.tables.ledger import Ledger
from clipper.errors import ClipperError
from clipper.training import Record, TrainConfig

LONG = 2_000
"""Steps past which a run keeps a checkpoint, so that not even its own beginning is lost."""


@dataclass(frozen=True)
class Outcome:
    """A cell that has come to an end."""

    cell: Cell
    record: Record | None
    problem: str | None = None
    """Why there is no record."""


def run_cells(
    cells: Iterable[Cell],
    ledger: Ledger,
    *,
    jobs: int,
    data_root: str | Path | None = None,
    watch: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run the cells that the ledger does not have, several at a time; return those that could not be run.

    Args:
        cells: the runs of a table; the same configuration is run once.
        ledger: where finished runs are noted.
        jobs: processes; each computes with one thread.
        data_root: the folder with the data sets, if not in the usual places.
        watch: told of every cell that ends.
    """
    open_: dict[str, Cell] = {repr(cell.config): cell for cell in cells if ledger.find(cell.config) is None}
    failed: list[Outcome] = []
    if not open_:
        return failed
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(open_)), mp_context=context, initializer=_begin) as pool:
        folder = ledger.path.parent
        futures = {pool.submit(_run, cell.config, data_root, folder): cell for cell in open_.values()}
        try:
            _collect(futures, ledger, failed, watch)
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.kill()  # a run takes minutes: whoever stops a table does not want to wait for it
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def _collect(
    futures: dict[Future[Record | str], Cell],
    ledger: Ledger,
    failed: list[Outcome],
    watch: Callable[[Outcome], None],
) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            result = future.result()
            outcome = (
                Outcome(futures[future], None, result) if isinstance(result, str) else Outcome(futures[future], result)
            )
            if outcome.record is not None:
                ledger.add(outcome.record)
                checkpoint_of(outcome.record.config, ledger.path.parent).unlink(missing_ok=True)
            else:
                failed.append(outcome)
            watch(outcome)


def _begin() -> None:
    """A worker computes with one thread, and ends with whoever started it, however that ends."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait_for([parent.sentinel]), os._exit(1)), daemon=True).start()


def _run(config: TrainConfig, data_root: str | Path | None, folder: Path) -> Record | str:
    steps = config.epochs * -(-config.samples // config.batch)
    checkpoint = checkpoint_of(config, folder) if steps > LONG else None
    try:
        return run(config, data_root=data_root, checkpoint=checkpoint)
    except ClipperError as error:
        return f"{type(error).__name__}: {error}"


def checkpoint_of(config: TrainConfig, folder: Path) -> Path:
    """Where a long run keeps its state until it is finished."""
    name = blake2b(repr(config).encode(), digest_size=8).hexdigest()
    return folder / "checkpoints" / f"{name}.pt"
