"""A run's page holds its curves and settings, and its inspector shows the pruning that the run did."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import embeddings_of, run
from clipper.benchmarks.settings import clip_of
from clipper.report import write_run_page
from clipper.training import Inspection, Record
from tests.report.browser import browser, needs_browser
from tests.report.pruned import data_of

pytest.importorskip("matplotlib")
SMALL = RunConfig(samples=24, slots=2, epochs=2, batch=10, encoder="pixels")


def inspected(config: RunConfig, folder: Path) -> tuple[Record, Inspection]:
    """A run, and what it wrote for the inspector."""
    record = run(config, inspection=folder / "run.inspection.json")
    return record, Inspection.read(folder / "run.inspection.json")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Inspection]:
    return inspected(SMALL, tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("when", ["batch", "once"])
@pytest.mark.parametrize("objective", ["paper", "exact", "random"])
def test_the_inspection_shows_what_the_run_kept(when, objective, tmp_path):
    record, inspection = inspected(replace(SMALL, when=when, objective=objective, k=2), tmp_path)
    assert [sample["id"] for sample in inspection.samples] == list(range(24))
    stay, total = (sum(sample[name] for sample in inspection.samples) for name in ("stay", "total"))
    assert stay / total == pytest.approx(record.epochs[0].retained)
    kept = sum(sample["verdict"] == "kept" for sample in inspection.samples)
    assert kept / 24 == pytest.approx(record.epochs[0].gold)


def test_the_inspection_shows_each_batchs_own_neighbours(small):
    benchmark = benchmark_named(SMALL.rule)(SMALL)
    samples, vectors = benchmark.samples, embeddings_of(SMALL, benchmark)
    shown = {sample["id"]: sample for sample in small[1].samples}
    for ids in samples.batches(10, SMALL.seed, epoch=1):
        kept = clip_of(SMALL)(samples.candidates.batch(ids), vectors[ids])
        for place, number in enumerate(ids.tolist()):
            sample = shown[number]
            rows = torch.tensor(sample["labels"]).view(-1, 2)[[bit == "1" for bit in sample["keep"]]]
            own = slice(int(kept.offsets[place]), int(kept.offsets[place + 1]))
            assert rows.tolist() == kept.labels[own].tolist()
            assert {edge["sample"] for edge in sample["edges"]} <= set(ids.tolist())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoder": "trainable"}, "batches of 10"),
        ({"objective": "none", "encoder": "trainable"}, "pruned nothing"),
        ({"bank": 8, "encoder": "trainable"}, "memory bank"),
        ({"when": "once"}, "among all samples"),
    ],
)
def test_the_page_says_what_the_inspector_shows(changes, words, tmp_path):
    record, inspection = inspected(replace(SMALL, **changes), tmp_path)
    write_run_page(record, tmp_path / "run.html", inspection)
    assert words in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_the_page_holds_curves_settings_and_versions(small, tmp_path):
    record, inspection = small
    write_run_page(record, tmp_path / "new" / "run.html", inspection)
    text = (tmp_path / "new" / "run.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 3
    for expected in ("SUM-2 on digits", "24 samples of 2 images", "evaluate every", "Configuration", "Versions"):
        assert expected in text
    assert record.versions["torch"] in text
    assert not [link for link in re.findall(r'(?:src|href)="(?!#)([^"]+)"', text) if not link.startswith("data:")]
    assert len(data_of(tmp_path / "new" / "run.html")["samples"]) == 24


def test_a_record_alone_has_a_page_without_an_inspector(small, tmp_path):
    write_run_page(small[0], tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "24 samples; 2 epochs; seed 0." in text
    assert 'class="inspector"' not in text


@pytest.mark.slow
@needs_browser
def test_a_browser_shows_the_run_without_errors(small: tuple[Record, Inspection], tmp_path: Path) -> None:
    write_run_page(small[0], tmp_path / "run.html", small[1])
    with browser() as window:
        window.open((tmp_path / "run.html").as_uri() + "#sample=5")
        assert window.run("return document.querySelector('h3').textContent").startswith("Sample 5:")
        assert window.run("return document.querySelectorAll('figure svg').length") == 3
        assert window.run("return document.body.scrollWidth <= innerWidth")
        assert window.messages() == []


def test_a_joint_run_says_how_sure_and_how_right_it_was(tmp_path: Path) -> None:
    config = RunConfig(samples=30, slots=2, epochs=1, objective="joint", encoder="blurred")
    write_run_page(*_page(config, tmp_path))
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "<h2>Calibration</h2>" in page
    assert "gold labels kept" in page
    write_run_page(*_page(replace(config, objective="exact", encoder="pixels"), tmp_path))
    assert "Calibration" not in (tmp_path / "run.html").read_text(encoding="utf-8")


def _page(config: RunConfig, folder: Path) -> tuple[Record, Path, Inspection]:
    record, inspection = inspected(config, folder)
    return record, folder / "run.html", inspection
