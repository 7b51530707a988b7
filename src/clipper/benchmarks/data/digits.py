"""The embedded default: scikit-learn's handwritten digits."""

from __future__ import annotations

from typing import Any

import torch

from clipper.benchmarks.data.images import Images
from clipper.errors import require


def digits() -> Images:
    """The embedded default: 1,797 handwritten digits of 8 × 8 pixels, no download.

    Examples:
        >>> digits().pixels.shape
        torch.Size([1797, 1, 8, 8])
    """
    datasets: Any = require("sklearn.datasets", extra="benchmarks")
    bunch = datasets.load_digits()
    pixels = torch.from_numpy(bunch.images / 16).float()[:, None]
    return Images("digits", pixels, torch.from_numpy(bunch.target).long(), classes=10)
