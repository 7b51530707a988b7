"""Pages stand on their own: one file, no network, and a browser shows them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from clipper.report.curves import loss_figure
from clipper.report.page import figure, html_table, write_page
from clipper.training import EpochMetrics, Record
from tests.report.browser import CHROMIUM, FLAGS

pytest.importorskip("matplotlib")


def drawn() -> str:
    return loss_figure(Record({}, [EpochMetrics(1, 2.5, 0.75, 0.8, 0.95, 1.0, 0.02)]))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "index.html"
    table = html_table(["name", "number"], [["<b>&", "1"]])
    write_page(path, "A title", "A lead", [("Table", table), ("Figure", figure(drawn(), "A caption"))])
    return path


def test_a_page_is_one_file_without_a_network(page: Path) -> None:
    text = page.read_text()
    outside = re.findall(r'(?:src|href)="(?!#)([^"]+)"', text)
    assert not [link for link in outside if not link.startswith("data:")]
    assert "&lt;b&gt;&amp;" in text  # what users write is shown, not run


def test_the_same_figure_gives_the_same_text() -> None:
    assert drawn() == drawn()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_shows_the_page_without_errors(page: Path, tmp_path: Path) -> None:
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    options = [*FLAGS, "--enable-logging=stderr", profile, "--dump-dom"]
    run = subprocess.run([str(CHROMIUM), *options, page.as_uri()], capture_output=True, text=True, check=True)
    assert "<h1>A title</h1>" in run.stdout
    assert "<svg" in run.stdout
    assert "CONSOLE" not in run.stderr
