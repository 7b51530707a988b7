"""What an executor offers, and work that is done by one in the order of the jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from clipper.errors import ClipperError

Job = TypeVar("Job")
Result = TypeVar("Result")

ATTEMPTS = 4
"""How often a job is begun before it is given up, if each time its process dies."""


class WorkerDiedError(ClipperError, RuntimeError):
    """A process ended before its job did."""


class Executor(Protocol):
    """Processes that do jobs.

    Attributes:
        workers: how many jobs it does at a time; more are not submitted.
    """

    workers: int

    def submit(self, work: Callable[[Job], Any], job: Job) -> Any:
        """Begin a job in another process, with one thread; return its task.

        Args:
            work: what to do; importable by name.
            job: what to do it with.
        """

    def finished(self, tasks: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """Those of some tasks that have ended; waits for one of them, or for some seconds."""

    def result(self, task: Any) -> Any:
        """What a task gave; what it raised is raised here.

        Raises:
            WorkerDiedError: its process ended before it did.
        """

    def close(self) -> None:
        """End all processes at once, whatever they do."""


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
    """Do jobs by an executor; yield their results in the order of the jobs, so that it does not matter who did them.

    A job whose process dies is done again, by another one. Jobs are taken as they can be begun, and few results wait
    to be fetched, so that memory is bounded.

    Args:
        executor: who does them.
        work: what to do; importable by name. Done twice, it must give the same.
        jobs: what to do it with.

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
