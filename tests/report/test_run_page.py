"""A run's page holds its curves and settings, and its inspector shows the pruning that the run did."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.parts import clip_of, embeddings_of, network_of
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import run
from clipper.errors import FileError
from clipper.report.nearness import nearness
from clipper.report.replay import glimpse, replay
from clipper.report.run_page import write_run_page
from clipper.training import Record, accuracy
from clipper.training.checkpoint import load_weights
from clipper.training.samples import samples_of
from tests.report.browser import CHROMIUM, DRIVER, browser

pytest.importorskip("matplotlib")
SMALL = RunConfig(samples=24, slots=2, epochs=2, batch=10, encoder="pixels")


@pytest.fixture(scope="module")
def record() -> Record:
    return run(SMALL)


@pytest.mark.parametrize("when", ["batch", "once"])
@pytest.mark.parametrize("objective", ["paper", "exact"])
def test_the_replay_keeps_what_the_run_kept(when, objective):
    config = replace(SMALL, when=when, objective=objective, k=2)
    task = benchmark_named("sum")(config).samples
    seen = replay(config, task, embeddings_of(config, task))
    first = run(config).epochs[0]
    assert seen.pruning.retained == pytest.approx(first.retained)
    assert seen.pruning.gold_retained(task.gold) == pytest.approx(first.gold)


def test_the_replay_finds_each_batchs_own_neighbours():
    task = benchmark_named("sum")(SMALL).samples
    vectors = embeddings_of(SMALL, task)
    seen = replay(SMALL, task, vectors)
    for ids in samples_of(task).batches(10, SMALL.seed, epoch=1):
        kept = clip_of(SMALL)(task.candidates.batch(ids), vectors[ids])
        assert torch.equal(seen.pruning.candidates.batch(ids).labels, kept.labels)


def test_a_glimpse_of_many_samples_is_pruned_as_the_runs_first_batches():
    task = benchmark_named("sum")(SMALL).samples
    few, notes = glimpse(SMALL, task, samples=15)
    batches = samples_of(task).batches(SMALL.batch, SMALL.seed, epoch=1)
    assert len(few.gold) == 20 < len(task.gold)
    assert notes
    vectors = embeddings_of(SMALL, task)
    seen = replay(SMALL, few, embeddings_of(SMALL, few))
    for place, ids in enumerate(batches[:2]):
        kept = clip_of(SMALL)(task.candidates.batch(ids), vectors[ids])
        assert torch.equal(seen.pruning.candidates.span(10 * place, 10 * place + 10).labels, kept.labels)


def test_the_random_control_strikes_out_as_many_as_the_run():
    config = replace(SMALL, objective="random")
    task = benchmark_named("sum")(config).samples
    seen = replay(config, task, embeddings_of(config, task))
    assert seen.pruning.retained == pytest.approx(run(config).epochs[0].retained)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoder": "trainable"}, "own network is not at hand"),
        ({"objective": "none"}, "pruned nothing"),
        ({"objective": "gold"}, "pruned nothing"),
        ({"objective": "random"}, "drawn anew"),
        ({"bank": 8}, "left out"),
        ({"when": "once"}, "among all samples"),
    ],
)
def test_the_page_says_in_what_the_inspector_is_not_what_the_run_saw(changes, words, record, tmp_path):
    changed = replace(record, config=replace(SMALL, **changes))
    write_run_page(changed, tmp_path / "run.html")
    assert words in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_embeddings_of_ones_own_are_used_and_said_to_be(record, tmp_path):
    write_run_page(record, tmp_path / "run.html", embeddings=torch.rand(24, 2, 5), samples=3)
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "embeddings given for this page" in text
    data = re.search(r'<script type="application/json">(.*?)</script>', text, flags=re.DOTALL)
    assert len(json.loads(data[1])["samples"]) == 3


def test_a_trained_encoder_is_taken_from_the_checkpoint(tmp_path):
    config = replace(SMALL, encoder="trainable", objective="none")
    record = run(config, checkpoint=tmp_path / "run.pt")
    task = benchmark_named("sum")(config).samples
    vectors, source = nearness(config, task, checkpoint=tmp_path / "run.pt")
    assert "as its last epoch left it" in source
    network = network_of(config, 10)
    network.load_state_dict(load_weights(tmp_path / "run.pt"))
    held_out = benchmark_named("sum")(config).evaluate
    assert accuracy(network, *held_out) == record.last.accuracy
    with torch.no_grad():
        expected = network.eval()(task.inputs.flatten(0, 1))[1]
    assert torch.allclose(vectors.flatten(0, 1), expected, atol=1e-5)


def test_the_weights_of_another_network_are_refused(tmp_path):
    config = replace(SMALL, encoder="trainable")
    run(config, checkpoint=tmp_path / "run.pt")
    other = replace(config, network="DigitsCnn")
    with pytest.raises(FileError, match="another network"):
        nearness(other, benchmark_named("sum")(other).samples, checkpoint=tmp_path / "run.pt")


def test_the_page_holds_curves_settings_and_versions(record, tmp_path):
    write_run_page(record, tmp_path / "new" / "run.html")
    text = (tmp_path / "new" / "run.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 3
    for expected in ("SUM-2 on digits", "evaluate every", record.versions["torch"], "Configuration", "Versions"):
        assert expected in text
    assert not [link for link in re.findall(r'(?:src|href)="(?!#)([^"]+)"', text) if not link.startswith("data:")]


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver here: apt-get install chromium-driver"
)
def test_a_browser_shows_the_run_without_errors(record: Record, tmp_path: Path) -> None:
    write_run_page(record, tmp_path / "run.html")
    with browser(tmp_path) as window:
        window.open((tmp_path / "run.html").as_uri() + "#sample=5")
        assert window.run("return document.querySelector('h3').textContent").startswith("Sample 5:")
        assert window.run("return document.querySelectorAll('figure svg').length") == 3
        assert window.run("return document.body.scrollWidth <= innerWidth")
        assert window.messages() == []


def test_a_joint_run_says_how_sure_and_how_right_it_was(tmp_path: Path) -> None:
    config = RunConfig(samples=30, slots=2, epochs=1, objective="joint", encoder="blurred")
    write_run_page(run(config), tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "How sure it was, and how right" in page
    assert "gold labels kept" in page
    write_run_page(run(replace(config, objective="exact", encoder="pixels")), tmp_path / "run.html")
    assert "How sure it was" not in (tmp_path / "run.html").read_text(encoding="utf-8")
