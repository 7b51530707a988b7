"""Encoders: pixels, frozen networks, and how a pool of samples is embedded."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from clipper.errors import InputError
from clipper.proximity import Frozen, Outlines, Pixels, Preprocessing, embed


def flat_network(channels: int = 3, size: int = 8, features: int = 5) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, features), nn.Dropout(0.5))


@given(
    samples=st.integers(0, 5),
    slots=st.integers(1, 3),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    chunk=st.integers(1, 9),
)
@settings(max_examples=50, deadline=None)
def test_embedding_a_pool_equals_embedding_each_instance(samples, slots, shape, chunk):
    inputs = torch.rand(samples, slots, *shape)
    embedding = embed(Pixels(), inputs, chunk=chunk)
    assert torch.equal(embedding, inputs.flatten(2))
    assert not embedding.is_inference()


def test_embeddings_may_enter_a_loss_although_they_carry_no_gradient():
    embedding = embed(Pixels(), torch.rand(2, 2, 3))
    weight = torch.ones(3, requires_grad=True)
    (embedding @ weight).sum().backward()
    assert not embedding.requires_grad
    assert torch.allclose(weight.grad, embedding.sum((0, 1)))


def test_embed_refuses_inputs_without_slots():
    with pytest.raises(InputError, match=r"expected inputs of shape \(samples, slots.*unsqueeze"):
        embed(Pixels(), torch.rand(4, 8))


@pytest.mark.parametrize("encoder", [lambda x: x, lambda x: x.flatten(1)[:1], lambda x: (x, x)])
def test_embed_refuses_what_is_not_one_vector_per_instance(encoder):
    with pytest.raises(InputError, match="expected"):
        embed(encoder, torch.rand(2, 2, 1, 8, 8))


def test_a_network_that_returns_tensors_by_name_is_refused_with_their_names_and_shapes():
    with pytest.raises(InputError, match=r"hidden \(2, 3, 4\), pooled \(2, 4\); take one of them"):
        embed(lambda x: {"hidden": torch.rand(len(x), 3, 4), "pooled": torch.rand(len(x), 4)}, torch.rand(2, 1, 5))


def test_embed_refuses_an_empty_chunk():
    with pytest.raises(InputError, match="chunk of at least 1"):
        embed(Pixels(), torch.rand(2, 2, 3), chunk=0)


def test_a_blur_keeps_the_sum_of_a_dot_and_spreads_it_as_a_gaussian():
    image = torch.zeros(1, 1, 21, 21, dtype=torch.float64)
    image[0, 0, 10, 10] = 1
    blurred = Pixels(blur=1.5)(image).reshape(21, 21)
    offsets = torch.arange(21, dtype=torch.float64) - 10
    assert torch.isclose(blurred.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert torch.isclose((blurred.sum(0) * offsets**2).sum(), torch.tensor(2.25, dtype=torch.float64), rtol=0.01)
    assert torch.allclose(blurred, blurred.T)


def test_a_blur_treats_channels_and_instances_apart():
    images = torch.rand(3, 2, 9, 7)
    together = Pixels(blur=0.8)(images)
    apart = [[Pixels(blur=0.8)(image[None, None]).flatten() for image in channels] for channels in images]
    assert torch.allclose(together, torch.stack([torch.cat(channels) for channels in apart]), atol=1e-6)


@pytest.mark.parametrize("blur", [-1.0, float("nan"), float("inf")])
def test_a_blur_that_is_no_width_is_refused(blur):
    with pytest.raises(InputError, match="expected blur"):
        Pixels(blur=blur)


def test_blurring_what_is_no_image_is_refused():
    with pytest.raises(InputError, match="expected images"):
        Pixels(blur=1.0)(torch.rand(3, 8))


@given(seed=st.integers(0, 99), cells=st.integers(1, 8), channels=st.integers(1, 3), side=st.integers(3, 30))
@settings(max_examples=50, deadline=None)
def test_outlines_turn_with_the_image(seed, cells, channels, side):
    image = torch.rand(1, channels, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    upright, turned = (Outlines(cells)(x).view(8, cells, cells) for x in (image, image.rot90(1, (2, 3))))
    assert torch.allclose(upright.rot90(1, (1, 2)).roll(-2, 0), turned, atol=1e-6)


def test_an_edge_counts_in_its_own_direction_and_cell_only():
    image = torch.zeros(1, 1, 32, 32, dtype=torch.float64)
    image[..., 5:] = 1  # brighter to the right of column 5
    outlines = Outlines(cells=4)(image).view(8, 4, 4)
    assert outlines[0, :, 0].min() > 0.3
    assert outlines[1:].max() == 0
    assert outlines[0, :, 3].max() < 1e-3


def test_outlines_forgive_a_shift_and_another_brightness_more_than_pixels_do():
    image, other = torch.zeros(1, 1, 28, 28), torch.zeros(1, 1, 28, 28)
    image[..., 6:22, 13:16] = other[..., 13:16, 6:22] = 1  # an upright stroke and a lying one
    moved = 0.8 * image.roll(3, 3) + 0.1

    def likeness(encoder):
        return float((encoder(image) - encoder(moved)).norm() / (encoder(image) - encoder(other)).norm())

    assert likeness(Outlines()) < 0.5 < likeness(Pixels())


def test_with_colours_each_channel_has_outlines_of_its_own():
    image = torch.rand(2, 3, 30, 30, dtype=torch.float64)
    channels = torch.cat([Outlines(cells=5)(image[:, [channel]]) for channel in range(3)], dim=1)
    assert torch.allclose(Outlines(cells=5, colours=True)(image), channels)


def test_the_cells_of_a_wide_image_are_square():
    tall = torch.rand(1, 1, 40, 20, dtype=torch.float64)
    outlines = Outlines(cells=4)(tall).view(8, 8, 4)
    turned = Outlines(cells=4)(tall.rot90(1, (2, 3))).view(8, 4, 8)
    assert torch.allclose(outlines.rot90(1, (1, 2)).roll(-2, 0), turned, atol=1e-9)


@pytest.mark.parametrize(("cells", "directions"), [(0, 8), (7, 2)])
def test_outlines_without_cells_or_directions_are_refused(cells, directions):
    with pytest.raises(InputError, match=r"expected (cells|directions) of at least"):
        Outlines(cells, directions)


def test_outlines_of_what_is_no_image_are_refused():
    with pytest.raises(InputError, match=r"expected images.*outlines are those of images"):
        Outlines()(torch.rand(3, 8))


@pytest.mark.parametrize("encoder", [Pixels(), Outlines(), Frozen(flat_network())])
def test_bytes_are_refused_with_a_remedy(encoder):
    with pytest.raises(InputError, match="inputs / 255"):
        encoder(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))


def test_a_frozen_network_evaluates_without_gradients_and_returns_to_its_own_mode():
    network = flat_network()
    network[0].eval()
    inputs = torch.rand(10, 3, 8, 8, requires_grad=True)
    embedding = Frozen(network, chunk=3)(inputs)
    assert torch.allclose(embedding, network[:2](inputs), atol=1e-6)  # no dropout
    assert not embedding.requires_grad
    assert [part.training for part in network] == [False, True, True]
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_a_frozen_network_returns_to_its_mode_even_when_it_fails():
    network = flat_network()
    with pytest.raises(RuntimeError):
        Frozen(network)(torch.rand(2, 3, 9, 9))
    assert network.training


def test_any_callable_can_be_frozen():
    assert Frozen(lambda inputs: inputs.mean((2, 3)))(torch.rand(4, 3, 8, 8)).shape == (4, 3)


def test_a_frozen_network_of_another_precision_returns_the_callers():
    inputs = torch.rand(4, 3, 8, 8)
    assert Frozen(flat_network().double())(inputs).dtype == torch.float32


def test_a_frozen_network_names_the_shape_it_should_have_returned():
    with pytest.raises(InputError, match=r"expected embeddings of shape \(4, d\).*pool"):
        Frozen(nn.Conv2d(3, 5, 3))(torch.rand(4, 3, 8, 8))


def test_preprocessing_repeats_grey_resizes_and_normalises():
    grey = torch.rand(2, 1, 28, 28)
    images = Preprocessing(size=56, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))(grey)
    assert images.shape == (2, 3, 56, 56)
    assert torch.allclose(images[:, 0] * 0.1 + 0.5, images[:, 2] * 0.3 + 0.3, atol=1e-6)
    assert torch.allclose(images[:, 1].mean() * 0.2 + 0.4, grey.mean(), atol=0.01)


def test_preprocessing_undoes_the_normalisation_of_the_data_set():
    images = torch.rand(2, 1, 8, 8)
    expected = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3)
    undoing = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, input_mean=(0.1307,), input_std=(0.3081,))
    assert torch.allclose(undoing((images - 0.1307) / 0.3081), expected(images), atol=1e-5)


def test_preprocessing_averages_what_it_shrinks():
    stripes = torch.tensor([0.0, 1.0]).repeat(32).expand(1, 1, 64, 64)
    assert float((Preprocessing(size=8)(stripes) - 0.5).abs().max()) < 0.1


@pytest.mark.parametrize("scale", [255.0, 3.0, -1.0, float("nan")])
def test_preprocessing_refuses_pixels_that_are_not_from_zero_to_one(scale):
    with pytest.raises(InputError, match=r"pixels from 0 to 1.*input_mean"):
        Preprocessing(mean=(0.5,), std=(0.5,))(torch.linspace(0, 1, 16).view(1, 1, 4, 4) * scale)


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"mean": (0.5,) * 3, "std": (0.5,) * 3}, (1, 2, 8, 8)),
        ({"input_mean": (0.5,) * 3, "input_std": (0.5,) * 3}, (1, 1, 8, 8)),
        ({"size": 8}, (1, 64)),
    ],
)
def test_preprocessing_refuses_images_of_another_shape(settings, shape):
    with pytest.raises(InputError, match="expected images"):
        Preprocessing(**settings)(torch.rand(shape))


@pytest.mark.parametrize("settings", [{"size": 0}, {"mean": (0.5,)}, {"mean": (0.5,), "std": (0.0,)}])
def test_preprocessing_refuses_settings_that_make_no_sense(settings):
    with pytest.raises(InputError, match="expected a"):
        Preprocessing(**settings)
