"""From the names in a configuration to the parts of a run: network, engine, pruning, optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks import networks
from clipper.benchmarks.datasets import Images
from clipper.benchmarks.tasks import RULES, Task, draw
from clipper.candidates import Candidates
from clipper.engines import AblSim, DolphinLoss, Engine, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import InputError
from clipper.proximity import Encoder, Pixels, embed, pretrained
from clipper.pruning import Clipper
from clipper.training.config import TrainConfig

NETWORKS: dict[str, Callable[[int], networks.Classifier]] = {
    "DigitsMlp": networks.DigitsMlp,
    "DigitsCnn": networks.DigitsCnn,
    "MnistCnn": networks.MnistCnn,
}
_NETWORK_OF_DATA = {"digits": "DigitsMlp", "mnist": "MnistCnn"}
_SCALE = {"digits": (0.3, 0.38), "mnist": (0.1307, 0.3081)}
"""Mean and deviation of the training images' pixels."""
_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


def task_of(config: TrainConfig, images: Images) -> Task:
    """The samples that the run learns from."""
    return draw(images, config.rule, config.samples, config.slots, config.seed)


def network_of(config: TrainConfig, classes: int) -> networks.Classifier:
    """The classifier, with first weights that depend on the seed alone."""
    name = _NETWORK_OF_DATA[config.data] if config.network == "auto" else config.network
    if name not in NETWORKS:
        raise InputError(f"expected the network auto, {', '.join(NETWORKS)}, got {name!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return NETWORKS[name](classes)


def normalised(pixels: Tensor, data: str) -> Tensor:
    """Pixels in [0, 1] as the networks want them."""
    mean, deviation = _SCALE[data]
    return (pixels - mean) / deviation


def engine_of(config: TrainConfig, classes: int) -> Engine:
    """The engine with its options.

    Examples:
        >>> engine_of(TrainConfig(engine="sampled", engine_options={"per_sample": 8}), classes=10).per_sample
        8
    """
    options: dict[str, Any] = {"entropy": config.entropy, **config.engine_options}
    makers: dict[str, Callable[..., Engine]] = {
        "semantic": SemanticLoss,
        "sampled": lambda per_sample=32, **rest: SampledSemanticLoss(per_sample, seed=config.seed, **rest),
        "dolphin": lambda **rest: DolphinLoss(outputs=outputs_of(config, classes), **rest),
        "scallop": lambda **rest: ScallopLoss(outputs=outputs_of(config, classes), **rest),
        "ised": lambda **rest: IsedLoss(RULES[config.rule], seed=config.seed, **rest),
        "abl-sim": AblSim,
    }
    try:
        return makers[config.engine](**options)
    except TypeError as error:
        raise InputError(f"the engine {config.engine!r} does not take the options {options}: {error}") from error


def outputs_of(config: TrainConfig, classes: int) -> Candidates:
    """The candidates of every value of the rule; a value is its own place among them."""
    highest = (classes - 1) * (config.slots if config.rule == "sum" else 1)
    return Candidates.from_rule(RULES[config.rule], range(highest + 1), config.slots, classes)


def clip_of(config: TrainConfig) -> Clipper | None:
    """How the run prunes; None for the baseline, and for the ceiling."""
    if config.objective == "none" or config.objective == "gold":
        return None
    return Clipper(k=config.k, objective=config.objective)


def candidates_of(config: TrainConfig, task: Task) -> Candidates:
    """What the run starts from: the task's candidates or, for the ceiling, the gold labels alone."""
    if config.objective != "gold":
        return task.candidates
    return Candidates.from_tensors(task.gold, torch.arange(len(task.gold)), task.candidates.classes)


def embeddings_of(config: TrainConfig, task: Task) -> Tensor | None:
    """A frozen encoder's output for all samples, `(n, m, d)`; None if the encoder is trained, or nothing is pruned."""
    if config.encoder == "trainable" or clip_of(config) is None:
        return None
    encoder: Encoder = Pixels() if config.encoder == "pixels" else pretrained(config.encoder)
    return embed(encoder, task.inputs)


def optimiser_of(config: TrainConfig, network: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the network's weights."""
    return _OPTIMISERS[config.optimiser](network.parameters(), lr=config.lr)


def held_out_of(config: TrainConfig, images: Images) -> tuple[Tensor, Tensor]:
    """Inputs and labels to measure the accuracy on."""
    return normalised(images.pixels, config.data), images.labels
