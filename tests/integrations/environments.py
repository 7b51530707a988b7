"""An environment for each peer: the one that runs the tests, with the peer's packages laid over it.

Peers exclude one another, so each has a folder of its own in the user's cache. It is made once, whole or not at all,
and takes torch and whatever else it can from the environment below: some megabytes, not a second torch.

`test_with_<peer>.py` are tests of their own. Where the peer is missing they are skipped; `test_peers.py` runs them in
the peer's environment. Their figures are of the seeds in `CLIPPER_PEER_SEEDS` ("100,101,102" say), 0 to 2 by default.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from clipper.benchmarks.data.sources import cache_folder

ROOT = Path(__file__).parents[2]
PEERS = {
    "ablkit": ["--no-deps", "ablkit==1.0.0", "termcolor==3.3.0", "zoopt==0.4.2"],  # without pyswip and torchvision
    "ltntorch": ["--no-deps", "LTNtorch==1.0.2"],
    "deepproblog": ["--no-deps", "deepproblog==2.1.0", "problog==2.3.0"],  # without torchvision
    "lightning": ["lightning==2.6.6"],
    "accelerate": ["accelerate==1.15.0"],
    "polars": ["polars==2.1.0"],
    "datasets": ["datasets==5.2.0"],
    "snorkel": ["--no-deps", "snorkel==0.10.0", "munkres==1.1.4", "tqdm==4.67.1"],  # its NumPy and SciPy are older
    "transformers": ["transformers==5.23.0"],
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
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    made_of = json.dumps([PEERS[peer], packages, sys.version, (ROOT / "constraints.txt").read_text()])
    folder = cache_folder() / "peers" / f"{peer}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    python = Path("Scripts" if os.name == "nt" else "bin", "python")
    if not (folder / python).exists():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        try:
            _make(half, half / python, PEERS[peer], packages)
            half.rename(folder)
        except (OSError, subprocess.SubprocessError) as error:
            if not (folder / python).exists():  # nor did another process make it meanwhile
                told = str(getattr(error, "stderr", None) or error).strip().splitlines()
                pytest.skip(f"no environment for {peer} can be made here: {told[-1] if told else error}")
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return folder / python


def _make(folder: Path, python: Path, packages: list[str], below: list[str]) -> None:
    venv.create(folder, symlinks=os.name != "nt")
    query = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    Path(own, "below.pth").write_text("\n".join(dict.fromkeys(below)))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    limits = ["--constraint", ROOT / "constraints.txt"]
    subprocess.run([*pip, *limits, *packages], capture_output=True, text=True, check=True, timeout=SECONDS)
