"""Networks: the classifiers that the benchmarks train.

Each consists of `features`, the layers up to the last but one, and `head`, the last layer. So one forward pass gives
both log-probabilities and embeddings. Pixels are in 0 … 1; each network normalises them itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clipper.errors import InputError
from clipper.proximity import Outlines
from clipper.proximity.backbones.mobilenet import FEATURES, fold_norms
from clipper.proximity.backbones.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from clipper.proximity.backbones.pretrained import pretrained
from clipper.proximity.backbones.resnet import resnet18


class Classifier(nn.Module):
    """A network that gives log-probabilities and, from the same pass, the embedding they were computed from.

    Examples:
        >>> classifier = Classifier(features=nn.Flatten(), head=nn.Linear(64, 10), shape=(1, 8, 8))
        >>> log_probs, embedding = classifier(torch.rand(5, 1, 8, 8))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 64]))
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        features: nn.Module,
        head: nn.Module,
        shape: tuple[int, ...],
        mean: float | Tensor = 0.0,
        deviation: float | Tensor = 1.0,
    ) -> None:
        """Join the two parts.

        Args:
            features: `(instances, *shape)` to `(instances, d)`.
            head: `(instances, d)` to scores `(instances, c)`, dropout included.
            shape: the shape of one instance.
            mean: of the training inputs; it is subtracted first.
            deviation: of the training inputs; they are divided by it.
        """
        super().__init__()
        self.features = features
        self.head = head
        self.shape = shape
        self.register_buffer("mean", torch.as_tensor(mean), persistent=False)
        self.register_buffer("deviation", torch.as_tensor(deviation), persistent=False)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """`(instances, *shape)` to log-probabilities `(instances, c)` and embeddings `(instances, d)`."""
        if inputs.shape[1:] != self.shape:
            raise InputError(
                f"expected inputs of shape (instances, {', '.join(map(str, self.shape))}), got {tuple(inputs.shape)}; "
                "samples and slots are flattened into instances first: inputs.flatten(0, 1)"
            )
        embedding: Tensor = self.features((inputs - self.mean) / self.deviation)  # (instances, d)
        return self.head(embedding).log_softmax(-1), embedding


class MnistCnn(Classifier):
    """The paper's network for 28×28 digits.

    Its embedding is the 1024 activations before dropout.

    Examples:
        >>> log_probs, embedding = MnistCnn()(torch.rand(5, 1, 28, 28))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 1024]))
    """

    def __init__(self, classes: int = 10) -> None:
        features = nn.Sequential(
            nn.Conv2d(1, 32, 5),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.MaxPool2d(2),
            nn.Flatten(),  # (instances, 64 * 4 * 4)
            nn.Linear(1024, 1024),
            nn.ReLU(),
        )
        super().__init__(
            features, nn.Sequential(nn.Dropout(0.5), nn.Linear(1024, classes)), (1, 28, 28), 0.1307, 0.3081
        )


