"""ResNet: residual networks whose parameter names are those of torchvision's and timm's files.

This file knows nothing of weights files, preprocessing or labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

STEM_WIDTH = 64
"""Channels after the first convolution."""


def convolution(incoming: int, outgoing: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution whose output has the size of its input, divided by the stride."""
    return nn.Conv2d(incoming, outgoing, kernel, stride, padding=kernel // 2, bias=False)


class _Residual(nn.Module):
    """A block that adds the output of its convolutions to its input, which is projected if the shape changes."""

    expansion: int

    def __init__(self, incoming: int, outgoing: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential()
        if stride != 1 or incoming != outgoing:
            self.downsample = nn.Sequential(convolution(incoming, outgoing, 1, stride), nn.BatchNorm2d(outgoing))

    def forward(self, inputs: Tensor) -> Tensor:
        """Keeps the shape, unless the block has a stride or more channels."""
        residual: Tensor = self.residual(inputs) + self.downsample(inputs)
        return residual.relu_()

    def residual(self, inputs: Tensor) -> Tensor:
        """What is added to the input."""
        raise NotImplementedError


class BasicBlock(_Residual):
    """Two 3×3 convolutions: the block of ResNet-18 and -34."""

    expansion = 1

    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__(incoming, width, stride)
        self.conv1 = convolution(incoming, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)

    def residual(self, inputs: Tensor) -> Tensor:
        """What is added to the input."""
        hidden = self.relu(self.bn1(self.conv1(inputs)))
        added: Tensor = self.bn2(self.conv2(hidden))
        return added


class Bottleneck(_Residual):
    """1×1, 3×3 and 1×1 convolutions, the stride on the middle one: the block of ResNet-50 and deeper."""

    expansion = 4

    def __init__(self, incoming: int, width: int, stride: int) -> None:
        outgoing = width * self.expansion
        super().__init__(incoming, outgoing, stride)
        self.conv1 = convolution(incoming, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outgoing, 1)
        self.bn3 = nn.BatchNorm2d(outgoing)

    def residual(self, inputs: Tensor) -> Tensor:
        """What is added to the input."""
        hidden = self.relu(self.bn1(self.conv1(inputs)))
        hidden = self.relu(self.bn2(self.conv2(hidden)))
        added: Tensor = self.bn3(self.conv3(hidden))
        return added


class ResNet(nn.Module):
    """A residual network; without classes it gives its pooled features.

    Examples:
        >>> import torch
        >>> network = ResNet(BasicBlock, depths=(1, 1, 1, 1), classes=0)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 512])
    """

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: Sequence[int], classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = convolution(3, STEM_WIDTH, 7, stride=2)
        self.bn1 = nn.BatchNorm2d(STEM_WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.width = STEM_WIDTH
        """Channels so far; in the end, the length of the features."""
        self.layer1 = self._stage(block, STEM_WIDTH, depths[0], stride=1)
        self.layer2 = self._stage(block, STEM_WIDTH * 2, depths[1], stride=2)
        self.layer3 = self._stage(block, STEM_WIDTH * 4, depths[2], stride=2)
        self.layer4 = self._stage(block, STEM_WIDTH * 8, depths[3], stride=2)
        self.fc = nn.Linear(self.width, classes) if classes else nn.Identity()
        self._initialise()

    def forward(self, inputs: Tensor) -> Tensor:
        """`(instances, 3, height, width)` to `(instances, classes)`, or `(instances, d)` without classes."""
        hidden = self.maxpool(self.relu(self.bn1(self.conv1(inputs))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            hidden = stage(hidden)  # (instances, channels, height, width)
        scores: Tensor = self.fc(hidden.mean((2, 3)))  # (instances, classes)
        return scores

    def _stage(self, block: type[BasicBlock | Bottleneck], width: int, depth: int, stride: int) -> nn.Sequential:
        blocks: list[nn.Module] = []
        for position in range(depth):
            blocks.append(block(self.width, width, stride if position == 0 else 1))
            self.width = width * block.expansion
        return nn.Sequential(*blocks)

    def _initialise(self) -> None:
        """Variance-preserving convolutions (He et al. 2015), as the published training runs started from."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet18(classes: int = 1000) -> ResNet:
    """ResNet-18; features of length 512.

    Examples:
        >>> sum(parameter.numel() for parameter in resnet18().parameters())
        11689512
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet152(classes: int = 1000) -> ResNet:
    """ResNet-152; features of length 2048.

    Examples:
        >>> import torch
        >>> with torch.device("meta"):
        ...     sum(parameter.numel() for parameter in resnet152().parameters())
        60192808
    """
    return ResNet(Bottleneck, (3, 8, 36, 3), classes)
