"""Executor: the protocol of all executors; and `in_order`, which yields results in the order of the jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from clipper.errors import ClipperError

Job = TypeVar("Job")
Result = TypeVar("Result")

ATTEMPTS = 4
"""How often to start a job whose process dies each time before the error is raised."""


class WorkerDiedError(ClipperError, RuntimeError):
    """A process ended before its job did."""


class Executor(Protocol):
    """Runs jobs in other processes.

    Attributes:
        workers: the largest number of jobs at a time; callers must not submit more.
    """

    workers: int

    def submit(self, work: Callable[[Job], Any], job: Job) -> Any:
        """Start a job in another process, with one thread.

        Args:
            work: the function to call; importable by name.
            job: its argument.

        Returns:
            The task, for `finished` and `result`.
        """

    def finished(self, tasks: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """The tasks that have ended. Waits until at least one has ended, or for some seconds.

        Args:
            tasks: the tasks to wait for.
            seconds: the longest time to wait; no limit if None.
        """

    def result(self, task: Any) -> Any:
        """The result of a task that has ended. An exception of the job is raised here.

        Args:
            task: the task.

        Raises:
            WorkerDiedError: the process ended before the job did.
        """

    def close(self) -> None:
        """End all processes immediately, also those with unfinished jobs."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a value, or with an error."""

    value: Any = None
    error: Exception | None = None

    @classmethod
    def of(cls, work: Callable[[Any], Any], job: object) -> Outcome:
        """Do a job; runs in the process."""
        try:
            return cls(work(job))
        except Exception as error:
            return cls(error=error)

    def get(self) -> Any:
        """The value, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.value


def in_order(executor: Executor, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """Run jobs with an executor and yield their results in the order of the jobs.

    A job whose process dies is repeated in another process. Jobs are read from the iterable when they can start, and
    few results wait to be fetched, so memory is bounded.

    Args:
        executor: the executor.
        work: the function to call for each job; importable by name. It must be deterministic, as jobs may be repeated.
        jobs: its arguments.

    Raises:
        WorkerDiedError: a job was begun `ATTEMPTS` times, and its process died each time.
    """
    waiting, next_out = enumerate(jobs), 0
    running: dict[Any, tuple[int, Job, int]] = {}
    ready: dict[int, Result] = {}
    exhausted = False
    while True:
        while not exhausted and len(running) < executor.workers and len(running) + len(ready) < 2 * executor.workers:
            begun = next(waiting, None)
            exhausted = begun is None
            if begun is not None:
                running[executor.submit(work, begun[1])] = *begun, 1
        if not running:
            return
        for task in executor.finished(list(running)):
            number, job, attempt = running.pop(task)
            try:
                ready[number] = executor.result(task)
            except WorkerDiedError:
                if attempt == ATTEMPTS:
                    raise
                running[executor.submit(work, job)] = number, job, attempt + 1
        while next_out in ready:
            yield ready.pop(next_out)
            next_out += 1
