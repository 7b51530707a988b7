"""TensorBoard: the figures of every epoch as curves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clipper.errors import require
from clipper.training.loop import Watch
from clipper.training.trainer import Progress


@contextmanager
def tensorboard(folder: str | Path) -> Iterator[Watch]:
    """Give a `watch` for `train` that writes event files into the folder.

    A run that goes on from a checkpoint adds to the curves that are there.
    """
    require("tensorboard", extra="tensorboard")
    module: Any = require("torch.utils.tensorboard", extra="tensorboard")
    writer = module.SummaryWriter(str(folder))

    def watch(moment: Progress) -> None:
        if moment.ended:
            figures = moment.metrics.as_dict()
            figures |= figures.pop("scores")
            epoch = figures.pop("epoch")
            for name in (name for name, value in figures.items() if value is not None):
                writer.add_scalar(name, figures[name], epoch)
            writer.flush()

    try:
        yield watch
    finally:
        writer.close()
