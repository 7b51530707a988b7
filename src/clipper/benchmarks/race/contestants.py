"""The contestants of the race: function, environment, settings, and the source of the settings.

The examples of other frameworks pass over 30,000 pairs a few times. Here there are fewer samples, so a contestant
makes more passes, until it has seen as many samples as in its own example (`samples_seen`). Schedules are spread over
the run: over the samples to see or over the time limit, whichever ends first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clipper.arguments import named_like
from clipper.benchmarks.environments import PACKAGES


@dataclass(frozen=True)
class Contestant:
    """A contestant of the race.

    Attributes:
        name: its name on the command line.
        title: its name on pages.
        function: `module:name` of the function that trains; its only argument is a `Heat`.
        settings: the settings that it trains with.
        document: the source that recommends these settings.
        peer: the framework whose environment it runs in; None for Clipper's own.
        packages: the packages whose versions its rows record.
        imports: modules that are imported before the clock starts.
        ours: whether it uses Clipper.
    """

    name: str
    title: str
    function: str
    settings: Mapping[str, Any]
    document: str
    peer: str | None = None
    packages: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    ours: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `pip install`."""
        return PACKAGES[self.peer] if self.peer else ()


_HERE = "clipper.benchmarks.race"
_CLIPPER = {"optimiser": "AdamW", "lr": 1e-3, "batch": 64, "epochs": 50}
_CLIPPER_DOCUMENT = "the defaults of clipper train (docs/command-line.md)"
_ABLKIT = {
    "optimiser": "RMSprop", "alpha": 0.9, "lr": 3e-4, "schedule": "one cycle, 15 % of it upwards", "batch": 32,
    "label_smoothing": 0.2, "segment": 300, "distance": "confidence", "samples_seen": 60_000,
}  # fmt: skip
_ABLKIT_DOCUMENT = (
    "examples/mnist_add/main.py of ABLkit 1.0.0: 2 loops over 30,000 pairs in segments of 300 pairs (1 %)"
)
_IN_ABLKIT = "ablkit", ("ablkit",), ("ablkit.bridge", "ablkit.learning", "ablkit.reasoning")
_LTNTORCH = {
    "optimiser": "Adam", "lr": 1e-3, "batch": 32, "and": "product", "forall_p": 2,
    "exists_p": "1, 2, 4, 6, from 0, 20, 40, 60 % of the run on", "samples_seen": 600_000,
}  # fmt: skip
_LTNTORCH_DOCUMENT = "examples/4-semi-supervised_pattern_recognition.ipynb of LTNtorch 1.0.2: 20 epochs of 30,000 pairs"
_IN_LTNTORCH = "ltntorch", ("LTNtorch",), ("ltn",)

CONTESTANTS = (
    Contestant(
        "clipper", "Clipper: joint inference, then training", f"{_HERE}.with_clipper:joint_inference",
        {**_CLIPPER, "loss": "semantic, on what joint inference keeps", "encoder": "outlines"},
        _CLIPPER_DOCUMENT + ", with --objective joint", ours=True,
    ),
    Contestant(
        "clipper-exact", "Clipper: the exact loss alone", f"{_HERE}.with_clipper:exact_loss",
        {**_CLIPPER, "loss": "semantic, on all candidates"},
        _CLIPPER_DOCUMENT + ", with --objective none", ours=True,
    ),
    Contestant(
        "ablkit", "ABLkit", f"{_HERE}.with_ablkit:alone", _ABLKIT, _ABLKIT_DOCUMENT,
        *_IN_ABLKIT,
    ),
    Contestant(
        "clipper-ablkit", "Clipper in ABLkit", f"{_HERE}.with_ablkit:with_joint_inference", _ABLKIT,
        _ABLKIT_DOCUMENT + "; ClipperReasoner as in docs/integrations.md", *_IN_ABLKIT, ours=True,
    ),
    Contestant(
        "ltntorch", "LTNtorch", f"{_HERE}.with_ltntorch:alone", _LTNTORCH, _LTNTORCH_DOCUMENT,
        *_IN_LTNTORCH,
    ),
    Contestant(
        "clipper-ltntorch", "Clipper in LTNtorch", f"{_HERE}.with_ltntorch:with_joint_inference", _LTNTORCH,
        _LTNTORCH_DOCUMENT + "; guard as in docs/integrations.md", *_IN_LTNTORCH, ours=True,
    ),
    Contestant(
        "deepproblog", "DeepProbLog", f"{_HERE}.with_deepproblog:alone",
        {"optimiser": "Adam", "lr": 1e-3, "batch": 2, "engine": "exact, cached", "samples_seen": 30_000},
        "src/deepproblog/examples/MNIST/addition.py of DeepProbLog 2.1.0: 1 epoch of 30,000 pairs",
        "deepproblog", ("deepproblog", "problog", "PySDD"), ("deepproblog.train", "deepproblog.engines"),
    ),
    Contestant(
        "klay", "KLay circuits", f"{_HERE}.with_klay:circuit_loss",
        {"optimiser": "AdamW", "lr": 3e-4, "weight_decay": 1e-5, "batch": 128, "semiring": "log", "compile": False,
         "samples_seen": 360_000},
        "experiments/mnist_addition/run.py of KLay: 12 epochs of 30,000 pairs; not compiled: no gain on a CPU",
        "klay", ("klaycircuits",), ("klay",),
    ),
    Contestant(
        "snorkel", "Votes, as Snorkel trains on them", f"{_HERE}.with_snorkel:votes",
        {"optimiser": "Adam", "lr": 0.01, "clip": 1.0, "batch": 32, "epochs": 50},
        "the defaults of Snorkel 0.10.0's TrainerConfig; its one epoch is made 50, as Clipper's",
        "snorkel", ("snorkel",), ("snorkel.classification",),
    ),
)  # fmt: skip


def contestants_like(patterns: list[str]) -> list[Contestant]:
    """The contestants whose names match one of the patterns, in their order; all of them for no pattern.

    Raises:
        InputError: if nothing matches a pattern.

    Examples:
        >>> [contestant.name for contestant in contestants_like(["*ablkit", "klay"])]
        ['ablkit', 'clipper-ablkit', 'klay']
    """
    return named_like(patterns, {each.name: each for each in CONTESTANTS}, "a contestant, or a pattern")
