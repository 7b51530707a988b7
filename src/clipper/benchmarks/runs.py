"""Runs a benchmark, from its configuration to its record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from clipper.benchmarks.config import OWN_NETWORKS, RunConfig
from clipper.benchmarks.drawing import HELD
from clipper.benchmarks.registry import Benchmark, benchmark_named
from clipper.benchmarks.settings import DRAWS, ENGINES, clip_of, settings_of
from clipper.candidates import Candidates
from clipper.candidates.kinds import sizes_of
from clipper.engines import Engine
from clipper.errors import InputError
from clipper.files import make_folder
from clipper.labelling import NamedPool, NamingMixture, name_pool
from clipper.proximity import Encoder, Frozen, ProximityGraph, embed, encoder_named
from clipper.proximity.backbones.pretrained import NAMES as PRETRAINED
from clipper.proximity.backbones.pretrained import WEIGHTLESS
from clipper.pruning.objectives import POOLED
from clipper.training import (
    Augmented,
    Callback,
    Draws,
    History,
    Inspector,
    RandomAffine,
    RandomFlipShift,
    Record,
    Samples,
    train,
    train_iterated,
)
from clipper.training.checkpoint import check_whole
from clipper.training.environment import commit, load
from clipper.training.metrics import DRAWN, NEAR
from clipper.training.samples import mixed

_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}
_PICTURES = 800
"""About how many pictures go into an inspection."""
_ENCODER_SIZE = 96
"""Side in pixels to which small images are enlarged for a pretrained encoder; 224 takes five times as long."""

_OTHERS, _OTHER_EPOCHS = 10, 10
"""The encoder "trained" learns the gold labels of this many times as many other samples, for this many epochs."""
_COMPARED = 5_000
"""How often a nearest neighbour has the same class is measured only in pools of at most this many instances."""
_LOADED = 256
"""Samples that are loaded at a time, if not all are in memory."""


def run(
    config: RunConfig,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_steps: int | None = None,
    watch: Callback | None = None,
    callbacks: Sequence[Callback] = (),
    inspection: str | Path | None = None,
) -> Record:
    """Build the benchmark and train; the same configuration gives the same result.

    Args:
        config: all options of the run.
        checkpoint: the file for the run's state; if it exists, the run continues from it.
        checkpoint_steps: steps between two checkpoints, besides those at the end of every epoch.
        watch: called after each step and each epoch.
        callbacks: called after each epoch.
        inspection: where to write an `Inspection` of the first epoch's pruning, for the pruning inspector.

    Returns:
        The record: the configuration, every epoch's metrics, versions.

    Raises:
        InputError: options of the configuration do not go together.
        FileError: the data set is not found, or a file cannot be read or written.

    Examples:
        >>> record = run(RunConfig(samples=20, slots=2, epochs=2, objective="exact"))
        >>> len(record.epochs), record.last.accuracy is not None
        (2, True)
    """
    if checkpoint is not None:
        check_whole(checkpoint)
    code, before = commit(), load()
    benchmark = benchmark_named(config.rule)(config)
    options: dict[str, Any] = {"watch": watch, "callbacks": callbacks}
    if config.restarts == 1:
        options |= {"checkpoint": checkpoint, "checkpoint_steps": checkpoint_steps}
        history = _trained(config, benchmark, inspected=inspection is not None, **options)
    else:  # restarts are short, and write no checkpoints
        history = _best_of_restarts(config, benchmark, options)
    seen = history.inspection
    if inspection is not None and seen is not None:
        make_folder(Path(inspection).parent)
        replace(seen, notes=[*seen.notes, *filter(None, [benchmark.note])]).write(inspection)
    return Record(
        config.as_dict(),
        history,
        settings=settings_of(config) | _chosen(config, benchmark),
        commit=code,
        load={**load(), **({"before": before["average"]} if before else {})},
    )


def _best_of_restarts(config: RunConfig, benchmark: Benchmark, options: dict[str, Any]) -> History:
    """Train from several initial weights, and keep the run with the lowest training loss in its last epoch.

    If the restarts are trials of a few epochs, the training of the best one continues. The choice uses neither gold
    labels nor held-out data.
    """
    trial = replace(config, epochs=config.trial) if config.trial else config
    found = []
    for number in range(config.restarts):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mixed(config.seed, number))
            for module in benchmark.network.modules():
                if hasattr(module, "reset_parameters"):
                    module.reset_parameters()  # type: ignore[operator]
        history = _trained(trial, benchmark, **options)
        found.append((history, copy.deepcopy(benchmark.network.state_dict())))
    best, weights = min(found, key=lambda each: each[0][-1].loss)
    benchmark.network.load_state_dict(weights)
    return _trained(config, replace(benchmark, warm_up=None), **options) if config.trial else best  # the trial did it


def _trained(
    config: RunConfig,
    benchmark: Benchmark,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_steps: int | None = None,
    watch: Callback | None = None,
    callbacks: Sequence[Callback] = (),
    inspected: bool = False,
) -> History:
    """Train the benchmark's network. If `inspected`, also collect what the pruning inspector shows."""
    network = benchmark.network
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter faster on a CPU
    samples = learned_samples(config, benchmark)
    if benchmark.warm_up is not None:
        _warm_up(config, network, benchmark.warm_up)
    if config.objective == "mixture":
        named = named_pool(config, benchmark)
        samples, network = replace(samples, candidates=named.candidates), NamingMixture(network, named)
    engine, clip, embeddings = engine_of(config, benchmark), clip_of(config), embeddings_of(config, benchmark)
    options: dict[str, Any] = {name: getattr(config, name) for name in ("epochs", "batch", "seed", "evaluate_every")}
    options |= {"evaluate": benchmark.evaluate, "watch": watch, "callbacks": callbacks}
    options |= {"checkpoint": checkpoint, "checkpoint_steps": checkpoint_steps}
    inspected = inspected or checkpoint is not None  # a page of the run may be asked for later
    if inspected and config.objective != "gold":
        options["inspect"] = Inspector(
            max(16, min(100, _PICTURES // samples.candidates.slots)),
            names=benchmark.label_names,
            slot=benchmark.slot,
            targets=benchmark.target_names,
            pictures=benchmark.pictures,
        )
    if config.passes > 1 and embeddings is not None:
        make = partial(optimiser_of, config)
        return train_iterated(
            network, samples, engine, embeddings, passes=config.passes, clip=clip, make_optimiser=make, **options
        )[-1].history
    options |= {"once": clip is not None and (config.when == "once" or config.objective in POOLED)}
    options |= {"bank": config.bank if clip else 0, "optimiser": optimiser_of(config, network)}
    options |= {"scheduler": scheduler_of(config, len(samples)), "draws": draws_of(config)}
    scores = _scores_of(config, samples, embeddings)
    history = train(network, samples, engine, clip=clip, embeddings=embeddings, **options)
    epochs = [replace(metrics, scores={**metrics.scores, **scores}) for metrics in history]
    return History(epochs, history.config, history.inspection)


def _warm_up(config: RunConfig, network: torch.nn.Module, samples: Samples) -> None:
    """Train on single images first, as many in a step as there are in the run's own steps."""
    first = replace(config, epochs=config.warm_up, batch=config.batch * config.slots)
    optimiser, scheduler = optimiser_of(first, network), scheduler_of(first, len(samples))
    options: dict[str, Any] = {"epochs": first.epochs, "batch": first.batch, "seed": first.seed}
    train(network, samples, ENGINES["semantic"](), optimiser=optimiser, scheduler=scheduler, **options)


def draws_of(config: RunConfig) -> Draws | None:
    """The draws that are repeated for every step; None if there are none, or they were made before training."""
    if not config.per_sample or config.draws in HELD or config.objective == "gold":
        return None
    return Draws(config.per_sample, own=config.draws == "own")


def _scores_of(config: RunConfig, samples: Samples, embeddings: Tensor | None) -> dict[str, float]:
    """Scores of the samples by their gold labels, before training; they are recorded, and used for nothing else.

    If candidates were drawn once, the share of samples with the gold labels among them. If the embeddings are frozen,
    the share of instances whose nearest neighbour has the same class.
    """
    gold = samples.gold
    scores: dict[str, float] = {}
    if gold is None:
        return scores
    if config.per_sample and draws_of(config) is None and config.objective != "gold":
        scores[DRAWN] = float(samples.candidates.contains(gold).double().mean())
    one_kind = len(sizes_of(samples.candidates.kinds)) == 1
    if embeddings is not None and one_kind and gold.numel() <= _COMPARED and bool((gold >= 0).all()):
        near = ProximityGraph.from_embeddings(embeddings, k=1, metric=config.metric)
        scores[NEAR] = float((gold.flatten()[near.source] == gold.flatten()[near.target]).double().mean())
    return scores


def _chosen(config: RunConfig, benchmark: Benchmark) -> dict[str, Any]:
    """What the benchmark chose where the configuration says "auto"."""
    chosen = {"network": type(benchmark.network).__name__}
    if clip_of(config) is None or (config.encoder == "trainable" and config.objective not in POOLED):
        return chosen
    if config.encoder in PRETRAINED:
        return {**chosen, "encoder": f"{config.encoder}, {_ENCODER_SIZE} pixels"}
    if config.encoder in OWN_NETWORKS:
        return {**chosen, "encoder": f"{config.encoder} {chosen['network']}"}
    encoder = _encoder(config, benchmark)
    name = repr(encoder) if is_dataclass(encoder) else getattr(encoder, "__name__", type(encoder).__name__)
    return {**chosen, "encoder": f"shuffled {name}" if config.encoder == "shuffled" else name}


def learned_samples(config: RunConfig, benchmark: Benchmark) -> Samples:
    """The training samples: the benchmark's; for the ceiling, with the gold labels as the only candidates."""
    samples = benchmark.samples
    if config.objective == "gold":
        if samples.gold is None:
            raise InputError(
                f"the ceiling trains on gold labels, but the data set {config.data} has none; choose another objective"
            )
        gold = Candidates.from_tensors(samples.gold, torch.arange(len(samples)), sizes_of(samples.candidates.kinds))
        samples = replace(samples, candidates=gold)
    if config.augment == "none":
        return samples
    if not samples.in_memory or samples.inputs.ndim != 5:
        raise InputError(f"expected images in memory to augment, which the data set {config.data} does not have")
    transform = RandomAffine() if config.augment == "affine" else RandomFlipShift()
    return replace(samples, inputs=Augmented(samples.inputs, transform))


def named_pool(config: RunConfig, benchmark: Benchmark) -> NamedPool[Any]:
    """The groups of instances that the benchmark's encoder finds, and all ways to name them."""
    samples = benchmark.samples
    if not samples.in_memory:
        raise InputError(f"expected inputs in memory for a mixture, which the rule {config.rule} does not have")
    return name_pool(samples.candidates, embed(_encoder(config, benchmark), samples.inputs), seed=config.seed)


def engine_of(config: RunConfig, benchmark: Benchmark) -> Engine:
    """The engine with its options."""
    options: dict[str, Any] = {"entropy": config.entropy, **config.engine_options}
    given: dict[str, dict[str, Any]] = {
        "sampled": {"per_sample": DRAWS, "seed": config.seed},
        "dolphin": {"outputs": benchmark.outputs},
        "scallop": {"outputs": benchmark.outputs},
    }
    if config.engine == "ised":
        given["ised"] = {"rule": _rule(benchmark), "seed": config.seed}
    try:
        return ENGINES[config.engine](**given.get(config.engine, {}) | options)
    except TypeError as error:
        asked = ", ".join(f"{name}={value!r}" for name, value in config.engine_options.items()) or "no options"
        raise InputError(f"the engine {config.engine} does not take {asked}: {error}") from error


def _rule(benchmark: Benchmark) -> Callable[..., Any]:
    if benchmark.rule is None:
        raise InputError(
            "the engine ised needs a rule to run on drawn labels, but this benchmark has none; choose another engine"
        )
    return benchmark.rule


def embeddings_of(config: RunConfig, benchmark: Benchmark) -> Tensor | None:
    """A frozen encoder's output for all samples, `(n, m, d)`; None if the encoder is trained, or nothing is pruned."""
    if clip_of(config) is None or (config.encoder == "trainable" and config.objective not in POOLED):
        return None
    encoder, samples = _encoder(config, benchmark), benchmark.samples
    if samples.in_memory:
        vectors = embed(encoder, samples.inputs)
    else:
        some = torch.split(torch.arange(len(samples)), _LOADED)
        vectors = torch.cat([embed(encoder, samples.load(ids)) for ids in some])
    return _shuffled(vectors, samples.candidates.kind, config.seed) if config.encoder == "shuffled" else vectors


def _encoder(config: RunConfig, benchmark: Benchmark) -> Encoder:
    """The encoder that the configuration names; names other than Clipper's encoders stand for the benchmark's own."""
    if config.encoder in PRETRAINED or config.encoder in WEIGHTLESS:
        return encoder_named(config.encoder, size=_ENCODER_SIZE)
    if config.encoder in OWN_NETWORKS:
        return Frozen(_LastLayer(benchmark.network if config.encoder == "untrained" else _other_network(config)))
    encoder = benchmark.encoder
    if encoder is None:
        known = ", ".join([*WEIGHTLESS, *PRETRAINED])
        raise InputError(f"the rule {config.rule} has no encoder of its own; choose one of {known}")
    return encoder


class _LastLayer(torch.nn.Module):
    """A network's embeddings, without its log-probabilities."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """`(instances, *shape)` to `(instances, d)`."""
        embedding: Tensor = self.network(inputs)[1]
        return embedding


def _other_network(config: RunConfig) -> torch.nn.Module:
    """A network like the run's, trained on the gold labels of other samples."""
    other = RunConfig(
        config.rule, config.slots, _OTHERS * config.samples, data=config.data, network=config.network,
        names=config.names, objective="gold", epochs=_OTHER_EPOCHS, batch=config.batch, seed=mixed(config.seed, 1),
        evaluate_every=_OTHER_EPOCHS, data_root=config.data_root,
    )  # fmt: skip
    benchmark = benchmark_named(config.rule)(other)
    with torch.random.fork_rng(devices=[]):
        _trained(other, benchmark)
    return benchmark.network


def _shuffled(vectors: Tensor, kind: Tensor, seed: int) -> Tensor:
    """Embeddings permuted among instances of the same kind, `(n, m, d)`: the control without information."""
    vectors, generator = vectors.clone(), torch.Generator().manual_seed(seed)
    for number in range(int(kind.max()) + 1):
        places = (kind == number).nonzero(as_tuple=True)
        order = torch.randperm(len(places[0]), generator=generator).to(vectors.device)
        vectors[places] = vectors[places][order]
    return vectors


def optimiser_of(config: RunConfig, network: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the network's weights."""
    decay = {} if config.weight_decay is None else {"weight_decay": config.weight_decay}
    return _OPTIMISERS[config.optimiser](network.parameters(), lr=config.lr, **decay)


def scheduler_of(config: RunConfig, samples: int) -> Callable[[torch.optim.Optimizer], LRScheduler] | None:
    """From the optimiser to the scheduler of its learning rate; None if that does not change."""
    if config.schedule == "constant":
        return None
    steps = config.epochs * -(-samples // config.batch)
    return lambda optimiser: OneCycleLR(
        optimiser, config.lr, total_steps=steps, cycle_momentum="betas" in optimiser.defaults
    )
