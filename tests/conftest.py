"""Settings for all tests, and the fixtures of those that compare several processes with one."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from hypothesis import settings

settings.register_profile("clipper", deadline=None)  # the first example pays for torch's lazy start
settings.register_profile("thorough", deadline=None, max_examples=1_000)  # make check
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)  # the same examples every time
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "clipper"))
os.environ["CLIPPER_OFFLINE"] = "1"  # no test downloads, except those that say so


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
