"""Starting the command line, or a module or a script with torchrun, on this machine alone; commands in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-c", "from clipper.cli import main; main()"]
"""The command line in a process of its own; its arguments follow."""


def clipper(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What the command line prints, as errors, too, and its exit code."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)


def printed(app: typer.Typer, *arguments: object) -> str:
    """What a command prints that runs in this process; what it raises is raised."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception:
        raise result.exception
    return result.stdout


def ignored(*_: object) -> None:
    """No progress is shown."""


def environment() -> dict[str, str]:
    """Of a process that talks to others over the loopback address, with one thread."""
    interface = {"darwin": "lo0"}.get(sys.platform, "lo")
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": interface,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }


def torchrun(*program: str | Path, folder: Path = ROOT) -> subprocess.Popen[str]:
    """A job of two processes that talk over the loopback address, each with one thread."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command = [*launcher, "--nproc-per-node=2", *map(str, program)]
    return subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(job: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str, str]:
    """Its exit code, what it printed, and what it printed as errors; a job that hangs is ended, and the test fails."""
    try:
        printed, errors = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        job.terminate()  # which the launcher passes on to its processes
        job.communicate(timeout=30)
        raise
    return job.returncode, printed, errors
