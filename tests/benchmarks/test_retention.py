"""What the paper's Table 5 says about retention, measured on the data it was measured on."""

from __future__ import annotations

import os
import statistics

import pytest

from clipper.benchmarks.datasets import data_folders, digits, mnist
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.max import MAX
from clipper.benchmarks.retention import measure_retention
from clipper.benchmarks.sum import SUM
from clipper.errors import ClipperError

needs_mnist = pytest.mark.skipif(
    not any((folder / "train-images-idx3-ubyte.gz").is_file() for folder in data_folders("mnist")),
    reason="MNIST is not here: set CLIPPER_DATA to a folder whose subfolder mnist holds its four files",
)


@needs_mnist
@pytest.mark.slow
def test_retention_on_mnist_is_within_three_points_of_table_5() -> None:
    rows = {row.method: row for row in measure_retention(mnist(), samples=100, slots=3, batch=64, seeds=10)}
    retained, gold = statistics.mean(rows["paper"].retained), statistics.mean(rows["paper"].gold)
    assert abs(retained - 80) <= 3, retained
    assert abs(gold - 94) <= 3, gold
    assert statistics.mean(rows["random"].gold) < gold - 8  # what the geometry is worth


def test_on_the_embedded_digits_gold_labels_survive_far_more_often_than_chance_allows() -> None:
    rows = {row.method: row for row in measure_retention(digits(), seeds=3)}
    assert statistics.mean(rows["exact"].gold) > statistics.mean(rows["random"].gold) + 8
    assert statistics.mean(rows["exact"].retained) == pytest.approx(statistics.mean(rows["random"].retained))


@needs_mnist
def test_mnist_has_the_published_numbers_of_images() -> None:
    assert len(mnist("train")) == 60_000
    assert len(mnist("test")) == 10_000


def test_missing_and_damaged_files_are_named(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("CLIPPER_DATA", os.fspath(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    with pytest.raises(ClipperError, match="CLIPPER_DATA"):
        mnist()
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"half a file")
    with pytest.raises(ClipperError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        mnist()


def test_no_image_is_drawn_twice_and_too_few_are_an_error() -> None:
    task = draw(digits(), MAX, samples=599, slots=3)
    assert task.inputs.shape == (599, 3, 1, 8, 8)
    assert bool((task.gold.amax(1) == task.targets).all())
    with pytest.raises(ClipperError, match="1800 images"):
        draw(digits(), SUM, samples=600, slots=3)
