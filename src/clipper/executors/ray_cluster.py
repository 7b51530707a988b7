"""A Ray cluster as an executor. Ray's only importer."""

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
"""The address that other machines do not reach."""
_LOCAL = ("127.", "localhost", "[::1]")
_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: one machine, and its loopback address alone
    "RAY_USAGE_STATS_ENABLED": "0",  # tells nobody that it runs
    "RAY_worker_niceness": "0",  # the workers do the work: on a busy machine, they would get no time
}
"""Of a cluster that is started here."""


class RayCluster:
    """An `Executor` by Ray: a cluster that runs already, or one of this machine that ends with the executor.

    A cluster that is started here listens on the loopback address alone and has no dashboard. Workers elsewhere need
    Clipper installed, and see files by the same paths as this process.

    Attributes:
        workers: how many jobs it does at a time.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        """Connect.

        Args:
            address: of the cluster's head, HOST:PORT; None to use the one that this process is connected to, or else
                to start one.
            workers: how many jobs at a time; one per core of the cluster by default.

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
        self._remote = self._ray.remote(num_cpus=1, max_retries=0)(_do)  # who submits a job knows whether to repeat it

    def _start(self, workers: int | None) -> None:
        if self._ray.util.get_node_ip_address() != LOOPBACK:  # it goes by other settings
            raise InputError(
                "Ray would listen on all addresses of this machine, because it was imported before Clipper could tell "
                'it otherwise; set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0" first, or start it yourself with ray.init()'
            )
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)  # import what this imports
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
        """As in `Executor`; a cluster that others started stays."""
        if self._mine:
            self._ray.shutdown()


def _do(folder: str, work: Callable[[Any], Any], job: object) -> Outcome:
    """One job; runs on a worker, in the folder of whoever asked for it, so that paths mean the same."""
    if os.path.isdir(folder):
        os.chdir(folder)
    torch.set_num_threads(1)
    return Outcome.of(work, job)
