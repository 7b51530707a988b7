"""Reports: what the caller plotted is left alone, foreign words stay words, records are shown without their data."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.hardening.attack import ROOT, Clippers

pytest.importorskip("matplotlib")
TINY = ("--samples", "12", "--slots", "2", "--epochs", "2", "--batch", "4")
BARE = {"CLIPPER_DATA": "", "CLIPPER_OFFLINE": "1"}


def test_figures_and_settings_of_the_caller_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    from clipper.cli import main

    own = pyplot.figure()
    monkeypatch.setitem(mpl.rcParams, "lines.linewidth", 7.0)
    monkeypatch.setitem(mpl.rcParams, "text.usetex", True)  # would need LaTeX
    before = (mpl.get_backend(), dict(mpl.rcParams), pyplot.get_fignums())
    monkeypatch.setattr(sys, "argv", ["clipper", "train", *TINY, "--out", f"{tmp_path}/run.json",
                                      "--report", f"{tmp_path}/run.html"])  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert (mpl.get_backend(), dict(mpl.rcParams), pyplot.get_fignums()) == before
    assert pyplot.gcf() is own
    assert (tmp_path / "run.html").read_text(encoding="utf-8").count("<svg") == 3
    pyplot.close(own)


@pytest.mark.parametrize("objective", ["none", "paper", "exact", "joint", "random", "gold"])
def test_a_run_of_every_objective_has_a_report(objective: str, clippers: Clippers, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "run.html"
    ended = clippers.run("train", *TINY, "--objective", objective, "--out", tmp_path / "run.json", "--report", page)
    assert ended.code == 0, ended.err
    assert f"<td>{objective}</td>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "task",
    ["--rule max", "--slots 15", "--rule align --data clips --slots 12", "--per-sample 5", "--bank 8",
     "--encoder pixels --when once", "--engine ised", "--objective joint --passes 2", "--engine abl-sim"],
)  # fmt: skip
def test_a_run_of_every_task_has_a_report(task: str, clippers: Clippers, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    ended = clippers.run("train", *TINY, *task.split(), "--out", tmp_path / "run.json", "--report", page)
    assert ended.code == 0, ended.err
    assert 'class="inspector"' in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", [["--data", "cifar10"], ["--encoder", "resnet152"]])
def test_what_a_run_or_its_report_lacks_is_told_before_training(
    wrong: list[str], clippers: Clippers, tmp_path: Path
) -> None:
    files = ["--out", tmp_path / "run.json", "--report", tmp_path / "run.html"]
    nowhere = BARE | {"XDG_CACHE_HOME": str(tmp_path), "TORCH_HOME": str(tmp_path), "CLIPPER_WEIGHTS": str(tmp_path)}
    ended = clippers.run("train", *TINY, "--epochs", 1_000_000, *wrong, *files, **nowhere)
    ended.check_refused()
    assert wrong[1] in ended.err
    assert not list(tmp_path.iterdir())


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """The recorded runs of this repository, without the data they were made from."""
    source = ROOT / "results" / "records.jsonl"
    if not source.exists():
        pytest.skip("the records are not here")
    folder = tmp_path / "results"
    folder.mkdir()
    shutil.copy(source, folder)
    return folder


def test_recorded_tables_are_shown_where_no_data_set_is(records: Path, clippers: Clippers, tmp_path: Path) -> None:
    root = tmp_path / "<script>alert(1)<"  # a path that looks like a script stays a path
    root.mkdir()
    bare = BARE | {"XDG_CACHE_HOME": str(root)}
    ended = clippers.run("table", "scale", "--show", "--out", records, "--data-root", root, **bare)
    assert ended.code == 0, ended.err
    page = (records / "scale.html").read_text(encoding="utf-8")
    assert str(root) not in page  # the page is made of the records alone
    assert "<script>alert(1)" not in page
    assert page.count("<svg") >= 2
    written = clippers.run("results", "--records", records, "--to", tmp_path / "results.md", **bare)
    assert written.code == 0, written.err
    assert "## Table 3" in (tmp_path / "results.md").read_text(encoding="utf-8")
