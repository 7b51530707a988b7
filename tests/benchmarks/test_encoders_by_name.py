"""Which encoder a configuration names."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import embeddings_of, run
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


def near_share(vectors: torch.Tensor, gold: torch.Tensor) -> float:
    """The share of instances whose nearest one of another sample has the same label, by brute force."""
    n, m = gold.shape
    distances = torch.cdist(*[vectors.flatten(0, 1).double()] * 2)
    sample = torch.arange(n).repeat_interleave(m)
    distances[sample[:, None] == sample] = torch.inf
    return float((gold.flatten() == gold.flatten()[distances.argmin(1)]).double().mean())


@pytest.mark.parametrize("encoder", ["untrained", "outlines"])
def test_a_run_records_how_often_the_nearest_neighbour_has_the_same_label(encoder):
    config = RunConfig(samples=20, slots=2, epochs=1, objective="exact", encoder=encoder, when="once")
    benchmark = benchmark_named("sum")(config)
    vectors = embeddings_of(config, benchmark)
    found = run(config).last.scores["near"]
    assert found == pytest.approx(near_share(vectors, benchmark.samples.gold))


def test_an_untrained_encoder_has_the_first_weights_and_a_trained_one_has_learned_from_other_samples():
    config = RunConfig(samples=50, slots=2, epochs=1, objective="exact", encoder="untrained", when="once")
    benchmark = benchmark_named("sum")(config)
    before = [weights.clone() for weights in benchmark.network.parameters()]
    shares = {
        name: near_share(embeddings_of(replace(config, encoder=name), benchmark), benchmark.samples.gold)
        for name in ("untrained", "trained")
    }
    assert all(torch.equal(*pair) for pair in zip(before, benchmark.network.parameters(), strict=True))
    assert shares["trained"] > shares["untrained"]


def test_a_record_names_the_network_that_was_the_encoder():
    record = run(RunConfig(samples=10, slots=2, epochs=1, objective="exact", encoder="untrained", when="once"))
    assert record.settings["encoder"] == "untrained DigitsMlp"
