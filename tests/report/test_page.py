"""Pages stand on their own: one file, no network, and a browser shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clipper.report import write_run_page
from clipper.training import EpochMetrics, Record
from tests.report.browser import browser, needs_browser

pytest.importorskip("matplotlib")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Of a run with a configuration of its own."""
    path = tmp_path / "folder" / "index.html"
    epochs = [EpochMetrics(epoch, 2.0 / epoch, 0.3 * epoch, 0.7, 0.9, 1.0, 0.1) for epoch in (1, 2, 3)]
    write_run_page(Record({"name": "<b>&", "seed": 4}, epochs), path)
    return path


def test_a_page_is_one_file_without_a_network(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outside = re.findall(r'(?:src|href)="(?!#)([^"]+)"', text)
    assert not [link for link in outside if not link.startswith("data:")]
    assert "&lt;b&gt;&amp;" in text  # what users write is shown, not run


def test_a_users_own_run_has_a_page_too(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<h1>A training run</h1>" in text
    assert "3 epochs; seed 4." in text
    assert "90.0 %" in text
    assert 'class="inspector"' not in text


@pytest.mark.slow
@needs_browser
def test_a_browser_shows_the_page_without_errors(page: Path) -> None:
    with browser() as window:
        window.open(page.as_uri())
        assert window.run("return document.querySelector('h1').textContent") == "A training run"
        assert window.run("return document.querySelectorAll('figure svg').length") == 3
        assert window.messages() == []
