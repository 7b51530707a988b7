"""What tests let workers do, importable there by name, and an executor whose workers are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clipper.errors import InputError
from clipper.executors import Executor


def slow_square(job: int) -> int:
    time.sleep(0.02 * (job % 3))
    assert torch.get_num_threads() == 1
    return job * job


def refuse(job: int) -> int:
    raise InputError(f"expected another job than {job}")


def die(job: object) -> None:
    del job
    os.kill(os.getpid(), signal.SIGKILL)


def here(job: object) -> tuple[str, int]:
    del job
    return os.getcwd(), os.getpid()


class Sabotaged:
    """An executor that kills the worker of some jobs when the work is done, before its result is told."""

    def __init__(self, executor: Executor, every: int) -> None:
        self.executor, self.workers, self.submitted, self.every = executor, executor.workers, 0, every

    def submit(self, work: Callable[[Any], Any], job: object) -> Any:
        self.submitted += 1
        return self.executor.submit(partial(_kill_after, work) if self.submitted % self.every == 0 else work, job)

    def finished(self, tasks: Sequence[Any], seconds: float | None = None) -> list[Any]:
        return self.executor.finished(tasks, seconds)

    def result(self, task: Any) -> Any:
        return self.executor.result(task)

    def close(self) -> None:
        self.executor.close()


def _kill_after(work: Callable[[Any], Any], job: object) -> None:
    work(job)
    die(job)


def listening(pids: set[int]) -> list[str]:
    """The addresses on which some processes listen, in the hexadecimal notation of Linux."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    lines = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()]
    return [line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes]


def descendants(pid: int) -> set[int]:
    """A process and all that it has started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, more = {pid}, {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found
