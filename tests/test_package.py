"""What the package says of itself holds together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import clipper

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    found = (re.match(r"([\w.-]+)==(\S+)", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", each[1]).lower(): each[2] for each in found if each}


def test_the_version_stands_in_one_place_and_the_citation_repeats_it() -> None:
    assert "version" in PROJECT["dynamic"]
    assert f"version: {clipper.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert (ROOT / "CHANGELOG.md").read_text().count(f"## {clipper.__version__}") <= 1


def test_the_lock_has_every_tested_version_but_torch_and_a_checksum_for_each() -> None:
    tested, locked = pins("constraints.txt"), pins("requirements.lock")
    assert locked == {name: version for name, version in tested.items() if name != "torch"}
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", line) for line in lines)
    assert "://" not in (ROOT / "requirements.lock").read_text(), (
        "which index the files come from is the reader's choice"
    )


@pytest.mark.parametrize("target", ["docs", "package", "coverage"])
def test_make_has_the_target(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.M)
