"""Which encoder a configuration names."""

from __future__ import annotations

import pytest
import torch

from clipper.benchmarks.datasets import digits
from clipper.benchmarks.parts import check_parts, embeddings_of
from clipper.benchmarks.tasks import draw
from clipper.errors import InputError
from clipper.proximity import Outlines, Pixels, embed
from clipper.training import TrainConfig

TASK = draw(digits(), "sum", samples=20, slots=2)


@pytest.mark.parametrize(
    ("name", "encoder"), [("pixels", Pixels()), ("blurred", Pixels(blur=1.0)), ("outlines", Outlines())]
)
def test_a_name_stands_for_an_encoder(name, encoder):
    vectors = embeddings_of(TrainConfig(objective="exact", encoder=name), TASK)
    assert torch.equal(vectors, embed(encoder, TASK.inputs))


def test_joint_inference_begins_with_outlines():
    assert torch.equal(embeddings_of(TrainConfig(objective="joint"), TASK), embed(Outlines(), TASK.inputs))


def test_the_control_has_the_same_vectors_in_other_places():
    vectors = embeddings_of(TrainConfig(objective="joint", encoder="shuffled"), TASK)
    straight = embed(Outlines(), TASK.inputs)
    assert not torch.equal(vectors, straight)
    assert torch.equal(*(each.flatten(0, 1).sum(1).sort().values for each in (vectors, straight)))


def test_no_vectors_for_a_trained_encoder():
    assert embeddings_of(TrainConfig(objective="exact"), TASK) is None


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(
        InputError, match=r"expected one of the encoders trainable, pixels.*outlines.*resnet18.*'alexnet'"
    ):
        check_parts(TrainConfig(objective="exact", encoder="alexnet"))