class LeNet(Classifier):
    """DeepProbLog's network for 28×28 digits, used in papers on MNIST-Add; a fortieth of `MnistCnn`'s operations.

    Convolutions of 6 and 16 channels, layers of 120 and 84, no dropout.

    Examples:
        >>> log_probs, embedding = LeNet()(torch.rand(5, 1, 28, 28))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 84]))
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        features = nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),  # (instances, 16 * 4 * 4)
            nn.Linear(256, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        super().__init__(features, nn.Linear(84, classes), (channels, 28, 28), 0.1307, 0.3081)


class HwfCnn(Classifier):
    """The paper's network for 45×45 handwritten symbols: by default thirteen, the digits 1 to 9 and four operators.

    Examples:
        >>> log_probs, embedding = HwfCnn(symbols=13)(torch.rand(5, 1, 45, 45))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 13]), torch.Size([5, 128]))
    """

    def __init__(self, symbols: int = 13) -> None:
        features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),  # (instances, 64 * 22 * 22)
            nn.Linear(30976, 128),
            nn.ReLU(),
        )
        super().__init__(features, nn.Sequential(nn.Dropout(0.5), nn.Linear(128, symbols)), (1, 45, 45), 0.5)


class SymbolCnn(Classifier):
    """A small network for 45×45 handwritten symbols, with a tenth of `HwfCnn`'s operations.

    Examples:
        >>> log_probs, embedding = SymbolCnn()(torch.rand(5, 1, 45, 45))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 13]), torch.Size([5, 128]))
    """

    def __init__(self, symbols: int = 13) -> None:
        features = nn.Sequential(
            nn.Conv2d(1, 16, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),  # (instances, 32 * 8 * 8)
            nn.Dropout(0.25),
            nn.Linear(2048, 128),
            nn.ReLU(),
        )
        super().__init__(features, nn.Sequential(nn.Dropout(0.5), nn.Linear(128, symbols)), (1, 45, 45), 0.5)


class LinearOnOutlines(nn.Module):
    """A linear layer on an image's `Outlines`, which are not trained: a baseline for joint inference on them.

    Examples:
        >>> log_probs, embedding = LinearOnOutlines()(torch.rand(5, 1, 28, 28))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 392]))
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.outlines = Outlines()
        self.head = nn.Linear(self.outlines.directions * self.outlines.cells**2, classes)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """`(instances, channels, side, side)` to log-probabilities `(instances, c)` and outlines `(instances, d)`."""
        outlines = self.outlines(inputs)
        return self.head(outlines).log_softmax(-1), outlines


