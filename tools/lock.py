"""Writes requirements.lock: the tested set with the SHA-256 sum of each file, as pip finds it on its package index.

`python -m tools.lock` reads constraints.txt. torch is left out: which build of it is right depends on the machine, and
the CPU build that is tested is not the file that the index has under that version.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = f"""\
# The tested set with checksums, for CPython {sys.version_info.major}.{sys.version_info.minor} on {platform.system()} \
{platform.machine()}; made by `python -m tools.lock`. First install the build of
# torch {{torch}} that suits your machine (it has no checksum here: each build is another file), then:
#   pip install --require-hashes --no-deps -r requirements.lock
"""


def lock() -> str:
    """The lines of the lock file."""
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    torch = next(line.partition("==")[2] for line in pins if line.startswith("torch=="))
    wanted = [line for line in pins if not line.startswith("torch==")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        subprocess.run([*pip, "--report", str(report), *wanted], check=True)
        found = json.loads(report.read_text())["install"]
    entries = [
        f"{each['metadata']['name']}=={each['metadata']['version']} "
        f"--hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in found
    ]
    return HEAD.format(torch=torch) + "\n".join(sorted(entries, key=str.lower)) + "\n"


if __name__ == "__main__":
    (ROOT / "requirements.lock").write_text(lock())
