"""What loading the library must not do, and where things may be known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import clipper

SOURCE = Path(clipper.__file__).parent


def test_import_loads_no_solver_no_plotting_and_no_command_line() -> None:
    heavy = "highspy ortools faiss matplotlib typer rich sklearn pyarrow scipy pysdd klay clingo"
    code = f"import sys, clipper; print([name for name in '{heavy}'.split() if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_each_optional_dependency_is_known_in_one_place() -> None:
    for name, home in {
        "highspy": "integer_program.py",
        "ortools": "integer_program.py",
        "faiss": "approximate.py",
        "clingo": "program.py",
    }.items():
        knowing = [path.name for path in SOURCE.rglob("*.py") if f'require("{name}' in path.read_text()]
        assert knowing == [home]


def test_the_public_face_is_small() -> None:
    assert len(clipper.__all__) <= 15
    assert all(hasattr(clipper, name) for name in clipper.__all__)
