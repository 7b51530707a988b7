"""Samples to learn from, in memory or loaded item by item, and the order in which an epoch visits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from clipper.arguments import MOST, as_tensor, shown, whole_number
from clipper.candidates import CandidateSet
from clipper.errors import InputError
from clipper.training.adapters import in_words
from clipper.training.kinds import Packing


@dataclass(frozen=True, eq=False)
class Samples(Dataset[tuple[Tensor, int]]):
    """The inputs and candidates to train on, as a `torch.utils.data.Dataset` of `(inputs, number)`.

    Attributes:
        inputs: a tensor `(n, m, *shape)`; or a `Dataset` of `n` items, or a function, that returns the inputs
            `(m, *shape)` of one sample, so that they need not fit into memory; or, if there are several kinds of
            label, a mapping from kind to tensor, which is packed (see `Packing`). Items, and tensors in a list, may
            be shorter than `m`: unused slots are padded with zeros, which no classifier sees.
        candidates: the possible labels.
        gold: the true labels `(n, m)`, for measuring only.
        targets: `(n,)`, the number of each sample's output, for engines that compare all outputs.

    Raises:
        InputError: if the arguments do not fit together.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> len(Samples(torch.rand(2, 2, 1, 8, 8), candidates))
        2
        >>> lazy = Samples(lambda i: torch.full((2, 5), float(i)), candidates)
        >>> inputs, number = lazy[1]
        >>> inputs.shape, number
        (torch.Size([2, 5]), 1)
    """

    inputs: Any
    candidates: CandidateSet
    gold: Tensor | None = None
    targets: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.candidates, CandidateSet):
            raise InputError(f"expected candidates such as clipper.Candidates, got a {type(self.candidates).__name__}")
        n, m = self.candidates.samples, self.candidates.slots
        if not n:
            raise InputError("expected at least one sample to learn from, got none")
        if isinstance(self.inputs, Mapping):
            packed = Packing.of(self.inputs, self.candidates).pack(self.inputs, self.candidates.kind)
            object.__setattr__(self, "inputs", packed)
        if isinstance(self.inputs, list | tuple) and all(isinstance(item, Tensor) for item in self.inputs):
            self._check_number(self.inputs)
            rows = [self._padded(item, number) for number, item in enumerate(self.inputs)]
            object.__setattr__(self, "inputs", stacked(rows))
        if self.in_memory:
            object.__setattr__(self, "inputs", as_tensor(self.inputs, "inputs"))
            if self.inputs.ndim < 3 or tuple(self.inputs.shape[:2]) != (n, m):
                raise InputError(
                    f"expected inputs of shape ({n}, {m}, *shape), one for each slot of the candidates' samples, "
                    f"got {tuple(self.inputs.shape)}"
                )
        elif isinstance(self.inputs, IterableDataset):
            raise InputError("expected a data set with numbered items (__getitem__), got an IterableDataset")
        elif hasattr(self.inputs, "__len__"):
            self._check_number(self.inputs)
        for name, shape in (("gold", (n, m)), ("targets", (n,))):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_tensor(getattr(self, name), name))
                if tuple(getattr(self, name).shape) != shape:
                    raise InputError(f"expected {name} of shape {shape}, got {tuple(getattr(self, name).shape)}")

    @property
    def in_memory(self) -> bool:
        """Whether the inputs are one tensor."""
        return not (isinstance(self.inputs, Dataset) or callable(self.inputs))

    def __len__(self) -> int:
        return self.candidates.samples

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        if self.in_memory:
            return self.inputs[number], number
        with in_words(f"loading sample {number}"):
            item = self.inputs[number] if isinstance(self.inputs, Dataset) else self.inputs(number)
        return self._padded(as_tensor(item, f"the inputs of sample {number}"), number), number

    def _check_number(self, items: Any) -> None:
        if len(items) != len(self):
            raise InputError(f"expected inputs of {len(self)} items, one for each sample, got {len(items)}")

    def _padded(self, inputs: Tensor, number: int) -> Tensor:
        """The inputs of a sample, filled up to all slots if they are as many as it uses."""
        slots, length = self.candidates.slots, self._lengths[number]
        if inputs.ndim < 2 or len(inputs) not in (slots, length):
            own = "" if length == slots else f", or ({length}, *shape), as many as it has,"
            raise InputError(
                f"expected the inputs of sample {number} of shape ({slots}, *shape){own} got {tuple(inputs.shape)}"
            )
        return pad_slots(inputs, slots)

    @cached_property
    def _lengths(self) -> list[int]:
        """The number of inputs of each sample: its used slots if they come first, else all slots."""
        used = self.candidates.kind >= 0
        first = (used.long().diff(dim=1) <= 0).all(1)
        lengths: list[int] = torch.where(first, used.sum(1), self.candidates.slots).tolist()
        return lengths

    def load(self, ids: Tensor) -> Tensor:
        """The inputs of some samples, `(len(ids), m, *shape)`, on the candidates' device."""
        if self.in_memory:
            inputs: Tensor = self.inputs
            return inputs[ids.to(inputs.device)]
        return self._stacked(ids.tolist()).to(self.candidates.device)

    def _stacked(self, ids: Sequence[int]) -> Tensor:
        return stacked([self[i][0] for i in ids])

    @cached_property
    def used(self) -> Tensor | None:
        """Which slots hold an instance, `(n, m)` bool; None if all do."""
        used = self.candidates.kind >= 0
        return None if bool(used.all()) else used

    def batches(self, size: int, seed: int, epoch: int) -> list[Tensor]:
        """The sample ids of each batch of an epoch. The order depends only on seed and epoch.

        Args:
            size: the number of samples in a batch.
            seed: the seed of the run.
            epoch: the epoch.
        """
        generator = torch.Generator().manual_seed(mixed(seed, epoch))
        order = torch.randperm(len(self), generator=generator).to(self.candidates.device)
        return list(torch.split(order, size))

    def subset(self, ids: Tensor) -> Samples:
        """The samples `ids`, in that order."""
        ids = ids.to(self.candidates.device)
        gold, targets = (None if values is None else values[ids] for values in (self.gold, self.targets))
        inputs = self.inputs[ids] if self.in_memory else partial(_chosen, self, ids.tolist())
        return Samples(inputs, self.candidates.batch(ids), gold, targets)

    def fingerprint(self) -> str:
        """A short text that differs between data sets, so that a checkpoint can check its data.

        Inputs that are loaded item by item are not read for this; it then depends on their candidates only.
        """
        return fingerprint(*([self.inputs] if self.in_memory else []), *self.candidates.contents)


