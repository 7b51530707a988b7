"""LocalProcesses: processes of this machine that run one job after the other, with one thread each."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from clipper.executors.base import Job, Outcome, Result, WorkerDiedError


@dataclass(eq=False)
class _Worker:
    """A process, which ends with the process that started it. `answers` becomes readable when its job has ended."""

    process: BaseProcess
    answers: Connection

    @classmethod
    def start(cls) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)


class LocalProcesses:
    """An `Executor` that uses processes of this machine. The task of a job is the process that runs it.

    Args:
        workers: the largest number of processes; one per core by default.

    Attributes:
        workers: the largest number of processes.

    Examples:
        >>> LocalProcesses(2).workers
        2
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    def submit(self, work: Callable[[Job], Any], job: Job) -> _Worker:
        """As in `Executor`."""
        alive = [worker for worker in self._idle if worker.process.is_alive()]
        worker = alive.pop() if alive else _Worker.start()
        self._idle = alive
        self._busy.append(worker)
        with suppress(OSError):  # a worker that died just now; `result` says so
            worker.answers.send_bytes(pickle.dumps((work, job)))  # not `send`: torch would open a file for every tensor
        return worker

    def finished(self, tasks: Sequence[_Worker], seconds: float | None = None) -> list[_Worker]:
        """As in `Executor`."""
        ready = wait_for([task.answers for task in tasks], seconds)
        return [task for task in tasks if task.answers in ready]

    def result(self, task: _Worker) -> Any:
        """As in `Executor`."""
        self._busy.remove(task)
        try:
            outcome: Outcome = pickle.loads(task.answers.recv_bytes())
        except (EOFError, OSError) as error:
            task.process.join()
            raise WorkerDiedError(
                f"its process ended with exit code {task.process.exitcode}; was there too little memory?"
            ) from error
        self._idle.append(task)
        return outcome.get()

    def close(self) -> None:
        """As in `Executor`."""
        for worker in [*self._idle, *self._busy]:
            worker.process.kill()
            worker.process.join()
        self._idle, self._busy = [], []


def run_jobs(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[Job, Result | WorkerDiedError]]:
    """Run jobs in several processes; yield each job with its result when it ends.

    Args:
        work: the function to call for each job; importable by name. It must not raise.
        jobs: its arguments; they are started in this order.
        workers: the largest number of processes. If it is 1, the jobs run in this process, with one thread.
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
    with closing(LocalProcesses(workers)) as executor:
        busy: dict[_Worker, Job] = {}
        while waiting or busy:
            while waiting and len(busy) < workers:
                job = waiting.pop()
                busy[executor.submit(work, job)] = job
            for task in executor.finished(list(busy)):
                job = busy.pop(task)
                try:
                    result: Result | WorkerDiedError = executor.result(task)
                except WorkerDiedError as error:
                    result = error
                yield job, result


def _work(answers: Connection) -> None:
    """Run jobs with one thread until the parent process ends in any way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent process, which then stops this one
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait_for([parent.sentinel]), os._exit(1)), daemon=True).start()
    while True:
        answers.send_bytes(pickle.dumps(Outcome.of(*pickle.loads(answers.recv_bytes()))))
