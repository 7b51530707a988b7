"""What loading the library must not do, and where things may be known."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clipper
from clipper.errors import require

SOURCE = Path(clipper.__file__).parent


def test_import_loads_no_solver_no_plotting_and_no_command_line() -> None:
    heavy = "highspy ortools faiss matplotlib typer rich sklearn pyarrow scipy pysdd klay clingo ray"
    code = f"import sys, clipper; print([name for name in '{heavy}'.split() if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_each_optional_dependency_is_known_in_one_place() -> None:
    for name, home in {
        "highspy": "integer_program.py",
        "ortools": "integer_program.py",
        "faiss": "approximate.py",
        "clingo": "program.py",
        "ray": "ray_cluster.py",
    }.items():
        knowing = [path.name for path in SOURCE.rglob("*.py") if f'require("{name}' in path.read_text()]
        assert knowing == [home]


def test_the_public_face_is_small() -> None:
    assert len(clipper.__all__) <= 15
    assert all(hasattr(clipper, name) for name in clipper.__all__)


def test_the_extra_all_is_all_extras() -> None:
    extras = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = extras["all"][0].removeprefix("clipper-nesy[").removesuffix("]").split(",")
    assert sorted(listed) == sorted(extras.keys() - {"all", "dev", "docs"})


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    with pytest.raises(ImportError, match=r"pip install 'clipper-nesy\[solvers\]'"):
        require("no_such_solver", extra="solvers")
    with pytest.raises(ImportError, match=r"pip install ablkit$"):
        require("no_such_peer", peer="ablkit")


def test_integrations_are_imported_when_they_are_asked_for() -> None:
    assert callable(clipper.integrations.ltn.guard)
    with pytest.raises(AttributeError, match="no attribute 'jax'"):
        clipper.integrations.jax  # noqa: B018
