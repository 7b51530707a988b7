"""The environment of a result: the commit, the versions of libraries, and the load of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("clipper-nesy", "torch", "numpy")
"""Packages whose version is in every record."""
OPTIONAL = ("scipy", "scikit-learn", "PySDD", "klaycircuits", "faiss-cpu", "highspy", "ortools", "clingo")
"""Packages whose version is in a record if they are installed."""
UNKNOWN = "unknown"
"""The version of a package that is not installed, and the commit of code outside of a checkout."""


def environment() -> dict[str, Any]:
    """The environment of a result: `commit`, `versions` and `load`, for JSON.

    Examples:
        >>> sorted(environment())
        ['commit', 'load', 'versions']
    """
    return {"commit": commit(), "versions": versions(), "load": load()}


@cache
def commit() -> str:
    """The commit of Clipper's own code, with "-dirty" if a file of the package differs from it.

    Changes of other files, such as records, do not count. The commit of code outside a checkout, such as an installed
    package, is "unknown"; it is then identified by its version.

    Examples:
        >>> commit() == UNKNOWN or len(commit().removesuffix("-dirty")) >= 7
        True
    """
    package = Path(__file__).parents[1]
    try:  # a package that is installed inside another project's checkout is not part of it
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        head = _git(package, "rev-parse", "--short=7", "HEAD")
        changed = _git(package, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return f"{head}-dirty" if changed else head


def _git(folder: Path, *command: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *command], capture_output=True, check=True, text=True, timeout=10)
    return done.stdout.strip()


def versions() -> dict[str, Any]:
    """The versions of Python and of the packages that a result may depend on, and PyTorch's threads."""
    return {**_installed(), "python": platform.python_version(), "threads": torch.get_num_threads()}


@cache
def _installed() -> dict[str, str]:
    packages = {name: _version(name) for name in (*PACKAGES, *OPTIONAL)}
    return {name: version for name, version in packages.items() if name in PACKAGES or version != UNKNOWN}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return UNKNOWN


def load() -> dict[str, float]:
    """The load of the machine: the average number of running or waiting processes in the last minute, and its cores.

    The average includes this process. The result is empty if the system does not report a load.
    """
    try:
        average = os.getloadavg()[0]
    except (AttributeError, OSError):
        return {}
    return {"average": round(average, 2), "cores": float(os.cpu_count() or 1)}
