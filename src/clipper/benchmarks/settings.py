"""The effective settings of a run: defaults are filled in, and options without effect are left out."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from clipper.benchmarks.config import AUTO, RunConfig
from clipper.engines import AblSim, DolphinLoss, Engine, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.pruning import Clipper
from clipper.pruning.objectives import POOLED

ENGINES: dict[str, type[Engine]] = {
    "semantic": SemanticLoss,
    "sampled": SampledSemanticLoss,
    "dolphin": DolphinLoss,
    "scallop": ScallopLoss,
    "ised": IsedLoss,
    "abl-sim": AblSim,
}
"""The engines by their names in configurations."""
DRAWS = 32
"""How many candidates the engine "sampled" draws for each sample by default."""
_NOT_OPTIONS = {"self", "outputs", "rule", "seed", "entropy"}
"""Arguments of engines that come from the benchmark or the configuration."""
_OF_PRUNING = ("k", "radius", "encoder", "metric", "when", "passes", "bank")
"""Fields without effect if nothing is pruned."""


def clip_of(config: RunConfig) -> Clipper | None:
    """The run's `Clipper`; None for the baseline, the ceiling, and a mixture, which prune nothing during training."""
    if config.objective == "none" or config.objective == "gold" or config.objective == "mixture":
        return None
    return Clipper(k=config.k, radius=config.radius, objective=config.objective, metric=config.metric)


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The effective settings of a run: two configurations with the same settings are the same run.

    If nothing is pruned, the options of pruning are left out. Joint inference and EM prune the pool once, by default
    with eight neighbours and the benchmark's own encoder. All options of the engine are listed.

    Returns:
        JSON values by name. `k`: neighbours of an instance. `scope`: whether they are searched in the "pool" or in the
        "batch". `when`: whether to prune "once" or each "batch". `mass`: the posterior probability of the kept
        candidates, for joint inference and EM.

    Examples:
        >>> joint = settings_of(RunConfig(objective="joint", encoder="outlines"))
        >>> joint["k"], joint["scope"], joint["when"], joint["mass"]
        (8, 'pool', 'once', 0.95)
        >>> settings_of(RunConfig(engine="scallop"))["engine_options"]["k"]
        3
        >>> settings_of(RunConfig(objective="none", k=3)) == settings_of(RunConfig(objective="none"))
        True
    """
    values = config.as_dict()
    del values["version"]
    if not config.per_sample:
        del values["draws"]
    if config.radius is None:
        del values["radius"]
    values["engine_options"] = {**_defaults(config.engine), **config.engine_options}
    clip = clip_of(config)
    if clip is None:
        return {name: value for name, value in values.items() if name not in _OF_PRUNING}
    pooled = config.objective in POOLED
    values |= {"k": clip.neighbours, "scope": "batch"}
    if pooled or config.when == "once":
        values |= {"when": "once", "scope": "pool", "bank": 0}
    if pooled:
        values |= {"mass": clip.mass, "encoder": AUTO if config.encoder == "trainable" else config.encoder}
    return values


def run_key(config: RunConfig | Mapping[str, Any]) -> str:
    """A key of a run: the same for two configurations with the same effective settings.

    Examples:
        >>> run_key(RunConfig(objective="joint", encoder="auto")) == run_key(RunConfig(objective="joint", k=8))
        True
    """
    made = config if isinstance(config, RunConfig) else RunConfig.from_dict(config)
    return json.dumps(settings_of(made), sort_keys=True)


def _defaults(engine: str) -> dict[str, Any]:
    """The defaults of an engine's options."""
    given = inspect.signature(ENGINES[engine].__init__).parameters
    options = {name: parameter.default for name, parameter in given.items() if name not in _NOT_OPTIONS}
    return {**options, "per_sample": DRAWS} if engine == "sampled" else options
