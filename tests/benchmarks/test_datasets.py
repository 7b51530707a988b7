"""Data sets: found in order, verified, refused with a remedy where they are damaged; real ones where they are here."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from clipper.benchmarks.data import images as image_files
from clipper.benchmarks.data.hwf import formulas, hwf
from clipper.benchmarks.data.images import CIFAR10_FILES, MNIST_FILES, Images, cifar10, digits, mnist
from clipper.benchmarks.data.sources import find
from clipper.benchmarks.datasets import NAMES, SOURCES, inventory, train_and_test
from clipper.errors import ClipperError, FileError
from tests.benchmarks.published import form, idx, needs, python2_batch, source, tarball, write

RANDOM = np.random.default_rng(0)


SUMMED = [
    (name, number)
    for name, each in SOURCES.items()
    for number, published in enumerate(each.forms)
    if all(published.files.values())
]
"""The forms of data sets whose files have sums."""


@pytest.fixture
def nothing_here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLIPPER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path_factory.mktemp("cache")))


def same_bytes(a: Images, b: Images) -> int:
    """How many images of one are in the other."""
    rows = [{row.tobytes() for row in (255 * part.pixels).round().byte().numpy()} for part in (a, b)]
    return len(rows[0] & rows[1])


# --- real data


@needs("mnist")
def test_mnist_has_the_published_numbers() -> None:
    train, test = train_and_test("mnist")
    assert (train.pixels.shape, test.pixels.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert same_bytes(train, test) == 0


@needs("cifar10")
@pytest.mark.slow
def test_cifar10_has_the_published_numbers() -> None:
    train, test = train_and_test("cifar10")
    assert (train.pixels.shape, test.pixels.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert same_bytes(train, test) == 0


@needs("hwf")
@pytest.mark.parametrize("division", [False, True])
def test_no_symbol_of_hwf_is_in_both_halves(division: bool) -> None:
    train, test = hwf("train", division=division), hwf("test", division=division)
    assert train.classes == 12 + division
    assert same_bytes(train, test) == 0
    assert set(train.labels.tolist()) == set(test.labels.tolist()) == set(range(train.classes))
    assert len(train) + len(test) == (20_757 if division else 20_600)  # one of 20,758 has two labels, 157 are ÷


@needs("hwf")
def test_published_formulas_show_what_they_say_with_images_of_their_own_half() -> None:
    train, test = formulas("train"), formulas("test")
    assert same_bytes(train.images, test.images) == 0
    for part, number in ((train, 10_000), (test, 2_000)):
        assert part.image.shape == (number, 7)
        shown = part.images.labels[part.image.clamp(min=0)]
        for text, labels, image in zip(part.text[::50], shown[::50], part.image[::50], strict=True):
            assert "".join("123456789+-*/"[i] for i in labels[image >= 0].tolist()) == text
    assert {len(text) for text in formulas("test", longest=3).text} == {1, 3}


def test_the_digits_halves_share_nothing() -> None:
    assert same_bytes(*train_and_test("digits")) == 0
    assert len(digits()) == 1_797


# --- formats, on small files


def test_mnist_reads_packed_and_unpacked_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {
        f"{half}-{what}": idx(RANDOM.integers(0, 10, shape))
        for half in ("train", "t10k")
        for what, shape in (("images-idx3-ubyte", (4, 28, 28)), ("labels-idx1-ubyte", (4,)))
    }
    packed = {f"{name}.gz": gzip.compress(content) for name, content in raw.items()}
    forms = form("packed", packed), form("unpacked", raw)
    monkeypatch.setattr(image_files, "MNIST_FILES", dataclasses.replace(MNIST_FILES, forms=forms))
    write(tmp_path / "a" / "mnist", packed)
    write(tmp_path / "b" / "mnist", raw)
    for split in ("train", "test"):
        a, b = mnist(split, tmp_path / "a"), mnist(split, tmp_path / "b")
        assert a.pixels.shape == (4, 1, 28, 28)
        assert torch.equal(a.pixels, b.pixels)
        assert torch.equal(a.labels, b.labels)


def test_cifar10_reads_the_same_from_archive_folder_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    pixels = {name: RANDOM.integers(0, 256, (3, 3072), dtype=np.uint8) for name in names}
    labels = {name: RANDOM.integers(0, 10, 3).tolist() for name in names}
    folder = {f"cifar-10-batches-py/{name}": python2_batch(pixels[name], labels[name]) for name in names}
    archive = {"cifar-10-python.tar.gz": tarball(folder)}
    pictures = {}
    for name in names:
        buffer = io.BytesIO()
        Image.fromarray(pixels[name].reshape(3, 3, 1024).transpose(0, 2, 1)).save(buffer, "PNG")
        pictures[f"{name}.png"] = buffer.getvalue()
    pictures["train_lables.json"] = json.dumps([label for name in names[:5] for label in labels[name]]).encode()
    pictures["test_lables.json"] = json.dumps(labels["test_batch"]).encode()
    contents = {"a": archive, "b": folder, "c": pictures}
    forms = tuple(form(name, files) for name, files in contents.items())
    monkeypatch.setattr(image_files, "CIFAR10_FILES", dataclasses.replace(CIFAR10_FILES, forms=forms))
    for root, files in contents.items():
        write(tmp_path / root / "cifar10", files)
        train, test = (cifar10(split, tmp_path / root) for split in ("train", "test"))
        assert train.pixels.shape == (15, 3, 32, 32)
        assert test.labels.tolist() == labels["test_batch"]
        expected = torch.from_numpy(pixels["test_batch"]).float().view(3, 3, 32, 32) / 255
        assert torch.equal(test.pixels, expected)


@pytest.mark.usefixtures("nothing_here")
def test_hwf_reads_a_picture_per_symbol(tmp_path: Path) -> None:
    from PIL import Image

    folders = [*"123456789+-", "times", "div"]
    paths = [f"{folder}/{number}.jpg" for folder in folders for number in range(5)]
    for path in paths:
        where = tmp_path / "hwf" / "Handwritten_Math_Symbols" / path
        where.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RANDOM.integers(0, 256, (45, 45), dtype=np.uint8)).save(where, "JPEG")
    entries = [{"id": "0", "img_paths": ["1/0.jpg", "+/1.jpg", "9/4.jpg"], "expr": "1+9", "res": 10}]
    entries += [{"id": path, "img_paths": [path], "expr": "?", "res": 0} for path in paths]
    write(tmp_path / "hwf", {"expr_train.json": json.dumps(entries).encode(), "expr_test.json": b"[]"})
    assert len(hwf("train", tmp_path)) == 48
    assert len(hwf("test", tmp_path)) == 12
    with pytest.raises(FileError, match=r"formula '1/0\.jpg' .* does not fit"):
        formulas("train", root=tmp_path)


# --- what is refused


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("name", ["mnist", "cifar10", "hwf"])
def test_a_data_set_that_is_nowhere_names_its_files_and_the_remedy(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="CLIPPER_DATA") as error:
        train_and_test(name, tmp_path)
    assert next(iter(SOURCES[name].forms[0].files)) in str(error.value)
    assert SOURCES[name].remedy in str(error.value)


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize(("name", "which"), SUMMED)
def test_a_damaged_file_is_named_with_the_remedy(name: str, which: int, tmp_path: Path) -> None:
    files = dict.fromkeys(SOURCES[name].forms[which].files, b"half a file")
    write(tmp_path / name, files)
    with pytest.raises(FileError, match=r"is damaged: expected .*SHA-256 .* got one of 11 bytes") as error:
        train_and_test(name, tmp_path)
    assert any(file in str(error.value) for file in files)
    assert SOURCES[name].remedy in str(error.value)
    assert inventory(name, tmp_path).summary == "damaged"


@needs("mnist")
def test_a_truncated_file_is_damaged_and_a_missing_one_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find(MNIST_FILES)
    assert place is not None
    monkeypatch.delenv("CLIPPER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    images, labels = list(place.form.files)[:2]
    write(tmp_path / "mnist", {images: (place.folder / images).read_bytes()[:-1]})
    with pytest.raises(FileError, match=f"{images} is damaged"):
        mnist("train", tmp_path)
    write(tmp_path / "mnist", {images: (place.folder / images).read_bytes()})
    with pytest.raises(FileError, match=f"{labels} is missing, though other files"):
        mnist("train", tmp_path)


def test_names_and_splits_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ClipperError, match="digits or mnist, cifar10, hwf, got 'svhn'"):
        train_and_test("svhn")
    for name in ("mugen", "vqar"):
        with pytest.raises(ClipperError, match=f"single images.*, got '{name}'"):
            train_and_test(name)
    for load in (mnist, cifar10, hwf, formulas):
        with pytest.raises(ClipperError, match='"train" or "test", got \'valid\''):
            load("valid")


# --- where is looked


def test_folders_are_searched_in_order_and_a_whole_set_wins_over_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"a": b"1", "b": b"2"}
    toy = source(form("toy", contents))
    monkeypatch.setenv("CLIPPER_DATA", os.fspath(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    assert find(toy, tmp_path / "root") is None
    for folder in ("cache/clipper", "env", "root"):  # each comes before the one before
        write(tmp_path / folder / "toy", {"a": b"1"})
        place = find(toy, tmp_path / "root")
        assert place is not None
        assert place.states() == {"a": "verified", "b": "missing"}
    write(tmp_path / "cache" / "clipper" / "toy", contents)
    for folder in ("cache/clipper", "env", "root"):
        write(tmp_path / folder / "toy", contents)
        place = find(toy, tmp_path / "root")
        assert place is not None
        assert place.folder == tmp_path / folder / "toy"


@pytest.mark.usefixtures("nothing_here")
def test_every_data_set_has_an_inventory(tmp_path: Path) -> None:
    assert [inventory(name, tmp_path).summary for name in NAMES] == ["embedded", *["absent"] * 5]
