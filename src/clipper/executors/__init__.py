"""Executors: run jobs in processes of this machine or on a Ray cluster, with one protocol for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Literal

from clipper.errors import InputError
from clipper.executors.base import Executor, WorkerDiedError, in_order
from clipper.executors.processes import LocalProcesses, run_jobs

__all__ = ["Executor", "ExecutorName", "LocalProcesses", "WorkerDiedError", "executor_named", "in_order", "run_jobs"]

ExecutorName = Literal["single", "processes", "ray"]
"""Where to compute: in this process, in several processes of this machine, or on a Ray cluster."""


@contextmanager
def executor_named(
    engine: ExecutorName, workers: int | None = None, address: str | None = None
) -> Iterator[Executor | None]:
    """The executor with this name, which is closed when the block ends; None for "single".

    Args:
        engine: the name.
        workers: the largest number of processes; one per core by default.
        address: the address of a running Ray cluster; without it, one is started on this machine.

    Raises:
        InputError: there is no such cluster, or the arguments do not fit together.
        MissingExtraError: Ray is not installed.
    """
    if address is not None and engine != "ray":
        raise InputError(f'an address is that of a Ray cluster: choose the engine "ray", got {engine!r}')
    if engine == "single":
        if workers is not None:
            raise InputError('several workers need the engine "processes" or "ray", got "single"')
        yield None
        return
    if engine == "ray":
        from clipper.executors.ray_cluster import RayCluster

        with closing(RayCluster(address, workers)) as cluster:
            yield cluster
        return
    with closing(LocalProcesses(workers)) as processes:
        yield processes
