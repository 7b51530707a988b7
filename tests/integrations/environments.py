"""An environment for each peer, as `clipper race` makes them.

`test_with_<peer>.py` are tests of their own. Where the peer is missing they are skipped; `test_peers.py` runs them in
the peer's environment. Their figures are of the seeds in `CLIPPER_PEER_SEEDS` ("100,101,102" say), 0 to 2 by default.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clipper.benchmarks.environments import PACKAGES, NoEnvironmentError, python_with

ROOT = Path(__file__).parents[2]
PEERS = {name: packages for name, packages in PACKAGES.items() if name != "klay"} | {  # which is an extra of ours
    "lightning": ("lightning==2.6.6",),
    "accelerate": ("accelerate==1.15.0",),
    "polars": ("polars==2.1.0",),
    "datasets": ("datasets==5.2.0",),
    "transformers": ("transformers==5.23.0",),
}
"""What pip is asked for, in the versions that were tested; constraints.txt keeps torch as it is."""
SECONDS = 1800
FIGURES = "measured: "
"""What lines of figures begin with."""


def peer_module(name: str) -> Any:
    """A peer's module; tests are skipped where it is missing, except in the environment that was made for it."""
    if "CLIPPER_PEER" in os.environ:
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed; `make check` makes an environment for it")


def write_figures(text: str) -> None:
    """Figures for whoever reads the output of a test."""
    sys.stdout.write(f"\n{FIGURES}{text}\n")


def run_peer(peer: str, folder: Path) -> None:
    """Run `test_with_<peer>.py` in the peer's environment and in some folder, and write out what it measures."""
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    own = {"PYTHONPATH": paths, "CLIPPER_PEER": peer, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    tests = Path(__file__).with_name(f"test_with_{peer}.py")
    pytest_here = [peer_python(peer), "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT]
    run = subprocess.run(
        [*pytest_here, "-rP", "-W", "default", "-p", "no:cacheprovider", tests],
        cwd=folder, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip
    if run.returncode:
        sys.stdout.write(run.stdout)
    sys.stdout.writelines(line + "\n" for line in run.stdout.splitlines() if line.startswith(FIGURES))
    assert run.returncode == 0, f"the tests with {peer} fail, see above"


def peer_python(peer: str) -> Path:
    """The interpreter of a peer's environment, made if it is not there; a test that cannot have one is skipped."""
    try:
        return python_with(peer, PEERS[peer], ROOT / "constraints.txt")
    except NoEnvironmentError as error:
        pytest.skip(str(error))
