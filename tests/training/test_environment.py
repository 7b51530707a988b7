"""What is noted beside a figure: the commit of the code, versions, and how busy the machine was."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clipper.training import environment
from clipper.training.environment import UNKNOWN, commit, load, versions

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def git(folder: Path, *command: str) -> str:
    said = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *command],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return said.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose package has the module under test in it."""
    package = tmp_path / "src" / "clipper"
    (package / "training").mkdir(parents=True)
    for name in ("__init__.py", "training/environment.py"):
        (package / name).write_text("\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    monkeypatch.setattr(environment, "__file__", str(package / "training" / "environment.py"))
    return tmp_path


@needs_git
def test_a_clean_checkout_has_its_commit(checkout):
    assert commit.__wrapped__() == git(checkout, "rev-parse", "--short=7", "HEAD")


@needs_git
@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_a_changed_or_a_new_file_of_the_package_makes_the_commit_dirty(checkout, name):
    (checkout / "src" / "clipper" / name).write_text("changed = True\n")
    assert commit.__wrapped__() == git(checkout, "rev-parse", "--short=7", "HEAD") + "-dirty"


@needs_git
def test_records_that_are_being_written_do_not_make_the_code_dirty(checkout):
    (checkout / "records.jsonl").write_text("{}\n")
    assert not commit.__wrapped__().endswith("-dirty")


@needs_git
def test_a_package_installed_into_another_checkout_is_of_an_unknown_commit(checkout, monkeypatch):
    installed = checkout / "site-packages" / "clipper"
    shutil.copytree(checkout / "src" / "clipper", installed)
    (checkout / ".gitignore").write_text("site-packages\n")
    monkeypatch.setattr(environment, "__file__", str(installed / "training" / "environment.py"))
    assert commit.__wrapped__() == UNKNOWN


def test_without_a_repository_or_without_git_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "clipper" / "training" / "environment.py"))
    assert commit.__wrapped__() == UNKNOWN
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit.__wrapped__() == UNKNOWN


def test_versions_name_what_is_installed_and_nothing_else(monkeypatch):
    found = versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert UNKNOWN not in {found[name] for name in ("torch", "numpy")}
    monkeypatch.setattr(environment, "OPTIONAL", ("no-such-package",))
    assert "no-such-package" not in environment._installed.__wrapped__()


def test_a_system_that_does_not_know_its_load_says_nothing(monkeypatch):
    assert not load() or load()["cores"] >= 1

    def refuse() -> None:
        raise OSError

    monkeypatch.setattr(environment.os, "getloadavg", refuse)
    assert load() == {}
