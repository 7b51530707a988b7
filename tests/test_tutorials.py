"""The code on the start pages and in the tutorials runs as it stands, in an empty folder, and comes out as promised."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clipper.cli import main
from tests.launch import finished, torchrun

DOCS = Path(__file__).parent.parent / "docs"
FENCE = re.compile(r"^```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<code>.*?)^```$", flags=re.S | re.M)
PAGES = sorted(
    page
    for folder in ("start", "tutorials", "understand", "developers")
    for page in (DOCS / folder).glob("*.md")
    if page.name != "machines.md" and re.search(r"^```python\n", page.read_text(), flags=re.M)
)
NEEDS = {
    "pandas": ("first-labels", "receipts", "embeddings"),
    "PIL": ("receipts", "ontology", "bags"),
    "clingo": ("ontology",),
}
PROMISES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "first-labels": lambda names: names["labels"].verdict == "joint" and names["right"] > 0.98,
    "receipts": lambda names: names["right"] > 0.98 and names["accuracy"] > 0.85,
    "loader": lambda names: names["posterior"].verdict == "joint" and names["accuracy"] > 0.85,
    "embeddings": lambda names: names["right"] > 0.98,
    "bags": lambda names: names["right"] > 0.95 and names["accuracy"] > 0.9 and sum(names["agree"]) > 0.98 * 319,
    "check-digits": lambda names: names["alone"].verdict != "joint" and names["helped"].verdict == "joint",
    "transcripts": lambda names: names["posterior"].verdict == "joint" and names["right"] > 0.95,
    "ontology": lambda names: names["labels"].verdict == "joint" and names["right"] > 0.95,
    "wrong-targets": lambda names: (
        set(names["suspects"].tolist()) <= set(names["spoilt"].tolist())
        and len(names["suspects"]) >= 6
        and names["settled"].verdict == "joint"
    ),
}
"""What the prose of a page says about what comes out."""
EFFORT = int(os.environ.get("CLIPPER_EFFORT", "1"))
LONG = {"check-digits", "transcripts", "ontology", "loader"}
"""Pages whose code runs in `make check` only."""


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a line of a shell block, if it is a command of ours."""
    words = shlex.split(command, comments=True)
    if words[:1] == ["clipper"]:
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, command


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_keeps_its_promise(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem in LONG and EFFORT == 1:
        pytest.skip("make check runs it (CLIPPER_EFFORT above 1)")
    for package, pages in NEEDS.items():
        if page.stem in pages:
            pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for fence in FENCE.finditer(page.read_text()):
        title = re.search(r'title="([^"]+)"', fence["rest"])
        if title:
            Path(title[1]).write_text(fence["code"])
        elif fence["language"] == "python" and not fence["rest"].strip():
            exec(compile(fence["code"], page.name, "exec"), names)
        elif fence["language"] == "sh" and page.parent.name == "tutorials":
            for line in fence["code"].splitlines():
                run(line, monkeypatch)
    assert PROMISES.get(page.stem, bool)(names or {"": None})


@pytest.mark.slow
def test_the_script_for_several_machines_runs_in_two_processes(tmp_path: Path) -> None:
    if EFFORT == 1:
        pytest.skip("make check runs it (CLIPPER_EFFORT above 1)")
    text = (DOCS / "tutorials" / "machines.md").read_text()
    script = tmp_path / "parallel.py"
    script.write_text(next(fence["code"] for fence in FENCE.finditer(text) if "parallel.py" in fence["rest"]))
    code, printed, errors = finished(torchrun(script, folder=tmp_path))
    assert code == 0, errors
    assert "kept" in printed


def test_a_notebook_has_the_code_of_its_page() -> None:
    pytest.importorskip("nbformat", reason="nbformat is not installed (extra docs)")
    import nbformat

    from tools.notebooks import notebook

    for page in (DOCS / "tutorials").glob("*.md"):
        text = page.read_text()
        cells = nbformat.reads(notebook(text), as_version=4).cells
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        plain = [each["code"].strip() for each in FENCE.finditer(text) if each["language"] == "python"]
        assert [block for block in plain if any(block in cell for cell in code)] == plain
        assert all(line.startswith("!") for cell in code if cell.startswith("!") for line in cell.splitlines())
