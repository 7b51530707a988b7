"""The backbones once more, straight from a file of tensors, written as plain functions: the oracle of their tests."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

State = Mapping[str, Tensor]


def normalised(hidden: Tensor, state: State, name: str, epsilon: float = 1e-5) -> Tensor:
    """Batch normalisation by its formula."""
    column = {
        part: state[f"{name}.{part}"].view(-1, 1, 1) for part in ("weight", "bias", "running_mean", "running_var")
    }
    scale = column["weight"] / (column["running_var"] + epsilon).sqrt()
    return (hidden - column["running_mean"]) * scale + column["bias"]


def resnet(state: State, images: Tensor) -> Tensor:
    """Scores of a ResNet in torchvision's names; depth and kind of block are read off the names."""
    hidden = normalised(functional.conv2d(images, state["conv1.weight"], stride=2, padding=3), state, "bn1").clamp(0)
    hidden = functional.max_pool2d(hidden, 3, 2, 1)
    for stage in range(1, 5):
        block = 0
        while f"layer{stage}.{block}.conv1.weight" in state:
            hidden = _residual(state, f"layer{stage}.{block}", hidden, stride=2 if stage > 1 and block == 0 else 1)
            block += 1
    pooled = hidden.flatten(2).mean(2)
    return pooled @ state["fc.weight"].T + state["fc.bias"]


def _residual(state: State, name: str, inputs: Tensor, stride: int) -> Tensor:
    bottleneck = f"{name}.conv3.weight" in state
    strided = 2 if bottleneck else 1
    hidden = inputs
    for position in range(1, 4 if bottleneck else 3):
        weight = state[f"{name}.conv{position}.weight"]
        step = stride if position == strided else 1
        hidden = functional.conv2d(hidden, weight, stride=step, padding=weight.shape[-1] // 2)
        hidden = normalised(hidden, state, f"{name}.bn{position}")
        hidden = hidden.clamp(0) if position < (3 if bottleneck else 2) else hidden
    if f"{name}.downsample.0.weight" in state:
        inputs = functional.conv2d(inputs, state[f"{name}.downsample.0.weight"], stride=stride)
        inputs = normalised(inputs, state, f"{name}.downsample.1")
    return (hidden + inputs).clamp(0)


def keras_resnet(state: State, images: Tensor) -> Tensor:
    """Pooled features of Keras's ResNet-50 in the names of its file; colours come as blue, green, red."""

    def unit(name: str, normalisation: str, hidden: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
        kernel, part = (
            state[f"{name}/kernel"].permute(3, 2, 0, 1),
            lambda own: state[f"{normalisation}/{own}"].view(-1, 1, 1),
        )
        hidden = functional.conv2d(hidden, kernel, state[f"{name}/bias"], stride, padding)
        scale = part("gamma") / (part("moving_variance") + 1e-3).sqrt()
        return (hidden - part("moving_mean")) * scale + part("beta")

    hidden = unit("conv1", "bn_conv1", images.flip(1), 2, 3).clamp(0)
    hidden = functional.max_pool2d(functional.pad(hidden, (1, 1, 1, 1)), 3, 2)
    for stage in range(2, 6):
        for block in "abcdef":
            name = f"{stage}{block}_branch"
            if f"res{name}2a/kernel" not in state:
                break
            stride = 2 if stage > 2 and block == "a" else 1
            inner = unit(f"res{name}2a", f"bn{name}2a", hidden, stride).clamp(0)
            inner = unit(f"res{name}2b", f"bn{name}2b", inner, padding=1).clamp(0)
            inner = unit(f"res{name}2c", f"bn{name}2c", inner)
            hidden = unit(f"res{name}1", f"bn{name}1", hidden, stride) if block == "a" else hidden
            hidden = (inner + hidden).clamp(0)
    return hidden.flatten(2).mean(2)


def efficientnet_lite(state: State, images: Tensor) -> Tensor:
    """Pooled features of EfficientNet-Lite in the names of its published file."""
    blocks = sum(name.endswith("_project_conv.weight") for name in state)
    strided = {16: (1, 3, 5, 11), 21: (1, 4, 7, 15)}[blocks]  # the first blocks of the stages that halve the image
    hidden = _same(images, state["_conv_stem.weight"], stride=2)
    hidden = normalised(hidden, state, "_bn0", 1e-3).clamp(0, 6)
    for block in range(blocks):
        hidden = _inverted(state, f"_blocks.{block}", hidden, stride=2 if block in strided else 1)
    hidden = normalised(functional.conv2d(hidden, state["_conv_head.weight"]), state, "_bn1", 1e-3).clamp(0, 6)
    return hidden.flatten(2).mean(2)


def _inverted(state: State, name: str, inputs: Tensor, stride: int) -> Tensor:
    hidden = inputs
    if f"{name}._expand_conv.weight" in state:
        hidden = functional.conv2d(hidden, state[f"{name}._expand_conv.weight"])
        hidden = normalised(hidden, state, f"{name}._bn0", 1e-3).clamp(0, 6)
    weight = state[f"{name}._depthwise_conv.weight"]
    hidden = normalised(_same(hidden, weight, stride, len(weight)), state, f"{name}._bn1", 1e-3).clamp(0, 6)
    hidden = functional.conv2d(hidden, state[f"{name}._project_conv.weight"])
    hidden = normalised(hidden, state, f"{name}._bn2", 1e-3)
    return hidden + inputs if hidden.shape == inputs.shape else hidden


def _same(images: Tensor, weight: Tensor, stride: int, groups: int = 1) -> Tensor:
    """TensorFlow's SAME padding for even sides: half of what is missing, the odd pixel last."""
    missing = weight.shape[-1] - stride
    before, after = missing // 2, missing - missing // 2
    return functional.conv2d(functional.pad(images, (before, after, before, after)), weight, None, stride, 0, 1, groups)


def randomised(network: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Give batch normalisation statistics that are not those of a fresh network."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
            module.weight.data.uniform_(0.2, 0.6, generator=generator)
            module.bias.data.normal_(generator=generator)
    return network.eval()
