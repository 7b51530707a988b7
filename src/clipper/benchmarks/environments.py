"""Python environments for other frameworks: the current one, with a framework's packages on top.

The frameworks' requirements contradict one another, so each has its own environment in the user's cache. It is created
once. It uses torch and other packages of the current environment, so it needs only some megabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

from clipper.benchmarks.data.sources import cache_folder
from clipper.errors import ClipperError

PACKAGES = {
    "ablkit": ("--no-deps", "ablkit==1.0.0", "termcolor==3.3.0", "zoopt==0.4.2"),  # without pyswip and torchvision
    "ltntorch": ("--no-deps", "LTNtorch==1.0.2"),
    "deepproblog": ("--no-deps", "deepproblog==2.1.0", "problog==2.3.0", "PySDD==1.0.6"),  # without torchvision
    "klay": ("--no-deps", "klaycircuits==0.1.2"),
    "snorkel": ("--no-deps", "snorkel==0.10.0", "munkres==1.1.4", "tqdm==4.67.1"),  # its NumPy and SciPy are older
}
"""The arguments of pip, with tested versions. Without dependencies, so that torch and NumPy are not replaced."""
SECONDS = 1800
"""Timeout of pip, in seconds."""


class NoEnvironmentError(ClipperError, RuntimeError):
    """The packages of a framework cannot be installed here."""


def python_with(name: str, packages: Sequence[str], constraints: Path | None = None) -> Path:
    """The interpreter of an environment with these packages on top of the current one; created if needed.

    Args:
        name: of the framework.
        packages: arguments of `pip install`.
        constraints: a constraints file for pip.

    Raises:
        NoEnvironmentError: the environment cannot be created; the message holds the last line of pip's output.
    """
    base = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    limits = constraints.read_text(encoding="utf-8") if constraints is not None else ""
    made_of = json.dumps([list(packages), base, sys.version, limits])
    folder = cache_folder() / "peers" / f"{name}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    python = Path("Scripts" if os.name == "nt" else "bin", "python")
    if not (folder / python).exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        try:
            _make(unfinished, unfinished / python, packages, base, constraints)
            unfinished.rename(folder)
        except (OSError, subprocess.SubprocessError) as error:
            if not (folder / python).exists():  # nor has another process created it
                output = str(getattr(error, "stderr", None) or error).strip().splitlines()
                raise NoEnvironmentError(
                    f"no environment for {name} can be made here: {output[-1] if output else error}"
                ) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder / python


def _make(folder: Path, python: Path, packages: Sequence[str], base: list[str], constraints: Path | None) -> None:
    """Create an environment in a folder that also finds the packages in the folders `base`; install the packages."""
    venv.create(folder, symlinks=os.name != "nt")
    query = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    Path(own, "below.pth").write_text("\n".join(dict.fromkeys(base)), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    limits = ["--constraint", str(constraints)] if constraints is not None else []
    subprocess.run([*pip, *limits, *packages], capture_output=True, text=True, check=True, timeout=SECONDS)
