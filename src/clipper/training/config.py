"""TrainConfig: everything that decides how a benchmark run ends, in one value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from clipper.arguments import MOST, MOST_SEED, real_number, whole_number
from clipper.errors import InputError
from clipper.training.record import Record

Rule = Literal["sum", "max", "hwf", "align", "vqar"]
DataSet = Literal["digits", "mnist", "cifar10", "hwf", "clips", "mugen", "scenes", "vqar"]
EngineName = Literal["semantic", "dolphin", "scallop", "ised", "abl-sim", "sampled"]
TrainObjective = Literal["none", "paper", "exact", "joint", "random", "gold"]
When = Literal["batch", "once"]
OptimiserName = Literal["adamw", "adam", "sgd"]
_LATER = {"names", "passes"}
"""Fields that the first records do not have."""
_OWN_DATA: dict[str, tuple[str, ...]] = {"hwf": ("hwf",), "align": ("clips", "mugen"), "vqar": ("scenes", "vqar")}
"""Rules that go with data sets of their own, and only with these."""
_FROM_ZERO = ("seed", "bank", "per_sample")
"""The whole numbers that may be 0."""
_MOST = {"seed": MOST_SEED, "slots": 10_000}
"""The largest whole numbers where they are not the usual ones; nobody could work with longer samples."""


@dataclass(frozen=True)
class TrainConfig:
    """One run. The defaults are the paper's for SUM-3, on the embedded digits.

    Examples:
        >>> config = TrainConfig(objective="exact", seed=3)
        >>> TrainConfig.from_dict(config.as_dict()) == config
        True
    """

    rule: Rule = "sum"
    """What is known of a sample: this rule's value on its labels; with "align", the actions of a clip in order."""
    slots: int = 3
    """Images per sample; frames of the longest clip."""
    samples: int = 100
    """Samples to learn from."""
    per_sample: int = 0
    """Candidates drawn at random for each sample before training; 0 for all, in a lattice where they are too many."""
    data: DataSet = "digits"
    """Where the images come from; the digits are embedded, the clips drawn, the scenes generated."""
    names: int = 50
    """With the rule "vqar": of how many names the objects are, the most frequent ones."""
    network: str = "auto"
    """A class of `clipper.benchmarks.networks`; "auto" for the one that fits the data."""
    engine: EngineName = "semantic"
    """What turns candidates into a loss."""
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the engine as keyword arguments."""
    objective: TrainObjective = "exact"
    """How to prune; "none" for the baseline, "gold" for the ceiling, where nothing but the gold labels is left."""
    k: int = 1
    """Neighbours per instance; "joint" takes one for an invitation to choose."""
    encoder: str = "trainable"
    """"trainable" for the classifier's own penultimate layer; "pixels", "blurred", "outlines" or a pretrained backbone
    for a frozen one; "shuffled", a control: outlines of other images. "joint" prunes before there is a trained layer,
    and begins with "outlines" then."""
    when: When = "batch"
    """Prune each batch, or the pool once before training (frozen encoders only); "joint" always prunes the pool."""
    passes: int = 1
    """Times that "joint" infers and trains, at most; from the second on, trained classifiers have a say."""
    bank: int = 0
    """Samples whose earlier embeddings a batch may find neighbours among."""
    epochs: int = 50
    batch: int = 64
    """Samples per step."""
    optimiser: OptimiserName = "adamw"
    lr: float = 1e-3
    entropy: float = 0.0
    """Weight of the entropy of the posterior over the candidates."""
    seed: int = 0
    """Of the draw of the samples, the first weights, the order of the samples and dropout."""
    evaluate_every: int = 1
    """Epochs between two measurements of the accuracy; the last epoch is always measured."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for name in (entry.name for entry in fields(self)):
            hint, value = hints[name], getattr(self, name)
            if get_origin(hint) is Literal and not (isinstance(value, str) and value in get_args(hint)):
                raise InputError(f"expected {name} to be one of {', '.join(get_args(hint))}, got {value!r}")
            if hint is str and not isinstance(value, str):
                raise InputError(f"expected {name} to be a name, got {value!r}")
            if hint is int:
                least, most = int(name not in _FROM_ZERO), _MOST.get(name, MOST)
                object.__setattr__(self, name, whole_number(value, name, least, most))
            if hint is float:
                object.__setattr__(
                    self, name, real_number(value, name, least=0, above=0 if name == "lr" else -math.inf)
                )
        _check_options(self.engine_options)
        if self.rule == "vqar" and self.engine == "ised":
            raise InputError(
                "ised runs a program on drawn labels, and vqar's sentences are none; choose another engine"
            )
        for rule, own in _OWN_DATA.items():
            if (self.rule == rule) != (self.data in own):
                raise InputError(
                    f"expected the rule {rule} with the data set {' or '.join(own)}, and only with it, "
                    f"got {self.rule} with {self.data}"
                )
        if self.passes > 1 and self.objective != "joint":
            raise InputError(
                f"expected one pass with the objective {self.objective}, got {self.passes}; joint takes more"
            )

    def as_dict(self) -> dict[str, Any]:
        """For records and checkpoints."""
        return asdict(self) | {"engine_options": dict(self.engine_options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The reverse of `as_dict`."""
        known = {entry.name for entry in fields(cls)}
        if not isinstance(values, Mapping):
            raise InputError(f"expected the fields of a run by name, got {values!r}")
        unknown = sorted(str(name) for name in set(values) - known)
        if unknown:
            raise InputError(f"expected the fields {', '.join(sorted(known))}, got {', '.join(unknown)} too")
        return cls(**values)


def config_of(record: Record) -> TrainConfig:
    """The configuration of a benchmark run, read from its record.

    Raises:
        InputError: if the record is not one of a benchmark run, or lacks a field.
    """
    made = TrainConfig.from_dict(record.config)
    missing = sorted(set(made.as_dict()) - set(record.config) - _LATER)
    if missing:
        raise InputError(f"expected every field of a configuration, got none for {', '.join(missing)}")
    return made


def _check_options(options: Any) -> None:
    """Refuse options that a record could not hold."""
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise InputError(f"expected engine_options by name, got {options!r}")
    try:
        same = json.loads(json.dumps(dict(options), allow_nan=False)) == dict(options)
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise InputError(
            f"expected engine_options of text, finite numbers, and lists and dictionaries of such, got {options!r:.200}"
        )
