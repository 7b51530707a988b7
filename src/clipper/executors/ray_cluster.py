"""RayCluster: a Ray cluster as an executor. No other module imports Ray."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from clipper.errors import ClipperError, InputError, require
from clipper.executors.base import Job, Outcome, WorkerDiedError

LOOPBACK = "127.0.0.1"
"""An address that other machines cannot reach."""
_LOCAL = ("127.", "localhost", "[::1]")
_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: one machine, loopback address only
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
    "RAY_worker_niceness": "0",  # at a lower priority, the workers would get no time on a busy machine
}
"""Environment variables of a cluster that this process starts."""


class RayCluster:
    """An `Executor` that uses Ray: a running cluster, or one on this machine that ends with the executor.

    A cluster that this process starts listens on the loopback address only and has no dashboard. Workers on other
    machines need Clipper installed, and must see files by the same paths as this process.

    Attributes:
        workers: how many jobs it does at a time.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        """Connect to a cluster, or start one.

        Args:
            address: the address of the cluster's head, HOST:PORT; None for the cluster that this process is connected
                to, or else a new one.
            workers: the largest number of jobs at a time; one per core of the cluster by default.

        Raises:
            InputError: there is no such cluster.
            MissingExtraError: Ray is not installed.
        """
        if address is None or address.startswith(_LOCAL):
            for name, value in _SETTINGS.items():  # Ray reads them when it is imported
                os.environ.setdefault(name, value)
        self._ray: Any = require("ray", extra="ray")
        self._mine = not self._ray.is_initialized()
        if address is not None:
            self._connect(address)
        elif self._mine:
            self._start(workers)
        cores = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self.workers = min(workers or cores, cores)
        self._remote = self._ray.remote(num_cpus=1, max_retries=0)(_do)  # `in_order` repeats jobs

    def _start(self, workers: int | None) -> None:
        if self._ray.util.get_node_ip_address() != LOOPBACK:  # it was imported with other settings
            raise InputError(
                "Ray would listen on all addresses of this machine, because it was imported before Clipper could "
                'change its settings; set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0" first, or call ray.init() yourself'
            )
        before = os.environ.get("PYTHONPATH")
        # workers import from the same places as this process
        os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        try:
            self._ray.init(
                num_cpus=workers, _node_ip_address=LOOPBACK, include_dashboard=False, log_to_driver=False,
                logging_level=logging.ERROR,
            )  # fmt: skip
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    def _connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            if host and port.isdigit() and "/" not in host:  # Ray would try for minutes
                socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises many kinds
            raise InputError(
                f"no Ray cluster can be used at {address} ({str(error).strip().splitlines()[0]}); start one with `ray "
                "start --head`, check the address, or leave it out"
            ) from error

    def submit(self, work: Callable[[Job], Any], job: Job) -> Any:
        """As in `Executor`."""
        return self._remote.remote(os.getcwd(), work, job)

    def finished(self, tasks: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """As in `Executor`."""
        ready: list[Any] = self._ray.wait(list(tasks), num_returns=1, timeout=seconds)[0]
        return ready

    def result(self, task: Any) -> Any:
        """As in `Executor`."""
        try:
            outcome: Outcome = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ClipperError(
                f"a Ray worker cannot do its job ({reason}); is this Clipper installed there?"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerDiedError(f"its Ray worker is gone ({str(error).strip().splitlines()[0]})") from error
        return outcome.get()

    def close(self) -> None:
        """As in `Executor`; a cluster that this process did not start keeps running."""
        if self._mine:
            self._ray.shutdown()


def _do(folder: str, work: Callable[[Any], Any], job: object) -> Outcome:
    """Run one job on a worker, in the folder of the submitting process, so that relative paths are the same."""
    if os.path.isdir(folder):
        os.chdir(folder)
    torch.set_num_threads(1)
    return Outcome.of(work, job)
