"""Processes that do one job after the other, with one thread each; if one dies, the others go on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch

from clipper.errors import ClipperError

Job = TypeVar("Job")
Result = TypeVar("Result")


class WorkerDiedError(ClipperError, RuntimeError):
    """A process ended before its job did."""


@dataclass(eq=False)
class Worker:
    """A process that does one job after the other, with one thread; it ends with the process that started it.

    Attributes:
        process: the process.
        answers: ready to be read when a job has ended.
    """

    process: BaseProcess
    answers: Connection

    @classmethod
    def start(cls, work: Callable[[Any], Any]) -> Worker:
        """Start a process that will call `work`, which must be importable by name, with each job."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, work), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    def begin(self, job: object) -> None:
        """Give it a job; it has none now."""
        self.answers.send(job)

    def result(self) -> Any:
        """What the job gave; waits for it.

        Raises:
            WorkerDiedError: if there is no process any more.
        """
        try:
            return self.answers.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            raise WorkerDiedError(
                f"its process ended with exit code {self.process.exitcode}; was there too little memory?"
            ) from error

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        self.process.kill()
        self.process.join()


def run_jobs(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[Job, Result | WorkerDiedError]]:
    """Do jobs in several processes; yield each with its result, as they end.

    Args:
        work: what to do with a job; importable by name, and it must not raise.
        jobs: what to do it with, in this order.
        workers: processes at most. A single one is spared: the work is then done here, with one thread.
    """
    if workers == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from ((job, work(job)) for job in jobs)
        finally:
            torch.set_num_threads(threads)
        return
    waiting = list(reversed(jobs))
    idle: list[Worker] = []
    busy: dict[Any, tuple[Worker, Job]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker, job = idle.pop() if idle else Worker.start(work), waiting.pop()
                busy[worker.answers] = worker, job
                worker.begin(job)
            for ready in wait_for(list(busy)):
                worker, job = busy.pop(ready)
                try:
                    result: Result | WorkerDiedError = worker.result()
                    idle.append(worker)
                except WorkerDiedError as error:
                    result = error
                yield job, result
    finally:
        for worker in [*idle, *(worker for worker, _ in busy.values())]:
            worker.kill()


def _work(answers: Connection, work: Callable[[Any], Any]) -> None:
    """Do what is asked for, with one thread, until whoever started this ends, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches whoever started this, and that stops it
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait_for([parent.sentinel]), os._exit(1)), daemon=True).start()
    while True:
        answers.send(work(answers.recv()))
