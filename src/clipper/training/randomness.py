"""Randomness that belongs to a run: dropout draws from torch's global generators, which are lent and given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def own_randomness(module: nn.Module, seed: int) -> Iterator[None]:
    """Seed the generators that the module's layers draw from; afterwards they are as they were.

    Examples:
        >>> with own_randomness(nn.Dropout(), seed=0):
        ...     first = torch.rand(3)
        >>> with own_randomness(nn.Dropout(), seed=0):
        ...     bool((torch.rand(3) == first).all())
        True
    """
    with torch.random.fork_rng(devices=_gpus(module)):
        torch.manual_seed(seed)
        yield


def random_states(module: nn.Module) -> list[Tensor]:
    """The state of the CPU's generator, then of each GPU's that the module uses."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in _gpus(module))]


def set_random_states(module: nn.Module, states: list[Tensor]) -> None:
    """The reverse of `random_states`."""
    torch.set_rng_state(states[0])
    for gpu, state in zip(_gpus(module), states[1:], strict=False):  # a run may go on without its GPU
        torch.cuda.set_rng_state(state, gpu)


def _gpus(module: nn.Module) -> list[int]:
    devices = {parameter.device for parameter in module.parameters()}
    return sorted({device.index or 0 for device in devices if device.type == "cuda"})
