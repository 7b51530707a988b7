"""Pools of real digits as people have them: image files in a folder, and a table of totals."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits


def digits(samples: int, slots: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Images `(n, m, 1, 8, 8)` as bytes, and their labels `(n, m)`."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))[: samples * slots]
    images = (data.images[order] * (255 / 16)).round().astype(np.uint8)
    return (
        torch.from_numpy(images).view(samples, slots, 1, 8, 8),
        torch.from_numpy(data.target[order]).view(samples, slots).long(),
    )


def write_receipts(folder: Path, images: torch.Tensor, targets: list[object], **columns: list[object]) -> Path:
    """`receipts.csv` with a column for each slot, `a`, `b` and so on, and PNG files in `scans`."""
    (folder / "scans").mkdir(parents=True)
    names = []
    for i, sample in enumerate(images.numpy()):
        names.append([f"{i:03d}{chr(97 + j)}.png" for j in range(len(sample))])
        for name, image in zip(names[-1], sample, strict=True):
            Image.fromarray(image[0]).save(folder / "scans" / name)
    path = folder / "receipts.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(chr(97 + j) for j in range(images.shape[1])), "target", *columns])
        writer.writerows(
            [*row, target, *rest] for row, target, *rest in zip(names, targets, *columns.values(), strict=True)
        )
    return path
