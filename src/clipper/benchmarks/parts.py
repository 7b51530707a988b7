"""From the names in a configuration to the parts of a run: network, engine, pruning, optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks import networks
from clipper.benchmarks.datasets import Images, train_and_test
from clipper.benchmarks.mugen.problem import learned_and_held_out
from clipper.benchmarks.mugen.retrieval import ClipExam
from clipper.benchmarks.mugen.task import ClipTask, Middle
from clipper.benchmarks.tasks import RULES, LatticeTask, Task, draw, draw_lattice, needs_lattice
from clipper.benchmarks.vqar.knowledge import read_knowledge
from clipper.benchmarks.vqar.task import SceneTask, scene_task
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.kinds import sizes_of
from clipper.engines import AblSim, DolphinLoss, Engine, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import InputError
from clipper.proximity import Encoder, Outlines, Pixels, embed, pretrained
from clipper.proximity.backbones.pretrained import NAMES as PRETRAINED
from clipper.pruning import Clipper
from clipper.training import Classifiers
from clipper.training.config import TrainConfig
from clipper.training.metrics import HeldOut

AnyTask = Task | LatticeTask | ClipTask | SceneTask
"""What a run may learn from."""
NETWORKS: dict[str, Callable[[int], networks.Classifier]] = {
    "DigitsMlp": networks.DigitsMlp,
    "DigitsCnn": networks.DigitsCnn,
    "MnistCnn": networks.MnistCnn,
    "CifarResNet18": networks.CifarResNet18,
    "HwfCnn": networks.HwfCnn,
    "ClipCnn": networks.ClipCnn,
}
_NETWORKS_OF_DATA = {
    "digits": ("DigitsMlp", "DigitsCnn"), "mnist": ("MnistCnn",), "cifar10": ("CifarResNet18",), "hwf": ("HwfCnn",),
    "clips": ("ClipCnn",), "mugen": ("ClipCnn",), "scenes": (), "vqar": (),
}  # fmt: skip
"""The networks whose inputs are of each data set's shape, the one for "auto" first; scenes have a pair of their own."""
_SCALE = {
    "digits": (0.3, 0.38), "mnist": (0.1307, 0.3081), "cifar10": (0.473, 0.251), "hwf": (0.5, 1.0),
    "clips": (0.5, 0.25), "mugen": (0.5, 0.25), "vqar": (0.0, 1.0), "scenes": (0.0, 1.0),
}  # fmt: skip
"""Mean and deviation of the training images' pixels."""
_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}
_ENCODER_SIZE = 96
"""To which side the small images of the benchmarks are enlarged for a pretrained encoder: 224 costs five times more."""
_WEIGHTLESS: dict[str, Encoder] = {
    "pixels": Pixels(),
    "blurred": Pixels(blur=1.0),  # a small shift of a stroke is a small distance then
    "outlines": Outlines(),
    "shuffled": Outlines(),
    "middle": Middle(),
}
_OF_SCENES = ("trainable", "features", "shuffled")
"""Encoders of scenes, which have features instead of pixels."""
_MOST_OUTPUTS = 100_000
"""Candidates of all outputs together, past which an engine sees those of the target alone."""


def problem_of(config: TrainConfig, data_root: str | Path | None = None) -> tuple[AnyTask, HeldOut, int]:
    """The samples that a run learns from, what it is measured on, and how many labels there are."""
    check_parts(config)
    if config.rule == "vqar":
        known = len(read_knowledge(data_root).names)
        if config.names > known:
            raise InputError(f"expected names of at most {known:,}, as many as VQAR has, got {config.names:,}")
        scenes = scene_task(config.data, config.names, config.samples, config.seed, data_root)
        return scenes, scenes.held_out, scenes.candidates.classes
    if config.rule == "align":
        learned, held_out = learned_and_held_out(config.data, config.samples, config.slots, config.seed, data_root)
        exam = ClipExam(replace(held_out, inputs=normalised(held_out.inputs, config.data)))
        return learned, exam, learned.candidates.classes
    images, test = train_and_test(config.data, data_root)
    return task_of(config, images), held_out_of(config, test), images.classes


def check_parts(config: TrainConfig) -> None:
    """Refuse parts that do not go together, before any data is read.

    Examples:
        >>> check_parts(TrainConfig(network="HwfCnn"))
        Traceback (most recent call last):
        ...
        clipper.errors.InputError: expected a network for the data set digits: auto, DigitsMlp, DigitsCnn, got 'HwfCnn'
    """
    known = ("auto", *_NETWORKS_OF_DATA[config.data])
    if config.network not in known:
        raise InputError(
            f"expected a network for the data set {config.data}: {', '.join(known)}, got {config.network!r}"
        )
    if config.rule in ("align", "vqar") and config.engine in ("ised", "abl-sim"):
        takes = "runs a rule on single labels" if config.engine == "ised" else "compares all instances with one another"
        raise InputError(
            f"the engine {config.engine} {takes} and cannot learn from the rule {config.rule}; "
            "expected one of semantic, sampled, dolphin, scallop"
        )
    encoders = _OF_SCENES if config.rule == "vqar" else ("trainable", *_WEIGHTLESS, *PRETRAINED)
    if config.encoder not in encoders:
        raise InputError(f"expected one of the encoders {', '.join(encoders)}, got {config.encoder!r}")
    if config.when == "once" and config.encoder == "trainable" and config.objective in ("paper", "exact", "random"):
        raise InputError(
            "pruning once, before training, needs a frozen encoder, got trainable: the classifier's own layer means "
            f"something only while it is trained; choose one of {', '.join(encoders[1:])}"
        )