def pad_slots(inputs: Tensor, slots: int) -> Tensor:
    """Inputs `(length, *shape)` of a sample as `(slots, *shape)`, with zeros in the slots that it does not use."""
    missing = slots - len(inputs)
    return inputs if missing <= 0 else torch.cat([inputs, inputs.new_zeros(missing, *inputs.shape[1:])])


def stacked(inputs: Sequence[Tensor]) -> Tensor:
    """The inputs of some samples as one tensor, `(n, m, *shape)`."""
    with in_words("stacking the samples of a batch, whose inputs must have one shape,"):
        return torch.stack(list(inputs))


def pad_collate(items: Sequence[tuple[Tensor, Any]], slots: int) -> tuple[Tensor, Any]:
    """Pad samples of different lengths to one batch: the `collate_fn` of a `DataLoader` of your own.

    Unused slots are filled with zeros. Candidates know which slots a sample uses, and losses ignore the others.

    Args:
        items: the items of the data set: inputs `(length, *shape)` of a sample, and its number or anything else.
        slots: the number of slots of the longest sample of *all*, `candidates.slots`.

    Returns:
        Inputs `(b, slots, *shape)`, and the rest as PyTorch collates it.

    Raises:
        InputError: if a sample has more inputs than slots, or inputs have different shapes.

    Examples:
        >>> from functools import partial
        >>> bags = [(torch.rand(2, 5), 0), (torch.rand(3, 5), 1)]  # inputs and number of each sample
        >>> loader = DataLoader(bags, batch_size=2, collate_fn=partial(pad_collate, slots=3))
        >>> inputs, ids = next(iter(loader))
        >>> inputs.shape, ids
        (torch.Size([2, 3, 5]), tensor([0, 1]))
    """
    slots = whole_number(slots, "slots", most=MOST)
    with in_words("collating items, pairs of inputs and a number,"):
        rows, others = zip(*items, strict=True)
    for row in rows:
        if not isinstance(row, Tensor) or row.ndim < 2 or len(row) > slots:
            raise InputError(f"expected inputs of at most {slots} slots, (length, *shape), got {shown(row)}")
    return stacked([pad_slots(row, slots) for row in rows]), default_collate(list(others))


def _chosen(samples: Samples, ids: list[int], number: int) -> Tensor:
    return samples[ids[number]][0]


class BatchLoader:
    """Yields the inputs of batches; worker processes load items in advance.

    Each batch has its own seed. So a data set that uses torch's random numbers, for example to augment images, gives
    the same inputs with any number of workers and after an interruption.

    Args:
        samples: the samples to load.
        workers: the number of processes that load items; 0 to load in this process. Inputs in memory use none.
    """

    def __init__(self, samples: Samples, workers: int) -> None:
        self.samples, self._order = samples, list[tuple[int, list[int]]]()
        self._loader: DataLoader[Any] | None = None
        if workers and not samples.in_memory:
            self._loader = DataLoader(
                _Seeded(samples),
                batch_size=None,
                sampler=self._order,
                num_workers=workers,
                persistent_workers=True,
                pin_memory=samples.candidates.device.type == "cuda",
                generator=torch.Generator(),  # leaves the global generator to the run
            )

    def epoch(self, batches: Sequence[Tensor], seeds: Sequence[int]) -> Iterator[Tensor]:
        """The inputs `(len(ids), m, *shape)` of each batch of `ids`, on the candidates' device."""
        if self.samples.in_memory:
            yield from map(self.samples.load, batches)
            return
        self._order[:] = [(seed, ids.tolist()) for seed, ids in zip(seeds, batches, strict=True)]
        loaded = map(_Seeded(self.samples).__getitem__, self._order) if self._loader is None else self._loader
        for inputs in loaded:
            yield inputs.to(self.samples.candidates.device, non_blocking=True)


class _Seeded(Dataset[Tensor]):
    """A data set that maps a seed and the sample numbers of a batch to the inputs of the batch."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __getitem__(self, batch: tuple[int, list[int]]) -> Tensor:
        seed, ids = batch
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.samples._stacked(ids)


def samples_of(data: Any) -> Samples:
    """`Samples`, or a tuple of inputs, candidates and optionally gold labels and targets, as `Samples`."""
    if isinstance(data, Samples):
        return data
    if not isinstance(data, tuple | list) or not 2 <= len(data) <= 4:
        raise InputError(f"expected Samples, or inputs and candidates, got {shown(data)}")
    return Samples(*data)


def mixed(*numbers: int) -> int:
    """One seed from several numbers; different numbers give different seeds for all practical sizes.

    Examples:
        >>> mixed(1, 2) != mixed(2, 1)
        True
    """
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**63
    return seed


def fingerprint(*tensors: Tensor) -> str:
    """A short hash of the tensors."""
    digest = blake2b(digest_size=8)
    for each in tensors:
        digest.update(each.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
