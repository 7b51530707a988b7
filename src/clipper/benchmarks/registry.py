"""The benchmarks by name: Clipper's own, those of installed packages, and those in your own files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import get_args

import torch
from torch import Tensor, nn

from clipper.benchmarks import networks
from clipper.benchmarks.config import AUTO, OWN_NETWORKS, EngineName, RunConfig
from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.files import read_from_file
from clipper.proximity import Encoder
from clipper.proximity.backbones.pretrained import NAMES as PRETRAINED
from clipper.proximity.backbones.pretrained import WEIGHTLESS
from clipper.training import Samples
from clipper.training.metrics import HeldOut

GROUP = "clipper.benchmarks"
"""The entry point group in which installed packages name their benchmarks."""
_OWN = (
    "sum", "long_sum", "max", "addition", "hwf", "formulas", "shortcuts", "kandinsky", "bags", "proportions", "sudoku",
    "mugen.benchmark", "vqar.benchmark",
)  # fmt: skip
"""The modules of this package that register a benchmark."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A benchmark: training samples, a network, and how to evaluate it.

    Attributes:
        samples: the training samples.
        network: from instances `(instances, *shape)` to log-probabilities; also to embeddings, if they are used to
            prune.
        evaluate: a function from the network to metrics by name, with `accuracy`; or held-out inputs and labels.
        encoder: the encoder for `"auto"` and for joint inference; None if there is none.
        outputs: every output of the program, for engines that score all outputs.
        rule: from a tuple of labels to the target, for engines that run the program.
        label_names: the names of the labels, for pages.
        target_names: what is known about each sample, as text for pages; the targets themselves if not given.
        slot: what a slot holds: "image", "frame" …
        pictures: from sample ids to pictures `(n, m, channels, height, width)` in 0 … 1, for pages; the inputs
            themselves if not given.
        note: a remark on the data, for pages.
        warm_up: samples to train on first, if the configuration asks for it.
    """

    samples: Samples
    network: nn.Module
    evaluate: HeldOut
    encoder: Encoder | None = None
    outputs: CandidateSet | None = None
    rule: Callable[..., object] | None = None
    label_names: Sequence[str] | None = None
    target_names: Sequence[str] | None = None
    slot: str = "image"
    pictures: Callable[[Tensor], Tensor] | None = None
    note: str = ""
    warm_up: Samples | None = None


Build = Callable[[RunConfig], Benchmark]


def _smaller(config: RunConfig) -> RunConfig:
    return replace(config, samples=min(config.samples, 100))


@dataclass(frozen=True)
class Registration:
    """A registered benchmark. Call it with a configuration to build it.

    Attributes:
        name: its name.
        build: from a configuration to the benchmark.
        data: the data sets that it accepts, the default first, each with the names of the networks that fit it; if
            none are named, the benchmark has its own.
        encoders: the encoders that it accepts. A name that is not one of Clipper's encoders stands for the benchmark's
            own encoder.
        engines: the engines that can learn from it.
        quick: a function from a configuration to a smaller one that runs in seconds, without files.
    """

    name: str
    build: Build
    data: Mapping[str, Sequence[str]]
    encoders: Sequence[str] = ("trainable", AUTO, *WEIGHTLESS, *OWN_NETWORKS, "shuffled", *PRETRAINED)
    engines: Sequence[str] = get_args(EngineName)
    quick: Callable[[RunConfig], RunConfig] = field(default=_smaller)

    def __call__(self, config: RunConfig) -> Benchmark:
        """Build the benchmark. The network's initial weights depend only on the seed.

        Raises:
            InputError: options of the configuration do not go together.
        """
        self.check(config)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            made = self.build(config)
        if not isinstance(made, Benchmark):
            raise InputError(f"expected {self.name} to return a Benchmark, got {made!r:.100}")
        return made

    def check(self, config: RunConfig) -> None:
        """Raise an `InputError` if options do not go together, before any data is read."""
        if config.data not in self.data:
            raise InputError(
                f"expected the rule {self.name} with the data set {' or '.join(self.data)}, got {config.data}"
            )
        known = (AUTO, *self.data[config.data])
        if config.network not in known:
            raise InputError(
                f"expected a network for the data set {config.data}: {', '.join(known)}, got {config.network!r}"
            )
        if config.engine not in self.engines:
            raise InputError(
                f"the engine {config.engine} cannot learn from the rule {self.name}; "
                f"expected one of {', '.join(self.engines)}"
            )
        if config.encoder not in self.encoders:
            raise InputError(f"expected one of the encoders {', '.join(self.encoders)}, got {config.encoder!r}")
        if config.when == "once" and config.encoder == "trainable" and config.objective in ("paper", "exact", "random"):
            frozen = [name for name in self.encoders if name != "trainable"]
            raise InputError(
                "pruning once, before training, needs a fixed encoder, got trainable: the network's own layer is not "
                f"trained yet; choose one of {', '.join(frozen)}"
            )


_REGISTERED: dict[str, Registration] = {}


def register(
    name: str,
    *,
    data: Mapping[str, Sequence[str]] | Sequence[str] = (),
    encoders: Sequence[str] = Registration.encoders,
    engines: Sequence[str] = Registration.engines,
    quick: Callable[[RunConfig], RunConfig] = _smaller,
) -> Callable[[Build], Registration]:
    """Register a benchmark: a decorator for the function that builds it.

    Args:
        name: the name of the benchmark.
        data: the data sets that it accepts, the default first; a mapping also names the networks that fit each. By
            default one data set with the name of the benchmark.
        encoders: the encoders that it accepts.
        engines: the engines that can learn from it.
        quick: a function from a configuration to a smaller one.

    Returns:
        The decorator; what it returns is a `Registration`, which builds the benchmark when it is called.

    Raises:
        InputError: the name is one of Clipper's own benchmarks.

    Examples:
        >>> @register("nothing")
        ... def nothing(config):
        ...     raise NotImplementedError
        >>> benchmark_named("nothing") is nothing, dict(_REGISTERED.pop("nothing").data)
        (True, {'nothing': ()})
    """
    sets = dict(data) if isinstance(data, Mapping) else dict.fromkeys(data or (name,), ())

    def add(build: Build) -> Registration:
        there = _REGISTERED.get(name)
        if there is not None and (there.build.__module__ or "").startswith("clipper."):
            raise InputError(f"expected a new name for the benchmark, but {name!r} is Clipper's own; choose another")
        _REGISTERED[name] = Registration(name, build, sets, encoders, engines, quick)
        return _REGISTERED[name]

    return add


def benchmark_named(name: str) -> Registration:
    """Find a benchmark by its name.

    Args:
        name: a registered name, an entry point of the group `clipper.benchmarks`, or `file.py:NAME`, where `NAME` is a
            function from a configuration to a `Benchmark`, registered or not.

    Raises:
        InputError: there is no such benchmark, or the file cannot be run.

    Examples:
        >>> benchmark_named("sum").name
        'sum'
    """
    for module in _OWN:
        importlib.import_module(f"clipper.benchmarks.{module}")
    if name in _REGISTERED:
        return _REGISTERED[name]
    path, _, attribute = name.rpartition(":")
    if path.endswith(".py"):
        return _registration(read_from_file(name, "a function from a RunConfig to a Benchmark"), attribute)
    others = {point.name: point for point in metadata.entry_points(group=GROUP)}
    if name in others:
        try:
            return _registration(others[name].load(), name)
        except Exception as error:  # another package may raise anything
            raise InputError(f"the benchmark {name} of {others[name].value} cannot be loaded ({error!r})") from error
    raise InputError(
        f"expected one of the rules {', '.join(sorted({*_REGISTERED, *others}))}, or FILE.py:NAME of your own, "
        f"got {name!r}"
    )


def network_of(config: RunConfig) -> Callable[..., nn.Module]:
    """The class of the network that a configuration names; by default the first that fits the data set.

    Examples:
        >>> network_of(RunConfig(rule="sum", data="mnist")).__name__
        'MnistCnn'
    """
    name = benchmark_named(config.rule).data[config.data][0] if config.network == AUTO else config.network
    network: Callable[..., nn.Module] = getattr(networks, name)
    return network


def _registration(found: object, name: str) -> Registration:
    if isinstance(found, Registration):
        return found
    if not callable(found):
        raise InputError(f"expected {name} to be a function from a RunConfig to a Benchmark, got {found!r:.100}")
    return Registration(name, found, {name: ()})
