"""The tasks of the race, and the file that all contestants read: inputs, targets, initial weights, held-out images."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clipper.arguments import named_like
from clipper.benchmarks import networks
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.sum import SUM_RULE
from clipper.files import written_whole

CLASSES = 10
NETWORKS = {"digits": "DigitsCnn", "mnist": "MnistCnn"}
"""The network that all contestants train, by data set."""


@dataclass(frozen=True)
class Task:
    """A task of the race.

    Attributes:
        name: its name on the command line.
        title: its name on pages.
        data: the data set.
        slots: digits of a sample; only their sum is known.
        samples: how many sums there are to learn from.
        seconds: the time limit of each run.
    """

    name: str
    title: str
    data: str
    slots: int
    samples: int
    seconds: float

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that determine the result of a run, apart from the contestant and the seed."""
        return {"data": self.data, "slots": self.slots, "samples": self.samples, "network": NETWORKS[self.data]}


TASKS = (
    Task("sum-2/mnist/100", "SUM-2, 100 samples", "mnist", 2, 100, 30),
    Task("sum-3/mnist/100", "SUM-3, 100 samples", "mnist", 3, 100, 30),
    Task("sum-2/mnist/1000", "SUM-2, 1,000 samples", "mnist", 2, 1_000, 60),
    Task("sum-3/mnist/1000", "SUM-3, 1,000 samples", "mnist", 3, 1_000, 60),
    Task("add-1/mnist/3000", "MNIST-Add, N = 1, 3,000 pairs", "mnist", 2, 3_000, 120),
    Task("sum-2/digits/100", "SUM-2, 100 samples of the embedded digits", "digits", 2, 100, 20),
    Task("sum-3/digits/100", "SUM-3, 100 samples of the embedded digits", "digits", 3, 100, 20),
)


def tasks_like(patterns: list[str], data: str) -> list[Task]:
    """The tasks whose names match one of the patterns; without a pattern, all of a data set.

    Raises:
        InputError: if nothing matches a pattern.

    Examples:
        >>> [task.name for task in tasks_like(["sum-2/*/100"], data="mnist")]
        ['sum-2/mnist/100', 'sum-2/digits/100']
        >>> [task.name for task in tasks_like([], data="digits")]
        ['sum-2/digits/100', 'sum-3/digits/100']
    """
    known = {task.name: task for task in TASKS if patterns or task.data == data}
    return named_like(patterns, known, "a task, or a pattern", f"the tasks are {', '.join(known)}")


def write_task(task: Task, seed: int, path: Path, data_root: Path | None = None) -> str:
    """Write the file that every contestant reads. It holds no gold labels except those of the held-out images.

    Args:
        task: the task.
        seed: of the samples and of the initial weights.
        path: of the file, an `.npz`.
        data_root: the folder with the data sets; the usual folders if not given.

    Returns:
        A checksum of its content.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     checksum = write_task(TASKS[-1], 0, Path(folder) / "task.npz")
        ...     sorted(np.load(Path(folder) / "task.npz"))[:4]
        ['held_out', 'held_out_labels', 'inputs', 'targets']
    """
    images, held_out = train_and_test(task.data, data_root)
    if task.data == "mnist":  # every second of 10,000, to save time; the first half would be easier
        held_out = held_out.part(torch.arange(0, len(held_out), 2))
    samples = draw(images, SUM_RULE, task.samples, task.slots, seed)
    torch.manual_seed(seed)
    network = getattr(networks, NETWORKS[task.data])(CLASSES)
    assert samples.targets is not None
    arrays = {
        "inputs": samples.inputs.numpy(),
        "targets": samples.targets.numpy(),
        "held_out": held_out.pixels.numpy(),
        "held_out_labels": held_out.labels.numpy(),
        **{f"weights/{name}": value.numpy() for name, value in network.state_dict().items()},
    }
    with written_whole(path, replace=True) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    checksum = blake2b(digest_size=8)
    for name, array in arrays.items():
        checksum.update(f"{name} {array.dtype} {array.shape}".encode())
        checksum.update(np.ascontiguousarray(array).data)
    return checksum.hexdigest()
