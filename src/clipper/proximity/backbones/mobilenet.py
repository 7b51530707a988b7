"""MobileNetV2 and EfficientNet-Lite: one family, stacks of inverted residuals that differ in a few numbers.

This file does not depend on weights files or preprocessing; it only knows EfficientNet's published parameter names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils import fuse_conv_bn_eval

STEM_WIDTH = 32
"""Channels after the first convolution."""
FEATURES = 1280
"""Length of the pooled features."""


@dataclass(frozen=True)
class Stage:
    """Several inverted residuals of one shape; the first of them has the stride.

    Attributes:
        expansion: the factor by which a block is wider inside.
        width: the number of output channels.
        depth: how many blocks.
        stride: stride of the first block.
        kernel: size of the depthwise convolution.
    """

    expansion: int
    width: int
    depth: int
    stride: int
    kernel: int = 3


MOBILENET_V2 = (
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 32, 3, 2),
    Stage(6, 64, 4, 2),
    Stage(6, 96, 3, 1),
    Stage(6, 160, 3, 2),
    Stage(6, 320, 1, 1),
)


def _lite(widths: Sequence[int], depths: Sequence[int]) -> tuple[Stage, ...]:
    """The stages of an EfficientNet-Lite, which differ in width and depth."""
    shapes = ((1, 1, 3), (6, 2, 3), (6, 2, 5), (6, 2, 3), (6, 1, 5), (6, 2, 5), (6, 1, 3))
    return tuple(
        Stage(expansion, width, depth, stride, kernel)
        for (expansion, stride, kernel), width, depth in zip(shapes, widths, depths, strict=True)
    )


EFFICIENTNET_LITE = (
    _lite((16, 24, 40, 80, 112, 192, 320), (1, 2, 2, 3, 3, 4, 1)),
    _lite((16, 24, 40, 80, 112, 192, 320), (1, 3, 3, 4, 4, 5, 1)),
    _lite((16, 24, 48, 88, 120, 208, 352), (1, 3, 3, 4, 4, 5, 1)),
)
"""The stages of EfficientNet-Lite0, 1 and 2."""


class SamePadding(nn.Conv2d):
    """A convolution padded as TensorFlow does: the odd pixel goes to the right and to the bottom.

    Examples:
        >>> import torch
        >>> SamePadding(1, 1, 3, stride=2)(torch.zeros(1, 1, 6, 7)).shape
        torch.Size([1, 1, 3, 4])
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """`(instances, channels, height, width)`, each side divided by the stride and rounded up."""
        top, bottom = self._around(inputs.shape[2])
        left, right = self._around(inputs.shape[3])
        return super().forward(nn.functional.pad(inputs, (left, right, top, bottom)))

    def _around(self, length: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        missing = max(0, (-(-length // stride) - 1) * stride + kernel - length)
        return missing // 2, missing - missing // 2


@dataclass(frozen=True)
class Layers:
    """How the convolutions of a network are padded and their outputs normalised.

    Attributes:
        same_padding: pad as TensorFlow does.
        epsilon: added to the variance by batch normalisation.
    """

    same_padding: bool = False
    epsilon: float = 1e-5

    def unit(
        self, incoming: int, outgoing: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> tuple[nn.Module, nn.Module, nn.Module]:
        """Convolution, batch normalisation, activation."""
        convolution: nn.Module = (
            SamePadding(incoming, outgoing, kernel, stride, groups=groups, bias=False)
            if self.same_padding
            else nn.Conv2d(incoming, outgoing, kernel, stride, kernel // 2, groups=groups, bias=False)
        )
        return convolution, nn.BatchNorm2d(outgoing, eps=self.epsilon), nn.ReLU6(inplace=True)


class InvertedResidual(nn.Module):
    """Widens by a 1×1 convolution, filters each channel by itself, narrows; adds the input where shapes allow."""

    def __init__(self, incoming: int, stage: Stage, stride: int, layers: Layers) -> None:
        super().__init__()
        wide = incoming * stage.expansion
        widen = layers.unit(incoming, wide) if stage.expansion > 1 else ()
        filtering = layers.unit(wide, wide, stage.kernel, stride, groups=wide)
        narrow = layers.unit(wide, stage.width)[:2]  # linear: no activation
        self.conv = nn.Sequential(*widen, *filtering, *narrow)
        self.adds_input = stride == 1 and incoming == stage.width

    def forward(self, inputs: Tensor) -> Tensor:
        """`(instances, channels, height, width)` in and out."""
        outputs: Tensor = self.conv(inputs)
        return inputs + outputs if self.adds_input else outputs


class InvertedResiduals(nn.Module):
    """A stem, stages of inverted residuals and a 1×1 convolution; gives pooled features.

    Examples:
        >>> import torch
        >>> mobilenet_v2()(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 1280])
    """

    def __init__(self, stages: Sequence[Stage], layers: Layers) -> None:
        super().__init__()
        blocks: list[nn.Module] = [nn.Sequential(*layers.unit(3, STEM_WIDTH, kernel=3, stride=2))]
        width = STEM_WIDTH
        for stage in stages:
            for position in range(stage.depth):
                blocks.append(InvertedResidual(width, stage, stage.stride if position == 0 else 1, layers))
                width = stage.width
        blocks.append(nn.Sequential(*layers.unit(width, FEATURES)))
        self.features = nn.Sequential(*blocks)

    def forward(self, inputs: Tensor) -> Tensor:
        """`(instances, 3, height, width)` to `(instances, 1280)`."""
        hidden: Tensor = self.features(inputs)  # (instances, 1280, height, width)
        return hidden.mean((2, 3))


def mobilenet_v2() -> InvertedResiduals:
    """MobileNetV2 without its classification layer; features of length 1280."""
    return InvertedResiduals(MOBILENET_V2, Layers())


def efficientnet_lite(size: int) -> InvertedResiduals:
    """EfficientNet-Lite without its classification layer; features of length 1280.

    Its weights were trained in TensorFlow, hence the padding and the larger epsilon.

    Args:
        size: 0, 1 or 2.
    """
    return InvertedResiduals(EFFICIENTNET_LITE[size], Layers(same_padding=True, epsilon=1e-3))


def fold_norms(network: nn.Module) -> nn.Module:
    """Fold each batch normalisation into the convolution before it, in place; for a network in evaluation mode.

    This makes a training step faster, because a normalisation mostly moves memory. The statistics stay those of the
    weights file.

    Args:
        network: in evaluation mode; convolutions and their normalisations are neighbours in an `nn.Sequential`.

    Returns:
        The same function of its inputs, with trainable weights.

    Examples:
        >>> any("running_mean" in name for name in fold_norms(mobilenet_v2().eval()).state_dict())
        False
    """
    for name, child in network.named_children():
        setattr(network, name, fold_norms(child))
    if not isinstance(network, nn.Sequential):
        return network.requires_grad_(True)
    layers: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, nn.BatchNorm2d) and layers and isinstance(layers[-1], nn.Conv2d):
            layers[-1] = fuse_conv_bn_eval(layers[-1], layer)
        else:
            layers.append(layer)
    return nn.Sequential(*layers).eval().requires_grad_(True)


_INSIDE = {"_expand_conv": 0, "_bn0": 1, "_depthwise_conv": 3, "_bn1": 4, "_project_conv": 6, "_bn2": 7}


def efficientnet_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The published EfficientNet-Lite parameters under the names of `InvertedResiduals`.

    Examples:
        >>> import torch
        >>> list(efficientnet_names({"_blocks.15._bn1.bias": torch.ones(1), "_conv_head.weight": torch.ones(1)}))
        ['features.16.conv.4.bias', 'features.17.0.weight']
    """
    blocks = max((int(match[1]) + 1 for name in state if (match := re.match(r"_blocks\.(\d+)\.", name))), default=0)
    return {_renamed(name, blocks): tensor for name, tensor in state.items()}


def _renamed(name: str, blocks: int) -> str:
    if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
        block, layer, rest = int(match[1]), _INSIDE.get(match[2]), match[3]
        # The first block does not widen, so its layers stand three places earlier.
        return name if layer is None else f"features.{block + 1}.conv.{layer - 3 * (block == 0)}.{rest}"
    layer_name, _, rest = name.partition(".")
    head = blocks + 1
    outside = {"_conv_stem": "0.0", "_bn0": "0.1", "_conv_head": f"{head}.0", "_bn1": f"{head}.1"}
    return f"features.{outside[layer_name]}.{rest}" if layer_name in outside else name
