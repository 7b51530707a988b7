"""RunConfig: everything that decides how a benchmark run ends, in one value. Every option is declared here, once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from clipper.arguments import MOST, MOST_SEED, documented, option, real_number, whole_number
from clipper.errors import InputError
from clipper.training import Record

EngineName = Literal["semantic", "dolphin", "scallop", "ised", "abl-sim", "sampled"]
TrainObjective = Literal["none", "paper", "exact", "joint", "mixture", "em", "random", "gold"]
AUTO = "auto"
"""The network, the data set or the encoder that the benchmark chooses."""
_VERSION = 2
"""Of what `as_dict` gives. Without a version, k = 1 stood for the objective's default: one neighbour, or eight."""

_LATER = {"names", "passes", "version", "schedule", "augment", "weight_decay", "draws", "restarts"}
"""Fields that the first records do not have."""


@documented
@dataclass(frozen=True)
class RunConfig:
    """One run. The defaults are the paper's for SUM-3, on the embedded digits.

    Examples:
        >>> config = RunConfig(objective="exact", seed=3)
        >>> RunConfig.from_dict(config.as_dict()) == config
        True
        >>> config.data, RunConfig(rule="hwf").data
        ('digits', 'hwf')
    """

    rule: str = option(
        "sum",
        "What is known of a sample: the name of a benchmark, such as sum, or FILE.py:NAME of your own.",
    )
    slots: int = option(3, "Images per sample: 3 for SUM-3; frames of the longest clip.", most=10_000)
    samples: int = option(100, "Samples to learn from.", flags=("--samples", "-n"))
    per_sample: int = option(0, "Candidates drawn at random for each sample before training; 0 for all.", least=0)
    draws: Literal["fixed", "gold", "fresh", "own"] = option(
        "fixed",
        "Which candidates are drawn: the same all along; these, gold among them; uniform ones anew for each step; "
        "anew from the classifier's own distribution.",
    )
    data: str = option(AUTO, "The data set; auto for the benchmark's first. The digits are embedded.")
    names: int = option(50, "With the rule vqar: how many names the objects have, the most frequent ones.")
    network: str = option(AUTO, "A class of clipper.benchmarks.networks; auto for the one that fits the data.")
    engine: EngineName = option("semantic", "What turns candidates into a loss.")
    engine_options: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "NAME=VALUE for the engine; may come twice.", "flags": ("--engine-option",)},
    )
    objective: TrainObjective = option(
        "exact",
        "exact: Problem 3.6. paper: equation (1) as printed. joint: the whole pool; em: by EM. "
        "mixture: as joint, one naming learned and all that fit predicted. "
        "random: the control. none: the baseline. gold: the ceiling, trained on gold labels.",
    )
    k: int | None = option(None, "Neighbours per instance; by default 8 with joint, else 1.", flags=("-k",))
    encoder: str = option(
        "trainable",
        "trainable: the network's own layer; joint takes the benchmark's encoder instead. Frozen: auto, pixels, "
        "blurred, outlines, resnet18, mobilenet-v2 … shuffled: a control, other instances' embeddings.",
    )
    when: Literal["batch", "once"] = option(
        "batch", "Prune each batch, or the pool once before training (frozen only)."
    )
    passes: int = option(1, "With joint: infer and train so often, at most.")
    bank: int = option(0, "Find neighbours among the last embeddings of this many samples too.", least=0)
    epochs: int = option(50, "Passes over the samples.")
    batch: int = option(64, "Samples per step.")
    optimiser: Literal["adamw", "adam", "sgd"] = option("adamw", "How the weights are updated.")
    lr: float = option(1e-3, "Learning rate.", above=0)
    weight_decay: float | None = option(None, "Weight decay; by default the optimiser's own, 0.01 with adamw.")
    schedule: Literal["constant", "one-cycle"] = option(
        "constant", "The learning rate: the same all along, or up to it and down again in one cycle over the run."
    )
    augment: Literal["none", "affine"] = option(
        "none", "affine: each image is turned, shifted and scaled a little, at random, whenever it is learned from."
    )
    entropy: float = option(0.0, "Weight of the entropy of the posterior over the candidates.")
    restarts: int = option(1, "Train so often from other first weights; the lowest training loss counts.")
    seed: int = option(0, "Of samples, first weights, order and dropout.", least=0, most=MOST_SEED)
    evaluate_every: int = option(1, "Epochs between two measurements; the last epoch is always measured.")
    data_root: str | Path | None = field(default=None, compare=False, repr=False)
    """The folder with the data sets: where the run finds things, not how it ends, so no record holds it."""

    def __post_init__(self) -> None:
        hints = _hints()
        for entry in fields(self):
            hint, value, limits = hints[entry.name], getattr(self, entry.name), entry.metadata
            if get_origin(hint) is Literal and not (isinstance(value, str) and value in get_args(hint)):
                raise InputError(f"expected {entry.name} to be one of {', '.join(get_args(hint))}, got {value!r}")
            if hint is str and not isinstance(value, str):
                raise InputError(f"expected {entry.name} to be a name, got {value!r}")
            if hint is int or (hint == int | None and value is not None):
                whole = whole_number(value, entry.name, limits.get("least", 1), limits.get("most", MOST))
                object.__setattr__(self, entry.name, whole)
            if hint is float or (hint == float | None and value is not None):
                real = real_number(value, entry.name, least=0, above=limits.get("above", -math.inf))
                object.__setattr__(self, entry.name, real)
        _check_options(self.engine_options)
        if self.passes > 1 and self.objective != "joint":
            raise InputError(
                f"expected one pass with the objective {self.objective}, got {self.passes}; joint takes more"
            )
        if self.passes > 1 and (self.schedule != "constant" or self.augment != "none"):
            raise InputError(
                f"expected a constant schedule and no augmentation with several passes, got {self.schedule} and "
                f"{self.augment}"
            )
        if self.draws != "fixed" and not self.per_sample:
            raise InputError(f"expected per_sample, the number of candidates to draw, with draws={self.draws!r}, got 0")
        if self.restarts > 1 and self.passes > 1:
            raise InputError(f"expected one pass with {self.restarts} restarts, got {self.passes}")
        if self.data == AUTO:
            from clipper.benchmarks.registry import benchmark_named

            object.__setattr__(self, "data", next(iter(benchmark_named(self.rule).data)))

    def as_dict(self) -> dict[str, Any]:
        """For records and checkpoints: JSON values only."""
        values = asdict(self) | {"engine_options": dict(self.engine_options), "version": _VERSION}
        del values["data_root"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """The reverse of `as_dict`; reads the configurations of all earlier records, too.

        Raises:
            InputError: a field is unknown, or a value is none that it can have.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"expected the fields of a run by name, got {values!r}")
        known = {entry.name for entry in fields(cls)} - {"data_root"}
        version = values.get("version", 1)
        if version not in (1, _VERSION):
            raise InputError(f"expected a configuration of version 1 or {_VERSION}, got {version!r}")
        given = {name: value for name, value in values.items() if name != "version"}
        unknown = sorted(str(name) for name in set(given) - known)
        if unknown:
            raise InputError(f"expected the fields {', '.join(sorted(known))}, got {', '.join(unknown)} too")
        if version == 1 and given.get("k") == 1:
            given["k"] = None
        return cls(**given)


@cache
def _hints() -> dict[str, Any]:
    """The types of the fields, which take longer to work out than to check."""
    return get_type_hints(RunConfig)


def config_of(record: Record) -> RunConfig:
    """The configuration of a benchmark run, read from its record.

    Raises:
        InputError: the record is not one of a benchmark run, or lacks a field.
    """
    made = RunConfig.from_dict(record.config)
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