class CifarResNet18(Classifier):
    """ResNet-18, not pretrained, for 32×32 photographs.

    Examples:
        >>> log_probs, embedding = CifarResNet18()(torch.rand(5, 3, 32, 32))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 512]))
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__(resnet18(classes=0), nn.Linear(512, classes), (3, 32, 32), 0.473, 0.251)


class CifarMobileNetV2(Classifier):
    """MobileNetV2 with its published ImageNet weights, to be fine-tuned on 32×32 photographs, which it enlarges.

    Its batch normalisations keep ImageNet's statistics, and are folded into the convolutions.

    Args:
        classes: how many labels there are.
        backbone: the pretrained network, which is changed; by default it is read from the published weights.
        size: side in pixels to which images are enlarged.

    Raises:
        MissingExtraError: the weights are not on this machine; the message says how to install them.

    Examples:
        >>> from clipper.proximity.backbones.mobilenet import mobilenet_v2
        >>> log_probs, embedding = CifarMobileNetV2(backbone=mobilenet_v2())(torch.rand(5, 3, 32, 32))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 1280]))
    """

    def __init__(self, classes: int = 10, backbone: nn.Module | None = None, size: int = 96) -> None:
        network = pretrained("mobilenet-v2").module if backbone is None else backbone
        if not isinstance(network, nn.Module):
            raise InputError(f"expected a network as the backbone, got {network!r}")
        features = nn.Sequential(nn.Upsample((size, size), mode="bilinear"), fold_norms(network.eval()))
        head = nn.Sequential(nn.Dropout(0.2), nn.Linear(FEATURES, classes))
        mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
        super().__init__(features, head, (3, 32, 32), mean, deviation)


class ClipCnn(Classifier):
    """A small video encoder: 256 numbers from a 32×32 frame's colours and its motion, and a classifier on them.

    Examples:
        >>> log_probs, embedding = ClipCnn()(torch.rand(5, 4, 32, 32))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 8]), torch.Size([5, 256]))
    """

    def __init__(self, classes: int = 8) -> None:
        features = nn.Sequential(
            nn.Conv2d(4, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),  # (instances, 32 * 4 * 4)
            nn.Linear(512, 256),
            nn.ReLU(),
        )
        super().__init__(features, nn.Linear(256, classes), (4, 32, 32), 0.5, 0.25)


class NameMlp(Classifier):
    """The paper's network for the names of VQAR's objects, from their features.

    Args:
        names: how many there are.
        features: how many numbers describe an object.
        mean: of the training inputs.
        deviation: of the training inputs.

    Examples:
        >>> log_probs, embedding = NameMlp(50)(torch.rand(5, 2048))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 50]), torch.Size([5, 1024]))
    """

    def __init__(
        self, names: int, features: int = 2048, mean: float | Tensor = 0.0, deviation: float | Tensor = 1.0
    ) -> None:
        layers = nn.Sequential(nn.Linear(features, 1024), nn.ReLU(), nn.Dropout(0.3), nn.Linear(1024, 1024), nn.ReLU())
        super().__init__(layers, nn.Sequential(nn.Dropout(0.3), nn.Linear(1024, names)), (features,), mean, deviation)


class RelationMlp(Classifier):
    """The paper's network for the relations of VQAR's objects, from the features and boxes of both.

    Args:
        relations: how many there are.
        features: how many numbers describe an object, besides its box.
        mean: of the training inputs.
        deviation: of the training inputs.

    Examples:
        >>> log_probs, embedding = RelationMlp(20)(torch.rand(5, 2 * (2048 + 4)))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 20]), torch.Size([5, 1024]))
    """

    def __init__(
        self, relations: int, features: int = 2048, mean: float | Tensor = 0.0, deviation: float | Tensor = 1.0
    ) -> None:
        width = 2 * (features + 4)
        layers = nn.Sequential(nn.Linear(width, 1024), nn.ReLU())
        super().__init__(layers, nn.Sequential(nn.Dropout(0.5), nn.Linear(1024, relations)), (width,), mean, deviation)


class DigitsMlp(Classifier):
    """A small network for the embedded 8×8 digits, fast on any machine.

    Examples:
        >>> log_probs, embedding = DigitsMlp()(torch.rand(5, 1, 8, 8))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 64]))
    """

    def __init__(self, classes: int = 10) -> None:
        features = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        super().__init__(features, nn.Linear(64, classes), (1, 8, 8), 0.3, 0.38)


class DigitsCnn(Classifier):
    """A convolutional network for the embedded 8×8 digits: four times as slow as `DigitsMlp`, and more accurate.

    Examples:
        >>> log_probs, embedding = DigitsCnn()(torch.rand(5, 1, 8, 8))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 10]), torch.Size([5, 64]))
    """

    def __init__(self, classes: int = 10) -> None:
        features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),  # (instances, 32 * 2 * 2)
            nn.Linear(128, 64),
            nn.ReLU(),
        )
        super().__init__(features, nn.Linear(64, classes), (1, 8, 8), 0.3, 0.38)


class FeaturesMlp(Classifier):
    """A network for vectors of features, standardised by the mean and deviation of the training instances.

    Args:
        instances: the training instances, `(instances, d)`.
        classes: how many labels there are.

    Examples:
        >>> log_probs, embedding = FeaturesMlp(torch.rand(100, 30), classes=2)(torch.rand(5, 30))
        >>> log_probs.shape, embedding.shape
        (torch.Size([5, 2]), torch.Size([5, 256]))
    """

    def __init__(self, instances: Tensor, classes: int) -> None:
        deviation, mean = torch.std_mean(instances, 0)
        width = instances.shape[1]
        features = nn.Sequential(nn.Hardtanh(-5, 5), nn.Linear(width, 256), nn.ReLU())  # cuts off outliers
        head = nn.Sequential(nn.Dropout(0.5), nn.Linear(256, classes))
        super().__init__(features, head, (width,), mean, torch.where(deviation > 0, deviation, 1))

    def standardised(self, inputs: Tensor) -> Tensor:
        """Features with mean 0 and deviation 1 among the training instances, `(instances, d)`."""
        return (inputs - self.mean) / self.deviation


class BagMlp(FeaturesMlp):
    """A network for the instances of bags, label 1 being positive.

    The bias of its head starts at about one positive instance per bag. If each instance started at one half, a bag of
    a thousand would be positive with certainty.

    Args:
        instances: the training instances, `(instances, d)`.
        positive: how many of them are predicted positive at the start, about.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> log_probs, _ = BagMlp(torch.rand(1000, 30), positive=10)(torch.rand(500, 30))
        >>> 3 < log_probs[:, 1].exp().sum().item() < 8
        True
    """

    def __init__(self, instances: Tensor, positive: int) -> None:
        super().__init__(instances, classes=2)
        start = torch.tensor([len(instances) / positive, 1.0]).log()
        with torch.no_grad():
            self.head.get_parameter("1.bias").copy_(start)
