"""What pages still ask by a configuration; they will show what a run has noted instead."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor

from clipper.benchmarks import networks
from clipper.benchmarks.config import AUTO, RunConfig
from clipper.benchmarks.drawing import ImageRule
from clipper.benchmarks.mugen.task import ClipTask, Middle
from clipper.benchmarks.registry import Benchmark, benchmark_named
from clipper.benchmarks.runs import clip_of
from clipper.benchmarks.runs import embeddings_of as frozen_embeddings
from clipper.proximity import Outlines
from clipper.training import Samples

__all__ = ["clip_of", "embeddings_of", "encoder_name", "holds_lattice", "network_of", "once_of", "rule_of"]


def rule_of(name: str) -> ImageRule:
    """A rule by its name."""
    rule = getattr(importlib.import_module(f"clipper.benchmarks.{name}"), name.upper())
    assert isinstance(rule, ImageRule)
    return rule


def holds_lattice(config: RunConfig, classes: int) -> bool:
    """Whether a run learns from all candidates, and these are too many to list."""
    return not config.per_sample and rule_of(config.rule).needs_lattice(config.slots, classes)


def network_of(config: RunConfig, classes: int) -> networks.Classifier:
    """The classifier, with first weights that depend on the seed alone."""
    first = benchmark_named(config.rule).data[config.data][0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network: networks.Classifier = getattr(networks, first if config.network == AUTO else config.network)(classes)
        return network


def embeddings_of(config: RunConfig, task: Samples | ClipTask) -> Tensor | None:
    """A frozen encoder's output for all samples."""
    clips = isinstance(task, ClipTask)
    samples = Samples(task.inputs, task.candidates) if clips else task
    encoder = Middle() if clips else Outlines()
    return frozen_embeddings(config, Benchmark(samples, torch.nn.Identity(), lambda _: {}, encoder))


def encoder_name(config: RunConfig) -> str:
    """The encoder that the run prunes with; before training, the trained one is yet to come."""
    if config.objective != "joint" or config.encoder != "trainable":
        return config.encoder
    return {"align": "middle", "vqar": "features"}.get(config.rule, "outlines")


def once_of(config: RunConfig) -> bool:
    """Whether the pool is pruned as a whole before training."""
    return clip_of(config) is not None and (config.when == "once" or config.objective == "joint")
