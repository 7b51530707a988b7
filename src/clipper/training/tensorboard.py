"""TensorBoard: the metrics of every epoch as curves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clipper.errors import require
from clipper.training.loop import Callback, Progress


@contextmanager
def tensorboard(folder: str | Path) -> Iterator[Callback]:
    """A callback for `train` that writes TensorBoard event files into a folder.

    A run that continues from a checkpoint adds to the existing curves.

    Args:
        folder: the folder to write to.
    """
    require("tensorboard", extra="tensorboard")
    module: Any = require("torch.utils.tensorboard", extra="tensorboard")
    writer = module.SummaryWriter(str(folder))

    def log(progress: Progress) -> None:
        if progress.ended:
            numbers = progress.metrics.as_dict()
            numbers |= numbers.pop("scores")
            epoch = numbers.pop("epoch")
            for name in (name for name, value in numbers.items() if value is not None):
                writer.add_scalar(name, numbers[name], epoch)
            writer.flush()

    try:
        yield log
    finally:
        writer.close()
