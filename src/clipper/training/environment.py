"""What a figure may depend on besides its configuration: the code, the libraries, and how busy the machine was."""

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
"""Packages whose version every record holds."""
OPTIONAL = ("scipy", "scikit-learn", "PySDD", "klaycircuits", "faiss-cpu", "highspy", "ortools", "clingo")
"""Packages whose version a record holds where they are installed."""
UNKNOWN = "unknown"
"""Stands for the version of a package that is not installed, and for the commit of code outside of a checkout."""


def environment() -> dict[str, Any]:
    """What to note beside a figure: `commit`, `versions` and `load`, for JSON.

    Examples:
        >>> sorted(environment())
        ['commit', 'load', 'versions']
    """
    return {"commit": commit(), "versions": versions(), "load": load()}


@cache
def commit() -> str:
    """The commit of Clipper's own code, with "-dirty" if a file of the package differs from it.

    Other files may change, or every table would make its own records dirty. Code that is no part of a checkout, an
    installed package for example, is of an "unknown" commit; then its version says what it is.

    Examples:
        >>> commit() == UNKNOWN or len(commit().removesuffix("-dirty")) >= 7
        True
    """
    package = Path(__file__).parents[1]
    try:  # a package that is installed into somebody else's checkout is not part of it
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
    """How busy the machine is: processes that compute or want to, over the last minute, and its cores.

    The average holds this process, too. Empty where the system does not say.
    """
    try:
        average = os.getloadavg()[0]
    except (AttributeError, OSError):
        return {}
    return {"average": round(average, 2), "cores": float(os.cpu_count() or 1)}