def task_of(config: TrainConfig, images: Images) -> Task | LatticeTask:
    """The samples that the run learns from; a lattice holds their candidates where these are too many to list."""
    if holds_lattice(config, images.classes):
        return draw_lattice(images, config.rule, config.samples, config.slots, config.seed)
    per_sample = config.per_sample or None
    return draw(images, config.rule, config.samples, config.slots, config.seed, per_sample=per_sample)


def holds_lattice(config: TrainConfig, classes: int) -> bool:
    """Whether a run learns from all candidates, and these are too many to list."""
    return not config.per_sample and needs_lattice(config.rule, config.slots, classes)


def network_of(config: TrainConfig, classes: int) -> networks.Classifier:
    """The classifier, with first weights that depend on the seed alone."""
    check_parts(config)
    name = _NETWORKS_OF_DATA[config.data][0] if config.network == "auto" else config.network
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return NETWORKS[name](classes)


def scene_networks(config: TrainConfig, task: SceneTask) -> Classifiers:
    """A network for names and one for relations, with first weights that depend on the seed alone."""
    names, relations = (kind.stop - kind.start for kind in task.packing.kinds)
    features = task.packing.shapes[0][0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        own = {"name": networks.NameMlp(names, features), "rel": networks.RelationMlp(relations, features)}
        return Classifiers(own, task.packing)


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
    check_parts(config)
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
        given = ", ".join(f"{name}={value!r}" for name, value in config.engine_options.items()) or "no options"
        raise InputError(f"the engine {config.engine} does not take {given}: {error}") from error


def outputs_of(config: TrainConfig, classes: int) -> Candidates | None:
    """The candidates of every value of the rule, a value being its own place; None where they are too many to list."""
    if config.rule not in ("sum", "max") or config.per_sample or classes**config.slots > _MOST_OUTPUTS:
        return None
    highest = (classes - 1) * (config.slots if config.rule == "sum" else 1)
    return Candidates.from_rule(RULES[config.rule], range(highest + 1), config.slots, classes)


def clip_of(config: TrainConfig) -> Clipper | None:
    """How the run prunes; None for the baseline, and for the ceiling."""
    if config.objective == "none" or config.objective == "gold":
        return None
    # Records of joint runs that say k = 1 used the objective's own number, 8, and still do.
    k = None if config.objective == "joint" and config.k == 1 else config.k
    return Clipper(k=k, objective=config.objective)


def candidates_of(config: TrainConfig, task: AnyTask) -> CandidateSet:
    """What the run starts from: the task's candidates or, for the ceiling, the gold labels alone."""
    if config.objective != "gold":
        return task.candidates
    if task.gold is None:
        raise InputError(f"the ceiling learns from gold labels, and nobody knows those of {config.data}")
    return Candidates.from_tensors(task.gold, torch.arange(len(task.gold)), sizes_of(task.candidates.kinds))


def embeddings_of(config: TrainConfig, task: AnyTask) -> Tensor | None:
    """A frozen encoder's output for all samples, `(n, m, d)`; None if the encoder is trained, or nothing is pruned."""
    if clip_of(config) is None or encoder_name(config) == "trainable":
        return None
    if isinstance(task, SceneTask):
        return _shuffled_by_kind(task, config.seed) if config.encoder == "shuffled" else task.embeddings
    vectors = embed(_encoder(encoder_name(config)), task.inputs)
    return _shuffled(vectors, config.seed) if config.encoder == "shuffled" else vectors


def _shuffled(vectors: Tensor, seed: int) -> Tensor:
    """Each instance with another one's vector, `(n, m, d)`: the control that knows nothing."""
    order = torch.randperm(vectors.shape[0] * vectors.shape[1], generator=torch.Generator().manual_seed(seed))
    return vectors.flatten(0, 1)[order.to(vectors.device)].view_as(vectors)


def _shuffled_by_kind(task: SceneTask, seed: int) -> Tensor:
    """Each name with another name's vector and each relation with another's, `(n, m, d)`; unused slots stay."""
    vectors = task.embeddings.clone()
    generator = torch.Generator().manual_seed(seed)
    for kind in range(len(task.candidates.kinds)):
        places = (task.candidates.kind == kind).nonzero(as_tuple=True)
        order = torch.randperm(len(places[0]), generator=generator).to(vectors.device)
        vectors[places] = vectors[places][order]
    return vectors


def encoder_name(config: TrainConfig) -> str:
    """The encoder that the run prunes with; before training, the trained one is yet to come."""
    if config.objective != "joint" or config.encoder != "trainable":
        return config.encoder
    return {"align": "middle", "vqar": "features"}.get(config.rule, "outlines")


def _encoder(name: str) -> Encoder:
    if name in _WEIGHTLESS:
        return _WEIGHTLESS[name]
    return pretrained(name, size=_ENCODER_SIZE)


def once_of(config: TrainConfig) -> bool:
    """Whether the pool is pruned as a whole before training."""
    return clip_of(config) is not None and (config.when == "once" or config.objective == "joint")


def optimiser_of(config: TrainConfig, network: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the network's weights."""
    return _OPTIMISERS[config.optimiser](network.parameters(), lr=config.lr)


def held_out_of(config: TrainConfig, images: Images) -> tuple[Tensor, Tensor]:
    """Inputs and labels to measure the accuracy on."""
    return normalised(images.pixels, config.data), images.labels
