"""What the paper's Table 5 says about retention, measured on the data it was measured on."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict

import pytest
import torch

from clipper.benchmarks.data.images import Images, digits, mnist
from clipper.benchmarks.data.sources import data_folders
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.max import MAX_RULE
from clipper.benchmarks.sum import SUM_RULE
from clipper.errors import ClipperError
from clipper.proximity import ProximityGraph
from clipper.pruning import prune

needs_mnist = pytest.mark.skipif(
    not any((folder / "train-images-idx3-ubyte.gz").is_file() for folder in data_folders("mnist")),
    reason="MNIST is not here: set CLIPPER_DATA to a folder whose subfolder mnist holds its four files",
)


def kept(images: Images, seeds: int) -> tuple[dict[str, float], dict[str, float]]:
    """What pruning keeps of candidates and of gold labels, in per cent, by objective.

    One epoch's batches of 64 of 100 samples of SUM-3, raw pixels as the encoder; "random" imitates "exact".
    """
    retained, gold = defaultdict(list), defaultdict(list)
    for seed in range(seeds):
        task = draw(images, SUM_RULE, 100, 3, seed)
        candidates_kept, gold_kept = defaultdict(int), defaultdict(int)
        for ids in torch.randperm(100, generator=torch.Generator().manual_seed(seed)).split(64):
            candidates = task.candidates.batch(ids)
            graph = ProximityGraph.from_embeddings(task.inputs[ids].flatten(2), k=1)
            prunings = {objective: prune(candidates, graph, objective) for objective in ("paper", "exact")}
            prunings["random"] = prune(candidates, graph, "random", imitate=prunings["exact"], seed=seed)
            for objective, pruning in prunings.items():
                candidates_kept[objective] += len(pruning.candidates)
                gold_kept[objective] += int(pruning.candidates.contains(task.gold[ids]).sum())
        for objective in candidates_kept:
            retained[objective].append(100 * candidates_kept[objective] / len(task.candidates))
            gold[objective].append(gold_kept[objective])
    return tuple({name: statistics.mean(values) for name, values in each.items()} for each in (retained, gold))


@needs_mnist
@pytest.mark.slow
def test_retention_on_mnist_is_within_three_points_of_table_5() -> None:
    retained, gold = kept(mnist(), seeds=10)
    assert abs(retained["paper"] - 80) <= 3, retained
    assert abs(gold["paper"] - 94) <= 3, gold
    assert gold["random"] < gold["paper"] - 8  # what the geometry is worth


def test_on_the_embedded_digits_gold_labels_survive_far_more_often_than_chance_allows() -> None:
    retained, gold = kept(digits(), seeds=3)
    assert gold["exact"] > gold["random"] + 8
    assert retained["exact"] == pytest.approx(retained["random"])


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
    task = draw(digits(), MAX_RULE, samples=599, slots=3)
    assert task.inputs.shape == (599, 3, 1, 8, 8)
    assert bool((task.gold.amax(1) == task.targets).all())
    with pytest.raises(ClipperError, match="1800 images"):
        draw(digits(), SUM_RULE, samples=600, slots=3)
