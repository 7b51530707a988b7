"""The demo's files: receipts of handwritten digits as images in a folder, and a table of their totals."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.errors import require
from clipper.files import make_folder, written_whole

TABLE, SCANS = "receipts.csv", "scans"
"""The name of the table, and that of the folder of images beside it."""


def write_receipts(folder: Path, config: RunConfig) -> Tensor:
    """Write the samples of a run as files: an image for each digit, and a table with the totals, not the digits.

    Args:
        folder: the folder to write to; older files of the same names are replaced.
        config: the run whose samples are written.

    Returns:
        The gold labels, `(n, m)`, which are not in the files.
    """
    pillow: Any = require("PIL.Image", extra="images")
    samples = benchmark_named(config.rule)(config).samples
    pixels = (samples.inputs[:, :, 0] * 255).round().to(torch.uint8).numpy()  # (n, m, height, width)
    make_folder(folder / SCANS)
    names = [[f"receipt-{i:03d}-{j + 1}.png" for j in range(pixels.shape[1])] for i in range(len(pixels))]
    for row, images in zip(names, pixels, strict=True):
        for name, image in zip(row, images, strict=True):
            pillow.fromarray(image).save(folder / SCANS / name)
    assert samples.gold is not None
    with written_whole(folder / TABLE, replace=True) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"digit_{j + 1}" for j in range(pixels.shape[1])), "target"])
        writer.writerows([*row, int(total)] for row, total in zip(names, samples.gold.sum(1), strict=True))
    return samples.gold
