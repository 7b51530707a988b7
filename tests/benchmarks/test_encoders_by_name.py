"""Which encoder a configuration names."""

from __future__ import annotations

import pytest
import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import embeddings_of
from clipper.errors import InputError
from clipper.proximity import Outlines, Pixels, embed

BENCHMARK = benchmark_named("sum")(RunConfig(samples=20, slots=2))


@pytest.mark.parametrize(
    ("name", "encoder"), [("pixels", Pixels()), ("blurred", Pixels(blur=1.0)), ("outlines", Outlines())]
)
def test_a_name_stands_for_an_encoder(name, encoder):
    vectors = embeddings_of(RunConfig(objective="exact", encoder=name), BENCHMARK)
    assert torch.equal(vectors, embed(encoder, BENCHMARK.samples.inputs))


def test_joint_inference_begins_with_outlines():
    assert torch.equal(
        embeddings_of(RunConfig(objective="joint"), BENCHMARK), embed(Outlines(), BENCHMARK.samples.inputs)
    )


def test_the_control_has_the_same_vectors_in_other_places():
    vectors = embeddings_of(RunConfig(objective="joint", encoder="shuffled"), BENCHMARK)
    straight = embed(Outlines(), BENCHMARK.samples.inputs)
    assert not torch.equal(vectors, straight)
    assert torch.equal(*(each.flatten(0, 1).sum(1).sort().values for each in (vectors, straight)))


def test_no_vectors_for_a_trained_encoder():
    assert embeddings_of(RunConfig(objective="exact"), BENCHMARK) is None


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(
        InputError, match=r"expected one of the encoders trainable, auto, pixels.*outlines.*resnet18.*'alexnet'"
    ):
        benchmark_named("sum").check(RunConfig(objective="exact", encoder="alexnet"))
