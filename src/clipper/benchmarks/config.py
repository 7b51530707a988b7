"""RunConfig: all options of a benchmark run, and the help texts that `clipper train --help` shows."""

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
"""Stands for the benchmark's default network, data set or encoder."""
OWN_NETWORKS = ("untrained", "trained")
"""Encoders that are networks like the run's own: with its initial weights, or trained on other samples."""
_VERSION = 2
"""Version of what `as_dict` returns. In version 1, k = 1 stood for the objective's default: one neighbour, or eight."""

_LATER = {
    "names", "passes", "version", "schedule", "augment", "weight_decay", "draws", "restarts", "trial", "warm_up",
    "metric", "radius",
}  # fmt: skip
"""Fields that older records do not have."""


@documented
@dataclass(frozen=True)
class RunConfig:
    """The options of a benchmark run. The defaults are the paper's for SUM-3, on scikit-learn's digits.

    Examples:
        >>> config = RunConfig(objective="exact", seed=3)
        >>> RunConfig.from_dict(config.as_dict()) == config
        True
        >>> config.data, RunConfig(rule="hwf").data
        ('digits', 'hwf')
    """

    rule: str = option(
        "sum",
        "What is known about a sample: the name of a benchmark, such as sum, or FILE.py:NAME of your own.",
    )
    slots: int = option(3, "Inputs per sample: 3 for SUM-3; for clips, the frames of the longest clip.", most=10_000)
    samples: int = option(100, "Number of training samples.", flags=("--samples", "-n"))
    per_sample: int = option(0, "Use only this many random candidates of each sample; 0 for all.", least=0)
    draws: Literal["fixed", "gold", "fresh", "own"] = option(
        "fixed",
        "With --per-sample, how candidates are drawn. fixed: once, before training. gold: the same, with the gold "
        "labels among them. fresh: again for each step, uniformly. own: again for each step, from the "
        "classifier's distribution.",
    )
    data: str = option(AUTO, "The data set; auto for the benchmark's default. digits needs no download.")
    names: int = option(50, "With the rule vqar: use only this many names of objects, the most frequent.")
    network: str = option(AUTO, "A class of clipper.benchmarks.networks; auto for the data set's default.")
    engine: EngineName = option("semantic", "The loss on the candidates.")
    engine_options: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "NAME=VALUE for the engine; repeat for several.", "flags": ("--engine-option",)},
    )
    objective: TrainObjective = option(
        "exact",
        "How candidates are pruned. exact: the paper's Problem 3.6. paper: its equation (1) as printed. "
        "joint: joint inference over the pool. em: the same by expectation-maximisation. mixture: as joint; if "
        "several namings (one label for each group of inputs) fit, train on one and predict with all. random: the "
        "control, which discards as many at random. none: the baseline, all candidates. gold: the ceiling, trained on "
        "gold labels.",
    )
    k: int | None = option(None, "Neighbours per instance; default: 8 with joint and em, else 1.", flags=("-k",))
    radius: float | None = option(
        None, "Use all neighbours nearer than this, instead of the nearest ones (the paper's θ).", above=0
    )
    encoder: str = option(
        "trainable",
        "What embeds the inputs. trainable: the network's last but one layer (joint uses auto instead). auto: the "
        "benchmark's own. Or a fixed one: pixels, blurred, outlines, resnet18, mobilenet-v2 and others. untrained: "
        "the network's layer with its initial weights. For comparison only: trained, a network trained on gold labels "
        "of other samples; shuffled, where each instance has the embedding of another.",
    )
    metric: Literal["l2", "cosine"] = option(
        "l2", "The distance between embeddings; cosine suits the features of pretrained networks."
    )
    when: Literal["batch", "once"] = option(
        "batch", "Prune each batch, or the whole pool once before training (not with trainable)."
    )
    passes: int = option(1, "With joint: at most this many rounds of inference and training.")
    bank: int = option(0, "Also find neighbours among this many samples of earlier batches.", least=0)
    epochs: int = option(50, "Passes over the samples.")
    batch: int = option(64, "Samples per step.")
    optimiser: Literal["adamw", "adam", "sgd"] = option("adamw", "The optimiser.")
    lr: float = option(1e-3, "Learning rate.", above=0)
    weight_decay: float | None = option(None, "Weight decay; default: the optimiser's, 0.01 for adamw.")
    schedule: Literal["constant", "one-cycle"] = option(
        "constant", "Schedule of the learning rate: constant, or PyTorch's one-cycle with --lr as its maximum."
    )
    augment: Literal["none", "affine", "flip-shift"] = option(
        "none",
        "affine: rotate, shift and scale training images a little, at random. flip-shift: mirror and shift them, for "
        "photographs.",
    )
    entropy: float = option(0.0, "Weight of a penalty on the entropy of the posterior over the candidates.")
    restarts: int = option(
        1, "Train this many times from different initial weights; keep the run with the lowest training loss."
    )
    warm_up: int = option(
        0,
        "With the rule sum: first train for this many epochs on the images whose label follows from all sums by least "
        "squares.",
        least=0,
    )
    trial: int = option(0, "With --restarts: train each for only this many epochs, then continue the best.", least=0)
    seed: int = option(0, "Seed of the samples, the initial weights, the order and dropout.", least=0, most=MOST_SEED)
    evaluate_every: int = option(1, "Measure the accuracy every this many epochs, and after the last one.")
    data_root: str | Path | None = field(default=None, compare=False, repr=False)
    """The folder with the data sets. It does not affect the result, so records leave it out."""

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
                f"expected one pass with the objective {self.objective}, got {self.passes}; only joint allows more"
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
        if self.warm_up and self.rule != "sum":
            raise InputError(f"expected the rule sum with a warm-up of {self.warm_up} epochs, got {self.rule}")
        if self.trial and self.restarts == 1:
            raise InputError(f"expected several restarts with trials of {self.trial} epochs, got restarts=1")
        if self.data == AUTO:
            from clipper.benchmarks.registry import benchmark_named

            object.__setattr__(self, "data", next(iter(benchmark_named(self.rule).data)))

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values, for records and checkpoints."""
        values = asdict(self) | {"engine_options": dict(self.engine_options), "version": _VERSION}
        del values["data_root"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """The reverse of `as_dict`; also reads the configurations of earlier versions.

        Raises:
            InputError: a field is unknown, or has an invalid value.
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
    """The types of the fields, cached because they are slow to resolve."""
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
    """Raise an `InputError` if a record could not store the options."""
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
