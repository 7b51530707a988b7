"""Inputs that are loaded item by item, by any number of processes, train as inputs in memory do."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from clipper import Candidates, Clipper, rules
from clipper.engines import SemanticLoss
from clipper.errors import ClipperError, InputError
from clipper.proximity import Pixels
from clipper.training import Classifiers, Packing, Samples, pad_collate, train, train_iterated
from tests.training.problems import TinyNet, problem, same_weights
from tests.training.test_kinds import Net, scenes


class Lazy(Dataset[Tensor]):
    """Items that are made when they are asked for, and counted."""

    def __init__(self, inputs: Tensor, noise: float = 0.0) -> None:
        self.inputs, self.noise, self.asked = inputs, noise, list[int]()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, number: int) -> Tensor:
        self.asked.append(number)
        return self.inputs[number] + self.noise * torch.randn(self.inputs[number].shape)


def lazy(samples: int = 20, noise: float = 0.0) -> tuple[Samples, Lazy]:
    whole = problem(samples)
    items = Lazy(whole.inputs, noise)
    return Samples(items, whole.candidates, whole.gold, whole.targets), items


def test_samples_are_a_data_set_of_inputs_and_numbers():
    whole, (samples, _) = problem(), lazy()
    assert len(samples) == 20
    for data in (whole, samples):
        inputs, number = data[7]
        assert number == 7
        assert torch.equal(inputs, whole.inputs[7])
    inputs, numbers = next(iter(DataLoader(samples, batch_size=4)))
    assert inputs.shape == (4, 2, 6)
    assert numbers.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("clip", [None, Clipper(), Clipper(encoder=Pixels())], ids=["none", "trainable", "frozen"])
def test_inputs_loaded_item_by_item_give_the_weights_of_inputs_in_memory(clip):
    samples, _ = lazy()
    networks = TinyNet(), TinyNet()
    for network, data in zip(networks, (problem(), samples), strict=True):
        train(network, data, SemanticLoss(), clip=clip, epochs=3, batch=8)
    assert same_weights(*networks)


def test_each_item_is_loaded_once_an_epoch_and_never_more_than_a_batch_ahead():
    samples, items = lazy()
    at_step: list[int] = []
    train(
        TinyNet(), samples, SemanticLoss(), clip=Clipper(), epochs=2, batch=8,
        watch=lambda progress: None if progress.ended else at_step.append(len(items.asked)),
    )  # fmt: skip
    assert at_step == [8, 16, 20, 28, 36, 40]
    assert sorted(items.asked[:20]) == sorted(items.asked[20:]) == list(range(20))


def test_a_data_set_larger_than_memory_is_never_held_as_a_whole():
    class Huge(Dataset[Tensor]):
        """Each item takes 4 MB; all of them would take 8 GB."""

        def __getitem__(self, number: int) -> Tensor:
            return torch.full((1, 1_000_000), float(number % 2))

    candidates = Candidates.from_rule(sum, targets=[n % 2 for n in range(2000)], slots=1, classes=2)
    network = torch.nn.Sequential(torch.nn.AvgPool1d(1_000_000), torch.nn.Linear(1, 2), torch.nn.LogSoftmax(-1))

    class EnoughError(Exception):
        pass

    def stop(progress: object) -> None:
        if progress.step == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        train(network, (Huge(), candidates), SemanticLoss(), epochs=1, batch=4, watch=stop)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than a small machine has cores
@pytest.mark.parametrize("noise", [0.0, 0.5], ids=["plain", "augmented"])
def test_the_number_of_workers_changes_no_bit_of_the_weights(noise):
    networks = TinyNet(), TinyNet(), TinyNet()
    for network, workers in zip(networks, (0, 1, 2), strict=True):
        samples, _ = lazy(noise=noise)
        train(network, samples, SemanticLoss(), clip=Clipper(), epochs=2, batch=8, workers=workers)
    assert same_weights(networks[0], networks[1])
    assert same_weights(networks[0], networks[2])


def test_an_augmented_run_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole, parts = TinyNet(), TinyNet()
    setting = {"epochs": 3, "batch": 8, "checkpoint_steps": 1}
    train(whole, lazy(noise=0.5)[0], SemanticLoss(), **setting)

    def pull(progress: object) -> None:
        if (progress.epoch, progress.step, progress.ended) == (2, 2, False):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(parts, lazy(noise=0.5)[0], SemanticLoss(), watch=pull, checkpoint=tmp_path / "run.pt", **setting)
    train(parts, lazy(noise=0.5)[0], SemanticLoss(), checkpoint=tmp_path / "run.pt", workers=1, **setting)
    assert same_weights(whole, parts)


def test_a_data_loader_stands_for_its_samples_workers_and_batch_size():
    samples, _ = lazy()
    networks = TinyNet(), TinyNet()
    train(networks[0], samples, SemanticLoss(), epochs=2, batch=5)
    train(networks[1], DataLoader(samples, batch_size=5, num_workers=1), SemanticLoss(), epochs=2)
    assert same_weights(*networks)


def test_a_function_of_the_number_loads_samples_too():
    data = problem()
    networks = TinyNet(), TinyNet()
    train(networks[0], data, SemanticLoss(), epochs=1)
    train(networks[1], (lambda number: data.inputs[number].numpy(), data.candidates), SemanticLoss(), epochs=1)
    assert same_weights(*networks)


def test_iterated_training_loads_item_by_item_too():
    data, (samples, _) = problem(30), lazy(30)
    networks = TinyNet(), TinyNet()
    for network, each in zip(networks, (data, samples), strict=True):
        train_iterated(network, each, SemanticLoss(), data.inputs, passes=2, still=0.0, epochs=2)
    assert same_weights(*networks)


def test_inputs_by_kind_are_packed():
    inputs, candidates, gold = scenes()
    packing = Packing.of(inputs, candidates)
    by_hand = Samples(packing.pack(inputs, candidates.kind), candidates, gold)
    assert torch.equal(Samples(inputs, candidates, gold).inputs, by_hand.inputs)
    networks = Classifiers({"name": Net(4, 5, 3), "rel": Net(6, 7, 2)}, packing)
    assert len(train(networks, (inputs, candidates), SemanticLoss(), epochs=1)) == 1


class Stream(IterableDataset[Tensor]):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (Lazy(torch.zeros(19, 2, 6)), "20 items"),
        (Stream(), "IterableDataset"),
        (lambda _: torch.zeros(3, 6), r"sample \d+ of shape \(2, \*shape\)"),
        (lambda _: 1 / 0, "division by zero"),
        (lambda _: "image", "inputs of sample"),
        (lambda number: torch.zeros(2, 6 + number), "one shape"),
    ],
    ids=["length", "stream", "slots", "failure", "text", "shapes"],
)
def test_inputs_that_do_not_fit_are_refused_in_words(inputs, words):
    with pytest.raises(InputError, match=words):
        train(TinyNet(), (inputs, problem().candidates), SemanticLoss(), epochs=1, batch=8)


@pytest.mark.slow  # torch waits five seconds for a worker that has failed
def test_what_goes_wrong_in_a_worker_is_said_too():
    with pytest.raises(InputError, match=r"loading sample \d+ failed: ZeroDivisionError"):
        train(TinyNet(), (lambda _: 1 / 0, problem().candidates), SemanticLoss(), epochs=1, batch=8, workers=1)


def test_a_data_loader_over_something_else_is_refused():
    with pytest.raises(ClipperError, match="expected Samples"):
        train(TinyNet(), DataLoader(Lazy(torch.zeros(20, 2, 6))), SemanticLoss())


def bags(samples: int = 12) -> tuple[list[Tensor], Candidates]:
    """Samples of one to three instances, of which it is known whether one is positive."""
    generator = torch.Generator().manual_seed(0)
    lengths = [1 + i % 3 for i in range(samples)]
    inputs = [torch.rand(length, 6, generator=generator) for length in lengths]
    candidates = Candidates.from_rule(rules.at_least_one(1), [i % 2 for i in range(samples)], lengths, classes=4)
    return inputs, candidates


def test_samples_of_different_lengths_train_as_if_they_were_padded_by_hand():
    inputs, candidates = bags()
    padded = torch.zeros(12, 3, 6)
    for row, own in zip(padded, inputs, strict=True):
        row[: len(own)] = own
    networks = [TinyNet() for _ in range(4)]
    data = [padded, inputs, Lazy(inputs), lambda i: inputs[i]]
    for network, given in zip(networks, data, strict=True):
        train(network, (given, candidates), SemanticLoss(), clip=Clipper(), epochs=2, batch=5)
        assert same_weights(networks[0], network)
    assert torch.equal(Samples(inputs, candidates).inputs, padded)
    assert torch.equal(Samples(Lazy(inputs), candidates)[1][0], padded[1])


def test_a_loader_of_ones_own_pads_batches_of_different_lengths():
    inputs, candidates = bags()
    loader = DataLoader(list(zip(inputs, range(12), strict=True)), 4, collate_fn=partial(pad_collate, slots=3))
    for batch, ids in loader:
        assert batch.shape == (4, 3, 6)
        for row, number in zip(batch, ids.tolist(), strict=True):
            assert torch.equal(row[: len(inputs[number])], inputs[number])
            assert not bool(row[len(inputs[number]) :].any())
        losses = SemanticLoss()(torch.zeros(4, 3, 4).log_softmax(-1), candidates.batch(ids))
        assert losses.shape == (4,)


def test_what_a_network_says_of_padding_changes_no_loss():
    _, candidates = bags()
    log_probs = torch.randn(12, 3, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    other = torch.where((candidates.kind < 0)[..., None], torch.zeros(4).log_softmax(-1), log_probs)
    assert torch.equal(SemanticLoss()(log_probs, candidates), SemanticLoss()(other, candidates))


def test_inputs_of_another_length_than_the_sample_are_refused():
    inputs, candidates = bags()
    with pytest.raises(InputError, match=r"inputs of sample 0 of shape \(3, \*shape\), or \(1, \*shape\)"):
        Samples([torch.rand(2, 6), *inputs[1:]], candidates)
    with pytest.raises(InputError, match="12 items, one for each sample, got 11"):
        Samples(inputs[1:], candidates)
    with pytest.raises(InputError, match="at most 2 slots"):
        pad_collate([(inputs[2], 2)], slots=2)
    with pytest.raises(InputError, match="one shape"):
        pad_collate([(inputs[2], 2), (torch.rand(1, 5), 3)], slots=3)
    with pytest.raises(InputError, match="pairs of inputs and a number"):
        pad_collate([inputs[0], inputs[1]], slots=3)
