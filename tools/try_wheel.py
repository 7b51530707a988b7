"""Try a wheel as a stranger would: a fresh environment, an empty folder, the demo and the doctests.

`python -m tools.try_wheel dist/*.whl` ends with a message and exit code 1 at the first thing that does not hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_BYTES = 1_000_000
"""How large a wheel may be."""


def try_wheel(wheel: Path) -> None:
    """Check what is in a wheel and its source distribution, install the wheel, and run it.

    Raises:
        SystemExit: if something does not hold, with what it is.
    """
    _look_inside(wheel)
    with tempfile.TemporaryDirectory() as folder:
        environment, empty = Path(folder) / "environment", Path(folder) / "empty"
        empty.mkdir()
        venv.create(environment, with_pip=True)
        binaries = environment / ("Scripts" if os.name == "nt" else "bin")
        python, clipper = binaries / "python", binaries / "clipper"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*install, "--constraint", ROOT / "constraints.txt", f"{wheel.resolve()}[all]", "pytest"], empty)
        where = _run([python, "-c", "import clipper; print(clipper.__version__, clipper.__file__)"], empty)
        version, _, file = where.partition(" ")
        if version not in wheel.name or str(environment) not in file:
            raise SystemExit(f"expected the wheel's own version from the new environment, got {where}")
        _run([clipper, "--help"], empty)
        print(_run([clipper, "demo", "--seeds", "1", "--epochs", "20"], empty).splitlines()[-1])
        package = Path(file.strip()).parent
        doctests = ["--doctest-modules", "--doctest-ignore-import-errors", "-p", "no:cacheprovider", "-q"]
        print(_run([python, "-m", "pytest", *doctests, package], empty).splitlines()[-1])


def _look_inside(wheel: Path) -> None:
    if wheel.stat().st_size > MOST_BYTES:
        raise SystemExit(f"expected a wheel below {MOST_BYTES:,} bytes, got {wheel.stat().st_size:,}: {wheel}")
    strangers = [
        name
        for name in zipfile.ZipFile(wheel).namelist()
        if name.split("/")[0].split("-")[0] not in ("clipper", "clipper_nesy")
    ]
    if strangers:
        raise SystemExit(f"expected the library alone in the wheel, got {strangers[0]}")
    source = next(wheel.parent.glob("*.tar.gz"))
    with tarfile.open(source) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames()]
    if any(name.startswith("results/") for name in inside) or "pyproject.toml" not in inside:
        raise SystemExit(f"expected a source distribution with pyproject.toml and without results/: {source}")
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {source.name}: {source.stat().st_size:,} bytes")


def _run(command: list[str | Path], folder: Path) -> str:
    """What a command prints; it sees neither this repository nor this environment."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        try_wheel(Path(each))
