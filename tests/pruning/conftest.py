"""Fixtures of tests that compare several processes with one."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the processes of the job have: sums in another order are rounded differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    gc.collect()  # what still holds the group when Python ends can make gloo abort
    dist.destroy_process_group()
