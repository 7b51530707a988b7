"""Samples to learn from, and the order in which an epoch visits them. Knows no network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

import torch
from torch import Tensor

from clipper.arguments import as_tensor
from clipper.candidates import CandidateSet
from clipper.errors import InputError


class SampleSource(Protocol):
    """Anything with inputs and candidates; `gold (n, m)` and `targets (n,)` are used where it has them."""

    @property
    def inputs(self) -> Tensor:
        """`(n, m, *shape)`"""

    @property
    def candidates(self) -> CandidateSet:
        """What the labels could be."""


@dataclass(frozen=True, eq=False)
class Samples:
    """What a run learns from.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> samples = samples_of((torch.rand(2, 2, 1, 8, 8), candidates))
        >>> len(samples)
        2
    """

    inputs: Tensor
    """`(n, m, *shape)`"""
    candidates: CandidateSet
    """Listed, or a lattice."""
    gold: Tensor | None = None
    """`(n, m)`, for measuring only."""
    targets: Tensor | None = None
    """`(n,)`: each sample's place among the outputs of an engine that has outputs."""

    def __post_init__(self) -> None:
        if not isinstance(self.candidates, CandidateSet):
            raise InputError(f"expected candidates such as clipper.Candidates, got a {type(self.candidates).__name__}")
        for name in ("inputs", "gold", "targets"):
            if name == "inputs" or getattr(self, name) is not None:
                object.__setattr__(self, name, as_tensor(getattr(self, name), name))
        n, m = self.candidates.samples, self.candidates.slots
        if not n:
            raise InputError("expected at least one sample to learn from, got none")
        if self.inputs.ndim < 3 or tuple(self.inputs.shape[:2]) != (n, m):
            raise InputError(
                f"expected inputs of shape ({n}, {m}, *shape), one for each slot of the candidates' samples, "
                f"got {tuple(self.inputs.shape)}"
            )
        if self.gold is not None and tuple(self.gold.shape) != (n, m):
            raise InputError(f"expected gold of shape ({n}, {m}), got {tuple(self.gold.shape)}")
        if self.targets is not None and tuple(self.targets.shape) != (n,):
            raise InputError(f"expected targets of shape ({n},), got {tuple(self.targets.shape)}")

    def __len__(self) -> int:
        return self.candidates.samples

    @cached_property
    def used(self) -> Tensor | None:
        """Which slots hold an instance, `(n, m)` bool; None if all do."""
        used = self.candidates.kind >= 0
        return None if bool(used.all()) else used

    def batches(self, size: int, seed: int, epoch: int) -> list[Tensor]:
        """The sample ids of each batch of an epoch; the order is a function of seed and epoch alone."""
        generator = torch.Generator().manual_seed(mixed(seed, epoch))
        order = torch.randperm(len(self), generator=generator).to(self.candidates.device)
        return list(torch.split(order, size))

    def subset(self, ids: Tensor) -> Samples:
        """The samples `ids`, in that order."""
        ids = ids.to(self.candidates.device)
        gold, targets = (None if values is None else values[ids] for values in (self.gold, self.targets))
        return Samples(self.inputs[ids], self.candidates.batch(ids), gold, targets)

    def fingerprint(self) -> str:
        """A few letters that differ where inputs or candidates do, so that a checkpoint knows its data."""
        return fingerprint(self.inputs, *self.candidates.contents)


def samples_of(data: SampleSource | tuple[Tensor, CandidateSet] | Samples) -> Samples:
    """Samples from a task, or from inputs and candidates."""
    if isinstance(data, Samples):
        return data
    if isinstance(data, tuple | list):
        if not 2 <= len(data) <= 4:
            raise InputError(f"expected inputs and candidates, got {len(data)} things")
        return Samples(*data)
    if not (hasattr(data, "inputs") and hasattr(data, "candidates")):
        raise InputError(f"expected a task, or inputs and candidates, got a {type(data).__name__}")
    extra: dict[str, Any] = {name: getattr(data, name, None) for name in ("gold", "targets")}
    return Samples(data.inputs, data.candidates, **extra)


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
    """A few letters that differ where the tensors do."""
    digest = blake2b(digest_size=8)
    for each in tensors:
        digest.update(each.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
